"""holdfast show: one execution, plan or paper, with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.documents import execution_document
from holdfast.cli.moments import for_people
from holdfast.cli.opening import reading
from holdfast.cli.papers import show_logs, show_logs_of_simulation, show_paper, show_simulation, tell_outcomes
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import note_lines
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, duration, state
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.path import printable
from holdfast.model.saved_plan import step_from
from holdfast.store.database import Row, Table
from holdfast.wiring import Holdfast

_MOST_STEPS = 20
_LOGS = "only simulations and executions have logs"
_PAPERS: dict[str, Table] = {"s-": "simulations", "d-": "decisions", "a-": "approvals"}


@verb(name="show")
@click.argument("id")
@click.option("--log", "logs", is_flag=True, help="Print what the checks said.")
def command(face: Face, id: str, logs: bool) -> None:
    """Show an execution, a plan, a simulation, a decision, an approval or a task of the newest run.

    A unique beginning of its ID is enough; a task may also be named by its number.
    """
    with reading(face) as hf:
        found = _resolved(face, hf, id)
        if found is None:
            return
        if found.startswith("x-"):
            raise InvalidInput(f"{found} is a patch", hint=f"See it with: holdfast patches show {found}")
        if found.startswith("p-"):
            if logs:
                raise InvalidInput(f"{found} is a plan; {_LOGS}")
            _show_plan(face.screen, found, hf.records.plan(found))
            return
        table = _PAPERS.get(found[:2])
        if table == "simulations":
            if logs:
                show_logs_of_simulation(face.screen, hf, found)
            else:
                show_simulation(face.screen, hf, hf.records.paper(table, found))
            return
        if table is not None:
            if logs:
                raise InvalidInput(f"{found} is a {table[:-1]}; {_LOGS}")
            show_paper(face.screen, table, hf.records.paper(table, found))
            return
        row, document = hf.show(found)
        if logs:
            _show_logs(face.screen, hf, row, document)
        else:
            _show_execution(face.screen, row, document or {"lineage": hf.lineage(row)}, kept=document is not None)


def _resolved(face: Face, hf: Holdfast, id: str) -> str | None:
    """None when it was a task, and has been shown."""
    try:
        return hf.resolve(id)
    except UnknownId:
        from holdfast.cli.task_shown import show_task, task_asked

        asked = task_asked(hf, id)
        if asked is None:
            raise
        show_task(face.screen, *asked)
        return None


def _show_execution(screen: Screen, row: Row, document: Mapping[str, Any], *, kept: bool) -> None:
    screen.answer(execution_document(row, document))
    screen.say(f"{row.id}  {state(row)}  {for_people(row.at_ns)}  {count(row.changes, 'change')}")
    screen.say(f"Intent    {shown(row.intent)}")
    screen.say(f"Plan      {row.plan_id}")
    screen.say(f"Approved  by {_approvers(row)}")
    for key, word in (("undoes", "Undoes"), ("revives", "Revives")):
        names = row.summary.get(key)
        if isinstance(names, list) and names:
            screen.say(f"{word:<9} {', '.join(map(str, names))}")
    errors = row.summary.get("errors")
    for text in errors if isinstance(errors, list) else ():
        screen.say(f"Reason    {shown(str(text).replace(chr(10), '; '))}")
    if not kept:
        screen.say("Steps     not kept")
    else:
        _show_details(screen, document)
    if row.undoable:
        screen.say(f"Undo with: holdfast undo {row.id}")


def _approvers(row: Row) -> str:
    """Only what the gates let through names its decision; without anybody's yes, that one allowed it."""
    nobody = "nobody; policy allowed it" if row.summary.get("decision") else "nobody"
    return printable(str(row.summary.get("approved_by") or nobody))


def _show_details(screen: Screen, document: Mapping[str, Any]) -> None:
    for step in document["steps"][:_MOST_STEPS]:
        mark = "✓" if step["success"] else "✗"
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
    screen.say(f"Intent    {shown(document['intent'])}")
    for step in document["steps"][:_MOST_STEPS]:
        screen.say(f"  {step['action']} {shown(_target(step))}")
    if len(document["steps"]) > _MOST_STEPS:
        screen.say(f"  and {len(document['steps']) - _MOST_STEPS:,} more")
    for line in note_lines(document.get("notes", ()), _MOST_STEPS):
        screen.say(line)


def _target(step: Mapping[str, Any]) -> str:
    """What a step is about; a step that a newer or older release described is shown by its path, if it has one."""
    from holdfast.simulation.report import target_of

    try:
        found = target_of(step_from(step))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        found = str(step.get("path", ""))
    return f"{found} → {step['to']}" if "to" in step else found
