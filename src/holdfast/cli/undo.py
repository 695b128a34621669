"""holdfast undo: take back one execution, or what a task landed.

    files back ─▶ box unticked ─▶ committed, where the landing was ─▶ the task is to do again

Killed anywhere in between, the same call does what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.way_back import go_back
from holdfast.errors import InvalidInput, UnknownId

if TYPE_CHECKING:
    from holdfast.store.database import Row
    from holdfast.wiring import Holdfast


@verb(name="undo")
@click.argument("id", metavar="EXECUTION|TASK")
@click.option("--yes", is_flag=True, help="Give consent to this call.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
def command(face: Face, id: str, yes: bool, preview: bool) -> None:
    """Take back an execution, newest or not, keeping later edits. An undo can itself be undone.

    A task of the newest run, or the execution that landed it: its box is unticked, its commit is followed by one that
    takes it back, and it is to do again.
    """
    with changing(face) as hf:
        execution = _execution(hf, id)
        of_a_task = _landed_a_task(hf, execution)
        if of_a_task and not preview:
            hf.runs.require_undoable(execution)
        undo = _undone_by(hf, execution) if of_a_task else None
        if undo is None:
            went = go_back(face.screen, hf, hf.preview_undo(execution), "Undo exactly this?", yes=yes, preview=preview)
            undo = hf.show(went)[0] if went else None
        if of_a_task and undo is not None and not preview:
            _follow(face.screen, hf, execution, undo.id)


def _execution(hf: Holdfast, id: str) -> str:
    try:
        return hf.resolve(id)
    except UnknownId:
        from holdfast.cli.task_shown import task_asked

        asked = task_asked(hf, id)
        if asked is None:
            raise
    _, task, record = asked
    if record.state != "COMPLETED" or not record.execution:
        raise InvalidInput(
            f"{task.id} landed nothing that could be undone", hint="Nothing was changed. See: holdfast tasks"
        )
    if record.parts > 1:
        raise InvalidInput(
            f"{task.id} landed in {record.parts} parts",
            hint=f"Nothing was changed. Undo them one by one, the last one first: holdfast undo {record.execution}, "
            "then those that holdfast log lists under its name",
        )
    return record.execution


def _landed_a_task(hf: Holdfast, execution: str) -> bool:
    from holdfast.store.runs import Runs

    if not execution.startswith("e-") or not Runs(hf.records).exist():
        return False
    from holdfast.engine.run_standing import landed_by

    return bool(landed_by(hf.records, execution))


def _undone_by(hf: Holdfast, execution: str) -> Row | None:
    """The undo that took it back already, while its task still counts as landed: somebody was killed in between."""
    row = hf.show(execution)[0]
    if row.live:
        return None
    later = hf.records.executions(since_ns=row.at_ns)
    return next((other for other in later if other.live and execution in _names(other.summary.get("undoes"))), None)


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _follow(screen: Screen, hf: Holdfast, execution: str, undo: str) -> None:
    found = hf.runs.taken_back(execution, undo)
    screen.event("taken_back", tasks=list(found.tasks), commit=found.commits, remarks=list(found.remarks))
    committed = f", committed as {found.commits[:7]}" if found.commits else ""
    screen.say(f"To do again: {', '.join(map(shown, found.tasks))}{committed}.")
    for remark in found.remarks:
        screen.note(f"! {shown(remark)}")
