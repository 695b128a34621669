"""The watch: look, find what is due, begin it, start it, say what became of it; until somebody stops it.

    doubtful ones told ─▶ ┌─ sources look ─▶ due ─▶ take ─▶ begin ─▶ start ─▶ started | failed ─┐
                          └──────────────────── rest, until the next moment ────────────────────┘

Invariants
  U1  One process watches a workspace at a time.
  U2  A run is started by one call, after its firing is durable as BEGUN (E1). Whoever starts it comes back when the run
      is durable, not when it is done: killed before that, the firing is told as doubtful and never started again (E2).
  U3  Trouble with one trigger is told, once for each kind of trouble, and stops no other trigger.
  U4  A file of a queue is a job: while another run is under way it waits, and is offered again. What else fires then
      has failed: a schedule would pile up behind a long run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

from holdfast.engine.trigger_sources import Source
from holdfast.engine.triggers import Triggers
from holdfast.errors import HoldfastError, Locked
from holdfast.model.trigger import Firing, Told
from holdfast.store.firings import Firings

POLL_SECONDS = 1.0
# A look that takes long is followed by a rest that is this much longer: looking never takes more than a twentieth.
# Starting runs is no looking: however long that takes, what happens meanwhile is seen at once afterwards.
_IDLE = 20
_BUSY = timedelta(seconds=10)
_IN_DOUBT = "it was begun and whoever began it was killed: a run may have been started, and is not started again"


def utc_now() -> datetime:
    return datetime.now(UTC)


class Watch:
    """One round after another; a round is a look at the sources, and starting what is due."""

    def __init__(
        self,
        triggers: Triggers,
        sources: Sequence[Source],
        start: Callable[[Firing], None],
        tell: Callable[[Told], None],
    ) -> None:
        self._triggers, self._start, self._tell = triggers, start, tell
        self._sources = {source.trigger: source for source in sources}
        self._troubles: dict[str, str] = {}
        self._not_before: dict[str, datetime] = {}

    def begin(self, now: datetime) -> None:
        """What an earlier watch left in doubt is told before anything new begins (E2)."""
        for firing in self._triggers.doubtful():
            # Told before it is settled: killed in between, it is told again.
            self._tell(Told("missed", firing.trigger, _IN_DOUBT, firing.id))
            self._triggers.missed(firing, _IN_DOUBT)
        for name in self._triggers.ahead(now):
            self._tell(Told("left", name, "its last moment is ahead of the clock: the clock was set back"))

    def look(self, now: datetime) -> None:
        for name, source in self._sources.items():
            try:
                for told in source.look(self._triggers, now):
                    self._tell(told)
                self._troubles.pop(name, None)
            except HoldfastError as error:
                self._trouble(name, name, error.message)

    def fire(self, now: datetime) -> None:
        for firing in self._triggers.due(now):
            if self._not_before.get(firing.id, now) <= now:
                self._fire(firing, now)

    def _fire(self, firing: Firing, now: datetime) -> None:
        if not self._triggers.is_known(firing):
            self._miss(firing, "the configuration does not have this trigger any more")
            return
        source = self._sources.get(firing.trigger)
        try:
            gone = source.take(firing) if source is not None else ""
        except HoldfastError as error:
            self._waits(firing, error)
            return  # still DUE: the next round tries again
        if gone:
            self._troubles.pop(firing.id, None)
            self._miss(firing, gone)
        elif self._triggers.begin(firing):
            self._started(firing, now)

    def _started(self, firing: Firing, now: datetime) -> None:
        try:
            self._start(firing)
        except HoldfastError as error:
            if firing.kind == "queue" and isinstance(error, Locked):
                self._triggers.put_off(firing)
                self._not_before[firing.id] = now + _BUSY
                self._waits(firing, error)
                return
            self._triggers.failed(firing, error.message)
            self._tell(Told("failed", firing.trigger, error.message, firing.id))
            return
        self._troubles.pop(firing.id, None)
        self._not_before.pop(firing.id, None)
        self._triggers.started(firing)
        self._tell(Told("started", firing.trigger, _reason(firing), firing.id))

    def _miss(self, firing: Firing, why: str) -> None:
        self._tell(Told("missed", firing.trigger, why, firing.id))
        self._triggers.missed(firing, why, was="DUE")

    def _waits(self, firing: Firing, error: HoldfastError) -> None:
        self._trouble(firing.id, firing.trigger, f"it waits: {error.message}", firing.id)

    def _trouble(self, about: str, trigger: str, words: str, firing: str = "") -> None:
        if self._troubles.get(about) != words:
            self._troubles[about] = words
            self._tell(Told("left", trigger, words, firing))


_NOTHING: AbstractContextManager[object] = nullcontext()


def watch(
    triggers: Triggers,
    memory: Firings,
    sources: Sequence[Source],
    start: Callable[[Firing], None],
    *,
    tell: Callable[[Told], None],
    stop: threading.Event,
    clock: Callable[[], datetime] = utc_now,
    poll: float = POLL_SECONDS,
    within: AbstractContextManager[object] = _NOTHING,
) -> None:
    """Until `stop` is set. Locked when another process watches this workspace, before `within` is entered."""
    with memory.watching(), within:
        rounds = Watch(triggers, sources, start, tell)
        rounds.begin(clock())
        while not stop.is_set():
            began = time.monotonic()
            rounds.look(clock())
            took = time.monotonic() - began
            rounds.fire(clock())
            stop.wait(_rest(triggers.next(clock()), clock(), max(poll, _IDLE * took)))


def _rest(coming: datetime | None, now: datetime, longest: float) -> float:
    return longest if coming is None else min(longest, max(0.0, (coming - now).total_seconds()))


def _reason(firing: Firing) -> str:
    moment = datetime.fromtimestamp(firing.moment_ns / 1e9, UTC).isoformat(timespec="seconds")
    if firing.kind == "cron":
        return f"due at {moment}" + (
            "; earlier moments were missed, and are made up for by this one" if firing.late else ""
        )
    return f"{firing.kind}: {firing.what}" if firing.what else firing.kind
