"""A run put together: what lands is what the book says, whatever stands in the database of the engine."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from guarded import ME, Ground, put
from holdfast.engine.driver import LAND, WORK
from holdfast.engine.durable import Database
from holdfast.engine.expedition import Outfit, booked_landing, document_of, go, noted, registry
from holdfast.engine.grounds import Grounds
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.orders import LandOrder, Order, item_id, packed
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import DiskFull, HoldfastError, InvalidInput, Tampering
from holdfast.model.configuration import Budget
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import Task, TaskRecord
from holdfast.store.large_blobs import LargeBlobs
from holdfast.wiring.opening import pipeline_at
from laned import landings, order_of, proposed, site


class Item(NamedTuple):
    """What a function sees of the engine."""

    id: str
    token: int = 1
    stopping: bool = False


class Booked(NamedTuple):
    ground: Ground
    book: TaskBook
    order: LandOrder
    told_here: dict[str, Any]

    def land(self, item: str, argument: LandOrder) -> Any:
        outfit = Outfit(
            "w-1", Database(str(self.ground.state)), lambda: nullcontext(self.ground.hf.pipeline),
            Grounds(str(self.ground.path), pipeline_at), checkpoint_of, lambda task: "hand", {}, lambda task: (),
            lambda event: None, lambda book, roadmap: None, lambda: "",
        )  # fmt: skip
        functions = noted(registry(outfit, self.book.run, Budget), self.told_here)
        return functions[LAND](Item(item), packed(argument))  # type: ignore[arg-type]

    @property
    def record(self) -> TaskRecord:
        return self.book.of(self.order.order.task)


@pytest.fixture
def booked(tmp_path: Path) -> Iterator[Booked]:
    """A landing that is under way, of a run whose person wants to look before anything lands."""
    ground = site(tmp_path / "workspace")
    run = begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", RunOptions(ask=("after",)), by=ME))
    order = proposed(ground, put("new.py", b"N = 1\n"), order=order_of(ground)._replace(run=run.id))
    digest = LargeBlobs(ground.hf.site.state).put(json.dumps(packed(order.order), sort_keys=True).encode())
    book = TaskBook(ground.hf.pipeline, run, lambda event: None)
    record = TaskRecord(run.id, order.order.task, attempt=1, token=1, order=digest, proposal=order.proposal)
    book.move(record._replace(state="IN_PROGRESS"))
    book.move(record._replace(state="VALIDATING", turn=1, landing=True))
    yield Booked(ground, book, order, {})
    ground.hf.close()


def test_a_full_disk_stops_a_run_and_is_no_defect(tmp_path: Path) -> None:
    """Where nothing can be written down any more the run ends as DiskFull, with how to go on; any other error stays."""
    pytest.importorskip("dbos", reason="the extra `run` is not installed")
    ground = site(tmp_path / "workspace")
    (ground.path / "ROADMAP.md").write_text("# Plan\n\n- [ ] Create a.py\n")
    for number, expected in ((errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, OSError)):

        def route(task: Task, number: int = number) -> str:
            raise OSError(number, os.strerror(number))

        outfit = Outfit(
            "w-1", Database(str(ground.state)), lambda: nullcontext(ground.hf.pipeline),
            Grounds(str(ground.path), pipeline_at), checkpoint_of, route, {}, lambda task: (),
            lambda event: None, lambda book, roadmap: None, lambda: "",
        )  # fmt: skip
        run = begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", by=ME))
        with pytest.raises(expected, match=os.strerror(number)):
            go(ground.hf.pipeline, run, outfit)
    ground.hf.close()


def test_nobody_gives_a_yes_by_writing_to_the_database(booked: Booked) -> None:
    """An argument that says yes to everything, and that nobody is to be asked: the person is asked all the same."""
    forged = booked.order._replace(yes=True, ask_after=False, cleared_by=ME, by="somebody else")
    answer = booked.land(item_id(booked.record), forged)
    assert answer["kind"] == "asked" and not landings(booked.ground)
    assert booked.told_here == {item_id(booked.record): answer}


def test_nobody_chooses_what_lands_by_writing_to_the_database(booked: Booked) -> None:
    """Another proposal in the argument is not looked at."""
    other = proposed(booked.ground, put("bad.py", b"B = 1\n"), order=booked.order.order)
    answer = booked.land(item_id(booked.record), other)
    assert answer["kind"] == "asked"
    simulated, _ = booked.ground.hf.kept(answer["simulation"])
    assert [change.path for change in simulated.change_set.changes] == ["new.py"]


@pytest.mark.parametrize("item", ["an older turn", "another attempt", "something else"])
def test_what_is_not_under_way_does_not_land(booked: Booked, item: str) -> None:
    """An item that the engine kept from an earlier turn, or that somebody put there."""
    id = item_id(booked.record)
    ids = {"an older turn": id[:-1] + "0", "another attempt": id.replace(".1.1.", ".2.2."), "something else": "x"}
    with pytest.raises(Tampering, match="no landing that is under way"):
        booked.land(ids[item], booked.order)
    assert not landings(booked.ground)


def test_a_task_that_is_not_landing_does_not_land(booked: Booked) -> None:
    """Nor one that nobody knows."""
    id = item_id(booked.record)
    booked.book.move(booked.record._replace(landing=False, state="PENDING"))
    for task in (booked.order.order.task, "nobody"):
        with pytest.raises(Tampering):
            booked_landing(booked.ground.hf.pipeline, booked.book.run, task, id)


class Asking(NamedTuple):
    """A task that is being worked on, and whoever asks for work; `asked` is what would have been worked on here."""

    ground: Ground
    run: RunRecord
    book: TaskBook
    order: Order
    asked: list[Order]

    def work(self, item: str, argument: Order) -> None:
        def place(order: Order) -> Any:
            self.asked.append(order)
            raise InvalidInput("nobody works in this test")

        outfit = Outfit(
            "w-1", Database(str(self.ground.state)), lambda: nullcontext(self.ground.hf.pipeline),
            place, checkpoint_of, lambda task: "hand", {}, lambda task: (),
            lambda event: None, lambda book, roadmap: None, lambda: "",
        )  # fmt: skip
        registry(outfit, self.run, Budget)[WORK](Item(item), packed(argument))  # type: ignore[arg-type]


def asking(tmp_path: Path, *, here: bool = True) -> Asking:
    ground = site(tmp_path / "workspace")
    run = begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", RunOptions(here=here), by=ME))
    order = order_of(ground)._replace(run=run.id)
    digest = LargeBlobs(ground.hf.site.state).put(json.dumps(packed(order), sort_keys=True).encode())
    book = TaskBook(ground.hf.pipeline, run, lambda event: None)
    book.move(TaskRecord(run.id, order.task, attempt=1, token=1, order=digest, state="IN_PROGRESS"))
    return Asking(ground, run, book, order, [])


def test_what_is_worked_on_here_is_what_the_book_says(tmp_path: Path) -> None:
    """The order of the book is worked on; other words, another agent and other commands in the row are not heard."""
    found = asking(tmp_path)
    forged = found.order._replace(words="rm -rf ~", agent="other", accept=(("curl", "evil.example"),), within_ms=10**9)
    for argument in (found.order, forged):
        with suppress(HoldfastError):
            found.work(found.order.id, argument)
    assert found.asked == [found.order, found.order]


@pytest.mark.parametrize("planted", ["another task", "another item", "an older attempt", "not begun", "for others"])
def test_work_that_the_book_does_not_know_runs_nothing_here(tmp_path: Path, planted: str) -> None:
    """A row that somebody planted in a shared database starts no agent at home."""
    found = asking(tmp_path, here=planted != "for others")
    order, item = found.order, found.order.id
    match planted:
        case "another task":
            order = order._replace(task="nobody")
        case "another item":
            item = "x"
        case "an older attempt":
            record = found.book.of(order.task)
            found.book.move(record._replace(attempt=2, token=2))
        case "not begun":
            found.book.move(found.book.of(order.task)._replace(state="PENDING"))
    with pytest.raises(Tampering):
        found.work(item, order)
    assert found.asked == []


def test_an_order_is_an_object() -> None:
    """Whatever else stands there is refused."""
    for value in (None, 1, "x", [], True):
        with pytest.raises(Tampering):
            document_of(value)
    assert document_of({}) == {}
