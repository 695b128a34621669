"""holdfast undo: take back one execution, or what a task landed.

    files back ─▶ box unticked ─▶ committed, where the landing was ─▶ the task is to do again

Killed anywhere in between, the same call does what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import changing
from holdfast.cli.run_told import label
from holdfast.cli.verbs import Face, verb
from holdfast.cli.way_back import follow, go_back, has_runs
from holdfast.errors import InvalidInput, UnknownId

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.store.database import Row
    from holdfast.wiring import Holdfast


_MOST_NAMED = 10


@verb(name="undo")
@click.argument("id", metavar="EXECUTION|TASK")
@click.option("--yes", is_flag=True, help="Give consent to this call.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
def command(face: Face, id: str, yes: bool, preview: bool) -> None:
    """Take back an execution, newest or not, keeping later edits. An undo can itself be undone.

    A task of the newest run's roadmap, whichever run landed it, or the execution that did: its box is unticked, its
    commit is followed by one that takes it back, and it is to do again.
    """
    with changing(face) as hf:
        execution = _execution(hf, id)
        undo = _undone_by(hf, execution)
        if undo is not None:
            if not preview:
                follow(face.screen, hf, undo.id)
            return
        way = hf.preview_undo(execution)
        _tell_behind(face.screen, hf, execution)
        go_back(face.screen, hf, way, "Undo exactly this?", yes=yes, preview=preview)


def _tell_behind(screen: Screen, hf: Holdfast, execution: str) -> None:
    """Which tasks are done that need what goes: they stay, and a person must know before they say yes."""
    if not execution.startswith("e-") or not has_runs(hf):
        return
    from holdfast.engine.run_following import switched
    from holdfast.engine.run_standing import done_behind, standing_of

    for found in switched(hf.pipeline, (execution,), ()):
        behind = done_behind(standing_of(hf.site, hf.records, found.run), execution)
        if behind:
            names = ", ".join(label(task) for task in behind[:_MOST_NAMED])
            more = f" and {len(behind) - _MOST_NAMED:,} more" if len(behind) > _MOST_NAMED else ""
            screen.note(f"Done already, and in need of it: {names}{more}. They stay as they are.")
            return


def _execution(hf: Holdfast, id: str) -> str:
    try:
        return hf.resolve(id)
    except UnknownId:
        from holdfast.cli.task_shown import landings_of, task_asked

        asked = task_asked(hf, id)
        if asked is None:
            raise
    standing, task, now = asked
    record = next(landings_of(hf, standing.run.roadmap, task.id), None)
    if record is None:
        # What was landed is remembered after it was taken back, since it may come back.
        said = f"what {task.id} landed was taken back" if now.execution else f"{task.id} landed nothing"
        raise InvalidInput(f"{said}; there is nothing to undo", hint="Nothing was changed. See: holdfast log")
    parts = record.parts if record.state == "COMPLETED" else record.part
    if parts > 1:
        raise InvalidInput(
            f"{task.id} landed in {parts} parts",
            hint=f"Nothing was changed. Undo them one by one, the last one first: holdfast undo {record.execution}, "
            "then those that holdfast log lists under its name",
        )
    return record.execution


def _undone_by(hf: Holdfast, execution: str) -> Row | None:
    """The undo that took it back already, while its task still counts as landed: somebody was killed in between."""
    if not execution.startswith("e-") or not has_runs(hf):
        return None
    from holdfast.engine.run_following import switched, undone_by

    row = hf.show(execution)[0]
    if row.live or not any(found.gone for found in switched(hf.pipeline, (execution,), ())):
        return None
    return undone_by(hf.pipeline, row)
