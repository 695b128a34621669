"""holdfast retry: let tasks that did not land be tried again, and go on with their run."""

from __future__ import annotations

import click

from holdfast.cli.run_told import LOST
from holdfast.cli.verbs import Face, verb
from holdfast.errors import InvalidInput


@verb(name="retry")
@click.argument("tasks", nargs=-1)
@click.option("--failed", is_flag=True, help="Every task of the run that failed.")
@click.option("--run", "run", default="", metavar="RUN", help="Of this run; the newest one if not given.")
@click.option("--yes", is_flag=True, help="Give this user's approval to this call, where policy lets one person.")
@click.option("--database", default="", metavar="URL", help="PostgreSQL, where workers on other machines help.")
def command(face: Face, tasks: tuple[str, ...], failed: bool, run: str, yes: bool, database: str) -> int:
    """Try TASK… again: by number, id or its beginning. Each gets another attempt, and is told what failed before."""
    if bool(tasks) == failed:
        raise InvalidInput("name the tasks, or say --failed", hint="Nothing was changed. See: holdfast tasks")
    from holdfast.cli.run_driving import drive, driving

    with driving(face) as hf:
        standing = hf.runs.standing(run)
        id = standing.run.id
        chosen = tasks or tuple(record.task for _, record in standing.rows() if record.state in LOST)
        if not chosen:
            face.screen.note("No task of this run failed.")
        hf.runs.again(chosen, id)
        return drive(face, hf, lambda crew: hf.runs.resume(id, crew, yes=yes, database=database))
