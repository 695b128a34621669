"""Who else is told what a run does: `hf.on("TASK_COMPLETED", function)`.

Invariants
  H1  A listener that raises never stops a run and keeps nobody else from being told. The first time it is told to
      `warn`, with its name; after that only counted. Ctrl-C and `sys.exit` are no errors and pass through.
  H2  Everybody sees all events in the same order, one at a time: an event that comes up while one is told, from a
      listener or from another thread, is told after it, by whoever is telling.
  H3  Of one event, listeners hear in the order in which they were added. One that was removed meanwhile is not told;
      one that was added meanwhile is told from the next event on.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from holdfast.engine.run_log import without_secrets
from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.model.run import EVENTS, RunEvent, RunWatcher
from holdfast.store.line_log import cut

EVERY = "*"
_LIMIT = 200


class _Entry(NamedTuple):
    event: str
    function: RunWatcher


class Listeners:
    """A `RunWatcher` that passes events on to others."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._entries: tuple[_Entry, ...] = ()
        self._waiting: deque[RunEvent] = deque()
        self._turn = threading.Lock()
        self._telling = False
        # Compared, not hashed: a listener is any callable.
        self._told: list[_Entry] = []
        # How often a listener raised.
        self.failures = 0

    def on(self, event: str, function: RunWatcher) -> None:
        """Call the function with each event of this name, or with all (`*`). Twice the same is once."""
        if event not in (*EVENTS, EVERY):
            raise InvalidInput(f"there is no event {printable(event)}", hint=f"Use one of: {', '.join(EVENTS)}, *")
        entry = _Entry(event, function)
        with self._turn:
            if entry not in self._entries:
                self._entries = (*self._entries, entry)

    def off(self, event: str, function: RunWatcher) -> None:
        """From now on it is not called, whether it was before or not."""
        gone = _Entry(event, function)
        with self._turn:
            self._entries = tuple(entry for entry in self._entries if entry != gone)

    def __call__(self, event: RunEvent) -> None:
        with self._turn:
            self._waiting.append(event)
            if self._telling:
                return  # H2: whoever is telling goes on with it
            self._telling = True
        try:
            while (following := self._next()) is not None:
                self._tell(following)
        except BaseException:
            # Nobody would ever tell again otherwise; what waits is told with the next event.
            self._telling = False
            raise

    def _next(self) -> RunEvent | None:
        """The end of telling and the look at what waits are one step, so that nothing is left lying."""
        with self._turn:
            if self._waiting:
                return self._waiting.popleft()
            self._telling = False
            return None

    def _tell(self, event: RunEvent) -> None:
        for entry in self._entries:
            if entry.event in (event.event, EVERY) and entry in self._entries:
                self._call(entry, event)

    def _call(self, entry: _Entry, event: RunEvent) -> None:
        try:
            entry.function(event)
        except Exception as error:  # noqa: BLE001  somebody else's code; it must not stop a run (H1)
            self.failures += 1
            if entry not in self._told:
                self._told.append(entry)
                name = str(getattr(entry.function, "__qualname__", type(entry.function).__name__))
                # This knows what to do with an error that cannot even be shown.
                reason = cut(traceback.format_exception_only(error)[-1].strip(), _LIMIT, without_secrets)
                self._warn(f"the listener {printable(name)} failed at {event.event}: {printable(reason)}")
