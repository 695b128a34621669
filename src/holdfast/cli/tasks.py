"""holdfast tasks: every task with where it stands. Reads the records and the roadmap, and nothing else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import reading
from holdfast.cli.run_told import counts_in, run_document, tell_table
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.engine.roadmap_file import RoadmapFile, find_roadmap
from holdfast.engine.run_standing import Standing, find_run, resume_with, standing_of
from holdfast.errors import UnknownId
from holdfast.model.run import RunRecord

if TYPE_CHECKING:
    from holdfast.engine.pulse import Pulse
    from holdfast.wiring import Holdfast

_OF_A_RUN = "u-"


@verb(name="tasks")
@click.argument("what", default="", metavar="[ROADMAP|RUN]")
def command(face: Face, what: str) -> None:
    """List the tasks of a roadmap, or of a run: state, attempts, and why. Without a name, those of the newest run."""
    with reading(face) as hf:
        standing = _asked(hf, what)
        pulse = _pulse(hf, standing.run.id)
    now = time.time_ns()
    life = pulse.life(now) if pulse is not None else "ended"
    if pulse is not None and life in ("alive", "silent"):
        standing = standing._replace(run=standing.run._replace(worked_ms=pulse.worked_at(now)))
    screen = face.screen
    screen.answer({**run_document(standing), "life": life if standing.run.id else None})
    tell_table(screen, standing, all_rows=True)
    if standing.roadmap.confidence == "guessed":
        screen.say(" ! these are taken for tasks, and do not say so themselves: a run asks first")
    for remark in standing.roadmap.remarks:
        screen.say(f" ! line {remark.line}: {shown(remark.text)}")
    _tell_next(screen, standing, life)


def _asked(hf: Holdfast, what: str) -> Standing:
    """A run by its id; a roadmap with its newest run; without a word the newest run, or the roadmap that is there."""
    if what.startswith(_OF_A_RUN):
        return standing_of(hf.site, hf.records, find_run(hf.records, what))
    if not what:
        try:
            return standing_of(hf.site, hf.records, find_run(hf.records))
        except UnknownId:
            pass  # no run yet: the roadmap alone
    path = find_roadmap(hf.site, what)
    from holdfast.store.runs import Runs

    newest = next((row.id for row in Runs(hf.records).runs() if row.roadmap == path), "")
    if newest:
        return standing_of(hf.site, hf.records, find_run(hf.records, newest))
    return Standing(RunRecord("", path), RoadmapFile(hf.site, path).read()[1], {})


def _pulse(hf: Holdfast, run: str) -> Pulse | None:
    """Of this run, where it is the one that beat last."""
    from holdfast.engine.pulse import read_pulse

    pulse = read_pulse(hf.site.state)
    return pulse if pulse is not None and run and pulse.run == run else None


def _tell_next(screen: Screen, standing: Standing, life: str) -> None:
    run = standing.run
    if not run.id:
        screen.say(screen.way("No run yet. Start one with: holdfast run"))
    elif life in ("alive", "silent"):
        screen.say(screen.way(f"{run.id} is under way. Stop it with: holdfast stop"))
    elif run.state == "WAITING" and not counts_in(standing).waiting:
        screen.say(screen.way(f"What {run.id} waited for is answered. Go on with: {resume_with(run)}"))
    elif run.state == "WAITING":
        screen.say(screen.way(f"{run.id} waits for you. Decide with: holdfast review"))
    elif run.state == "FINISHED":
        screen.say(f"{run.id} is finished.")
    else:
        why = f" ({shown(run.because)})" if run.because else ""
        word = "was interrupted" if run.state == "RUNNING" else f"is {run.state.lower()}"
        screen.say(screen.way(f"{run.id} {word}{why}. Go on with: {resume_with(run)}"))
