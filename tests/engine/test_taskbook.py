"""The book of a run: written before it is believed, refused before it is written."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import Ground, guard, in_child
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import Blocked, HoldfastError
from holdfast.model.agent import Usage
from holdfast.model.run import RunEvent, RunRecord, TaskMoved
from holdfast.model.task import TaskRecord
from holdfast.testing import CHANGES, Fail, FaultyCalls, KillAt
from laned import git


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": b"- [ ] One\n"})
    yield found
    found.hf.close()


def book_of(ground: Ground, run: RunRecord | None = None, events: list[RunEvent] | None = None) -> TaskBook:
    found = run or begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md"))
    return TaskBook(ground.hf.pipeline, found, (events if events is not None else []).append)


def begun(book: TaskBook, task: str = "one", **more: object) -> TaskRecord:
    return TaskRecord(book.run.id, task, state="IN_PROGRESS", attempt=1, **more)  # type: ignore[arg-type]


def test_a_move_that_no_task_makes_is_refused_and_nothing_is_written(ground: Ground) -> None:
    """Also none of those that were to be written with it (K2)."""
    book, entries = book_of(ground), lambda: sum(entry.kind == "task" for entry in ground.hf.ledger.entries())
    with pytest.raises(Blocked, match="PENDING, which does not lead to VALIDATING"):
        book.move_all([(begun(book), None), (begun(book, "two")._replace(state="VALIDATING"), None)])
    assert entries() == 0 and not book.records


def test_a_move_that_could_not_be_written_did_not_happen(ground: Ground) -> None:
    """The disk is full: the book says what the ledger says (K1)."""
    calls = FaultyCalls(counted=CHANGES)
    there = ground.reopened(calls)
    book = book_of(there)
    calls.arm(Fail(1, lasting=True))
    with pytest.raises((HoldfastError, OSError)):
        book.move(begun(book))
    calls.disarm()
    assert book.of("one").state == "PENDING"
    again = there.reopened()
    assert book_of(again, book.run).of("one").state == "PENDING"
    again.hf.close()


def test_a_move_that_was_written_survives_a_kill(ground: Ground) -> None:
    """Killed just after the ledger was synced, before the table knew."""
    run = book_of(ground).run
    ground.hf.close()

    def move() -> None:
        calls = FaultyCalls()
        there = Ground(ground.path, calls)
        book = book_of(there, run)
        calls.arm(KillAt("ledger.durable"))
        book.move(begun(book))

    assert in_child(move) == -signal.SIGKILL
    again = Ground(ground.path)
    again.hf.recover()
    assert book_of(again, run).of("one").state == "IN_PROGRESS"
    again.hf.close()


def test_whoever_looks_on_hears_of_a_move_after_it_was_written(ground: Ground) -> None:
    """And whoever holds the book too."""
    events: list[RunEvent] = []
    book, heard = book_of(ground, events=events), list[str]()
    book.on_move = lambda record: heard.append(f"{record.task} {record.state}")
    book.move(begun(book)._replace(because="it begins"))
    assert events == [TaskMoved(book.run.id, "one", "IN_PROGRESS", "it begins")] and heard == ["one IN_PROGRESS"]


def test_it_counts_what_was_begun_and_used(ground: Ground) -> None:
    """The same after it was opened again; usage that nobody knows the price of stays unknown."""
    book = book_of(ground)
    book.move_all([(begun(book, task, usage=Usage(1, 10, 5, 7)), None) for task in ("one", "two")])
    book.move(begun(book, usage=Usage(2, 20, 10, None))._replace(state="PENDING"))
    again = book_of(ground, book.run)
    for each in (book, again):
        assert (each.begun, each.counted("PENDING", "IN_PROGRESS")) == (2, 2)
        assert each.usage == Usage(3, 30, 15, None)


def test_tasks_of_a_state_come_oldest_first_also_after_it_was_opened_again(ground: Ground) -> None:
    """Work that was ready first lands first, whatever the tasks are called and whoever drives."""
    book = book_of(ground)
    for task in ("zeta", "alpha", "mid"):
        book.move(begun(book, task))
    names = [record.task for record in book.in_state("IN_PROGRESS")]
    assert names == ["zeta", "alpha", "mid"]
    assert [record.task for record in book_of(ground, book.run).in_state("IN_PROGRESS")] == names


def test_a_run_remembers_what_was_checked_out(ground: Ground) -> None:
    """Nothing, where nothing is; otherwise the commit that clones have."""
    assert book_of(ground).run.commit == ""
    for words in (("init", "-q", "-b", "main"), ("add", "ROADMAP.md"), ("commit", "-qm", "base")):
        git(ground.path, *words)
    assert book_of(ground).run.commit == git(ground.path, "rev-parse", "HEAD").strip()


def test_two_processes_write_one_ledger(ground: Ground) -> None:
    """Somebody else notes something in between: both are in the book's ledger, in order, and it is sound."""
    book = book_of(ground)

    def other() -> None:
        there = Ground(ground.path)
        there.hf.pipeline.note("delegation", {"id": "g-1", "subject": "p-1"})
        there.hf.close()

    book.move(begun(book))
    assert in_child(other) == 0
    book.move(begun(book)._replace(state="PENDING"))
    kinds = [entry.kind for entry in ground.hf.ledger.entries()][-4:]
    assert kinds == ["run", "task", "delegation", "task"] and ground.hf.audit().ok


# ── together ──


def test_moves_made_together_are_written_with_one_sync(ground: Ground) -> None:
    """They count at once for whoever holds the book, and are in the ledger when the block ends."""
    calls = FaultyCalls()
    there = ground.reopened(calls)
    book, events = book_of(there), list[RunEvent]()
    book = book_of(there, book.run, events)
    calls.arm()
    with book.together():
        book.move(begun(book))
        book.move(begun(book, "two"))
        book.tell(TaskMoved(book.run.id, "three", "PENDING", ""))
        assert book.of("one").state == "IN_PROGRESS" and book.counted("IN_PROGRESS") == 2
        assert not events and not book_of(there, book.run).records
    assert calls.trace.count("fdatasync") == 1
    assert [event.task for event in events if isinstance(event, TaskMoved)] == ["one", "two", "three"]
    assert book_of(there, book.run).records == book.records
    there.hf.close()


def test_of_moves_made_together_all_are_written_or_none(ground: Ground) -> None:
    """One that no task makes, or any other error in between: nobody hears of the others either."""
    events: list[RunEvent] = []
    book = book_of(ground, None, events)

    def both() -> None:
        with book.together():
            book.move(begun(book))
            book.move(begun(book, "two")._replace(state="VALIDATING"))

    with pytest.raises(Blocked):
        both()
    assert not events and not book_of(ground, book.run).records


def test_what_lands_is_known_without_a_search(ground: Ground) -> None:
    """Only while it does, and also to whoever opens the book anew."""
    book = book_of(ground)
    book.move(begun(book))
    book.move(begun(book)._replace(state="VALIDATING"))
    assert book.landing == ()
    book.move(begun(book)._replace(state="VALIDATING", landing=True, turn=1))
    assert (
        [record.task for record in book.landing]
        == ["one"]
        == [record.task for record in book_of(ground, book.run).landing]
    )
    book.move(begun(book)._replace(state="NEEDS_REVIEW", landing=True, turn=1))
    assert book.landing == ()
