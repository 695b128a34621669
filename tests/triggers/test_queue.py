"""Queue files: real ones dropped into a real directory, by honest people and by others."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from guarded import ME, Ground, Interloper, guard, in_child, put
from holdfast.disk.calls import Calls
from holdfast.disk.lock import Lock
from holdfast.engine.history import KEEP_AT_LEAST
from holdfast.engine.trigger_sources import MOST_BYTES
from holdfast.errors import Locked
from holdfast.model.trigger import Firing
from holdfast.testing import FaultyCalls, KillAt
from triggers.posted import INBOX, watchman

TASKS = json.dumps({"tasks": [{"id": "a", "title": "Do it"}]}).encode()


@pytest.fixture
def inbox(workspace: Path) -> Path:
    guard(workspace, {"inbox/": b""}).hf.close()
    return workspace / "inbox"


def taken(inbox: Path) -> list[Path]:
    return sorted((inbox / "taken").glob("*")) if (inbox / "taken").exists() else []


def refused(inbox: Path) -> list[Path]:
    return sorted((inbox / "refused").glob("*.json")) if (inbox / "refused").exists() else []


@pytest.mark.parametrize("data", [TASKS, b'[{"id": "a", "title": "Do it"}]', b'\xef\xbb\xbf[{"title": "Do it"}]'])
def test_a_queue_file_becomes_the_roadmap_of_one_run(data: bytes, inbox: Path) -> None:
    """A file that was left alone is moved aside, byte for byte, and one run starts with it as its roadmap."""
    with watchman(inbox.parent, INBOX) as man:
        (inbox / "task_queue.json").write_bytes(data)
        assert man.after(seconds=0) == []
        (firing,) = man.after(seconds=1)
        assert (inbox.parent / firing.roadmap).read_bytes() == data
        assert taken(inbox) == [inbox.parent / firing.roadmap]
        assert not (inbox / "task_queue.json").exists()
        assert man.after(seconds=1) == man.after(seconds=10) == []
        (row,) = man.ground.hf.log()
        assert row.intent == "Take inbox/task_queue.json from the queue"


def test_the_same_file_dropped_again_is_another_run(inbox: Path) -> None:
    """Dropping the same bytes under the same name a second time is a second order, and gets a second run."""
    with watchman(inbox.parent, INBOX) as man:
        for _ in range(2):
            (inbox / "q.json").write_bytes(TASKS)
            man.after(seconds=1)
            assert len(man.after(seconds=1)) == 1
        assert len(taken(inbox)) == 2


def test_a_job_waits_while_another_run_is_under_way(inbox: Path) -> None:
    """It is told once that it waits, and started when the other run is over: one job, one run."""
    with watchman(inbox.parent, INBOX) as man:

        def refuse(firing: Firing) -> None:
            raise Locked("a run is under way in this workspace")

        man.watch._start, start = refuse, man.watch._start
        (inbox / "q.json").write_bytes(TASKS)
        for _ in range(30):
            assert man.after(seconds=1) == []
        assert man.tales() == [("left", "it waits: a run is under way in this workspace")]
        man.watch._start = start
        (firing,) = [one for _ in range(12) for one in man.after(seconds=1)]
        assert (inbox.parent / firing.roadmap).read_bytes() == TASKS
        assert man.after(seconds=60) == []


def test_a_file_that_is_still_being_written_is_waited_for(inbox: Path) -> None:
    """Half a file is not read: each change begins the wait anew."""
    with watchman(inbox.parent, INBOX) as man:
        for end in (10, 20, 30, len(TASKS)):
            (inbox / "q.json").write_bytes(TASKS[:end])
            assert man.after(seconds=0.9) == []
        assert len(man.after(seconds=1)) == 1
        assert refused(inbox) == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no task"),
        (b'{"tasks": [', "no task"),
        (b"# Roadmap\n- [ ] a\n", "no task queue"),
        (b'{"tasks": []}', "no task"),
        (b'"a text"', "no task"),
        (b"\x00\xff" * 50, "no task"),
        (b"[" * 5000, "no task"),
        (b" " * (MOST_BYTES + 1), "larger than 4 MiB"),
    ],
)
def test_a_malformed_file_is_put_aside_with_the_reason(data: bytes, why: str, inbox: Path) -> None:
    """What is no task queue starts nothing; it is moved to refused/, unchanged, with the reason in a file beside it."""
    with watchman(inbox.parent, INBOX) as man:
        (inbox / "bad.json").write_bytes(data)
        man.after(seconds=0)
        assert man.after(seconds=1) == []
        (place,) = refused(inbox)
        assert place.read_bytes() == data
        reason = place.with_suffix(".txt").read_text()
        assert reason.startswith("inbox/bad.json\n") and why in reason
        assert [told.tale for told in man.told] == ["refused"]
        assert man.after(seconds=5) == [] and len(man.told) == 1


def _hostile(inbox: Path, kind: str) -> None:
    if kind == "link":
        (inbox / "evil.json").symlink_to("/etc/hostname")
    elif kind == "link inside":
        (inbox.parent / "real.json").write_bytes(TASKS)
        (inbox / "evil.json").symlink_to("../real.json")
    elif kind == "pipe":
        os.mkfifo(inbox / "evil.json")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(inbox / "evil.json"))
    else:
        (inbox / kind).write_bytes(TASKS)


@pytest.mark.parametrize(
    "kind",
    ["link", "link inside", "pipe", "socket", "new\nline.json", "\u202etxt.json", "esc\x1b[2J.json", "\udcff.json",
     "tasks.txt", "tasks.json ", "git.json\u200b"],
)  # fmt: skip
def test_what_cannot_be_a_queue_file_stays_and_is_told_once(kind: str, inbox: Path) -> None:
    """Links, pipes, sockets and names that hide something are neither opened nor moved; a person hears of it once."""
    _hostile(inbox, kind)
    before = sorted(os.listdir(inbox))
    with watchman(inbox.parent, INBOX) as man:
        for _ in range(4):
            assert man.after(seconds=1) == []
        assert sorted(os.listdir(inbox)) == before
        assert [told.tale for told in man.told] == ["left"]
        assert man.told[0].words.isprintable()


def test_hidden_files_and_directories_are_nobodys_business(inbox: Path) -> None:
    """A name that begins with a dot is somebody's half-written file; a directory is no file."""
    (inbox / ".q.json.tmp").write_bytes(TASKS)
    (inbox / "dir.json").mkdir()
    with watchman(inbox.parent, INBOX) as man:
        assert man.after(seconds=1) == man.after(seconds=5) == []
        assert man.told == []


def test_a_file_that_came_with_the_repository_starts_nothing(inbox: Path) -> None:
    """A queue file that git tracks is left and told once: a repository never starts runs by itself."""
    (inbox / "committed.json").write_bytes(TASKS)
    (inbox / "dropped.json").write_bytes(TASKS)
    for words in (("init", "-q"), ("add", "inbox/committed.json"), ("commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=inbox.parent, check=True)
    with watchman(inbox.parent, INBOX) as man:
        man.after(seconds=0)
        started = [*man.after(seconds=1), *man.after(seconds=1)]
        assert [firing.what for firing in started] == ["inbox/dropped.json"]
        assert [told.words.partition(":")[2] for told in man.told if told.tale == "left"] == [
            " git tracks it, and what comes with a repository starts no run"
        ]
        assert (inbox / "committed.json").read_bytes() == TASKS


def test_a_file_that_was_landed_starts_nothing(inbox: Path) -> None:
    """What Holdfast put there is left and told once, committed or not: what an agent does never starts runs."""
    with watchman(inbox.parent, INBOX) as man:
        man.ground.apply(put("inbox/landed.json", TASKS))
        man.ground.apply(put("other.txt", b"landed later"))
        (inbox / "dropped.json").write_bytes(TASKS)
        man.after(seconds=0)
        started = [*man.after(seconds=1), *man.after(seconds=1)]
        assert [firing.what for firing in started] == ["inbox/dropped.json"]
        left = "landed.json is left where it is: Holdfast put it there, and what lands starts no run"
        assert [words for tale, words in man.tales() if tale == "left"] == [left]
        assert (inbox / "landed.json").read_bytes() == TASKS


def test_a_file_that_somebody_wrote_over_a_landed_one_is_theirs(inbox: Path) -> None:
    """What counts is who put there what stands there now; and a file that was taken away before says nothing."""
    more = json.dumps([{"id": "b", "title": "Do that too"}]).encode()
    with watchman(inbox.parent, INBOX) as man:
        man.ground.apply(put("inbox/q.json", TASKS))
        (inbox / "q.json").write_bytes(more)
        man.after(seconds=0)
        assert [(inbox.parent / firing.roadmap).read_bytes() for firing in man.after(seconds=1)] == [more]


def test_a_file_that_lands_while_it_is_looked_at_is_not_taken(inbox: Path) -> None:
    """Until a landing ends nobody knows that it is one; when the file is taken nothing lands, and it is known."""
    with watchman(inbox.parent, INBOX) as man:

        class Landing(Calls):
            def point(self, name: str) -> None:
                if name == "applied":
                    assert (inbox / "q.json").read_bytes() == TASKS
                    assert man.after(seconds=0) == man.after(seconds=1) == []

        lands = Ground(inbox.parent, Landing())
        lands.apply(put("inbox/q.json", TASKS))
        lands.hf.close()
        assert man.after(seconds=1) == []
        assert man.tales()[-1] == ("missed", "Holdfast put it there, and what lands starts no run")
        assert (inbox / "q.json").read_bytes() == TASKS


def test_a_file_that_may_have_landed_before_the_logs_were_collected_starts_nothing(inbox: Path) -> None:
    """Where the log is gone that could tell, the file is left; put in again, it is newer than all of them."""
    with watchman(inbox.parent, INBOX) as man:
        man.ground.apply(put("inbox/q.json", TASKS))
        for number in range(KEEP_AT_LEAST):
            man.ground.apply(put("other.txt", b"%d" % number))
        assert len(man.ground.hf.gc(keep_days=0).forgotten) == 1
        man.after(seconds=0)
        assert man.after(seconds=1) == []
        assert [tale for tale, _ in man.tales()] == ["left"]
        (inbox / "q.json").unlink()
        (inbox / "q.json").write_bytes(TASKS)
        man.after(seconds=0)
        assert len(man.after(seconds=1)) == 1


def test_an_inbox_that_is_a_link_leads_nowhere(inbox: Path, tmp_path: Path) -> None:
    """Where the directory itself is a link, nothing in it is looked at."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/q.json").write_bytes(TASKS)
    inbox.rmdir()
    inbox.symlink_to(tmp_path / "outside")
    with watchman(inbox.parent, INBOX) as man:
        assert man.after(seconds=1) == man.after(seconds=5) == []
    assert (tmp_path / "outside/q.json").read_bytes() == TASKS


def test_a_file_that_changes_after_it_was_read_is_not_taken(inbox: Path) -> None:
    """What was read is what is taken: a file that was replaced in between is told, and looked at anew."""
    with watchman(inbox.parent, INBOX) as man:
        (inbox / "q.json").write_bytes(TASKS)
        man.after(seconds=0)
        original = man.triggers.due

        def due(now: object) -> object:
            (inbox / "q.json").write_bytes(TASKS.replace(b"Do it", b"Do evil, quickly"))
            man.triggers.due = original  # type: ignore[method-assign]
            return original(now)  # type: ignore[arg-type]

        man.triggers.due = due  # type: ignore[method-assign,assignment]
        assert man.after(seconds=1) == []
        assert man.tales() == [("missed", "the file was changed after it was read")]
        man.after(seconds=0)
        (firing,) = man.after(seconds=1)
        assert b"evil" in (inbox.parent / firing.roadmap).read_bytes()


def test_a_file_that_changes_while_it_is_moved_stays(workspace: Path) -> None:
    """Somebody who writes at the very moment of the move is not overtaken: nothing moves, and the file waits."""
    calls = Interloper()
    guard(workspace, {"inbox/": b""}).hf.close()
    inbox = workspace / "inbox"
    with watchman(workspace, INBOX, calls=calls) as man:
        (inbox / "q.json").write_bytes(TASKS)
        man.after(seconds=0)
        calls.arm("exchange", lambda: (inbox / "q.json").write_bytes(b"[]"))
        calls.arm("move", lambda: (inbox / "q.json").write_bytes(b"[]"), skip=0)
        assert man.after(seconds=1) == []
        assert calls.struck >= 1
        assert taken(inbox) == []
        assert (inbox / "q.json").read_bytes() == b"[]"


def test_while_the_workspace_is_locked_a_file_waits(inbox: Path) -> None:
    """A queue file that cannot be moved now is told once and tried again; it is not lost and not begun."""
    with watchman(inbox.parent, INBOX) as man:
        (inbox / "q.json").write_bytes(TASKS)
        man.after(seconds=0)
        with Lock(man.ground.hf.lock_path):
            assert man.after(seconds=1) == man.after(seconds=1) == []
        assert [told.tale for told in man.told] == ["left"]
        assert "it waits" in man.told[0].words
        assert len(man.after(seconds=1)) == 1


def test_a_file_that_vanishes_is_told(inbox: Path) -> None:
    """A file that somebody took back after it was read starts nothing, and that is told."""
    with watchman(inbox.parent, INBOX) as man:
        (inbox / "q.json").write_bytes(TASKS)
        man.after(seconds=0)
        with Lock(man.ground.hf.lock_path):
            man.after(seconds=1)
        (inbox / "q.json").unlink()
        assert man.after(seconds=1) == []
        assert ("missed", "the file is gone") in man.tales()


def test_a_taken_file_can_be_put_back(inbox: Path) -> None:
    """Taking is an execution like any other: it is in the log, and undo puts the file back."""
    with watchman(inbox.parent, INBOX) as man:
        (inbox / "q.json").write_bytes(TASKS)
        man.after(seconds=0)
        man.after(seconds=1)
        (row,) = man.ground.hf.log()
        man.ground.hf.undo(row.id, approved_by=ME)
        assert (inbox / "q.json").read_bytes() == TASKS
        assert taken(inbox) == []


@pytest.mark.crash
@pytest.mark.long
def test_killed_at_any_point_of_taking_the_file_is_neither_lost_nor_used_twice(tmp_path: Path) -> None:
    """At every named point from reading the file to the start: afterwards one run has it, and it is in one place."""

    def dropped(name: str, *faults: KillAt) -> tuple[Path, tuple[str, ...]]:
        place = tmp_path / name
        guard(place, {"inbox/": b""}).hf.close()
        calls = FaultyCalls()
        with watchman(place, INBOX, calls=calls) as man:
            (place / "inbox/q.json").write_bytes(TASKS)
            man.after(seconds=0)
            calls.arm(*faults)
            man.watch._start = lambda firing: calls.point("start")
            man.after(seconds=1)
            return place, calls.points

    _, points = dropped("whole")
    before_the_start = points[: points.index("firing-begun")]
    assert {"firing-noted", "put-away"} <= set(before_the_start)
    for point in dict.fromkeys(before_the_start):
        name = point.replace("/", "-")
        assert in_child(lambda name=name, point=point: dropped(name, KillAt(point))) == -9, point
        with watchman(tmp_path / name, INBOX) as man:
            started = [firing for _ in range(3) for firing in man.after(seconds=2)]
            assert [firing.what for firing in started] == ["inbox/q.json"], point
            assert [path.read_bytes() for path in taken(tmp_path / name / "inbox")] == [TASKS], point
            assert not (tmp_path / name / "inbox/q.json").exists(), point
            assert not [told for told in man.told if told.tale == "missed"], point
