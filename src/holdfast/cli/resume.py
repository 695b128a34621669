"""holdfast resume: go on with a run where it was, after a stop, a limit, an answer, a kill or a power cut."""

from __future__ import annotations

import click

from holdfast.cli.verbs import Face, verb


@verb(name="resume")
@click.argument("run", default="")
@click.option("--yes", is_flag=True, help="Give this user's approval to this call, where policy lets one person.")
@click.option("--database", default="", metavar="URL", help="PostgreSQL, where workers on other machines help.")
def command(face: Face, run: str, yes: bool, database: str) -> int:
    """Go on with RUN, or with the newest one. What landed is never done again; nothing left to do is fine."""
    from holdfast.cli.run_driving import drive, driving

    with driving(face) as hf:
        return drive(face, hf, lambda crew: hf.runs.resume(run, crew, yes=yes, database=database))
