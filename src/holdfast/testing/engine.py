"""An engine that runs nothing: your test says how every item ends, and when.

    engine = HandEngine()
    engine.on_pause = lambda: engine.end(engine.open()[0].id, {"kind": "worked", …})

Invariants
  Q1  It is `durable.Engine` to whoever uses it: an item is its id (starting it again starts nothing), an ended item
      stays as it ended, and what was given away to others under a new token is never told as done.
  Q2  It outlives whoever drives it: make the driver anew over the same engine, and it is as after a kill.
  Q3  Somebody who waits for what nobody ends does not hang: `on_pause` is asked, and by default it fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from holdfast.engine.durable import ENDED, ENGINE_VERSION, ITEM_ID, OPEN, Failure, Item, State
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.canonical import Json


class Asked(NamedTuple):
    """One start that started something."""

    id: str
    function: str
    argument: Json
    queue: str
    priority: int


def _nobody_ends_it() -> None:
    raise AssertionError("somebody waits, and no item will ever end")


class HandEngine:
    """`durable.Engine`. `asked` is what was started, in order; `on_pause` is called whenever somebody waits in vain."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._signals: dict[tuple[str, str], Json] = {}
        self.asked: list[Asked] = []
        self.on_pause: Callable[[], None] = _nobody_ends_it
        self.lost = False

    # ── what the test decides ──

    def open(self, function: str = "") -> tuple[Item, ...]:
        """What nobody has ended, oldest first."""
        return tuple(item for item in self.items(states=OPEN) if not function or item.function == function)

    def argument(self, id: str) -> Json:
        return next(asked.argument for asked in self.asked if asked.id == id)

    def end(self, id: str, value: Json) -> None:
        self._over(id, "done", value=value)

    def fail(self, id: str, message: str, code: str = "internal") -> None:
        self._over(id, "failed", failure=Failure(code, message))

    def take_away(self, id: str) -> None:
        """Whoever works at it was given up, and told its end too late (Q1)."""
        self._over(id, "stale")

    def lose(self, id: str) -> None:
        """The database forgot it, as one may that takes over from another."""
        del self._items[id]

    def age(self, id: str, version: str = "an older release") -> None:
        """It was begun by another release."""
        self._items[id] = self._known(id)._replace(version=version)

    def _over(self, id: str, state: State, value: Json = None, failure: Failure | None = None) -> None:
        item = self._known(id)
        if not item.over:
            self._items[id] = item._replace(state=state, value=value, failure=failure, begun=1, worker="hand")

    def _known(self, id: str) -> Item:
        if id not in self._items:
            raise UnknownId(f"there is no item {id}")
        return self._items[id]

    # ── durable.Desk ──

    def start(self, id: str, function: str, argument: Json, queue: str, *, priority: int = 0) -> None:
        if not ITEM_ID.fullmatch(id):
            raise InvalidInput(f"{id[:80]!r} is no name of an item")
        if id not in self._items:
            self.asked.append(Asked(id, function, argument, queue, priority))
            self._items[id] = Item(id, function, "queued", queue)

    def start_all(self, function: str, arguments: Mapping[str, Json], queue: str) -> None:
        for id, argument in arguments.items():
            self.start(id, function, argument, queue)

    def start_here(self, id: str, function: str, argument: Json) -> None:
        self.start(id, function, argument, "")

    def start_again_here(self, id: str, function: str, argument: Json) -> None:
        self.start_here(id, function, argument)

    def make_queues(self) -> None:
        """There are none."""

    def rest(self, seconds: float) -> bool:
        return True

    def await_signal(self, id: str, within_s: float) -> None:
        self.start(id, "signal", None, "waits")

    def signal(self, id: str, message: Json, *, key: str = "") -> None:
        self._known(id)
        if not key or (id, key) not in self._signals:
            self._signals[id, key] = message
            self._over(id, "done", value=message)

    def items(self, prefix: str = "", states: Collection[State] = (), *, limit: int = 0) -> tuple[Item, ...]:
        found = [item for item in self._items.values() if item.id.startswith(prefix)]
        chosen = [item for item in found if not states or item.state in states]
        return tuple(chosen[:limit] if limit else chosen)

    def find(self, id: str) -> Item | None:
        return self._items.get(id)

    def wait(self, ids: Collection[str], within_s: float = 0.0) -> tuple[Item, ...]:
        found = self._ended(ids)
        if not found and within_s > 0 and ids:
            self.on_pause()
            found = self._ended(ids)
        return found

    def _ended(self, ids: Collection[str]) -> tuple[Item, ...]:
        return tuple(item for id in ids if (item := self._items.get(id)) is not None and item.state in ENDED)

    def cancel(self, ids: Collection[str]) -> None:
        for id in ids:
            if id in self._items:
                self._over(id, "cancelled")

    def states(self, ids: Collection[str]) -> dict[str, State]:
        return {id: self._items[id].state for id in ids if id in self._items}

    def is_newest(self, id: str, token: int) -> bool:
        return self._known(id).token == token

    def forget(self, prefix: str, older_than_days: float) -> int:
        """Everything here has just ended, so only `older_than_days=0` finds something."""
        gone = [item.id for item in self.items(prefix, ENDED)] if older_than_days <= 0 else []
        for id in gone:
            del self._items[id]
        return len(gone)

    def close(self) -> None:
        """There is nothing to close."""

    # ── durable.Engine ──

    @property
    def executor(self) -> str:
        return "hand"

    def outdated(self, prefix: str) -> tuple[Item, ...]:
        return tuple(item for item in self.items(prefix, OPEN) if item.version != ENGINE_VERSION)

    def take_from_the_lost(self, prefix: str) -> tuple[Item, ...]:
        return ()

    def remarks(self) -> tuple[str, ...]:
        return ()

    def stop(self, grace_s: float) -> bool:
        return True
