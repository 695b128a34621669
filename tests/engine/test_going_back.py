"""Undo and restore over a tangled past: the right object with the right mode, or a refusal that changes nothing."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from guarded import ME, OLD_NS, Ground, as_user, contents, guard, put
from holdfast.disk.calls import CALLS, Calls
from holdfast.engine.history import collect
from holdfast.errors import Conflict, InvalidInput
from holdfast.model.plan import Chmod, Delete, Move

_DAY_NS = 86_400 * 10**9
_TEXT = b"".join(b"line %d\n" % n for n in range(20))


def _live(ground: Ground) -> dict[str, bool]:
    return {row.id: row.live for row in ground.hf.log()}


# ── which object comes back ──


def test_restore_over_a_chmod_and_a_move_brings_back_the_mode(tmp_path: Path) -> None:
    """A file that was given another mode and then moved comes back to its place with the mode it had there."""
    ground = guard(tmp_path / "workspace", {"a": b"A\n"})
    old, moment = ground.tree(), time.time_ns()
    ground.apply(Chmod("a", 0o700))
    ground.apply(Move("a", "b"))
    assert ground.hf.restore(moment, approved_by="me").status == "COMPLETED"
    assert ground.tree() == old


def test_restore_over_a_move_and_a_new_file_in_its_place(tmp_path: Path) -> None:
    """A file was moved away and another one written where it had been: each path gets its own old content back."""
    ground = guard(tmp_path / "workspace", {"a": b"\0 binary, so that no text of it is kept"})
    old, moment = ground.tree(), time.time_ns()
    ground.apply(Move("a", "b"))
    ground.apply(put("a", b"new\n"))
    new = ground.tree()
    back = ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == old
    ground.hf.undo(back.id, approved_by="me")
    assert ground.tree() == new


def test_a_reused_inode_is_not_the_old_file(tmp_path: Path) -> None:
    """gc freed the inodes of deleted files and new files got them: restore brings the old bytes, never the new ones."""
    names = [f"{letter}.txt" for letter in "abcdefgh"]
    ground = guard(tmp_path / "workspace", dict.fromkeys(names, b"same\n"))
    old, moment = ground.tree(), time.time_ns()
    inodes = {(ground / name).stat().st_ino for name in names}
    ground.apply(*(Delete(name) for name in names))
    collect(ground.hf.pipeline, keep_ns=30 * _DAY_NS, now_ns=time.time_ns() + 2 * _DAY_NS)
    for attempt in range(5):
        ground.apply(*(put(f"new{attempt}-{n}.txt", b"SECRET %d\n" % n) for n in range(12)))
        if inodes & {(ground / name).stat().st_ino for name in ground.tree()}:
            break
    else:
        pytest.skip("this file system does not use inode numbers again so soon")
    ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == old


# ── what is in effect afterwards ──


def test_restore_switches_off_what_a_redo_had_revived(tmp_path: Path) -> None:
    """A change undone before the moment and redone after it is out of effect again, on the disk and in the record."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    first = ground.apply(put("a", b"1"))
    undone = ground.hf.undo(first.id, approved_by="me")
    moment = time.time_ns()
    redone = ground.hf.undo(undone.id, approved_by="me")
    restored = ground.hf.restore(moment, approved_by="me")
    assert (ground / "a").read_bytes() == b"0"
    assert _live(ground) == {first.id: False, undone.id: True, redone.id: False, restored.id: True}
    with pytest.raises(InvalidInput, match="undone already"):
        ground.hf.undo(first.id, approved_by="me")
    ground.hf.undo(restored.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"1"
    assert _live(ground)[first.id]


def test_undoing_a_revived_change_ends_the_redo_too(tmp_path: Path) -> None:
    """The redo has no effect of its own: with the change it revived it goes out of effect, and cannot be undone."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    first = ground.apply(put("a", b"1"))
    redone = ground.hf.undo(ground.hf.undo(first.id, approved_by="me").id, approved_by="me")
    ground.hf.undo(first.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"0"
    assert not _live(ground)[first.id] and not _live(ground)[redone.id]
    with pytest.raises(InvalidInput, match="undone already"):
        ground.hf.undo(redone.id, approved_by="me")


def test_an_undo_that_changed_nothing_can_itself_be_undone(tmp_path: Path) -> None:
    """Somebody had put the file back by hand, so the undo moved nothing; undoing it makes the change live again."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    first = ground.apply(put("a", b"1"))
    (ground / "a").write_bytes(b"0")
    theirs = ground.tree()
    undone = ground.hf.undo(first.id, approved_by="me")
    assert (undone.status, undone.changes) == ("COMPLETED", 0)
    assert not _live(ground)[first.id]
    assert ground.hf.undo(undone.id, approved_by="me").status == "COMPLETED"
    assert _live(ground)[first.id] and not _live(ground)[undone.id]
    assert ground.tree() == theirs


def test_a_clock_that_was_set_back_does_not_turn_the_order_around(tmp_path: Path) -> None:
    """Of two changes to a file the second has the earlier time; restore still ends at what stood before the first."""
    ground = guard(tmp_path / "workspace", {"a": b"v0\n"})
    old, moment = ground.tree(), time.time_ns() - 7200 * 10**9
    ground.apply(put("a", b"v1\n"))
    second = ground.apply(put("a", b"v2\n"))
    ground.hf.close()
    with sqlite3.connect(ground.state / "holdfast.db") as tables:
        tables.execute("UPDATE executions SET at_ns = at_ns - ? WHERE id = ?", (3600 * 10**9, second.id))
    tables.close()
    ground = Ground(ground.path)
    ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == old


# ── other people's edits ──


def test_a_hand_edit_between_two_changes_is_kept_by_restore(tmp_path: Path) -> None:
    """Somebody's line, written between two of our changes and apart from them, stands after both are taken back."""
    ground = guard(tmp_path / "workspace", {"a": _TEXT})
    moment = time.time_ns()
    ground.apply(put("a", _TEXT.replace(b"line 2\n", b"OURS 1\n")))
    (ground / "a").write_bytes((ground / "a").read_bytes().replace(b"line 9\n", b"THEIRS\n"))
    ground.apply(put("a", (ground / "a").read_bytes().replace(b"line 17\n", b"OURS 2\n")))
    way = ground.hf.preview_restore(moment)
    assert way.merged == ("a",)
    ground.hf.go_back(way, approved_by=ME)
    assert (ground / "a").read_bytes() == _TEXT.replace(b"line 9\n", b"THEIRS\n")


@pytest.mark.parametrize("second", [b"v2\n", b"v1\ntheir line\nv2\n"], ids=["overwritten", "beside"])
def test_a_hand_edit_that_cannot_be_told_apart_is_a_conflict(tmp_path: Path, second: bytes) -> None:
    """Somebody's line adjoins ours, or our second change overwrote it: restore names the file and changes nothing."""
    ground = guard(tmp_path / "workspace", {"a": b"v0\n", "b": b"b0\n"})
    moment = time.time_ns()
    ground.apply(put("a", b"v1\n"), put("b", b"b1\n"))
    (ground / "a").write_bytes(b"v1\ntheir line\n")
    ground.apply(put("a", second))
    before = ground.tree()
    with pytest.raises(Conflict, match="  a was edited between"):
        ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == before
    assert set(_live(ground).values()) == {True}


def test_undoing_a_chmod_keeps_a_later_edit(tmp_path: Path) -> None:
    """We changed only the mode, so only the mode goes back; what was written since stays as it is."""
    ground = guard(tmp_path / "workspace", {"a": b"v0\n"})
    (ground / "a").chmod(0o644)
    done = ground.apply(Chmod("a", 0o755))
    (ground / "a").write_bytes(b"\0 edited, and no text")
    ground.hf.undo(done.id, approved_by="me")
    assert contents(ground.tree()) == {"a": b"\0 edited, and no text"}
    assert ground.tree()["a"].mode == 0o644


@pytest.mark.root
def test_a_file_that_became_unreadable_is_a_clear_conflict(public: Path) -> None:
    """An ordinary user's undo that cannot read what stands there names the file and the reason, and changes nothing."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"0", "b": b"0"})
        done = ground.apply(put("a", b"1"), put("b", b"1"))
        (ground / "a").chmod(0)
        with pytest.raises(Conflict, match="  a cannot be read: Permission denied"):
            ground.hf.undo(done.id, approved_by="me")
        assert (ground / "b").read_bytes() == b"1"
        (ground / "a").chmod(0o644)
        ground.hf.undo(done.id, approved_by="me")
        assert contents(ground.tree()) == {"a": b"0", "b": b"0"}

    as_user(public, act)


# ── cost ──


class _Readers(Calls):
    """The real kernel, and how often the ledger was opened and how many bytes of it were read."""

    def __init__(self) -> None:
        self.opened = self.bytes = 0
        setattr(self, "open", self._open)  # noqa: B010  (the class has static methods of these names)
        setattr(self, "pread", self._pread)  # noqa: B010

    def _open(self, path: str, *args: Any, **kwargs: Any) -> int:
        self.opened += os.path.basename(path) == "ledger.jsonl"
        return CALLS.open(path, *args, **kwargs)

    def _pread(self, fd: int, *args: Any) -> bytes:
        data = CALLS.pread(fd, *args)
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/ledger.jsonl"):
            self.bytes += len(data)
        return data


def test_restore_reads_the_ledger_once(tmp_path: Path) -> None:
    """However many executions a restore goes over, it opens the ledger once and reads no byte of it many times."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    moment = time.time_ns()
    for count in (2, 6):
        for n in range(count):
            ground.apply(put(f"f{n}", b"%d" % time.time_ns()))
        ground = ground.reopened(readers := _Readers())
        ground.hf.preview_restore(moment)
        assert readers.opened == 1
        assert readers.bytes < 2 * (ground.state / "ledger.jsonl").stat().st_size


# ── when directories were modified ──


def _directory_times(ground: Ground) -> dict[str, int]:
    folders = [
        ground.path,
        *(path for path in ground.path.rglob("*") if path.is_dir() and ".holdfast" not in str(path)),
    ]
    return {str(path.relative_to(ground.path)): path.stat().st_mtime_ns for path in folders}


def _aged(ground: Ground) -> dict[str, int]:
    for number, name in enumerate(sorted(_directory_times(ground), reverse=True)):
        os.utime(ground / name, ns=(OLD_NS + number, OLD_NS + number))
    return _directory_times(ground)


def test_undo_gives_directories_their_modification_times_back(tmp_path: Path) -> None:
    """Directories that a change worked in, removed or emptied are dated after its undo as they were before it."""
    ground = guard(tmp_path / "workspace", {"a/x": b"x", "a/b/y": b"y", "gone/z": b"z", "empty/": b"", "other/o": b"o"})
    old = _aged(ground)
    done = ground.apply(
        put("a/new", b"new"),
        Move("a/b/y", "other/y"),
        Delete("gone", recursive=True),
        Delete("empty", recursive=True),
    )
    new = _directory_times(ground)
    assert new != old
    back = ground.hf.undo(done.id, approved_by=ME)
    assert _directory_times(ground) == old
    way = ground.hf.preview_undo(back.id)
    ground.hf.go_back(way, approved_by=ME, consent=ground.hf.again(way).plan.id)
    assert _directory_times(ground) == new


def test_restore_gives_the_times_of_before_the_first_change(tmp_path: Path) -> None:
    """Going back over several changes in one directory dates it as it was before the oldest of them."""
    ground = guard(tmp_path / "workspace", {"a/x": b"x"})
    old, moment = _aged(ground), time.time_ns()
    for number in range(3):
        ground.apply(put(f"a/{number}", b"new"))
    ground.hf.restore(moment, approved_by=ME)
    assert _directory_times(ground) == old


def test_a_directory_in_which_somebody_else_worked_keeps_its_time(tmp_path: Path) -> None:
    """A file that somebody made in the directory since then is still news to tools that compare times."""
    ground = guard(tmp_path / "workspace", {"a/x": b"x", "b/x": b"x"})
    old = _aged(ground)
    done = ground.apply(put("a/x", b"new"), put("b/x", b"new"))
    time.sleep(0.02)
    (ground / "a" / "theirs").write_bytes(b"theirs")
    ground.hf.undo(done.id, approved_by=ME)
    now = _directory_times(ground)
    assert now["a"] > old["a"]
    assert now["b"] == old["b"]
