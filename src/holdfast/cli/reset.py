"""holdfast reset: forget how tasks ended, so that the next run or resume begins them anew."""

from __future__ import annotations

import click

from holdfast.cli.documents import list_document
from holdfast.cli.opening import opened
from holdfast.cli.run_told import label, task_document
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.engine.run_standing import resume_with

_PATIENCE_S = 30.0


@verb(name="reset")
@click.argument("tasks", nargs=-1, required=True)
@click.option("--run", "run", default="", metavar="RUN", help="Of this run; the newest one if not given.")
def command(face: Face, tasks: tuple[str, ...], run: str) -> None:
    """Set TASK… back to do. One that landed is refused: undo it first. Nothing in the workspace is touched."""
    with opened(face, wait=max(face.options.wait, _PATIENCE_S)) as hf:
        moved = hf.runs.again(tasks, run, because="it was reset")
        standing = hf.runs.standing(moved[0].run)
    known = {task.id: task for task, _ in standing.rows()}
    face.screen.answer(list_document([task_document(known[record.task], record) for record in moved]))
    for record in moved:
        face.screen.say(f"◌ {label(known[record.task])}: to do")
    go_on = resume_with(standing.run, standing.run.id)
    face.screen.say(face.screen.way(f"{count(len(moved), 'task')} reset. Go on with: {go_on}"))
