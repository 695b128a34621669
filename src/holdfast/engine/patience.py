"""Patience of a driver: what it does while the database that machines share does not answer.

    the driver's thread ──work──▶ another thread ──▶ database
          │ twice a second, as long as there is no answer: stop asked for? time over? say that it is waited for
          ▼
    the answer; or DatabaseAway, and the run ends as if it had been killed: everything under way stays under way

Invariants
  A1  The driver's thread never waits in a call to the database: whatever that does (refuse, swallow, freeze), the run
      beats, is drawn, hears a wish to stop within a second, and says since when and until when it waits.
  A2  Being away costs nobody an attempt. What was asked for stays asked for, and what was done elsewhere meanwhile is
      found at the next sitting, which asks for the same items.
  A3  It is not waited for without end, and not for less than was said.
  A4  A run that ends without the database does not wait for a landing that waits for it: of that one nothing has begun,
      and nothing begins any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from holdfast.engine.durable import Engine, Item, State
from holdfast.engine.durable_database import is_away, trouble
from holdfast.errors import DatabaseAway
from holdfast.model.canonical import Json
from holdfast.model.run import DatabaseBack, DatabaseGone, RunRecord, RunWatcher
from holdfast.store.large_blobs import Stock

# For so long a database that is away is waited for. A restart or a failover takes a minute, an upgrade some minutes.
LONGEST_S = 600.0
STOPPED_BECAUSE = "the database was away"
_TICK_S = 0.2
# An answer that takes longer than that is told.
_SILENT_S = 5.0
_SILENT = "the engine's database does not answer"
_PAUSE_S = 0.5
_NS = 1_000_000_000
_T = TypeVar("_T")


def stopped_for_database(run: RunRecord) -> bool:
    return run.state == "STOPPED" and run.because.startswith(STOPPED_BECAUSE)


class Patience:
    """Of one sitting of a run, in the thread that makes it. `tick` breathes, and says why to stop."""

    def __init__(self, run: str, watcher: RunWatcher, tick: Callable[[], str], longest_s: float = LONGEST_S) -> None:
        self._run, self._watcher, self._longest_s = run, watcher, longest_s
        self.tick = tick
        self._thread = threading.get_ident()
        # Since when there is no answer, and whether that was told.
        self._since: float | None = None
        self._told = False
        # Landings that wait for the database, and whether the run ended without it.
        self._turn, self._fetching, self._left = threading.Lock(), 0, False

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Around what a landing needs of the database; DatabaseAway where the run ended meanwhile (A4)."""
        with self._turn:
            self._fetching += 1
        try:
            yield
        finally:
            with self._turn:
                self._fetching -= 1
                left = self._left
        if left:
            raise DatabaseAway("the run ended before the work could be fetched")

    def leave(self) -> bool:
        """The run ends without the database; whether that is all that a landing waits for (A4)."""
        with self._turn:
            self._left = True
            return self._fetching > 0

    def reached(self, work: Callable[[], _T]) -> _T:
        """What it gives, from another thread (A1). In any other thread than the driver's it is just called."""
        if threading.get_ident() != self._thread:
            return work()
        began = time.monotonic()
        while True:
            call = _Call(work)
            while not call.done.wait(_TICK_S):
                if time.monotonic() - began >= _SILENT_S:
                    self._wait(_SILENT, began)
            try:
                found = call.result()
            except DatabaseAway as error:  # the engine waits too, and not for so long (A3)
                self._wait(error.message, began)
                time.sleep(_PAUSE_S)
                continue
            self._back()
            return found

    def again(self, work: Callable[[], _T]) -> _T:
        """What it gives; done again for as long as the database is away. It holds nothing while it waits."""
        while True:
            try:
                return work()
            except Exception as error:
                if not is_away(error):
                    raise
                self._wait(trouble(error), time.monotonic())  # type: ignore[arg-type]
                time.sleep(_PAUSE_S)

    def _wait(self, why: str, began: float) -> None:
        """A3. The first words come as soon as anybody has to wait."""
        self._since = began if self._since is None else self._since
        waited = time.monotonic() - self._since
        now = time.time_ns()
        if not self._told:
            self._told = True
            since = now - int(waited * _NS)
            self._watcher(DatabaseGone(self._run, since, since + int(self._longest_s * _NS), why))
        if asked := self.tick():
            raise DatabaseAway(asked)
        if waited >= self._longest_s:
            raise DatabaseAway(f"{STOPPED_BECAUSE} for {self._longest_s / 60:g} minutes")

    def _back(self) -> None:
        if self._since is not None and self._told:
            self._watcher(DatabaseBack(self._run, int((time.monotonic() - self._since) * 1000)))
        self._since, self._told = None, False


class _Call(Generic[_T]):
    """Work in a thread of its own, which ends with the process at the latest."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self.done = threading.Event()
        self._work, self._found, self._error = work, list[_T](), list[BaseException]()
        threading.Thread(target=self._go, name="database", daemon=True).start()

    def _go(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self._error.append(error)
        finally:
            self.done.set()

    def result(self) -> _T:
        if self._error:
            raise self._error[0]
        return self._found[0]


class PatientItems:
    """`driving.Items`: an engine whose database may be away."""

    def __init__(self, engine: Engine, patience: Patience) -> None:
        self._engine, self._patience, self._reached = engine, patience, patience.reached

    def start_all(self, function: str, arguments: Mapping[str, Json], queue: str) -> None:
        self._reached(lambda: self._engine.start_all(function, arguments, queue))

    def start_here(self, id: str, function: str, argument: Json) -> None:
        self._reached(lambda: self._engine.start_here(id, function, argument))

    def start_again_here(self, id: str, function: str, argument: Json) -> None:
        self._reached(lambda: self._engine.start_again_here(id, function, argument))

    def wait(self, ids: Collection[str], within_s: float = 0.0) -> tuple[Item, ...]:
        return self._reached(lambda: self._engine.wait(ids, within_s))

    def states(self, ids: Collection[str]) -> dict[str, State]:
        return self._reached(lambda: self._engine.states(ids))

    def cancel(self, ids: Collection[str]) -> None:
        self._reached(lambda: self._engine.cancel(ids))

    def outdated(self, prefix: str) -> tuple[Item, ...]:
        return self._reached(lambda: self._engine.outdated(prefix))

    def take_from_the_lost(self, prefix: str) -> tuple[Item, ...]:
        return self._reached(lambda: self._engine.take_from_the_lost(prefix))

    def forget(self, prefix: str, older_than_days: float) -> int:
        return self._reached(lambda: self._engine.forget(prefix, older_than_days))

    def make_queues(self) -> None:
        self._reached(self._engine.make_queues)

    def rest(self, seconds: float) -> bool:
        return self._patience.leave() or self._engine.rest(seconds)


class PatientStock:
    """A stock that machines share, for the driver: each call is waited for as A1 says. What fails is raised."""

    def __init__(self, stock: Stock, patience: Patience) -> None:
        self._stock, self._reached = stock, patience.reached

    def has(self, digest: str) -> bool:
        return self._reached(lambda: self._stock.has(digest))

    def pieces(self, digest: str) -> Iterator[bytes]:
        found = self._stock.pieces(digest)
        while (piece := self._reached(lambda: next(found, None))) is not None:
            yield piece

    def take(self, digest: str, pieces: Iterable[bytes]) -> None:
        self._reached(lambda: self._stock.take(digest, pieces))
