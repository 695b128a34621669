"""A database that refuses what has to be written: nothing is lost, nothing is done twice, nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from engine.durable.children import until
from holdfast.engine import durable_engine
from holdfast.engine.durable import Database, Failure, Inside, Item, Lease, Queue, StepFailed
from holdfast.engine.durable_engine import DbosEngine
from holdfast.engine.durable_running import home, worker
from holdfast.errors import Blocked
from holdfast.model.canonical import Json

pytestmark = pytest.mark.long

W = "w-test"
# More than fits into pages that are free already.
LONG = "x" * 300_000


class Book:
    """Functions whose ends need room in the database, and how often they were done."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.release = threading.Event()

    def good(self, inside: Inside, argument: Json) -> Json:
        self.lines.append(inside.id)
        assert self.release.wait(60)
        return LONG

    def bad(self, inside: Inside, argument: Json) -> Json:
        self.lines.append(inside.id)
        assert self.release.wait(60)
        raise StepFailed(Failure("verification_failed", LONG))

    @contextmanager
    def home(self, database: Database) -> Iterator[tuple[DbosEngine, Disk]]:
        with home(database, W, {"good": self.good, "bad": self.bad}, (Queue("work", each=4),)) as engine:
            yield engine, Disk(engine)


class Disk:
    """How much room the file of the engine has: SQLite itself refuses every further page while it is full."""

    def __init__(self, engine: DbosEngine) -> None:
        self.full = False
        sa.event.listen(engine._pool, "checkout", self._limit)

    def _limit(self, connection: object, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {1 if self.full else 1 << 30}")  # type: ignore[attr-defined]


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.mark.long
@pytest.mark.parametrize("function", ["good", "bad"])
def test_an_end_that_had_no_room_is_recorded_when_there_is_some(book: Book, sqlite: Database, function: str) -> None:
    """It is not told before that, then it is what it was, and the work is not done again."""
    with book.home(sqlite) as (engine, disk):
        engine.start(f"{W}/1", function, None, "work")
        until(lambda: book.lines == [f"{W}/1"])
        disk.full = True
        book.release.set()
        assert engine.wait([f"{W}/1"], 4) == ()
        disk.full = False
        (item,) = engine.wait([f"{W}/1"], 30)
    assert _as_it_should_be(item, function)
    assert book.lines == [f"{W}/1"]


@pytest.mark.parametrize("function", ["good", "bad"])
def test_the_end_of_what_was_begun_here_is_told_without_room(book: Book, sqlite: Database, function: str) -> None:
    """A landing is never waited for in vain: how it ended is known in this process, and recorded later."""
    with book.home(sqlite) as (engine, disk):
        engine.start_here(f"{W}/1", function, None)
        until(lambda: book.lines == [f"{W}/1"])
        disk.full = True
        book.release.set()
        (item,) = engine.wait([f"{W}/1"], 20)
        assert _as_it_should_be(item, function)
        time.sleep(0.5)
        assert [found.state for found in engine.items(W)] == ["running"]
        disk.full = False
        until(lambda: [found.state for found in engine.items(W)] == [item.state])
    assert book.lines == [f"{W}/1"]


@pytest.mark.long
def test_who_waits_is_told_that_there_is_no_room(book: Book, sqlite: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocked, in our words, when an end cannot be recorded for long; the item goes on at the next start."""
    monkeypatch.setattr(durable_engine, "_IN_VAIN", 1)
    monkeypatch.setattr(durable_engine, "_MENDED_WITHIN", 5.0)
    with book.home(sqlite) as (engine, disk):
        engine.start(f"{W}/1", "good", None, "work")
        until(lambda: book.lines == [f"{W}/1"])
        disk.full = True
        book.release.set()
        with pytest.raises(Blocked, match=r"^the engine's database cannot be used: database or disk is full$"):
            engine.wait([f"{W}/1"], 60)
    with book.home(sqlite) as (engine, _):
        (item,) = engine.wait([f"{W}/1"], 30)
    assert (item.value, len(book.lines)) == (LONG, 2)


ASKING: list[Callable[[DbosEngine], object]] = [
    lambda engine: engine.start(f"{W}/1", "good", LONG, "work"),
    lambda engine: engine.start_here(f"{W}/1", "good", LONG),
    lambda engine: engine.start_all("good", {f"{W}/1": LONG}, "work"),
]


@pytest.mark.parametrize("ask", ASKING)
def test_what_cannot_be_written_down_is_blocked_at_once(
    book: Book, sqlite: Database, ask: Callable[[DbosEngine], object]
) -> None:
    """Asked for an item without room for it, the engine says so at once, in our words, and the process can go on."""

    def refused() -> None:
        with book.home(sqlite) as (engine, disk):
            disk.full = True
            ask(engine)

    began = time.monotonic()
    with pytest.raises(Blocked, match="database or disk is full"):
        refused()
    assert time.monotonic() - began < 30
    book.release.set()
    with book.home(sqlite) as (engine, _):
        ask(engine)
        (item,) = engine.wait([f"{W}/1"], 20)
    assert (item.state, book.lines) == ("done", [f"{W}/1"])


def test_what_was_claimed_and_never_began_is_begun(
    book: Book, sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An item that the database says we run, and that nobody runs, does not stay so."""
    monkeypatch.setattr(durable_engine, "_BEGUN_WITHIN", 0.5)
    book.release.set()
    with book.home(sqlite) as (engine, _):
        engine.start(f"{W}/1", "good", None, "nobody-listens")
        with engine._pool.begin() as connection:
            claim = "UPDATE workflow_status SET status = 'PENDING', executor_id = :who, queue_name = 'work'"
            connection.execute(sa.text(claim), {"who": engine.executor})
        (item,) = engine.wait([f"{W}/1"], 20)
    assert (item.state, book.lines) == ("done", [f"{W}/1"])


def test_a_worker_that_cannot_beat_is_lost_when_its_lease_is_over(sqlite: Database) -> None:
    """Trouble that passes within the lease is survived; trouble that lasts longer is known, and ends the worker."""
    with worker(sqlite, "w", {}, ("work",), Lease(seconds=3.0, beat=0.1)) as engine:
        _rename(engine, "holdfast_workers", "away")
        until(lambda: any("no beat" in said for said in engine.remarks()))
        assert not engine.lost
        _rename(engine, "away", "holdfast_workers")
        (row,) = engine.leases.workers()
        until(lambda: engine.leases.workers()[0].silent_ms < row.silent_ms)
        assert not engine.lost
        _rename(engine, "holdfast_workers", "away")
        began = time.monotonic()
        until(lambda: engine.lost)
        assert 2.0 < time.monotonic() - began < 10


def _rename(engine: DbosEngine, before: str, after: str) -> None:
    with engine._pool.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {before} RENAME TO {after}"))


def _as_it_should_be(item: Item, function: str) -> bool:
    if function == "good":
        return (item.state, item.value, item.failure) == ("done", LONG, None)
    return (item.state, item.value, item.failure) == ("failed", None, Failure("verification_failed", LONG))
