"""What was set aside is read before it is put back: an edit that no time stamp remembers is a conflict, not a lie."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from guarded import Ground, Interloper, as_user, contents, guard, in_child, put, rewritten
from holdfast.engine.history import collect
from holdfast.errors import Conflict, NeedsHuman
from holdfast.model.plan import Chmod, Create, Delete
from holdfast.testing import At, FaultyCalls, KillAt


def _settled() -> None:
    """Long enough that the change time alone would say: nothing happened since."""
    time.sleep(0.05)


def test_an_edit_in_the_last_moment_before_the_flip(tmp_path: Path) -> None:
    """Size and time put back between our last look and the flip: the undo reads the old file, and refuses to lie."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old-content"}, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"new")))
    calls.arm("exchange", lambda: rewritten(ground / "a", b"SOMEBODY'S!"))
    done = rehearsal.execute()
    assert calls.struck == 1
    _settled()
    before = ground.tree()
    with pytest.raises(Conflict, match="a cannot come back: its old content was changed by somebody"):
        ground.hf.preview_undo(done.id)
    assert ground.tree() == before


@pytest.mark.parametrize("same", [True, False], ids=["the same bytes", "other bytes"])
def test_an_edit_of_the_new_file_before_the_commit(tmp_path: Path, same: bool) -> None:
    """Written into after the flips, size and time put back: our new file is read, and their bytes are not lost."""
    calls = FaultyCalls()
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls)
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new"), put("n", b"new")))

    def strike() -> None:
        time.sleep(0.02)
        for name in "an":
            rewritten(ground / name, b"new" if same else b"NEW")

    calls.arm(At("applied", strike))
    if same:
        assert ground.hf.execute(rehearsal, approved_by="me").status == "COMPLETED"
        return
    with pytest.raises(NeedsHuman, match="changed by somebody else"):
        ground.hf.execute(rehearsal, approved_by="me")
    assert contents(ground.tree()) == {"a": b"NEW", "n": b"NEW"}
    ground.hf.recover(accept=True)
    assert contents(ground.tree()) == {"a": b"NEW", "n": b"NEW"}
    assert ground.statuses() == ["FAILED"]


def test_a_rollback_does_not_take_somebody_elses_bytes_along(tmp_path: Path) -> None:
    """An edit of our new file that no stamp shows, found by a recovery: it stays where it is, and a person decides."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})

    def die() -> None:
        mine = Ground(ground.path, calls := FaultyCalls())
        rehearsal = mine.ready(mine.plan(put("a", b"new"), put("b", b"new"), put("n", b"new")))
        calls.arm(KillAt("flipped"))
        rehearsal.execute()

    assert in_child(die) == -9
    for name in "an":
        rewritten(ground / name, b"NEW")
    with pytest.raises(NeedsHuman, match=r"this: n was .*; a was "):
        ground.hf.recover()
    assert contents(ground.tree()) == {"a": b"NEW", "b": b"old", "n": b"NEW"}


@pytest.mark.parametrize("step", [put("a", b"new"), Delete("a")], ids=["replaced", "deleted"])
def test_a_write_through_a_descriptor_from_before(tmp_path: Path, step: object) -> None:
    """Bytes written into the old file while it lay aside, with its time put back, do not come back as the old ones."""
    ground = guard(tmp_path / "workspace", {"a": b"old-content"})
    fd = os.open(ground / "a", os.O_RDWR)
    about = os.fstat(fd)
    done = ground.apply(step)  # type: ignore[arg-type]
    _settled()
    os.pwrite(fd, b"FORGED", 0)
    os.utime(fd, ns=(about.st_atime_ns, about.st_mtime_ns))
    os.close(fd)
    with pytest.raises(Conflict, match="was changed by somebody"):
        ground.hf.undo(done.id, approved_by="me")


def test_an_attribute_set_on_what_lies_aside(tmp_path: Path) -> None:
    """An attribute is part of a file: the undo brings the old content back without one that was not there."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    before = ground.tree()
    fd = os.open(ground / "a", os.O_RDWR)
    done = ground.apply(put("a", b"new"))
    os.setxattr(fd, "user.theirs", b"1")
    os.close(fd)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


def test_an_edit_between_preview_and_undo(tmp_path: Path) -> None:
    """While the person reads the preview somebody writes into the old file: a conflict, and nothing moves."""
    ground = guard(tmp_path / "workspace", {"a": b"old-content", "b": b"old b"})
    fd = os.open(ground / "a", os.O_RDWR)
    about = os.fstat(fd)
    done = ground.apply(put("a", b"new"), put("b", b"new"))
    new = ground.tree()
    way = ground.hf.preview_undo(done.id)
    _settled()
    os.pwrite(fd, b"FORGED", 0)
    os.utime(fd, ns=(about.st_atime_ns, about.st_mtime_ns))
    os.close(fd)
    with pytest.raises(Conflict, match="what was kept for it was changed"):
        ground.hf.go_back(way, approved_by="me")
    assert ground.tree() == new
    assert ground.journal() == []


def test_another_copy_of_the_old_bytes_is_used(tmp_path: Path) -> None:
    """When the object that lies aside was spoiled but the store has the same bytes, the undo takes those."""
    ground = guard(tmp_path / "workspace", {"a": b"the same", "b": b"the same"})
    old = ground.tree()
    ground.apply(Delete("b"))
    collect(ground.hf.pipeline, keep_ns=10**18, now_ns=time.time_ns() + 2 * 86_400 * 10**9)
    ground.hf.restore(0, approved_by="me")
    fd = os.open(ground / "a", os.O_RDWR)
    about = os.fstat(fd)
    done = ground.apply(put("a", b"new"))
    os.pwrite(fd, b"SPOILED!", 0)
    os.utime(fd, ns=(about.st_atime_ns, about.st_mtime_ns))
    os.close(fd)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old


@pytest.mark.root
def test_what_its_mode_closes_to_us_can_be_undone(public: Path) -> None:
    """An ordinary user takes every right from a file: known as done when asked again, undone, redone, undone."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"old", "b": b"old"})
        old = _about(ground)
        plan = ground.plan(Chmod("a", 0), put("b", b"new", 0))
        done = ground.hf.execute(ground.hf.simulate(plan), approved_by="me")
        new = _about(ground)
        assert ground.hf.already_done(plan) is not None
        for _ in range(3):
            time.sleep(0.1)
            back = ground.hf.undo(done.id, approved_by="me")
            assert _about(ground) == old
            time.sleep(0.1)
            ground.hf.undo(back.id, approved_by="me")
            assert _about(ground) == new

    as_user(public, act)


@pytest.mark.root
def test_a_closed_directory_of_ours_goes_again(public: Path) -> None:
    """A new directory that nobody may look into is undone: it goes, because it is empty."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"old"})
        old = _about(ground)
        done = ground.apply(Create("d", True, 0), put("a", b"new"))
        ground.hf.undo(done.id, approved_by="me")
        assert _about(ground) == old

    as_user(public, act)


@pytest.mark.root
def test_what_is_closed_and_was_touched_is_a_conflict(public: Path) -> None:
    """What cannot be read and was touched since by anybody is not undone on trust."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"old"})
        fd = os.open(ground / "a", os.O_RDWR)
        about = os.fstat(fd)
        done = ground.apply(Chmod("a", 0))
        time.sleep(0.1)
        os.pwrite(fd, b"OLD", 0)
        os.utime(fd, ns=(about.st_atime_ns, about.st_mtime_ns))
        with pytest.raises(Conflict, match="cannot be read"):
            ground.hf.undo(done.id, approved_by="me")

    as_user(public, act)


def _about(ground: Ground) -> dict[str, tuple[int, int]]:
    """Without opening anything: mode and size."""
    found = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(ground.path)}
    return {name: (about.st_mode, about.st_size) for name, about in found.items() if name != ".holdfast"}
