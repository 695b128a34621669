"""holdfast show: one execution, plan or paper, with all that is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.documents import execution_document, list_document, row_document
from holdfast.cli.moments import for_people
from holdfast.cli.opening import reading
from holdfast.cli.papers import (
    show_entry,
    show_logs,
    show_logs_of_simulation,
    show_paper,
    show_simulation,
    tell_outcomes,
)
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import note_lines
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, duration, state, unverified
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.check import subject
from holdfast.model.path import printable
from holdfast.model.saved_plan import health_from, step_from, verify_from
from holdfast.store.database import Row, Table
from holdfast.wiring import Holdfast

if TYPE_CHECKING:
    from holdfast.cli.task_shown import TaskAsked
    from holdfast.model.plan import HealthCheck, VerifyCheck
    from holdfast.store.chain import Entry

_MOST_STEPS = 20
_LOGS = "only simulations and executions have logs"
_PAPERS: dict[str, Table] = {"d-": "decisions", "a-": "approvals"}
_WITH_LOGS = ("s-", "e-")
_KINDS = {
    "p-": "a plan", "d-": "a decision", "a-": "an approval", "x-": "a patch", "u-": "a run", "g-": "an agent's work",
    "i-": "an intent", "f-": "a fix", "r-": "a refusal",
}  # fmt: skip


@verb(name="show")
@click.argument("id")
@click.option("--log", "logs", is_flag=True, help="Print what the checks said.")
@click.option("--transcript", is_flag=True, help="Print what agents were told, said and did for it.")
@click.option("--all", "everything", is_flag=True, help="With --transcript: all of it, and what the model was asked.")
def command(face: Face, id: str, logs: bool, transcript: bool, everything: bool) -> None:
    """Show whatever has an ID: an execution, a plan, a simulation, a decision, an approval, a run, a task, the work of
    an agent, a fix, a refusal, a patch or an intent.

    A unique beginning of its ID is enough; a task of the newest run may also be named by its number, and an execution
    by the commit that was made of it.
    """
    if everything and not transcript:
        raise InvalidInput("--all belongs to --transcript", hint=f"See: holdfast show {printable(id)} --transcript")
    if logs and transcript:
        raise InvalidInput("--log and --transcript are two questions", hint="Ask them one after the other.")
    with reading(face) as hf:
        found, task = _resolved(hf, id)
        if logs and (task is not None or found[:2] not in _WITH_LOGS):
            raise InvalidInput(f"{found} is {_KINDS.get(found[:2], 'a task')}; {_LOGS}")
        if transcript:
            from holdfast.cli.transcript import show_transcript

            show_transcript(face.screen, hf, found, id, _about(task), everything=everything)
        elif task is not None:
            from holdfast.cli.task_shown import show_task

            show_task(face.screen, *task, _agents_work(hf, found))
        else:
            _show(face.screen, hf, found, logs=logs)


def _resolved(hf: Holdfast, id: str) -> tuple[str, TaskAsked | None]:
    """Its whole id; and the task, if it is one that the newest run knows."""
    from holdfast.cli.task_shown import task_asked

    try:
        return hf.resolve(id), None
    except UnknownId:
        asked = task_asked(hf, id)
        if asked is not None:
            return asked[1].id, asked
        return hf.named(id), None


def _about(task: TaskAsked | None) -> str:
    return task[2].state if task is not None else "known"


def _agents_work(hf: Holdfast, task: str) -> tuple[Entry, ...]:
    from holdfast.engine.tracing import delegations_about

    return delegations_about(hf.ledger, task)


def _show(screen: Screen, hf: Holdfast, found: str, *, logs: bool) -> None:
    match found[:2]:
        case "p-":
            _show_plan(screen, found, hf.records.plan(found))
        case "s-" if logs:
            show_logs_of_simulation(screen, hf, found)
        case "s-":
            show_simulation(screen, hf, hf.records.paper("simulations", found))
        case "d-" | "a-" as kind:
            show_paper(screen, _PAPERS[kind], hf.records.paper(_PAPERS[kind], found))
        case "e-":
            row, document = hf.show(found)
            if logs:
                _show_logs(screen, hf, row, document)
            else:
                kept = document is not None
                known = {"lineage": hf.lineage(row), "unverified": hf.unverified(row.at_ns).get(row.id, "")}
                _show_execution(screen, row, document or known, _approvers(hf, row), kept=kept)
        case "x-":
            from holdfast.cli.patches import show_patch

            show_patch(screen, hf, found)
        case "u-":
            from holdfast.cli.run_told import show_run

            show_run(screen, hf.runs.standing(found))
        case "g-":
            from holdfast.cli.transcript import show_delegation

            show_delegation(screen, hf, found)
        case "i-":
            _show_intent(screen, hf, found)
        case _:
            show_entry(screen, hf, found)


def _show_execution(screen: Screen, row: Row, document: Mapping[str, Any], approvers: str, *, kept: bool) -> None:
    screen.answer(execution_document(row, document))
    screen.say(f"{row.id}  {state(row)}  {for_people(row.at_ns)}  {count(row.changes, 'change')}")
    screen.say(f"Intent    {shown(row.intent)}")
    screen.say(f"Plan      {row.plan_id}")
    screen.say(f"Approved  by {approvers}")
    for key, word in (("undoes", "Undoes"), ("revives", "Revives")):
        names = row.summary.get(key)
        if isinstance(names, list) and names:
            screen.say(f"{word:<9} {', '.join(map(str, names))}")
    if why := document.get("unverified"):
        screen.say(f"Checked   {unverified(why)}")
    errors = row.summary.get("errors")
    for text in errors if isinstance(errors, list) else ():
        screen.say(f"Reason    {shown(str(text).replace(chr(10), '; '))}")
    if not kept:
        screen.say("Steps     not kept")
    else:
        _show_details(screen, document)
    if row.undoable:
        screen.say(screen.way(f"Undo with: holdfast undo {row.id}"))


def _approvers(hf: Holdfast, row: Row) -> str:
    if said := row.summary.get("approved_by"):
        return printable(str(said))
    decision = str(row.summary.get("decision") or "")
    try:
        allowed = bool(decision) and hf.records.paper("decisions", decision).document["verdict"] == "ALLOW"
    except UnknownId:
        allowed = False
    return "nobody; policy allowed it" if allowed else "nobody"


def _show_details(screen: Screen, document: Mapping[str, Any]) -> None:
    for step in document["steps"][:_MOST_STEPS]:
        mark = "✓" if step["success"] else "✗" if step.get("started_ns", 0) is not None else "-"
        overtaken = f" (overtaken by {step['superseded_by']})" if step.get("superseded_by") else ""
        change = f"{shown(step['actual_state_change'])}{overtaken}"
        screen.say(f"  {mark} {step['operation']} {printable(step['target'])}  {change}")
    if len(document["steps"]) > _MOST_STEPS:
        screen.say(f"  and {len(document['steps']) - _MOST_STEPS:,} more")
    tell_outcomes(screen, document["receipts"])
    for item in document["divergence"]:
        screen.say(f"  ! {printable(item['path'])} {shown(item['detail'])}")
    if why_not := document.get("divergence_not_looked_at"):
        screen.say(f"  . what others changed meanwhile was not looked at: {shown(why_not)}")
    screen.say(f"Took      {duration(document['duration_ms'])}")


def _show_logs(screen: Screen, hf: Holdfast, row: Row, document: Mapping[str, Any] | None) -> None:
    show_logs(screen, hf, row.id, row.status, (document or {}).get("receipts", []))


def _show_plan(screen: Screen, id: str, document: Mapping[str, Any]) -> None:
    screen.answer({**document, "kind": "plan", "id": id, "status": "known"})
    screen.say(f"{id}  risk {document['risk_proposed']}  {count(len(document['steps']), 'step')}")
    for name, word in (("intent", "Intent"), ("objective", "Objective"), ("rationale", "Rationale")):
        for number, line in enumerate(str(document.get(name) or "").splitlines()):
            screen.say(f"{word if not number else '':<10} {shown(line)}".rstrip())
    for step in document["steps"][:_MOST_STEPS]:
        screen.say(f"  {step['action']} {shown(_target(step))}")
    if len(document["steps"]) > _MOST_STEPS:
        screen.say(f"  and {len(document['steps']) - _MOST_STEPS:,} more")
    for line in note_lines(document.get("notes", ()), _MOST_STEPS):
        screen.say(line)
    for word, lines in _safety(document):
        for number, line in enumerate(lines):
            screen.say(f"{word if not number else '':<10} {line}")


def _safety(document: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """How it is verified, watched and taken back; what is not there is said to be missing."""
    verified = [_check(row, verify_from) for row in document.get("verification_plan", ())]
    verified += [f"“{shown(text)}”" for text in document.get("verification_in_words", ())]
    if why := document.get("unverified_because"):
        verified.append(f"not at all, because: {shown(why)}")
    yield "Verified", verified or ["only by what the configuration asks for"]
    health = [_check(row, health_from) for row in document.get("health_checks", ())]
    health += [f"“{shown(text)}”" for text in document.get("health_in_words", ())]
    yield "Health", health or ["nothing is asked afterwards"]
    yield "On failure", [shown(str(document.get("on_failure", "rollback")))]
    yield "Way back", [shown(str(document.get("rollback_plan", "")))]


def _check(row: Mapping[str, Any], read: Callable[[Mapping[str, Any]], VerifyCheck | HealthCheck]) -> str:
    """A check that another release described is shown by its kind."""
    try:
        return subject(read(row))
    except (KeyError, TypeError, AttributeError):
        return shown(str(row.get("kind", "a check")))


def _target(step: Mapping[str, Any]) -> str:
    """What a step is about; a step that a newer or older release described is shown by its path, if it has one."""
    from holdfast.simulation.report import target_of

    try:
        found = target_of(step_from(step))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        found = str(step.get("path", ""))
    return f"{found} → {step['to']}" if "to" in step else found


def _show_intent(screen: Screen, hf: Holdfast, id: str) -> None:
    """What was carried out under it, newest first."""
    from holdfast.model.execution import intent_id

    rows = [row for row in hf.records.executions() if intent_id(row.intent) == id]
    doubts = hf.unverified(*(row.at_ns for row in rows))
    items = [{**row_document(row), "unverified": doubts.get(row.id, "")} for row in rows]
    screen.answer({**list_document(items), "id": id})
    screen.say(f"{id}  {shown(rows[0].intent.strip().partition(chr(10))[0]) if rows else ''}".rstrip())
    for row in rows:
        doubt = unverified(doubts.get(row.id, ""))
        moment, moved = for_people(row.at_ns), count(row.changes, "change")
        screen.say(f"  {row.id}  {state(row)}  {moment}  {moved}  {doubt}".rstrip())
