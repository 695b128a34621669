"""Any history at all: endings of every kind, answers, edits, stops and kills, in any order. The promise holds in each.

A lane of a few lines stands for the real one: it knows which orders landed, and landing one again is the same landing.
What it knows is compared with what the driver's book says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from driven_run import DAY_NS, Killed, Sitting, asked, landed, unlanded, unworked, worked
from guarded import Ground, guard
from holdfast.engine.driver import LAND, WORK
from holdfast.engine.durable import Item
from holdfast.engine.orders import LandOrder, land_order_from, packed
from holdfast.model.fix import Category
from holdfast.model.run import RunOptions, RunRecord
from holdfast.settlement.runs import task_records
from holdfast.store.runs import Runs
from holdfast.testing import HandEngine

BASE = "# R\n\n- [ ] One\n- [ ] Two\n- [ ] Three (depends on One)\n- [ ] Four\n"
EVENTS = 40
SITTINGS = 60


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    found = guard(tmp_path_factory.mktemp("driver") / "workspace", {"ROADMAP.md": BASE.encode()})
    yield found
    found.hf.close()


class KillingEngine(HandEngine):
    """Its user dies just before or just after it asked for something, when `kill` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.kill = lambda: ""

    def start(self, id: str, function: str, argument: Any, queue: str, *, priority: int = 0) -> None:
        moment = self.kill()
        if moment == "before":
            raise Killed
        super().start(id, function, argument, queue, priority=priority)
        if moment == "after":
            raise Killed


class History:
    """One run, from its start to its end, whatever `data` lets happen to it."""

    def __init__(self, ground: Ground, data: st.DataObject) -> None:
        self.data, self.left, self.added = data, EVENTS, 0
        self.landed: dict[str, str] = {}
        self.tasks: dict[str, set[str]] = {}
        self.refused: set[str] = set()
        options = RunOptions(
            parallel=data.draw(st.integers(1, 3), "parallel"),
            most_tasks=data.draw(st.sampled_from((0, 0, 2)), "most"),
            attempts=data.draw(st.integers(1, 4), "attempts"),
            landing=data.draw(st.sampled_from(("finished", "roadmap")), "landing"),
            ask=data.draw(st.sampled_from(((), ("before",))), "ask"),
            on_failure=data.draw(st.sampled_from(("continue", "stop")), "on failure"),
        )
        self.overlapping = options.parallel > 1
        engine = KillingEngine()
        engine.kill = self.when_to_die
        self.now = Sitting(ground, BASE, options=options, engine=engine, overlapping=self.overlapping)

    def draw(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def when_to_die(self) -> str:
        if self.left <= 0:
            return ""
        return str(self.draw("", "", "", "", "", "", "before", "after"))

    # ── sitting after sitting ──

    def lived(self) -> RunRecord:
        for _ in range(SITTINGS):
            self.left -= 1
            self.now.later_ns = DAY_NS
            self.now.engine.on_pause = self.happens
            try:
                run = self.now.driver.drive()
            except Killed:
                event("killed")
                self.now = self.reopened()
                continue
            event(f"ended {run.state}")
            if run.state == "FINISHED":
                return run
            if run.state == "WAITING":
                self.answer_all()
            self.now = self.reopened()
        raise AssertionError(f"it never ends: {self.now.states()}")

    def reopened(self) -> Sitting:
        """The tables are the fold of the ledger: what comes back is what was there."""
        after = self.now.again()
        assert after.book.records == self.now.book.records
        return after

    def answer_all(self) -> None:
        for record in self.now.book.in_state("NEEDS_REVIEW"):
            self.say(record.task, self.draw("yes", "yes", "no", "skip") if self.left > 0 else "skip")

    def say(self, task: str, word: str) -> None:
        if word != "yes":
            self.refused.add(task)
        self.now.say_of(task, yes=word == "yes", skip=word == "skip")

    # ── what happens while it waits ──

    def happens(self) -> None:
        self.now.pause(0.5)
        self.left -= 1
        self.hold()
        items = self.now.engine.open()
        item = self.draw(*items)
        if self.left <= 0:
            self.end(items[0], benign=True)
            return
        what = self.draw("end", "end", "end", "end", "edit", "answer", "stop", "die")
        event(what)
        if what == "end":
            self.end(item, benign=False)
        elif what == "edit":
            self.edit()
        elif what == "answer":
            waiting = self.now.book.in_state("NEEDS_REVIEW")
            if waiting:
                self.say(self.draw(*waiting).task, self.draw("yes", "no", "skip"))
        elif what == "stop":
            self.now.stopping = "somebody"
        else:
            raise Killed

    def end(self, item: Item, *, benign: bool) -> None:
        if item.function == WORK:
            self.end_work(item, benign=benign)
        else:
            argument = self.now.engine.argument(item.id)
            assert isinstance(argument, dict)
            self.end_landing(item, land_order_from(argument), benign=benign)

    def end_work(self, item: Item, *, benign: bool) -> None:
        how = "worked" if benign else self.draw("worked", "worked", "unworked", "broken", "nonsense")
        if how == "worked":
            self.now.engine.end(item.id, packed(worked()))
        elif how == "unworked":
            category = self.draw(*get_args(Category))
            failed = unworked(category, final=self.draw(False, False, True), evidence=self.draw("red", "green"))
            self.now.engine.end(item.id, packed(failed))
        elif how == "nonsense":
            self.now.engine.end(item.id, packed(landed("e-nobody")))
        else:
            self.broken(item)

    def end_landing(self, item: Item, order: LandOrder, *, benign: bool) -> None:
        """The lane: an order that landed is landed, whatever is told about it."""
        id = order.order.id
        how = "land" if benign or id in self.landed else self.draw("land", "land", "ask", "unland", "broken")
        if how == "land":
            execution = self.landed.setdefault(id, f"e-{len(self.landed)}")
            self.tasks.setdefault(order.order.task, set()).add(id)
            if benign or self.draw(True, True, False):
                self.now.engine.end(item.id, packed(landed(execution)))
            else:
                self.broken(item)  # it stands, and nobody was told
        elif how == "ask":
            self.now.engine.end(item.id, packed(asked(f"s-{self.left}")))
        elif how == "unland":
            failed = unlanded(self.draw("conflict", "test", "unknown"), final=self.draw(False, True))
            self.now.engine.end(item.id, packed(failed))
        else:
            self.broken(item)

    def broken(self, item: Item) -> None:
        how = self.draw("failed", "lost", "cancelled", "aged")
        engine = self.now.engine
        if how == "failed":
            engine.fail(item.id, "broken")
        elif how == "lost":
            engine.take_away(item.id)
        elif how == "cancelled":
            engine.cancel([item.id])
        else:
            engine.age(item.id)
            raise Killed

    def edit(self) -> None:
        text = self.now.file.read_text(encoding="utf-8")
        rows = re.findall(r"- \[.\] .*\n", text)
        how = self.draw("add", "remove", "reword", "tick")
        if how == "add" or not rows:
            self.added += 1
            self.now.file.write_text(f"{text}- [ ] Added {self.added}\n", encoding="utf-8")
            return
        row = self.draw(*rows)
        after = {"remove": "", "reword": row.rstrip() + " again\n", "tick": row.replace("[ ]", "[x]")}[how]
        self.now.file.write_text(text.replace(row, after, 1), encoding="utf-8")

    # ── what must hold ──

    def hold(self) -> None:
        engine, book = self.now.engine, self.now.book
        assert len(engine.open(LAND)) <= 1
        if not self.overlapping:
            assert not (engine.open(LAND) and engine.open(WORK))
        assert len(engine.open(WORK)) <= book.run.options.parallel
        most = book.run.options.most_tasks
        assert not most or book.begun <= most
        self.hold_book()

    def hold_book(self) -> None:
        for task, orders in self.tasks.items():
            assert len(orders) == 1, f"{task} landed {len(orders)} times"
        for record in self.now.book.in_state("COMPLETED"):
            assert record.execution in {self.landed[id] for id in self.tasks.get(record.task, ())}, record


# Without shrinking: a history is read as it is, and a shorter one would take minutes to find.
@pytest.mark.long
@settings(
    max_examples=60, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
@given(data=st.data())
def test_whatever_happens_a_task_lands_once_or_not_at_all(ground: Ground, data: st.DataObject) -> None:
    """The run ends; what landed is completed unless a person said no; nothing else is; no move is against the table."""
    history = History(ground, data)
    run = history.lived()
    history.hold_book()
    book = history.now.again().book
    told = task_records(Runs(ground.hf.pipeline.records), run.id)
    assert told == book.records
    for task in history.tasks:
        assert book.of(task).state == "COMPLETED" or task in history.refused, book.of(task)
    assert not history.now.engine.open()


def test_nothing_is_begun_once_somebody_said_stop(tmp_path: Path) -> None:
    """Work and landings of before end; what is asked of the engine afterwards is a landing that was begun before."""
    ground = guard(tmp_path / "workspace", {"ROADMAP.md": BASE.encode()})
    sitting = Sitting(ground, BASE, options=RunOptions(parallel=3))
    turns = iter(("work", "stop", "fail", "land"))

    def happens() -> None:
        sitting.pause(0.5)
        what = next(turns)
        if what == "work":
            sitting.engine.end(sitting.engine.open(WORK)[0].id, packed(worked()))
        elif what == "stop":
            sitting.stopping = "somebody"
            happens.before = len(sitting.engine.asked)  # type: ignore[attr-defined]
        elif what == "fail":
            sitting.engine.fail(sitting.engine.open(LAND)[0].id, "broken")
        else:
            sitting.engine.end(sitting.engine.open(LAND)[0].id, packed(landed()))

    sitting.engine.on_pause = happens
    assert sitting.driver.drive().state == "STOPPED"
    later = sitting.engine.asked[happens.before :]  # type: ignore[attr-defined]
    assert [row.function for row in later] == [LAND] and sitting.record("One").state == "COMPLETED"
    ground.hf.close()
