"""The bench: the sandboxed shadow an agent works in, its HOME, its way to a model, and everything it was heard to say.

Invariants
  H1  Every program of an agent runs through here: one profile, one time, one budget for all attempts together.
      Only the agent's own running counts against its time; checks and waiting do not.
  H2  The environment is made from nothing: what a Start names, the user's interpreters and tools first on PATH, and no
      key but the throw-away one.
  H3  The transcript of an attempt is a JSON object a line, each with its moment: what the agent was told, what
      happened, what its programs printed. It is bounded, and says when something was left out. Whoever keeps it masks
      it first (see `engine.transcript`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from holdfast.agents.protocol import ModelAccess, Person, Start, Watcher
from holdfast.environment.found import NOTHING_FOUND, Environment
from holdfast.errors import LimitReached
from holdfast.model.agent import Happening, Spent, Usage, fields_of
from holdfast.sandbox.confined import Confined, run_confined
from holdfast.sandbox.conversation import converse_confined
from holdfast.sandbox.output import Lines
from holdfast.sandbox.process import DEFAULT_PATH, Command
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.shown import HOME
from holdfast.sandbox.view import View
from holdfast.workspace.home import Home, give_back

T = TypeVar("T")
MOST_TRANSCRIPT = 8 << 20
# A character as JSON holds it, which is two escapes at most; and what a row may need besides its text.
_LONGEST_CHARACTER = 12
_LEAST_ROOM = 10_000


class SandboxBench:
    """`spending` tells what the proxy has counted; `stop` names a reason to end whatever runs, such as the budget;
    `more_time` says where the time can be raised."""

    def __init__(
        self,
        view: View,
        home: Home,
        profile: Profile,
        *,
        model: ModelAccess | None = None,
        within_ms: int,
        watcher: Watcher,
        spending: Callable[[], Usage] = Usage,
        stop: Callable[[], str] = str,
        person: Person | None = None,
        more_time: str = "Give it more with --within.",
        environment: Environment = NOTHING_FOUND,
    ) -> None:
        self.path = view.path
        self.home = HOME
        self.model = model
        self._view, self._home, self._profile = view, home, profile._replace(home=home.path)
        self._left_ms, self._left_at_begin, self._more_time = within_ms, within_ms, more_time
        self._environment = environment
        self._watcher, self._spending, self._stop, self._person = watcher, spending, stop, person
        self._telling = threading.RLock()
        self._transcript: list[bytes] = []
        self._transcript_bytes = self._left_out = 0
        self._last = Usage()
        self.enforced: tuple[str, ...] = ()

    def begin(self, told: str = "") -> None:
        """A new attempt: its transcript is its own, and begins with what the agent is told."""
        self._transcript, self._transcript_bytes, self._left_out = [], 0, 0
        self._left_at_begin = self._left_ms
        if told:
            self._keep({"kind": "told", "text": told})

    def give_time_back(self) -> None:
        """This attempt was none: its time is the next one's."""
        self._left_ms = self._left_at_begin

    def run(self, start: Start, *, stdin: bytes = b"", on_line: Callable[[bytes], None] | None = None) -> Confined:
        command = self._command(start, stdin)
        lines = Lines(on_line) if on_line is not None else None
        with self._counted():
            done = run_confined(command, self._view, self._shown(start), on_output=lines, stop=self._stopped)
        if lines:
            lines.end()
        return self._ended(done)

    def converse(self, start: Start, talk: Callable[[int, int], T]) -> tuple[T, Confined]:
        command = self._command(start, b"")
        with self._counted():
            said, done = converse_confined(command, self._view, self._shown(start), talk, stop=self._stopped)
        return said, self._ended(done)

    def wait_for_person(self, instructions: str) -> bool:
        """Only a copy can be worked in from outside: layers are put together in the sandbox alone."""
        if self._person is None or self._view.layers:
            return False
        done = self._person(instructions, self._view.base)
        give_back(self._view.base, self._view.shift)
        return done

    def read_home(self, path: str, most: int = 1 << 20) -> bytes | None:
        return self._home.read(path, most)

    def see(self, happening: Happening) -> None:
        # Called from the thread that talks and from the one that counts; each is told whole.
        with self._telling:
            self._keep(fields_of(happening))
            self._watcher(happening)

    @property
    def limits(self) -> Limits:
        return self._profile.limits

    def spent(self) -> Usage:
        return self._spending()

    def transcript(self) -> bytes:
        with self._telling:
            more = [_line({"kind": "left_out", "rows": self._left_out})] if self._left_out else []
            return b"\n".join((*self._transcript, *more))

    def _command(self, start: Start, stdin: bytes) -> Command:
        """What a Start says, within the time that is left."""
        if self._left_ms <= 0:
            raise LimitReached("the agent's time is used up", hint=f"Nothing was changed. {self._more_time}")
        for path, text in start.files:
            self._home.put(path, text.encode())
        env = {"PATH": _path(start), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", **start.env}
        env = self._environment.around(env)
        return Command(
            start.argv, self.path, env, self._left_ms, self._profile.limits.output_bytes or 1 << 20, stdin=stdin
        )

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._left_ms -= int((time.monotonic() - began) * 1000)

    def _ended(self, done: Confined) -> Confined:
        self._stopped()  # so that the last request is seen too
        with self._telling:
            self._keep({"kind": "printed", "text": done.finished.output.decode("utf-8", "replace")})
        self.enforced = done.enforced
        return done

    def _shown(self, start: Start) -> Profile:
        return self._profile._replace(readable=tuple(dict.fromkeys((*self._profile.readable, *start.readable))))

    def _stopped(self) -> str:
        now = self._spending()
        if now != self._last:
            self._last = now
            self.see(Spent(now))
        return self._stop()

    def _keep(self, row: Mapping[str, object]) -> None:
        """H3. A text that is longer than the room left is kept as far as it fits."""
        text = row.get("text")
        if text == "":
            return
        room = MOST_TRANSCRIPT - self._transcript_bytes
        line = _line(row)
        if len(line) > room and isinstance(text, str) and room > _LEAST_ROOM:
            line = _line({**row, "text": text[: (room - _LEAST_ROOM // 2) // _LONGEST_CHARACTER], "cut": len(text)})
        if len(line) > room:
            self._left_out += 1
            return
        self._transcript.append(line)
        self._transcript_bytes += len(line) + 1


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps({"at_ns": time.time_ns(), **row}).encode("ascii")


def _path(start: Start) -> str:
    """Where the program and its interpreter are found; then the system's own."""
    own = [os.path.dirname(start.argv[0])] if start.argv[0].startswith("/") else []
    return ":".join(dict.fromkeys((*own, *DEFAULT_PATH.split(":"))))
