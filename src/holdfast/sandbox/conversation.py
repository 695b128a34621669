"""Talk with a program in a sandbox while it runs: its input and output are pipes to us.

    calling thread      runs the program and keeps its limits, to the end (P8 of process.py is tied to it)
    talking thread      `talk(reading, writing)`, from the first look at the program on, 50 ms after its start
    carrying thread     the program's output, counted, to `reading`

    TALKING ──talk returns──▶ LEAVING ──the program ends──▶ OVER
       │                       │  (its input is at the end; 2 s, then it is killed)
       └──talk raises, a limit, `stop`, the program ends──▶ OVER

Invariants
  Q1  When this returns or raises, the program is gone as in `run_confined`, both threads have ended, no pipe is open.
  Q2  When the program is gone, however it went, `reading` is at its end after what was said,
      and writing raises BrokenPipeError. A `talk` that ends then ends; nobody waits for one half of it only.
  Q3  What could not be started, or is ours to tell, is raised before what `talk` raised; that before any result.
      Then `talk` may not have been called at all.
  Q4  What the program says is bounded by `output_bytes`, its standard error by itself; memory for it by two pipes.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.errors import InvalidInput
from holdfast.sandbox.confined import Confined, Stop, run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View

T = TypeVar("T")
# `finished.stopped` of a program that was ended because there was nothing more to talk about; not a limit.
OVER = "over"
LEAVING_S = 2.0
_PIECE = 1 << 16
_LOOK_MS = 50


def converse_confined(
    command: Command, view: View, profile: Profile, talk: Callable[[int, int], T], *, stop: Stop | None = None
) -> tuple[T, Confined]:
    """Run it with `talk` at the other end; the value of `talk`, and how the program ended.

    `talk` gets two descriptors, in a thread of its own: one to read what the program says, one to write to it.
    It returns soon after `reading` is at its end. It need not close them, but may.
    """
    if command.stdin:
        raise InvalidInput("a program that is talked with has no other input")
    conversation = _Conversation(talk, profile.limits.output_bytes, stop)
    try:
        confined = run_confined(command, view, profile, stop=conversation.stop, ends=conversation.ends)
        conversation.begin()  # where it ended before the first look
    finally:
        conversation.end()
    value = conversation.value()
    return value, confined._replace(limit="") if confined.limit == OVER else confined


class _Pipe:
    """One pipe; each end is closed once, by whoever comes first."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC)
        self._open = {self.reading, self.writing}
        self._self = _identity(self.reading)
        self._lock = threading.Lock()

    def close(self, *ends: int) -> None:
        """Of ours; a number that `talk` has closed may be somebody else's by now."""
        with self._lock:
            for end in self._open.intersection(ends):
                self._open.remove(end)
                try:
                    if _identity(end) == self._self:
                        os.close(end)
                except OSError:
                    continue  # closed, and nobody has the number


class _Conversation(Generic[T]):
    """Everything of one conversation but the program."""

    def __init__(self, talk: Callable[[int, int], T], most: int, stop: Stop | None) -> None:
        self._talk, self._most, self._stop = talk, most, stop
        self._pipes: list[_Pipe] = []
        try:
            for _ in range(3):
                self._pipes.append(_Pipe())
        except OSError:
            self._close()
            raise
        self._input, self._said, self._heard = self._pipes
        self.ends = (self._input.reading, self._said.writing)
        self._values: list[T] = []
        self._failure: BaseException | None = None
        self._leaving_since = 0.0
        self._said_bytes = 0
        self._gone = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"holdfast-{target.__name__.strip('_')}", daemon=True)
            for target in (self._carrying, self._talking)
        ]

    def begin(self) -> None:
        """After the fork, which threads make unsafe; what is said before it waits in the pipe."""
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def stop(self) -> str:
        """Asked while the program runs: why it is to end now."""
        self.begin()
        # It has its own copies of these by now; with ours open, neither side would see the other one leave.
        self._input.close(self._input.reading)
        self._said.close(self._said.writing)
        if self._failure is not None:
            return OVER
        if self._leaving_since and time.monotonic() - self._leaving_since > LEAVING_S:
            return OVER
        if self._most and self._said_bytes > self._most:
            return "output"
        return self._stop() if self._stop is not None else ""

    def end(self) -> None:
        """The program is gone: everything it held is closed, and both threads end (Q1, Q2)."""
        self._input.close(self._input.reading)
        self._said.close(self._said.writing)
        self._gone.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._close()

    def value(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._values[0]

    def _talking(self) -> None:
        try:
            self._values.append(self._talk(self._heard.reading, self._input.writing))
        except BaseException as error:  # noqa: BLE001 - handed over to the calling thread, whatever it is
            self._failure = error
        finally:
            self._leaving_since = time.monotonic()
            self._input.close(self._input.writing)
            self._heard.close(self._heard.reading)

    def _carrying(self) -> None:
        """To the end of what is said. Once nobody listens it is still taken, so that a program can finish."""
        source, sink, listening = self._said.reading, self._heard.writing, True
        poll = select.poll()
        poll.register(source, select.POLLIN)
        while True:
            if not poll.poll(_LOOK_MS):
                if self._gone.is_set():
                    break  # nothing more can come; whoever still holds the other end could not be killed
                continue
            piece = os.read(source, _PIECE)
            if not piece:
                break
            self._said_bytes += len(piece)
            listening = listening and _written(sink, piece)
        self._heard.close(sink)

    def _close(self) -> None:
        for pipe in self._pipes:
            pipe.close(pipe.reading, pipe.writing)


def _identity(fd: int) -> tuple[int, int]:
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


def _written(fd: int, data: bytes) -> bool:
    """Whether somebody took all of it."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        return False
    return True
