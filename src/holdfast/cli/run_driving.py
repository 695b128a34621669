"""Driving a run from the command line: who looks on, how it is stopped, what it comes to.

    Ctrl-C once     nothing new is started; the landing that is under way is finished; then the run is STOPPED
    Ctrl-C twice    the process ends now; whatever was under way is settled by `holdfast resume`
    SIGTERM, SIGHUP as Ctrl-C; `holdfast stop [--now]` from another terminal does the same

Invariants
  C1  The sandbox of an agent ends with this process. So when a run stopped, the process ends at once, without waiting
      for agents whose work nobody wants any more.
  C2  Before that the run is in the ledger, and the answer is written.
  C3  Nothing that a signal handler does can deadlock: it sets a word, or writes to a descriptor and ends the process.
  C4  A run that was told as ended ends its process too, whatever the shared database does then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from holdfast.cli.opening import opened, tell_recovery
from holdfast.cli.run_told import Ending, ending_of, tell_ending
from holdfast.cli.run_view import RunView
from holdfast.cli.screen import SCHEMA, Screen
from holdfast.cli.verbs import Face
from holdfast.cli.watching import person_at
from holdfast.engine.roadmap_runs import Crew
from holdfast.engine.run_standing import resume_with
from holdfast.engine.stop_wish import stopped_by_a_person
from holdfast.errors import HoldfastError, Interrupted
from holdfast.model.run import RunEvent, RunFinished, RunRecord, RunStarted, TaskCompleted, TaskMoved
from holdfast.wiring import Holdfast

if TYPE_CHECKING:
    from holdfast.agents.protocol import Person

_SHOW_CURSOR = b"\x1b[?25h"
_STOPPING = "Stopping: nothing new starts, and the landing that is under way is finished. Ctrl-C again stops now."
_NOW = "Interrupted. What was under way is settled by: "


@contextmanager
def driving(face: Face) -> Iterator[Holdfast]:
    """The workspace, repaired; Locked when another process is at work in it."""
    with opened(face, wait=face.options.wait) as hf:
        tell_recovery(face.screen, hf.recover())
        hf.require_whole_ledger()
        yield hf


class Brake:
    """How a person stops a run from this terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told = False
        self.asked = ""
        self.go_on = "holdfast resume"  # with what the run was given, once there is one
        self._landed = False
        self._landing: set[str] = set()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """C3."""
        if self.asked:
            self.leave_now()
        self.asked = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name

    def see(self, event: RunEvent) -> None:
        """Keep in mind whether somebody who leaves now leaves something changed behind."""
        if isinstance(event, TaskCompleted):
            self._landed = True
        elif isinstance(event, TaskMoved):
            (self._landing.add if event.state == "VALIDATING" else self._landing.discard)(event.task)

    @property
    def changed(self) -> bool:
        return self._landed or bool(self._landing)

    def tell(self) -> str:
        """Why to stop, once somebody asked; they are told that they were heard."""
        if self.asked and not self._told:
            self._told = True
            self._screen.note(_STOPPING)
        return self.asked

    def leave_now(self) -> NoReturn:
        """C1: our end is the end of every agent. The ledger knows what was begun."""
        way = self._screen.way(self.go_on)
        if self._screen.form != "text":
            told = {"code": Interrupted.code, "message": _NOW + way, "hint": way, "changed": self.changed}
            _write(1, json.dumps({"schema": SCHEMA, "error": told}).encode() + b"\n")
        _write(2, (_SHOW_CURSOR + b"\r" if os.isatty(2) else b"") + f"{_NOW}{way}".encode() + b"\n")
        os._exit(Interrupted.exit_status)


def drive(face: Face, hf: Holdfast, go: Callable[[Crew], RunRecord]) -> int:
    """Until the run ends; the exit status, after the answer was given."""
    screen, brake = face.screen, Brake(face.screen)
    view = RunView(screen, hf.runs.standing)

    def stop() -> str:
        if view.run and hf.runs.stop_now_asked(view.run):
            brake.leave_now()
        asked = brake.tell()
        view.tick()
        return asked

    def watch(event: RunEvent) -> None:
        brake.see(event)
        if isinstance(event, RunStarted):
            brake.go_on = resume_with(hf.runs.find(event.run))
        view(event)
        if isinstance(event, RunFinished) and view.working:
            view.close()
            _end(screen.close(answer(screen, hf, event.run, interrupted=bool(brake.asked)).status))

    with _heard(brake):
        try:
            run = go(Crew(watcher=watch, person=_person(screen, view), stop=stop))
        except BaseException as error:
            view.close()
            if isinstance(error, HoldfastError):
                error.changed |= brake.changed
            if view.working or _threads_left():
                _end(_failed(screen, error))
            raise
        view.close()
        status = answer(screen, hf, run.id, interrupted=bool(brake.asked)).status
        if _threads_left():
            _end(screen.close(status))
        return status


def _threads_left() -> bool:
    """They may wait for a database that is away, and the end of a process waits for them (C4)."""
    main = threading.main_thread()
    return any(not thread.daemon and thread is not main for thread in threading.enumerate())


def answer(screen: Screen, hf: Holdfast, run: str, *, interrupted: bool = False) -> Ending:
    standing = hf.runs.standing(run)
    ending = ending_of(standing, interrupted=interrupted or stopped_by_a_person(standing.run))
    tell_ending(screen, standing, ending)
    return ending


def _failed(screen: Screen, error: BaseException) -> int:
    """Told as it would be told where nothing is at work."""
    if not isinstance(error, HoldfastError):
        sys.excepthook(type(error), error, error.__traceback__)
        return screen.close(1)
    screen.failure(error)
    return screen.close(error.exit_status)


def _end(status: int) -> NoReturn:
    """C1, C2. A normal end would wait for every agent to finish what nobody wants any more."""
    os._exit(status)


def _person(screen: Screen, view: RunView) -> Person | None:
    found = person_at(screen)
    if found is None:
        return None

    def work(instructions: str, directory: str) -> bool:
        view.paused = True
        try:
            return found(instructions, directory)
        finally:
            view.paused = False

    return work


@contextmanager
def _heard(brake: Brake) -> Iterator[None]:
    """What is ignored (nohup, a shell's background job) stays ignored."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, brake.on_signal) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(descriptor: int, data: bytes) -> None:
    try:
        os.write(descriptor, data)
    except OSError:
        return  # nobody reads any more, and we leave anyway
