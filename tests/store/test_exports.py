"""Exports: documents that follow from the records, in files that are whole whatever happens."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.disk.confined import Root
from holdfast.model.agent import Usage
from holdfast.model.run import RunRecord
from holdfast.model.task import Held, Roadmap, Task, TaskRecord, Tried
from holdfast.store.exports import (
    RESULTS,
    Exports,
    read_file,
    replace_file,
    results_document,
    roadmap_document,
    roadmap_file,
    safe_name,
)
from holdfast.testing import Fail, FaultyCalls, Kill, ShortWrite
from ledger_kit import in_child

SECOND = 10**9
RUN = RunRecord("u-1", "docs/ROADMAP.md", state="WAITING", because="1 need a person", by="ann", worked_ms=4200)
ROADMAP = Roadmap(
    "roadmap",
    "All of it",
    (),
    (
        Task("landed", "Land", number="1.1", phase="p1"),
        Task("ticked", "Was done before", done=True),
        Task("untouched", "Later"),
        Task("failed", "Try https://me:hunter2@example.invalid/"),
        Task("asked", "Ask"),
    ),
)
RECORDS = {
    record.task: record
    for record in (
        TaskRecord(
            "u-1", "landed", "COMPLETED", 2, agent="claude", execution="e-1", commit="abc", files=3,
            unverified="no tests were found",
            tried=(Tried(1, "test", "1 failed", "retry with context", "aider"),),
            usage=Usage(2, 10, 20, 5), started_ns=SECOND, at_ns=3 * SECOND,
        ),
        TaskRecord(
            "u-1", "failed", "FAILED", 1, tried=(Tried(1, "syntax", "", "skip", "codex"),),
            because="ftp://me:hunter2@example.invalid said no", usage=Usage(1, 1, 1, None), started_ns=1, at_ns=SECOND,
        ),
        TaskRecord("u-1", "asked", "NEEDS_REVIEW", 1, simulation="s-1", started_ns=SECOND, at_ns=2 * SECOND),
        TaskRecord("u-1", "removed", "SKIPPED", 1, because="it is no longer in the roadmap"),
    )
}  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Root]:
    with Root(str(tmp_path)) as root:
        yield root


def mask(text: str) -> str:
    return text.replace("hunter2", "***")


def by_id(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {task["id"]: task for task in document["tasks"]}


# ── the documents ──


def test_results_say_what_became_of_each_task() -> None:
    """Each task has its state, attempts, agent, execution, commit, duration, usage and reason."""
    tasks = by_id(results_document(RUN, ROADMAP, RECORDS, mask))
    assert tasks["landed"] == {
        "id": "landed", "number": "1.1", "title": "Land", "phase": "p1", "state": "COMPLETED", "evidence": "landed",
        "attempts": 2, "agent": "claude", "execution": "e-1", "commit": "abc", "files": 3, "duration_ms": 2000,
        "usage": {"requests": 2, "input_tokens": 10, "output_tokens": 20, "micro_usd": 5}, "because": "",
        "unverified": "no tests were found",
        "tried": [{"attempt": 1, "category": "test", "strategy": "retry with context", "agent": "aider"}],
        "at_ns": 3 * SECOND, "in_roadmap": True,
    }  # fmt: skip
    assert (tasks["failed"]["state"], tasks["failed"]["agent"]) == ("FAILED", "codex")


def test_a_box_that_was_ticked_is_no_landing() -> None:
    """A task that is done because its box says so is COMPLETED, and the evidence says who said it."""
    tasks = by_id(results_document(RUN, ROADMAP, RECORDS, mask))
    told = {id: (task["state"], task["evidence"]) for id, task in tasks.items()}
    assert told["landed"] == ("COMPLETED", "landed")
    assert told["ticked"] == ("COMPLETED", "ticked")
    assert told["untouched"] == ("PENDING", "")


def test_a_task_without_an_end_has_no_duration() -> None:
    """What was not begun or has not ended has no duration yet."""
    tasks = by_id(results_document(RUN, ROADMAP, RECORDS, mask))
    assert (tasks["asked"]["duration_ms"], tasks["untouched"]["duration_ms"]) == (None, None)


def test_a_task_that_left_the_roadmap_is_still_told() -> None:
    """What was begun and then removed from the file stands in the results, marked; not in the roadmap's state."""
    results, standing = (make(RUN, ROADMAP, RECORDS, mask) for make in (results_document, roadmap_document))
    assert by_id(results)["removed"]["in_roadmap"] is False
    assert list(by_id(standing)) == ["landed", "ticked", "untouched", "failed", "asked"]


def test_totals_add_up() -> None:
    """The four numbers are those of the tasks, and usage with an unknown price has none."""
    document: Any = results_document(RUN, ROADMAP, RECORDS, mask)
    assert document["totals"] == {
        "tasks": 6, "completed": 2, "failed": 2, "waiting": 1, "left": 1, "held": 0, "attempts": 5,
        "states": {"COMPLETED": 2, "FAILED": 1, "NEEDS_REVIEW": 1, "PENDING": 1, "SKIPPED": 1},
        "usage": {"requests": 3, "input_tokens": 11, "output_tokens": 21, "micro_usd": None},
    }  # fmt: skip
    assert document["run"]["state"] == "WAITING" and document["run"]["worked_ms"] == 4200


def test_what_the_file_holds_is_counted_apart() -> None:
    """A task that its file defers or drops was not done, did not fail and is not left over, in either document."""
    tasks = (Task("done", "Done", done=True), Task("dropped", "Dropped", done=True), Task("later", "Later"))
    held = Held("dropped", "it is dropped"), Held("later", "it is deferred")
    roadmap = Roadmap("roadmap", "Plan", (), tasks, held=held)
    results: Any = results_document(RUN, roadmap, {}, mask)
    numbers = {name: results["totals"][name] for name in ("completed", "failed", "waiting", "left", "held")}
    assert numbers == {"completed": 1, "failed": 0, "waiting": 0, "left": 0, "held": 2}
    named = {"later": TaskRecord("", "later", "COMPLETED", execution="e-1")}
    results = results_document(RUN, roadmap, named, mask)
    assert (results["totals"]["completed"], results["totals"]["held"]) == (2, 1)
    for make in (results_document, roadmap_document):
        assert [task["state"] for task in by_id(make(RUN, roadmap, {}, mask)).values()] == [
            "COMPLETED", "SKIPPED", "SKIPPED",
        ]  # fmt: skip


def test_documents_are_masked_and_bounded() -> None:
    """Titles, reasons and the run's own reason are masked and cut."""
    run = RUN._replace(because="hunter2 " * 1000)
    for make in (results_document, roadmap_document):
        text = json.dumps(make(run, ROADMAP, RECORDS, mask))
        assert "hunter2" not in text and len(text) < 6000


def test_documents_follow_from_the_records() -> None:
    """The same records give the same documents."""
    assert results_document(RUN, ROADMAP, RECORDS, mask) == results_document(RUN, ROADMAP, dict(RECORDS), mask)


# ── when they are written ──


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def state_of(root: Root, path: str = RESULTS) -> Any:
    data = read_file(root, path, 1 << 20)
    return None if data is None else json.loads(data)


def test_both_files_are_written(state: Root, tmp_path: Path) -> None:
    """The results and the roadmap's state are there, private, and as the pure functions say."""
    assert Exports(state, mask).tell(RUN, ROADMAP, RECORDS)
    assert state_of(state) == results_document(RUN, ROADMAP, RECORDS, mask)
    assert state_of(state, roadmap_file(RUN.roadmap)) == roadmap_document(RUN, ROADMAP, RECORDS, mask)
    assert (tmp_path / RESULTS).stat().st_mode & 0o777 == 0o600


def test_while_a_run_goes_on_files_may_lag(state: Root) -> None:
    """Within a second of the last time nothing is written; later it is; at the end it is at once."""
    clock, running = Clock(), RUN._replace(state="RUNNING")
    exports = Exports(state, mask, clock)
    assert exports.tell(running, ROADMAP, {})
    clock.now = 0.5
    assert not exports.tell(running, ROADMAP, RECORDS)
    assert state_of(state)["totals"]["attempts"] == 0
    clock.now = 1.1
    assert exports.tell(running, ROADMAP, RECORDS)
    assert state_of(state)["totals"]["attempts"] == 5
    assert exports.tell(RUN, ROADMAP, RECORDS)
    assert state_of(state)["run"]["state"] == "WAITING"


def test_what_is_slow_is_written_seldom(state: Root) -> None:
    """When writing took two seconds, the next time is forty seconds later."""
    times = iter([0.0, 2.0, 41.9, 42.1, 42.1])
    exports = Exports(state, mask, lambda: next(times))
    running = RUN._replace(state="RUNNING")
    assert [exports.tell(running, ROADMAP, RECORDS) for _ in range(3)] == [True, False, True]


def test_what_says_nothing_new_is_not_written(state: Root, tmp_path: Path) -> None:
    """Telling the same again leaves the file alone."""
    exports = Exports(state, mask)
    exports.tell(RUN, ROADMAP, RECORDS)
    before = (tmp_path / RESULTS).stat().st_ino
    exports.tell(RUN, ROADMAP, RECORDS)
    assert (tmp_path / RESULTS).stat().st_ino == before


# ── names ──

HOSTILE = json.loads((Path(__file__).parent / "hostile_names.json").read_text())


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_stays_in_its_folder(name: str, state: Root, tmp_path: Path) -> None:
    """Whatever a roadmap is called, its state is a plain file in `roadmaps`, and nothing else appears."""
    Exports(state, mask).tell(RUN._replace(roadmap=name), ROADMAP, RECORDS)
    (made,) = (tmp_path / "roadmaps").iterdir()
    assert made.is_file() and made.name.isascii() and made.name.isprintable() and len(made.name) < 120
    assert sorted(os.listdir(tmp_path)) == [RESULTS, "roadmaps"]
    assert state_of(state, f"roadmaps/{made.name}")["roadmap"] == name


def test_no_two_names_share_a_file() -> None:
    """Different texts have different names, also one that looks like what another was turned into."""
    texts = [*HOSTILE, "x" * 100, "x" * 101, "x" * 300, "ROADMAP.md", "docs/ROADMAP.md", "docs_ROADMAP.md"]
    texts += [safe_name(text) for text in HOSTILE]
    assert len({safe_name(text) for text in texts}) == len(set(texts))
    assert safe_name("ROADMAP.md") == "ROADMAP.md"


# ── files ──

OLD, NEW = b"old" * 5000, b"new" * 7000


def test_killed_at_any_call_the_file_is_old_or_new(tmp_path: Path) -> None:
    """Killed before or after each system call, the file is whole, and the next writer succeeds."""
    with Root(str(tmp_path)) as root:
        number, found = 0, set()
        while True:
            number += 1
            replace_file(root, "a/b.json", OLD)
            before = in_child(lambda n=number: _replace_until(tmp_path, n, "before"))  # type: ignore[misc]
            found.add(_checked(root))
            replace_file(root, "a/b.json", OLD)
            after = in_child(lambda n=number: _replace_until(tmp_path, n, "after"))  # type: ignore[misc]
            found.add(_checked(root))
            if before == after == 0:
                break
            assert before == after == -signal.SIGKILL
        assert number > 8
        assert found == {OLD, NEW}
        replace_file(root, "a/b.json", OLD)
        assert os.listdir(tmp_path / "a") == ["b.json"]


def _replace_until(place: Path, number: int, when: Any) -> None:
    calls = FaultyCalls()
    root = Root(str(place), calls)
    calls.arm(Kill(number, when))
    replace_file(root, "a/b.json", NEW)


def _checked(root: Root) -> bytes:
    data = read_file(root, "a/b.json", 1 << 20)
    assert data in (OLD, NEW)
    return data


@pytest.mark.parametrize("number", range(1, 20))
def test_an_error_leaves_the_old_file_and_no_descriptor(number: int, tmp_path: Path) -> None:
    """Whichever call fails, the file is old or new, whole, and no descriptor stays open; half writes are finished."""
    calls = FaultyCalls()
    with Root(str(tmp_path), calls) as root:
        replace_file(root, "a/b.json", OLD)
        before = len(os.listdir("/proc/self/fd"))
        calls.arm(Fail(number))
        try:
            replace_file(root, "a/b.json", NEW)
        except OSError:
            assert calls.count >= number
        calls.disarm()
        assert len(os.listdir("/proc/self/fd")) == before
        _checked(root)
        calls.arm(ShortWrite(number))
        replace_file(root, "a/b.json", NEW)
        calls.disarm()
        assert _checked(root) == NEW


def test_it_is_durable_before_it_has_its_name(tmp_path: Path) -> None:
    """The bytes are synced before the rename, so a power cut cannot leave an empty file under the name."""
    calls = FaultyCalls()
    with Root(str(tmp_path), calls) as root:
        calls.disarm()
        replace_file(root, "b.json", NEW)
        order = [name for name in calls.trace if name in ("write", "fsync", "rename")]
    assert order == ["write", "fsync", "rename"]


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    """While another process writes, ours is refused, and what it wrote is not touched."""
    with Root(str(tmp_path)) as root:
        replace_file(root, "b.json", OLD)
        with (tmp_path / ".b.json.new").open("wb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(BlockingIOError):
                replace_file(root, "b.json", NEW)
        assert read_file(root, "b.json", 1 << 20) == OLD
        replace_file(root, "b.json", NEW)
        assert read_file(root, "b.json", 1 << 20) == NEW


def test_a_file_that_just_got_its_name_is_not_written_over(tmp_path: Path) -> None:
    """When another writer finishes between our open and our lock, its result stays whole until ours replaces it."""
    calls = FaultyCalls()
    seen: list[int] = []
    real = calls.open

    def opened(path: str, *args: Any, **named: Any) -> int:
        fd: int = real(path, *args, **named)
        if path == ".b.json.new" and not seen:
            with Root(str(tmp_path)) as other:
                replace_file(other, "b.json", OLD)
            seen.append(os.stat(tmp_path / "b.json").st_ino)
            assert os.fstat(fd).st_ino == seen[0]
        return fd

    setattr(calls, "open", opened)  # noqa: B010  the class has a static method of this name
    with Root(str(tmp_path), calls) as root:
        replace_file(root, "b.json", NEW)
        assert read_file(root, "b.json", 1 << 20) == NEW
    assert seen and os.stat(tmp_path / "b.json").st_ino != seen[0]


@pytest.mark.parametrize("planted", ["b.json", ".b.json.new"])
def test_nothing_is_written_through_a_link(planted: str, tmp_path: Path) -> None:
    """A planted link is replaced or refused; what it leads to stays as it was."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    place = tmp_path / "state"
    place.mkdir()
    (place / planted).symlink_to(outside)
    with Root(str(place)) as root:
        try:
            replace_file(root, "b.json", NEW)
        except OSError:
            assert planted == ".b.json.new"
    assert outside.read_text() == "mine"


WRITER = """
import sys
from holdfast.disk.confined import Root
from holdfast.store.exports import replace_file
root = Root(sys.argv[1])
n = 0
while True:
    n += 1
    replace_file(root, "a/b.json", (b"%d " % n) * 20_000)
    if n == 1:
        print("ready", flush=True)
"""


def test_kill_while_writing_leaves_a_whole_file(tmp_path: Path) -> None:
    """Writers killed at random moments leave one whole document each time, and no litter but one spare file."""
    with Root(str(tmp_path)) as root:
        for _ in range(5):
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(0.1)
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
            words = (read_file(root, "a/b.json", 1 << 22) or b"").split()
            assert len(words) == 20_000 and len(set(words)) == 1
        assert set(os.listdir(tmp_path / "a")) <= {"b.json", ".b.json.new"}
        replace_file(root, "a/b.json", NEW)
        assert read_file(root, "a/b.json", 1 << 20) == NEW
