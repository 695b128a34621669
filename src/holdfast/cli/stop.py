"""holdfast stop: ask a run to stop, from any terminal."""

from __future__ import annotations

import time

import click

from holdfast.cli.opening import opened
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.engine.run_standing import resume_with


@verb(name="stop")
@click.argument("run", default="")
@click.option("--now", is_flag=True, help="Do not even finish the landing that is under way.")
def command(face: Face, run: str, now: bool) -> None:
    """Ask RUN (or the newest one) to finish the landing that is under way, and to stop. It can be resumed."""
    screen = face.screen
    with opened(face) as hf:
        found, pulse = hf.runs.find(run), hf.runs.pulse()
        mine = pulse if pulse is not None and pulse.run == found.id else None
        life = mine.life(time.time_ns()) if mine is not None else "ended"
        under_way = life in ("alive", "silent")
        if under_way:
            hf.runs.stop(found.id, now=now)
    status = "STOPPING" if under_way else found.state
    screen.answer({"kind": "run", "id": found.id, "status": status, "roadmap": found.roadmap, "life": life})
    if under_way:
        when = "at once" if now else "once the landing that is under way is finished"
        silent = " Its process has been silent for a while." if life == "silent" else ""
        screen.say(f"{found.id} over {shown(found.roadmap)} was asked to stop {when}.{silent}")
        screen.say(screen.way(f"Go on later with: {resume_with(found, found.id)}"))
    elif found.state == "RUNNING":
        go_on = screen.way(resume_with(found, found.id))
        screen.say(f"{found.id} is not under way: it was interrupted. Go on with: {go_on}")
    else:
        screen.say(f"{found.id} is not under way: it is {found.state.lower()}. Nothing to stop.")
