"""holdfast resume: go on with a run where it was, after a stop, a limit, an answer, a kill or a power cut."""

from __future__ import annotations

from typing import Unpack

import click

from holdfast.cli.run_asked import AskedOfBudget, budget_asked, budget_options
from holdfast.cli.verbs import Face, verb


@verb(name="resume")
@click.argument("run", default="")
@click.option("--yes", is_flag=True, help="Give this user's approval to this call, where policy lets one person.")
@click.option("--database", default="", metavar="URL", help="PostgreSQL, where workers on other machines help.")
@budget_options
def command(face: Face, run: str, yes: bool, database: str, **asked: Unpack[AskedOfBudget]) -> int:
    """Go on with RUN, or with the newest one. What landed is never done again; nothing left to do is fine.

    A budget given here takes the place of the one that the run had; what it has spent already counts.
    """
    from holdfast.cli.run_driving import drive, driving

    budget = budget_asked(asked)
    with driving(face) as hf:
        return drive(face, hf, lambda crew: hf.runs.resume(run, crew, yes=yes, database=database, budget=budget))
