"""Simulations, decisions and approvals as the records have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.checks_told import how_it_went
from holdfast.cli.documents import change_document, simulated_step_document
from holdfast.cli.moments import for_people, for_programs
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import left_out, summary
from holdfast.cli.words import count
from holdfast.errors import UnknownId

if TYPE_CHECKING:
    from holdfast.model.canonical import Json
    from holdfast.model.simulation import Simulation
    from holdfast.store.database import Paper, Table
    from holdfast.wiring import Holdfast


_MOST_STEPS = 20


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
    report = kept.report
    receipts = [receipt._asdict() for receipt in report.receipts]
    more: dict[str, object] = {"changes": documents, "receipts": receipts}
    if screen.form != "text":
        more["report"] = {**report.document(), "steps": [simulated_step_document(step) for step in report.steps]}
    show_paper(screen, "simulations", paper, more, how_it_went(report.status, report.receipts))
    _tell_steps(screen, report)
    for line in what_is_in_the_way(report):
        screen.say(line)
    if receipts:
        screen.say(f"Checks     {count(len(receipts), 'check')}; what they said: holdfast show {paper.id} --log")
    tell_outcomes(screen, receipts)
    if screen.form == "text":
        screen.say(f"Changes    {count(len(changes), 'path')}; line by line: holdfast diff {paper.id}")
        for line in summary(PlannedDifference(hf.site, changes, kept.sources, kept.plan.notes)):
            screen.say(line)
        if report.by_products:
            screen.say(f"  . {left_out([item.path for item in report.by_products])}")


def _tell_steps(screen: Screen, report: Simulation) -> None:
    """Each step as the rehearsal found it: what it would do, how it goes back, how it can fail, what is asked."""
    for step in report.steps[:_MOST_STEPS] if screen.form == "text" else ():
        mark = {"met": "✓", "unmet": "✗"}.get(step.precondition, "?")
        first, *_ = (step.predicted_change or step.detail).splitlines() or [""]
        screen.say(
            f"  {mark} {step.step_id}  {step.operation} {shown(step.target)}: {shown(first)}  {step.risk.lower()}"
        )
        screen.say(f"      way back: {step.rollback.capability.lower()}, {shown(step.rollback.procedure)}")
        if step.ways_to_fail:
            screen.say(f"      can fail: {shown(', '.join(step.ways_to_fail))}")
        if step.confirmations:
            screen.say(f"      asks for: {shown(', '.join(step.confirmations))}")
    if screen.form == "text" and len(report.steps) > _MOST_STEPS:
        screen.say(f"  and {len(report.steps) - _MOST_STEPS:,} more steps: holdfast show {report.id} --json")


def what_is_in_the_way(report: Simulation) -> list[str]:
    """Why a simulation cannot land: the steps that could not be done, and what must not land."""
    steps = [step for step in report.steps if step.precondition == "unmet"] if report.status == "BLOCKED" else []
    said = [f"{step.step_id} ({step.operation}): {step.detail}" for step in steps]
    return [line for each in (*said, *report.dangers) for line in _crossed(each)]


def _crossed(said: str) -> list[str]:
    """What a command said stands on lines of its own below why its step could not be done."""
    first, *more = said.split("\n")
    return [f"  ✗ {shown(first)}", *(f"    {shown(line)}" for line in more)]


def tell_outcomes(screen: Screen, receipts: Sequence[Mapping[str, Any]]) -> None:
    """One line a check, and what came of it."""
    for receipt in receipts:
        screen.say(f"  {'✓' if receipt['passed'] else '✗'} {shown(receipt['detail'])}")


def show_logs(screen: Screen, hf: Holdfast, id: str, status: str, receipts: Sequence[Mapping[str, Any]]) -> None:
    """What each check said, as long as that is kept."""
    from holdfast.store.blobs import Blobs

    told = []
    for receipt in receipts:
        try:
            text = Blobs(hf.site.state).get(receipt["log_digest"]).decode("utf-8", "backslashreplace")
        except FileNotFoundError:
            text = "(no longer kept)"
        told.append({**receipt, "log": text})
        screen.say(screen.style(shown(receipt["detail"]), "bold"))
        for line in text.rstrip("\n").split("\n"):
            screen.say("  " + shown(line))
    screen.answer({"kind": "logs", "id": id, "status": status, "receipts": told})
    if not receipts:
        screen.say(f"{id} ran no checks.")


def show_logs_of_simulation(screen: Screen, hf: Holdfast, id: str) -> None:
    """UnknownId when it is no longer kept."""
    from holdfast.engine.saving import load_simulation

    report = load_simulation(hf.site, id).report
    show_logs(screen, hf, id, report.status, [receipt._asdict() for receipt in report.receipts])


def show_paper(
    screen: Screen, table: Table, paper: Paper, more: Mapping[str, object] | None = None, in_words: str = ""
) -> None:
    """`in_words`: how it ended, for people, where that is more than its status."""
    body = paper.document
    kind, status = table[:-1], str(body.get("status") or body.get("verdict") or body.get("answer", ""))
    about: dict[str, object] = {"plan_id": paper.subject} if table == "simulations" else {}
    about |= more or {}
    screen.answer({**body, **about, "kind": kind, "id": paper.id, "status": status, "at": for_programs(paper.at_ns)})
    screen.say(f"{paper.id}  {in_words or status}  {for_people(paper.at_ns)}  about {paper.subject}")
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


def show_entry(screen: Screen, hf: Holdfast, id: str) -> None:
    """A fix or a refusal, which only the ledger has."""
    from holdfast.engine.tracing import entry_of

    entry = entry_of(hf.ledger, id)
    if entry is None:
        raise UnknownId(f"there is nothing called {id}")
    body = entry.body
    status = ("GOOD" if not body.get("why_not") else "NOT_GOOD") if entry.kind == "fix" else "REFUSED"
    screen.answer({**body, "kind": entry.kind, "id": id, "status": status, "at": for_programs(entry.at_ns)})
    about = body.get("subject") or body.get("simulation", "")
    screen.say(f"{id}  {entry.kind}  {status}  {for_people(entry.at_ns)}  about {shown(str(about))}")
    for name, value in body.items():
        if name not in ("id", "subject", "simulation", "version") and value not in ("", None, [], {}):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            for number, line in enumerate(text.splitlines()):
                screen.say(f"  {name.replace('_', ' ') if not number else '':<16} {shown(line)}")
