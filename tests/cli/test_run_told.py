"""A run in words: each state of a task, the end of a run with its exit status, hostile text, long roadmaps."""

from __future__ import annotations

import time
from typing import Any

import pytest

import holdfast
from holdfast.cli.moments import clock_time, for_programs
from holdfast.cli.run_told import (
    STRATEGY_TOLD,
    attempts_of,
    clock,
    counts_in,
    counts_of,
    ending_of,
    head,
    label,
    lines,
    task_document,
    told,
    waits_for,
)
from holdfast.cli.run_view import RunView
from holdfast.cli.screen import Screen
from holdfast.cli.worker import ended_words
from holdfast.engine.run_standing import Standing, resume_with, task_named
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.agent import Began, Usage
from holdfast.model.configuration import Budget
from holdfast.model.run import (
    AgentSeen,
    RunFinished,
    RunOptions,
    RunRecord,
    RunStarted,
    TaskCompleted,
    TaskFailed,
    TaskMoved,
    TaskStarted,
)
from holdfast.model.task import STRATEGIES, Phase, Roadmap, Task, TaskRecord, TaskState, Tried
from roadmapped import git, mapped

A, B = Task("add-a", "Add a", "1.1"), Task("add-b", "Add b", "1.2", after=("add-a",))
SECOND = 10**9


def record(state: TaskState, **more: Any) -> TaskRecord:
    return TaskRecord("u-1", "add-a", state, **more)


def standing(state: str, *states: TaskState, because: str = "") -> Standing:
    run = RunRecord("u-1", "ROADMAP.md", state=state, because=because)  # type: ignore[arg-type]
    records = {task.id: TaskRecord("u-1", task.id, each) for task, each in zip((A, B), states, strict=True)}
    return Standing(run, Roadmap("roadmap", "", (), (A, B)), records)


FAILED = tuple(Tried(number, "test", "", "retry") for number in (1, 2, 3))
STATES = [
    (record("PENDING"), "to do"),
    (record("PENDING", because="stopped"), "stopped"),
    (record("IN_PROGRESS", agent="mine", attempt=1), "mine  reads"),
    (record("IN_PROGRESS", agent="mine", attempt=2, tried=FAILED[:1]), "mine  attempt 2  reads"),
    (record("VALIDATING"), "its work is good; waits to land"),
    (record("VALIDATING", landing=True), "landing: checked again, judged, landed"),
    (record("NEEDS_REVIEW", because="it deletes files"), "needs you: it deletes files"),
    (record("FAILED", because="no", attempt=3, tried=FAILED), "failed (3 attempts): no"),
    (
        record(
            "FAILED", because="no", attempt=2, tried=(Tried(2, "test", "", "retry"),), execution="e-1", part=1, parts=3
        ),
        "failed, 1 of 3 parts landed (2 attempts): no",
    ),
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
    (record("COMPLETED", execution="e-1", attempt=1, files=1, tries=2), "landed  1 file  1 attempt, mended once"),
    (record("COMPLETED", execution="e-1", attempt=1, files=1, tries=3), "landed  1 file  1 attempt, mended 2 times"),
]


@pytest.mark.parametrize(("found", "words"), STATES, ids=lambda item: item if isinstance(item, str) else item.state)
def test_every_state_has_its_words(found: TaskRecord, words: str) -> None:
    """One line says where a task stands, and why."""
    assert told(A, found, doing="reads") == words


COUNTED: list[tuple[TaskRecord, int]] = [
    (record("PENDING"), 0),
    # Interrupted by a person, and begun again.
    (record("IN_PROGRESS", attempt=2), 1),
    # Landed, taken back, and landed again.
    (record("COMPLETED", attempt=2, execution="e-2"), 1),
    (record("COMPLETED", attempt=4, execution="e-2", tried=FAILED[:1]), 2),
    # The second one was good, and a person said no.
    (record("FAILED", attempt=2, tried=FAILED[:1]), 2),
    (record("COMPLETED", attempt=3, execution="e-3", part=2, parts=3), 3),
]


@pytest.mark.parametrize(("found", "number"), COUNTED)
def test_an_attempt_is_an_order_that_came_to_its_end(found: TaskRecord, number: int) -> None:
    """What a person interrupted, or took back later, is not counted; a part that landed, and a no to good work, are."""
    assert attempts_of(found) == number
    assert task_document(A, found)["attempts"] == number


@pytest.mark.parametrize("state", ["PENDING", "DEFERRED"])
def test_what_waits_for_its_time_says_until_when(state: TaskState) -> None:
    """What happened, that it is tried again, and when; once that is over, nothing is said of it."""
    soon, why = time.time_ns() + 90 * SECOND, "environment: it broke; it is tried again later"
    assert told(A, record(state, because=why, wait_until_ns=soon)).endswith(f"{why}, not before {clock_time(soon)}")
    assert told(A, record(state, because=why, wait_until_ns=5)).endswith(why)
    assert task_document(A, record(state, wait_until_ns=soon))["not_before"] == for_programs(soon)
    assert task_document(A, record(state, wait_until_ns=5))["not_before"] is None


def test_every_strategy_is_told_in_a_sentence() -> None:
    """A person reads what follows, and not the name of a rule."""
    assert set(STRATEGY_TOLD) == set(STRATEGIES)


def test_what_others_wrote_stays_on_its_line() -> None:
    """Titles and reasons with control characters move no cursor and begin no line."""
    assert label(Task("x", "Add\x1b[2Jthis\nand that")) == "Add\\x1b[2Jthis"
    assert "\n" not in told(A, record("FAILED", because="one\ntwo\x07"))


def test_who_waits_says_for_whom() -> None:
    """A task names the first task before it that is not done."""
    assert waits_for(B, standing("RUNNING", "IN_PROGRESS", "PENDING")) == "1.1"
    assert waits_for(B, standing("RUNNING", "COMPLETED", "PENDING")) == ""


def test_who_waits_for_a_phase_says_for_which_of_its_tasks() -> None:
    """Where only the phase of a task comes after another one, the first task there that is not done is named."""
    phases = (Phase("one", "One"), Phase("two", "Two", after=("one",)))
    tasks = (A._replace(phase="one"), Task("add-c", "Add c", "1.9", phase="one"), Task("add-b", "Add b", phase="two"))
    found = Standing(RunRecord("u-1", "R"), Roadmap("roadmap", "", phases, tasks), {"add-a": record("COMPLETED")})
    assert [waits_for(task, found) for task in tasks] == ["", "", "1.9"]


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


def test_what_left_the_roadmap_was_not_done() -> None:
    """A task that somebody took out of the file while it was worked on is said to have left, and not to be done."""
    found = standing("FINISHED", "COMPLETED", "PENDING")
    found = found._replace(roadmap=Roadmap("roadmap", "", (), (A,)))
    ending = ending_of(found, interrupted=False)
    assert ending.words == "1 task left ROADMAP.md before it was done; 1 of 2 tasks done, 1 left."
    assert (ending.status, ending.next) == (0, "holdfast run")


def test_the_end_names_also_what_failed_beside_what_waits() -> None:
    """Both are told, each with its command; the question comes first."""
    ending = ending_of(standing("WAITING", "FAILED", "NEEDS_REVIEW"), interrupted=False)
    assert ending.words == "1 task needs you; 1 did not land (holdfast retry add-a); 0 of 2 tasks done."


@pytest.mark.parametrize("state", ["STOPPED", "LIMIT", "RUNNING"])
def test_the_way_on_has_the_consent_that_the_run_had(state: str) -> None:
    """Whoever types it is not asked about every task, unless they were before; and they know which run, where it is
    named."""
    found = standing(state, "COMPLETED", "PENDING", because="the tokens of the run are used up (5)")
    budget = found.run.options._replace(budget=Budget(tokens=5))
    more = " --budget-tokens 10" if state == "LIMIT" else ""
    for yes, consent in ((False, ""), (True, " --yes")):
        run = found.run._replace(yes=yes, options=budget)
        assert ending_of(found._replace(run=run), interrupted=True).next == f"holdfast resume{more}{consent}"
        assert resume_with(run, run.id) == f"holdfast resume u-1{more}{consent}"
    lost = standing("FINISHED", "COMPLETED", "FAILED")
    lost = lost._replace(run=lost.run._replace(yes=True))
    assert ending_of(lost, interrupted=False).next == "holdfast retry add-b --yes"


def test_what_the_file_itself_forbids_is_not_tried_again() -> None:
    """A circle of needs: nothing failed, so the way on is another file, and not another try."""
    found = standing("FINISHED", "BLOCKED", "BLOCKED")
    records = {
        id: one._replace(because="it needs itself in the end: 1.1 → 1.2 → 1.1") for id, one in found.records.items()
    }
    ending = ending_of(found._replace(records=records), interrupted=False)
    assert (ending.status, ending.next) == (11, "holdfast run")
    assert "1.1 → 1.2 → 1.1" in ending.words and "Change ROADMAP.md first" in ending.words


def test_a_part_that_landed_is_counted() -> None:
    """No task is done, and yet something landed: head, end and JSON say so."""
    found = standing("FINISHED", "FAILED", "PENDING")
    part = found.records["add-a"]._replace(part=1, parts=3, execution="e-1")
    found = found._replace(records={**found.records, "add-a": part})
    counts = counts_of(found.rows())
    assert counts.parts == 1 and counts._asdict()["parts"] == 1
    assert head(found.run, counts, Usage(), 0)[1] == "0:00:00 · 0 landed and 1 part"
    assert "0 of 2 tasks done, 1 part of others" in ending_of(found, interrupted=False).words


def test_a_remark_on_what_landed_is_never_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the line is cut at the edge of the screen, it stands below in full."""
    monkeypatch.setenv("COLUMNS", "60")
    found, remark = standing("FINISHED", "COMPLETED", "PENDING"), "commit aaaaaaa also holds edits of yours: f.txt"
    done = found.records["add-a"]._replace(execution="e-1", attempt=1, files=1, because=remark)
    rows = list(found._replace(records={**found.records, "add-a": done}).rows())
    first, second, *_ = lines(Screen("text", colour=False), rows, found)
    assert len(first) <= 62 and second == f"   ! {remark}"


def test_the_head_shows_what_is_spent_of_what() -> None:
    """Money and time stand beside their limits; without either, only the time. What was done before is not landed."""
    found = standing("RUNNING", "COMPLETED", "PENDING")
    done = found.records["add-a"]
    rows = list(found._replace(records={**found.records, "add-a": done._replace(execution="e-1")}).rows())
    assert head(found.run, counts_in(found), Usage(), 0)[1] == "0:00:00 · 1 done before · 0 landed"
    budget = Budget(micro_usd=20_000_000, time_ms=8 * 3_600_000)
    run = RunRecord("u-1", "ROADMAP.md", RunOptions(budget=budget))
    usage = Usage(1, 2, 3, 1_840_000)
    left, right = head(run, counts_of(rows), usage, 751_000)
    assert (left, right) == ("ROADMAP.md · 2 tasks, 1 to do", "$1.84 of $20 · 0:12:31 of 8:00:00 · 1 landed")
    assert head(RunRecord("u-1", "R"), counts_of(rows), Usage(), 0)[1] == "0:00:00 · 1 landed"
    assert clock(3_600_000 * 30) == "30:00:00"


# ── a line for each move, where nobody looks on ──


def test_a_task_that_was_added_meanwhile_is_told_by_its_title(capfd: pytest.CaptureFixture[str]) -> None:
    """It was not there when the run began; when it begins it is looked up, and its end is told like any other's. A file
    that cannot be read just then is looked at again."""
    before = standing("RUNNING", "PENDING", "PENDING")
    added = Task("add-c", "Add c", "1.3")
    now = before._replace(roadmap=before.roadmap._replace(tasks=(A, B, added)))
    looks: list[Standing | None] = [before, None, now]

    def look(run: str) -> Standing:
        found = looks.pop(0)
        if found is None:
            raise InvalidInput("it is being saved")
        return found

    view = RunView(Screen("text", colour=False), look)
    for event in (
        RunStarted("u-1", "ROADMAP.md", 2, 2),
        TaskMoved("u-1", "add-c", "IN_PROGRESS", ""),
        TaskStarted("u-1", "add-c", 1, "mine"),
        TaskMoved("u-1", "add-c", "COMPLETED", ""),
        TaskCompleted("u-1", "add-c", "e-1", "a" * 40, 1, 2),
    ):
        view(event)
    told_lines = capfd.readouterr().err.splitlines()
    assert told_lines[1] == "● 1.3 Add c: mine begins"
    assert told_lines[2].startswith("✓ 1.3 Add c: landed  2 files  1 attempt") and looks == []


def test_mending_is_told_and_is_no_attempt(capfd: pytest.CaptureFixture[str]) -> None:
    """The second round inside an attempt has a line with its reason; an interrupted attempt is not counted."""
    view = RunView(Screen("text", colour=False), lambda run: standing("RUNNING", "PENDING", "PENDING"))
    for event in (
        RunStarted("u-1", "ROADMAP.md", 2, 2),
        TaskStarted("u-1", "add-a", 1, "mine"),
        AgentSeen("u-1", "add-a", Began("mine", 1)),
        AgentSeen("u-1", "add-a", Began("mine", 2, "pytest failed\n\nand all it said")),
        TaskStarted("u-1", "add-a", 2, "mine"),
        TaskFailed("u-1", "add-a", 2, "test", "1 failed", "retry with context"),
        TaskStarted("u-1", "add-a", 3, "mine"),
        AgentSeen("u-1", "add-a", Began("mine", 1)),
        AgentSeen("u-1", "add-a", Began("mine", 2, "It lacks:\n- `add`\n- `sub`")),
        TaskMoved("u-1", "add-a", "COMPLETED", ""),
        TaskCompleted("u-1", "add-a", "e-1", "", 3, 1),
    ):
        view(event)
    *told_lines, last = capfd.readouterr().err.splitlines()[1:]
    assert "2 attempts, mended once" in last
    assert told_lines == [
        "● 1.1 Add a: mine begins",
        "● 1.1 Add a: not good yet (pytest failed); it mends its work",
        "● 1.1 Add a: mine begins",
        "✗ 1.1 Add a: attempt 1 did not land (1 failed); it is tried again, told what failed",
        "● 1.1 Add a: mine begins, attempt 2",
        "● 1.1 Add a: not good yet (It lacks: - `add`); it mends its work",
    ]


def test_a_line_counts_the_attempts_that_the_table_counts(capfd: pytest.CaptureFixture[str]) -> None:
    """Of a task done in parts, those that landed a part are attempts too, while it goes on as at its end."""
    view = RunView(Screen("text", colour=False), lambda run: standing("RUNNING", "PENDING", "PENDING"))
    for event in (
        RunStarted("u-1", "ROADMAP.md", 2, 2),
        TaskStarted("u-1", "add-a", 1, "mine"),
        TaskFailed("u-1", "add-a", 1, "test", "1 failed", "decompose"),
        TaskStarted("u-1", "add-a", 2, "mine"),
        TaskMoved("u-1", "add-a", "PENDING", "", 1),
        TaskStarted("u-1", "add-a", 3, "mine"),
        TaskMoved("u-1", "add-a", "COMPLETED", "", 1),
        TaskCompleted("u-1", "add-a", "e-1", "", 3, 1),
    ):
        view(event)
    at_the_end = record("COMPLETED", attempt=3, execution="e-1", part=1, parts=2, tried=FAILED[:1])
    *_, begun, last = capfd.readouterr().err.splitlines()
    assert "begins, attempt 3" in begun and f"{attempts_of(at_the_end)} attempts" in last


def test_what_waits_for_a_yes_is_not_said_to_go_on_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """A recovery that is proposed, or asked about, says that it depends on a person."""
    view = RunView(Screen("text", colour=False), lambda run: standing("RUNNING", "PENDING", "PENDING"))
    for event in (
        RunStarted("u-1", "ROADMAP.md", 2, 2),
        TaskStarted("u-1", "add-a", 1, "mine"),
        TaskMoved("u-1", "add-a", "NEEDS_REVIEW", "test: 1 failed; it is told what failed"),
        TaskFailed("u-1", "add-a", 1, "test", "1 failed", "retry with context"),
    ):
        view(event)
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.endswith("; it is tried again, told what failed, if you say so")


def test_a_part_that_lands_has_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    """Once, when it lands; a later attempt at the next part does not say it again, nor does a run that goes on."""
    begun = standing("RUNNING", "PENDING", "PENDING")
    begun = begun._replace(records={**begun.records, "add-b": TaskRecord("u-1", "add-b", part=1, parts=3)})
    view = RunView(Screen("text", colour=False), lambda run: begun)
    for event in (
        RunStarted("u-1", "ROADMAP.md", 2, 2),
        TaskMoved("u-1", "add-a", "PENDING", "", 1),
        TaskMoved("u-1", "add-a", "PENDING", "stopped", 1),
        TaskMoved("u-1", "add-b", "PENDING", "stopped", 1),
    ):
        view(event)
    assert capfd.readouterr().err.splitlines()[1:] == ["✓ 1.1 Add a: part 1 landed"]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (RunFinished("u-1", "FINISHED", 2, 0, 0, 0, Usage()), "FINISHED: 2 done"),
        (RunFinished("u-1", "FINISHED", 1, 1, 0, 0, Usage()),
         "FINISHED: 1 done, 1 did not land. Look with: holdfast tasks u-1"),
        (RunFinished("u-1", "WAITING", 1, 0, 2, 0, Usage(), "2 need a person"),
         "WAITING (2 need a person): 1 done, 2 wait for you. Look with: holdfast review --run u-1"),
        (RunFinished("u-1", "LIMIT", 0, 0, 0, 1, Usage(), "spent"),
         "LIMIT (spent): 1 left. Look with: holdfast tasks u-1"),
    ],
)  # fmt: skip
def test_who_attends_is_told_how_a_run_ended(event: RunFinished, words: str) -> None:
    """Nobody sees its last line: state, reason, counts, and where it says how it goes on."""
    assert ended_words(event) == words


def test_a_task_is_found_by_number_id_and_beginning() -> None:
    """A word that could mean two tasks means none."""
    roadmap = Roadmap("roadmap", "", (), (A, B))
    assert [task_named(roadmap, word) for word in ("1.1", "add-a", "add-b")] == ["add-a", "add-a", "add-b"]
    for word in ("add", "", "1"):
        with pytest.raises(UnknownId):
            task_named(roadmap, word)


def test_status_says_what_is_tried_again_and_when(guarded: Any) -> None:
    """A task that is deferred has a line with what happened, and not before when it is begun again; also as JSON."""
    (guarded.directory / "ROADMAP.md").write_text("# R\n\n- [ ] One\n")
    soon = time.time_ns() + 600 * SECOND
    with holdfast.open(str(guarded.directory)) as hf:
        run = begin_run(hf.pipeline, RunRecord("", "ROADMAP.md", by="me"))
        book = TaskBook(hf.pipeline, run, lambda event: None)
        book.move(TaskRecord(run.id, "one", "IN_PROGRESS", attempt=1, token=1))
        book.move(book.of("one")._replace(state="DEFERRED", because="Holdfast itself failed: x", wait_until_ns=soon))
    line = f"Later      one, not before {clock_time(soon)}: Holdfast itself failed: x"
    assert line in guarded("status").out.splitlines()
    (later,) = guarded("status", "--json").document["run"]["later"]
    assert later == {"task": "one", "because": "Holdfast itself failed: x", "not_before": for_programs(soon)}


def test_every_commit_and_task_that_is_printed_can_be_shown(guarded: Any) -> None:
    """The commit that a run prints leads to its execution, short or whole; a task without a number is listed with its
    id. A commit of somebody else's, and a word that git would take for a revision, lead nowhere."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "ROADMAP.md").write_text("# Plan\n\n- [ ] Create a.py\n")
    git(here, "commit", "-qam", "no numbers")
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    task = here("tasks", "--json").document["tasks"][0]
    assert here("tasks").out.splitlines()[1].endswith(f"  ({task['id']})") and task["commit"][:7] in done.out
    assert here("show", task["id"]).status == 0
    for commit in (task["commit"][:7], task["commit"]):
        assert here("show", commit).out.startswith(f"{task['execution']}  applied"), commit
        assert task["execution"] in here("trace", commit).out, commit
    for other in (git(here, "rev-parse", "HEAD~1").strip(), "HEAD", "abcdef0"):
        assert here("show", other).status == 2, other
