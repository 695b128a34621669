"""A run in words: each state of a task, the end of a run with its exit status, hostile text, long roadmaps."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.run_told import clock, counts_of, ending_of, head, label, told, waits_for
from holdfast.engine.run_standing import Standing, task_named
from holdfast.errors import UnknownId
from holdfast.model.agent import Usage
from holdfast.model.configuration import Budget
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import Roadmap, Task, TaskRecord, TaskState, Tried

A, B = Task("add-a", "Add a", "1.1"), Task("add-b", "Add b", "1.2", after=("add-a",))
SECOND = 10**9


def record(state: TaskState, **more: Any) -> TaskRecord:
    return TaskRecord("u-1", "add-a", state, **more)


def standing(state: str, *states: TaskState, because: str = "") -> Standing:
    run = RunRecord("u-1", "ROADMAP.md", state=state, because=because)  # type: ignore[arg-type]
    records = {task.id: TaskRecord("u-1", task.id, each) for task, each in zip((A, B), states, strict=True)}
    return Standing(run, Roadmap("roadmap", "", (), (A, B)), records)


STATES = [
    (record("PENDING"), "to do"),
    (record("PENDING", because="stopped"), "stopped"),
    (record("IN_PROGRESS", agent="mine", attempt=1), "mine  reads"),
    (record("IN_PROGRESS", agent="mine", attempt=2), "mine  attempt 2  reads"),
    (record("VALIDATING"), "its work is good; waits to land"),
    (record("VALIDATING", landing=True), "landing: checked again, judged, landed"),
    (record("NEEDS_REVIEW", because="it deletes files"), "needs you: it deletes files"),
    (record("FAILED", because="no", attempt=3), "failed (3 attempts): no"),
    (record("TIMEOUT", because="slow", attempt=1), "out of time (1 attempt): slow"),
    (record("SKIPPED", because="ann said no"), "left out: ann said no"),
    (record("DEFERRED", because="later"), "later: later"),
    (record("BLOCKED", because="it needs 1.1"), "blocked: it needs 1.1"),
    (record("COMPLETED"), "done"),
    (
        record("COMPLETED", execution="e-1", commit="a" * 40, files=2, attempt=1, started_ns=SECOND, at_ns=42 * SECOND),
        "landed  2 files  1 attempt  41.0 s  aaaaaaa",
    ),
    (
        record("COMPLETED", execution="e-1", attempt=2, files=1, tried=(Tried(1, "test", "", "retry"),)),
        "landed  1 file  2 attempts  first attempt: test",
    ),
]


@pytest.mark.parametrize(("found", "words"), STATES, ids=lambda item: item if isinstance(item, str) else item.state)
def test_every_state_has_its_words(found: TaskRecord, words: str) -> None:
    """One line says where a task stands, and why."""
    assert told(A, found, doing="reads") == words


def test_what_others_wrote_stays_on_its_line() -> None:
    """Titles and reasons with control characters move no cursor and begin no line."""
    assert label(Task("x", "Add\x1b[2Jthis\nand that")) == "Add\\x1b[2Jthis"
    assert "\n" not in told(A, record("FAILED", because="one\ntwo\x07"))


def test_who_waits_says_for_whom() -> None:
    """A task names the first task before it that is not done."""
    assert waits_for(B, standing("RUNNING", "IN_PROGRESS", "PENDING")) == "1.1"
    assert waits_for(B, standing("RUNNING", "COMPLETED", "PENDING")) == ""


ENDS: list[tuple[Standing, bool, int, str]] = [
    (standing("FINISHED", "COMPLETED", "COMPLETED"), False, 0, ""),
    (standing("FINISHED", "COMPLETED", "SKIPPED"), False, 0, ""),
    (standing("FINISHED", "COMPLETED", "PENDING"), False, 0, "holdfast run"),
    (standing("FINISHED", "COMPLETED", "FAILED"), False, 11, "holdfast retry add-b"),
    (standing("FINISHED", "TIMEOUT", "BLOCKED"), False, 11, "holdfast retry --failed"),
    (standing("WAITING", "COMPLETED", "NEEDS_REVIEW"), False, 3, "holdfast review"),
    (standing("WAITING", "FAILED", "NEEDS_REVIEW"), False, 3, "holdfast review"),
    (standing("LIMIT", "COMPLETED", "PENDING", because="spent"), False, 10, "holdfast resume"),
    (standing("STOPPED", "COMPLETED", "PENDING", because="Ctrl-C"), True, 130, "holdfast resume"),
    (standing("STOPPED", "FAILED", "PENDING", because="Ctrl-C"), True, 130, "holdfast resume"),
    (standing("STOPPED", "FAILED", "PENDING", because="add-a failed: no"), False, 11, "holdfast retry add-a"),
    (standing("RUNNING", "COMPLETED", "IN_PROGRESS"), False, 130, "holdfast resume"),
]


@pytest.mark.parametrize(("found", "interrupted", "status", "after"), ENDS)
def test_every_end_has_a_status_and_a_way_on(found: Standing, interrupted: bool, status: int, after: str) -> None:
    """The exit status is the documented one, and the next command is named."""
    ending = ending_of(found, interrupted=interrupted)
    assert (ending.status, ending.next) == (status, after)


def test_the_head_shows_what_is_spent_of_what() -> None:
    """Money and time stand beside their limits; without either, only the time."""
    rows = list(standing("RUNNING", "COMPLETED", "PENDING").rows())
    budget = Budget(micro_usd=20_000_000, time_ms=8 * 3_600_000)
    run = RunRecord("u-1", "ROADMAP.md", RunOptions(budget=budget))
    usage = Usage(1, 2, 3, 1_840_000)
    left, right = head(run, counts_of(rows), usage, 751_000)
    assert (left, right) == ("ROADMAP.md · 2 tasks, 1 to do", "$1.84 of $20 · 0:12:31 of 8:00:00 · 1 landed")
    assert head(RunRecord("u-1", "R"), counts_of(rows), Usage(), 0)[1] == "0:00:00 · 1 landed"
    assert clock(3_600_000 * 30) == "30:00:00"


def test_a_task_is_found_by_number_id_and_beginning() -> None:
    """A word that could mean two tasks means none."""
    roadmap = Roadmap("roadmap", "", (), (A, B))
    assert [task_named(roadmap, word) for word in ("1.1", "add-a", "add-b")] == ["add-a", "add-a", "add-b"]
    for word in ("add", "", "1"):
        with pytest.raises(UnknownId):
            task_named(roadmap, word)
