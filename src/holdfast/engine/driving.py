"""What the driver needs from others: orders, rules, and the world as people and budgets make it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from holdfast.engine.durable import Item, State
from holdfast.engine.escalation import Escalation
from holdfast.engine.orders import Landed, LandOrder, Order, Unlanded, Unworked
from holdfast.engine.taskbook import TaskBook
from holdfast.errors import Shortage
from holdfast.model.canonical import Json
from holdfast.model.task import Roadmap, Task, TaskRecord, Tried


class Items(Protocol):
    """What the driver asks the engine for; see `durable.Engine`."""

    def start_all(self, function: str, arguments: Mapping[str, Json], queue: str) -> None: ...

    def start_here(self, id: str, function: str, argument: Json) -> None: ...

    def start_again_here(self, id: str, function: str, argument: Json) -> None: ...

    def wait(self, ids: Collection[str], within_s: float = 0.0) -> tuple[Item, ...]: ...

    def states(self, ids: Collection[str]) -> dict[str, State]: ...

    def cancel(self, ids: Collection[str]) -> None: ...

    def outdated(self, prefix: str) -> tuple[Item, ...]: ...

    def take_from_the_lost(self, prefix: str) -> tuple[Item, ...]: ...

    def rest(self, seconds: float) -> bool: ...

    def make_queues(self) -> None: ...


class Orders(Protocol):
    """Orders are made once, when an attempt begins, and kept: what lands is an answer to what was asked."""

    def made(self, task: Task, record: TaskRecord) -> TaskRecord:
        """The record with its agent, and an order that is kept; Blocked or InvalidInput when nobody can be asked."""
        ...

    def order(self, record: TaskRecord) -> Order:
        """UnknownId when it is kept no more."""
        ...

    def fits(self, record: TaskRecord) -> bool:
        """Whether those who work in this sitting may be given the order as it was written.

        Also where it is kept no more: asking for it says so.
        """
        ...

    def land_order(self, record: TaskRecord) -> LandOrder: ...


class Verdict(NamedTuple):
    """What is done about an attempt that came to nothing: the record after it, and the attempt as it is kept."""

    record: TaskRecord
    tried: Tried


class Rules(Protocol):
    """What may start and land, and what follows from a failure; made from one reading of the roadmap."""

    roadmap: Roadmap

    def has(self, task: str) -> bool: ...

    def moved(self, record: TaskRecord) -> None: ...

    def ready(self) -> Iterable[Task]: ...

    def landing(self, worked: Sequence[str], *, in_turn: bool = True) -> str:
        """Which of them lands next, and never another one; empty while it is nobody's turn."""
        ...

    def blocked(self) -> Iterable[tuple[str, str]]: ...

    def after(self, record: TaskRecord, failed: Unworked | Unlanded) -> Verdict: ...


class World(Protocol):
    """What the driver must know of the world; everything here is read afresh."""

    def rules(self, book: TaskBook) -> Rules:
        """The same object as long as the roadmap stays as it is."""
        ...

    def answered(self, record: TaskRecord) -> TaskRecord | None:
        """The record as it goes on after a person's answer; None while there is none."""
        ...

    def exhausted(self, book: TaskBook, worked_ms: int) -> str:
        """Why the budget of the run is used up; empty while it is not."""
        ...

    def short_of(self, what: Shortage) -> str:
        """Why nothing more begins, where an agent had too little of this; empty where there is no such budget."""
        ...

    def escalated(self, escalation: Escalation) -> None:
        """Into the log that tells people what they should hear of."""
        ...

    def stop_asked(self) -> str: ...

    def landed(self, record: TaskRecord) -> Landed | None:
        """The landing of what was asked last for this task, if the ledger knows one that stands."""
        ...

    def taken_back(self, execution: str) -> bool:
        """Whether somebody undid what landed, while nobody had written it down."""
        ...

    def said(self, record: TaskRecord, words: str) -> None:
        """What a worker elsewhere tells of its agent, for the ledger; Tampering when it is not told as one is."""
        ...

    def moved(self, book: TaskBook, *, last: bool = False) -> None:
        """Something moved: side files, and check boxes that a crash left behind. `last`: the run ends."""
        ...
