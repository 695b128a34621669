"""Simulations, decisions and approvals as the records have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.cli.documents import change_document
from holdfast.cli.moments import for_people, for_programs
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import summary
from holdfast.cli.words import count
from holdfast.errors import UnknownId

if TYPE_CHECKING:
    from holdfast.model.canonical import Json
    from holdfast.store.database import Paper, Table
    from holdfast.wiring import Holdfast


def show_simulation(screen: Screen, hf: Holdfast, paper: Paper) -> None:
    """With the paths it would change, as long as it is kept."""
    from holdfast.engine.difference import PlannedDifference
    from holdfast.engine.saving import load_simulation

    try:
        kept = load_simulation(hf.site, paper.id)
    except UnknownId:
        show_paper(screen, "simulations", paper)
        screen.say("Changes    no longer kept")
        return
    changes = kept.change_set.changes
    documents = [change_document(change) for change in changes] if screen.form != "text" else []
    show_paper(screen, "simulations", paper, {"changes": documents})
    if screen.form == "text":
        screen.say(f"Changes    {count(len(changes), 'path')}; line by line: holdfast diff {paper.id}")
        for line in summary(PlannedDifference(hf.site, changes, kept.sources)):
            screen.say(line)


def show_paper(screen: Screen, table: Table, paper: Paper, more: Mapping[str, object] | None = None) -> None:
    body = paper.document
    kind, status = table[:-1], str(body.get("status") or body.get("verdict") or body.get("answer", ""))
    about: dict[str, object] = {"plan_id": paper.subject} if table == "simulations" else {}
    about |= more or {}
    screen.answer({**body, **about, "kind": kind, "id": paper.id, "status": status, "at": for_programs(paper.at_ns)})
    screen.say(f"{paper.id}  {status}  {for_people(paper.at_ns)}  about {paper.subject}")
    {"simulations": _simulation, "decisions": _decision, "approvals": _approval}[table](screen, body)


def worst_step(body: Mapping[str, Json]) -> str:
    """How much the rehearsal found in a step's way back; the risk of a change is the gate's word, on another scale."""
    return f"the worst of them {str(body['risk']).lower()}"


def _simulation(screen: Screen, body: Mapping[str, Json]) -> None:
    screen.say(f"By         {shown(str(body.get('by', '')))}")
    screen.say(f"Steps      {body['steps']}, {worst_step(body)}")
    screen.say(f"Tree       {str(body['base_tree'])[:16]}… becomes {str(body['predicted_tree'])[:16]}…")
    enforced = body.get("enforced")
    for line in enforced if isinstance(enforced, list) else ():
        screen.say(f"Enforced   {shown(str(line))}")


def _decision(screen: Screen, body: Mapping[str, Json]) -> None:
    screen.say(f"Risk       {body['risk_effective']} (proposed: {body['risk_proposed']})")
    screen.say(f"Policy     {str(body['policy'])[:16]}…, gate version {body['gate_version']}")
    reasons = body["reasons"]
    for reason in reasons if isinstance(reasons, list) else ():
        if isinstance(reason, dict):
            screen.say(f"  {reason['verdict']}: {shown(str(reason['rule']))} {shown(str(reason['detail']))}".rstrip())


def _approval(screen: Screen, body: Mapping[str, Json]) -> None:
    screen.say(f"By         {shown(str(body['by']))}, key {str(body['key'])[:16]}…")
    expires = body["expires_ns"]
    screen.say(f"Until      {for_people(expires if isinstance(expires, int) else 0)}, once")
    if body.get("reason"):
        screen.say(f"Reason     {shown(str(body['reason']))}")
