"""holdfast worker: stay, and work: for runs on other machines, or for this workspace's own triggers."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.errors import Conflict, InvalidInput
from holdfast.model.run import RunFinished

if TYPE_CHECKING:
    from holdfast.model.run import RunEvent
    from holdfast.model.trigger import Told


@verb(name="worker")
@click.option("--database", default="", metavar="URL", help="The PostgreSQL that the run was started with.")
@click.option("--workspace", default="", metavar="ID", help="Whose work to take: the id that holdfast status tells.")
@click.option("--repository", default="", type=click.Path(), help="A clone that has the commit the run began with.")
@click.option("--folder", default="", type=click.Path(), help="Where to work; ~/.local/state/holdfast/worker/NAME.")
@click.option("--name", default="", help="Its name for good; the host's unless told.")
@click.option("--lease", default=30.0, type=click.FloatRange(min=3.0), help="Seconds of silence until it is given up.")
def command(face: Face, database: str, workspace: str, repository: str, folder: str, name: str, lease: float) -> None:
    """With --database: work for runs on other machines. Nothing lands here, and no workspace is needed.

    Without: attend this workspace, and start what its [triggers] ask for: schedules, changed files, webhooks, queues.
    """
    stop = threading.Event()
    with _until_told(stop):
        if not database:
            _attend(face, stop)
            return
        if not workspace:
            raise InvalidInput("whose work shall it take?", hint="Give --workspace ID; holdfast status tells it there.")
        _serve(face.screen, stop, database, workspace, repository, folder, name or socket.gethostname(), lease)


def _serve(
    screen: Screen, stop: threading.Event, database: str, workspace: str, repository: str, folder: str, name: str,
    lease: float,
) -> None:  # fmt: skip
    from holdfast.engine.durable import Lease
    from holdfast.engine.worker import Station
    from holdfast.wiring import serve

    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    place = os.path.abspath(folder or os.path.join(state, "holdfast", "worker", name))
    clone = os.path.abspath(repository) if repository else ""
    station = Station(place, clone, workspace, database, name, Lease(lease, lease / 6))
    kept = serve(station, stop.is_set, lambda text: screen.note(f"{name} {shown(text)}"))
    screen.answer({"kind": "worker", "id": name, "status": "stopped" if kept else "given up"})
    if not kept:
        raise Conflict(
            f"{name} was silent for too long, and its work was given to others",
            hint="Nothing of it can land any more. Start it again.",
        )
    screen.say(f"{shown(name)} stopped. What it had begun is begun again, here or elsewhere.")
    # Threads may still wait for a database that is away, and the end of a process waits for them.
    os._exit(screen.close(0))


def _attend(face: Face, stop: threading.Event) -> None:
    from holdfast.wiring.attending import attend

    screen = face.screen

    def tell(told: Told) -> None:
        screen.note(f"{told.tale} {shown(told.trigger)}: {shown(told.words)}")

    def watch(event: RunEvent) -> None:
        if isinstance(event, RunFinished):
            screen.note(f"{event.event} {shown(event.run)}: {ended_words(event)}")
        elif event.event in ("EXECUTION_STARTED", "TASK_COMPLETED", "TASK_FAILED"):
            screen.note(f"{event.event} {shown(event.run)}")

    attend(face.options.directory, stop, tell, watch, lambda: screen.note("Attends this workspace until Ctrl-C."))
    screen.answer({"kind": "worker", "id": "", "status": "stopped"})
    screen.say("Stopped. What fires from now on waits until somebody attends again.")


def ended_words(event: RunFinished) -> str:
    """How the run ended, and where it says how it goes on: nobody else is there who would be told."""
    counts = {"done": event.completed, "did not land": event.failed, "wait for you": event.waiting, "left": event.left}
    told = ", ".join(f"{number:,} {words}" for words, number in counts.items() if number)
    why = f" ({shown(event.because)})" if event.because else ""
    after = f"holdfast review --run {event.run}" if event.waiting else f"holdfast tasks {event.run}"
    go_on = "" if event.state == "FINISHED" and not event.failed else f". Look with: {after}"
    return f"{event.state}{why}: {told or 'nothing to do'}{go_on}"


@contextmanager
def _until_told(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event; what is under way comes to its end."""

    def heard(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = [(number, signal.signal(number, heard)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
