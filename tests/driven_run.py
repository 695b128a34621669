"""A run in a test's hands: real book, real rules, real roadmap file; only the engine runs nothing.

sitting = Sitting(ground, "# R\n\n- [ ] One\n")
record = sitting.drive({"One": [worked(), landed()]})

Each task has a list of endings, used one after the other; what is not told is worked on and landed as it should be.
A new `Sitting` over the same ground and engine is what comes after a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from guarded import ME, Ground
from holdfast.engine.driver import LAND, WORK, Driver
from holdfast.engine.durable import Item
from holdfast.engine.orders import (
    Answer,
    Asked,
    LandAnswer,
    Landed,
    Unlanded,
    Unworked,
    Worked,
    land_order_from,
    order_from,
    packed,
)
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.engine.roadmap_orders import RoadmapOrders
from holdfast.engine.run_world import RoadmapWorld
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.model.run import RunEvent, RunOptions, RunRecord
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import ANSWER, answer_body, run_from, task_record
from holdfast.store.chain import Record
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.runs import Runs, Said
from holdfast.testing import HandEngine

PATH = "ROADMAP.md"
PROPOSAL = "ab" * 32
DAY_NS = 86_400 * 10**9
# How an item ends: an answer, or something that happens to it.
Ending = Answer | LandAnswer | Callable[[HandEngine, str], None] | dict[str, Any]


def worked(files: int = 1) -> Worked:
    return Worked(PROPOSAL, "hand", files)


def unworked(category: Any = "test", *, final: bool = False, evidence: str = "it failed") -> Unworked:
    return Unworked(category, evidence, evidence, "hand", final=final)


def landed(execution: str = "e-1") -> Landed:
    return Landed(execution, "c0ffee", 1)


def asked(simulation: str = "s-1") -> Asked:
    return Asked(simulation, "a person must look")


def unlanded(category: Any = "conflict", *, final: bool = False, evidence: str = "it does not fit") -> Unlanded:
    return Unlanded(category, evidence, evidence, final)


def lost(engine: HandEngine, id: str) -> None:
    """Whoever had it was given up."""
    engine.take_away(id)


def failed(engine: HandEngine, id: str) -> None:
    engine.fail(id, "the engine broke")


def cancelled(engine: HandEngine, id: str) -> None:
    engine.cancel([id])


def still(engine: HandEngine, id: str) -> None:
    """It goes on, and others may end before it."""


class Killed(BaseException):
    """The driver is no more."""


class Sitting:
    """One sitting of a run; without `run`, of a new one."""

    def __init__(
        self,
        ground: Ground,
        roadmap: str | None = None,
        *,
        options: RunOptions = RunOptions(),  # noqa: B008  (a frozen value)
        engine: HandEngine | None = None,
        run: RunRecord | None = None,
        overlapping: bool = True,
        route: Callable[[Any], str] = lambda task: "hand",
        others: Callable[[Any], tuple[str, ...]] = lambda task: (),
        told_here: dict[str, Any] | None = None,
    ) -> None:
        self.ground, self.pipeline = ground, ground.hf.pipeline
        self.file = Path(ground.path / PATH)
        if roadmap is not None:
            self.file.write_text(roadmap, encoding="utf-8")
        self.engine = engine or HandEngine()
        found = run or begin_run(self.pipeline, RunRecord("", PATH, options, by=ME))
        self.events: list[RunEvent] = []
        self.book = TaskBook(self.pipeline, found, self.events.append)
        self.stopping, self.seconds, self.later_ns = "", 0.0, 0
        source = RoadmapFile(self.pipeline.site, PATH)
        self.world = RoadmapWorld(
            self.pipeline, source, found.options, others, lambda: self.stopping, lambda book, roadmap: None, self._clock
        )
        stock = LargeBlobs(self.pipeline.site.state)
        self.orders = RoadmapOrders(
            found, stock, lambda: self.world.now, route, lambda: "",
            mirrored=overlapping, finds=lambda base: not base,
        )  # fmt: skip
        self.driver = Driver(
            self.book, self.engine, self.orders, self.world, self.events.append, "w",
            overlapping=overlapping, told_here=told_here, clock=self._clock,
            now_ns=lambda: time.time_ns() + self.later_ns, pause=lambda seconds: self.pause(seconds),
        )  # fmt: skip
        self.pauses = 0

    def again(self, **changed: Any) -> Sitting:
        """What whoever opens it next finds in the ledger."""
        row = Runs(self.pipeline.records).run(self.book.run.id)
        assert row is not None
        changed.setdefault("overlapping", self.driver._overlapping)
        return Sitting(self.ground, engine=self.engine, run=run_from(row.document), **changed)

    def _clock(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        """Somebody waits: time passes, and after many pauses with nothing to do it hangs."""
        self.seconds += max(seconds, 2.0)
        self.pauses += 1
        assert self.pauses < 200, "it goes on for ever"

    # ── how it goes ──

    def drive(self, endings: Mapping[str, Iterable[Ending]] | None = None) -> RunRecord:
        told = {title: list(rows) for title, rows in (endings or {}).items()}

        def end_one() -> None:
            self.pause(0.5)
            for item in self.engine.open():
                rows = told.get(self.title_of(item), [])
                ending = rows.pop(0) if rows else worked() if item.function == WORK else landed(f"e-{item.id}")
                self.settle(item, ending)
                if ending is not still:
                    return

        self.engine.on_pause = end_one
        return self.driver.drive()

    def settle(self, item: Item, ending: Ending) -> None:
        if isinstance(ending, dict):
            self.engine.end(item.id, ending)
        elif callable(ending):
            ending(self.engine, item.id)
        else:
            self.engine.end(item.id, packed(ending))

    def title_of(self, item: Item) -> str:
        argument = self.engine.argument(item.id)
        assert isinstance(argument, dict)
        order = order_from(argument) if item.function == WORK else land_order_from(argument).order
        return order.intent

    # ── what there is ──

    def record(self, title: str) -> TaskRecord:
        found = next(task.id for task in self.world.now.roadmap.tasks if task.title.startswith(title))
        return self.book.of(found)

    def states(self) -> dict[str, str]:
        return {task.title: self.book.of(task.id).state for task in self.world.now.roadmap.tasks}

    def moves(self, title: str) -> list[str]:
        """The states that a task went through, as the ledger tells them."""
        task = self.record(title).task
        bodies = [entry.body for entry in self.pipeline.ledger.entries() if entry.kind == "task"]
        found = [str(body["state"]) for body in bodies if (body["run"], body["task"]) == (self.book.run.id, task)]
        return [state for at, state in enumerate(found) if not at or found[at - 1] != state]

    def say(self, title: str, *, yes: bool, skip: bool = False) -> None:
        self.say_of(self.record(title).task, yes=yes, skip=skip)

    def say_of(self, task: str, *, yes: bool, skip: bool = False) -> None:
        asked = task_record(Runs(self.pipeline.records), self.book.run.id, task)
        said = Said(self.book.run.id, task, yes, skip, ME, "", time.time_ns(), asked.asked, asked.simulation)
        self.pipeline.note_run([Record(ANSWER, answer_body(said), said.at_ns)])

    def landings(self) -> list[str]:
        return [asked.id for asked in self.engine.asked if asked.function == LAND]

    def works(self) -> list[str]:
        return [asked.id for asked in self.engine.asked if asked.function == WORK]
