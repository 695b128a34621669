"""holdfast trace: the chain of custody around an id, in the order it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.moments import for_people, for_programs
from holdfast.cli.opening import reading
from holdfast.cli.papers import worst_step
from holdfast.cli.screen import shown
from holdfast.cli.transcript import told_good, unmet_in
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, unverified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.tracing import Lineage, Link
    from holdfast.model.canonical import Json


@verb(name="trace")
@click.argument("id")
def command(face: Face, id: str) -> None:
    """Walk from any ID to simulation, decision, answers and executions, proven by the ledger; each says of which plan.

    A unique beginning of an ID is enough; a task of the newest run may be named by its number, an execution by its
    commit. From a run or a task:
    its own moves, and everything that it landed. From an execution: its lineage too.
    """
    screen = face.screen
    with reading(face) as hf:
        _, links, line = hf.trace(id)
        doubts = hf.unverified(*(link.at_ns for link in links if link.kind == "execution"))
    told = {"lineage": _lineage(line)} if line is not None else {}
    screen.answer({"kind": "list", "items": [_document(link, doubts) for link in links], **told})
    for link in links:
        screen.say(f"{for_people(link.at_ns)}  {link.kind:<10} {link.id:<14} {_told(link, doubts)}")
    if not links:
        screen.say("The ledger holds nothing about it yet.")
    if line is not None:
        kin = (("Came from", line.ancestors), ("Led to", line.descendants), ("Beside", line.siblings))
        for word, ids in kin:
            if ids:
                screen.say(f"{word:<10} {', '.join(ids)}")


def _lineage(line: Lineage) -> dict[str, object]:
    return {
        "correlation_id": line.correlation,
        "parent_execution": line.parent or None,
        "trigger_kind": line.trigger,
        "run_id": line.run or None,
        "ancestors": list(line.ancestors),
        "descendants": list(line.descendants),
        "siblings": list(line.siblings),
    }


def _told(link: Link, doubts: Mapping[str, str]) -> str:
    doubt = doubts.get(link.id, "") or str(link.body.get("unverified", "") if link.kind == "task" else "")
    return ", ".join(filter(None, (_words(link.kind, link.body), unverified(doubt))))


def _document(link: Link, doubts: Mapping[str, str]) -> dict[str, object]:
    told = {"unverified": doubts.get(link.id, "")} if link.kind == "execution" else {}
    at = for_programs(link.at_ns)
    return {"kind": link.kind, "id": link.id, "at": at, "seq": link.seq, **told, "body": link.body}


def _words(kind: str, body: Mapping[str, Json]) -> str:
    if kind == "run":
        return f"{body['state']}, {shown(str(body['roadmap']))}"
    if kind == "task":
        landed = f", landed as {body['execution']}" if body.get("execution") else ""
        return f"{body['state']} in {body['run']}{landed}"
    if kind == "simulation":
        return f"{body['status']} of {body['subject']}, {_steps(body)}, {worst_step(body)}"
    if kind == "decision":
        reasons = body["reasons"]
        told = len(reasons) if isinstance(reasons, list) else 0
        return f"{body['verdict']} of {body['subject']}, risk {body['risk_effective']}, {count(told, 'reason')}"
    if kind == "approval":
        return f"{body['answer']} of {body['subject']} by {shown(str(body['by']))}"
    if kind == "refusal":
        return f"refused: {_one_line(body['reason'])}"
    if kind in ("delegation", "fix"):
        return _work(kind, body)
    changes = body["changes"]
    moved = count(changes if isinstance(changes, int) else 0, "change")
    return f"{body['status']} of {body['plan_id']}, {moved}, {_one_line(body['intent'])}"


def _work(kind: str, body: Mapping[str, Json]) -> str:
    """What an agent made of a task, as measured."""
    good = "good" if body["good"] else "not good"
    if kind == "fix":
        why = f": {_one_line(body['why_not'])}" if body.get("why_not") else ""
        return f"{good}, attempt {body['attempt']} by {shown(str(body['agent']))} at {body['category']}{why}"
    from holdfast.engine.transcript import last_measured

    attempts = body["attempts"]
    tries = count(len(attempts) if isinstance(attempts, list) else 0, "round")
    told = told_good(bool(body["good"]), unmet_in(last_measured(body)))
    return f"{told}, by {shown(str(body['agent']))} in {tries}"


def _steps(body: Mapping[str, Json]) -> str:
    steps = body["steps"]
    return count(steps if isinstance(steps, int) else 0, "step")


def _one_line(text: Json) -> str:
    """All of it: a refusal names every path, one a line."""
    return shown("; ".join(line.strip() for line in str(text).splitlines() if line.strip()))
