"""Disks that are full, without inodes, read-only or not the same: refused or rolled back, and the record is true.

The small disks are tmpfs mounts in a mount namespace of a child process, gone with it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from guarded import Ground, contents, guard, in_child, put
from holdfast.engine.grounds import Grounds
from holdfast.engine.history import collect
from holdfast.engine.orders import Order
from holdfast.engine.work import Workbench
from holdfast.errors import Blocked, DiskFull, HoldfastError, Unsupported
from holdfast.model.plan import Chmod, Create, Delete, Move
from holdfast.store.adapters import Adapters
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import Shell
from holdfast.wiring.opening import pipeline_at

pytestmark = pytest.mark.root

_NEW_NAMESPACE, _PRIVATE_RECURSIVE, _READ_ONLY, _REMOUNT = 0x20000, (1 << 18) | 16384, 1, 32
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _mounted(path: Path, options: str, flags: int = 0) -> None:
    path.mkdir(exist_ok=True)
    _checked(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, options.encode()))


def _on_a_small_disk(path: Path, options: str, act: Callable[[Path], None]) -> None:
    def child() -> None:
        _checked(_libc.unshare(_NEW_NAMESPACE))
        _checked(_libc.mount(b"none", b"/", None, _PRIVATE_RECURSIVE, None))
        _mounted(path, options)
        act(path)

    status = in_child(_probe)
    if status:
        pytest.skip("mount namespaces are not to be had here")
    assert in_child(child) == 0


def _probe() -> None:
    _checked(_libc.unshare(_NEW_NAMESPACE))


def _fill(path: Path, leave: int = 0) -> None:
    """Take all the space but `leave` bytes."""
    with open(path / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
        size = file.tell()
    if leave:
        os.truncate(path / "ballast", max(0, size - leave))


@pytest.mark.parametrize("leave", [0, 4096, 1 << 15, 1 << 17, 1 << 18])
def test_a_full_disk_changes_nothing(tmp_path: Path, leave: int) -> None:
    """With little or no space left a change lands whole or not at all, in our words, and works once there is room."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old" * 1000, "b": b"old" * 1000})
        before = contents(ground.tree())
        _fill(disk, leave)
        changed = _changes(ground)
        found = contents(ground.tree())
        found.pop("ballast")
        assert changed == (found != before)
        (disk / "ballast").unlink()
        ground = Ground(disk)
        ground.hf.recover()
        assert contents(ground.tree()) in (before, {"a": b"n" * 60_000, "b": b"n" * 60_000})
        ground.apply(put("a", b"next"))
        assert (disk / "a").read_bytes() == b"next"
        assert ground.statuses() == ground.ledger_statuses()
        assert ground.hf.audit().ok

    _on_a_small_disk(tmp_path / "disk", "size=2m", act)


def _changes(ground: Ground) -> bool:
    """Did the change land, by its own account?"""
    try:
        ground.apply(put("a", b"n" * 60_000), put("b", b"n" * 60_000))
    except HoldfastError as error:
        return error.changed
    return True


def test_a_change_that_cannot_fit_is_refused_early(tmp_path: Path) -> None:
    """A change larger than the free space is blocked before a byte of it is staged."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old"})
        with pytest.raises(Blocked, match="free"):
            ground.apply(put("a", bytes(3 << 20)))
        assert contents(ground.tree()) == {"a": b"old"}
        assert ground.statuses() == ["ABORTED"]

    _on_a_small_disk(tmp_path / "disk", "size=2m", act)


def test_space_is_asked_for_only_where_bytes_are_written(tmp_path: Path) -> None:
    """Moving or chmodding a file that is larger than the disk needs no room for it."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old"})
        with open(disk / "big", "wb") as file:
            file.truncate(64 << 20)
        for step, where in ((Chmod("big", 0o600), "big"), (Move("big", "moved"), "moved")):
            done = ground.apply(step)
            assert (disk / where).stat().st_size == 64 << 20
            ground.hf.undo(done.id, approved_by="me")
            assert (disk / "big").stat().st_size == 64 << 20

    _on_a_small_disk(tmp_path / "disk", "size=8m", act)


def test_a_disk_without_inodes(tmp_path: Path) -> None:
    """When no file can be created any more, nothing changes; with inodes back, it works."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old", "b": b"old"})
        ground.apply(put("a", b"1"))
        number = 0
        try:
            while True:
                (disk / f"n{number}").touch()
                number += 1
        except OSError:
            pass
        before = ground.tree()
        for steps in ((put("a", b"new"), put("b", b"new")), (Create("d", True),), (Move("a", "z"), put("b", b"x"))):
            with pytest.raises(HoldfastError) as caught:
                ground.apply(*steps)
            assert not caught.value.changed
            assert ground.tree() == before
        for old in range(number):
            (disk / f"n{old}").unlink()
        ground = Ground(disk)
        ground.apply(put("a", b"new"), put("b", b"new"))
        assert contents(ground.tree()) == {"a": b"new", "b": b"new"}
        assert ground.hf.audit().ok

    _on_a_small_disk(tmp_path / "disk", "size=8m,nr_inodes=60", act)


def test_an_agent_that_meets_a_full_disk_did_not_fail(tmp_path: Path) -> None:
    """What it could not write is told as no room, before its shadow gives the room back; no gate is named, and its
    breaker counts nothing."""

    def act(disk: Path) -> None:
        ground = guard(disk / "workspace", {"app.py": b"x = 1\n"})
        order = Order("u-1", "one", 1, 1, "scripted", "One", "Write big.", mends=1, within_ms=50_000)
        agent = ScriptedAgent(Shell("head -c 200000000 /dev/zero > big || exit 1"))
        grounds = Grounds(str(ground.path), pipeline_at)
        bench = Workbench(grounds, {"scripted": agent}, lambda order: lambda happening: None)
        for _ in range(4):
            with pytest.raises(DiskFull) as caught:
                bench.work(order)
            assert "gate" not in caught.value.message
        assert [row.failures for row in Adapters(ground.hf.records).all()] in ([], [0])

    (tmp_path / "disk").mkdir()
    _on_a_small_disk(tmp_path / "disk", "size=48m", act)


def test_gc_does_what_it_can_where_nothing_can_be_packed(tmp_path: Path) -> None:
    """Without an inode for another folder of the store old files stay in their slots; the next gc packs them."""
    later = time.time_ns() + 3 * 86_400 * 10**9

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"0"})
        mode = (disk / "a").stat().st_mode & 0o777
        done = [ground.apply(put("a", b"%d" % number)).id for number in range(1, 6)]
        stray = _exhausted(disk)
        assert collect(ground.hf.pipeline, keep_ns=0, now_ns=later).packed == 0
        for path in stray:
            path.unlink(missing_ok=True)
        assert collect(ground.hf.pipeline, keep_ns=0, now_ns=later).packed > 0
        for number in reversed(range(5)):
            ground.hf.undo(done[number], approved_by="me")
            assert (disk / "a").read_bytes() == b"%d" % number
            assert (disk / "a").stat().st_mode & 0o777 == mode

    _on_a_small_disk(tmp_path / "disk", "size=8m,nr_inodes=300", act)


def _exhausted(disk: Path) -> list[Path]:
    """Take every inode; the files that hold them."""
    made: list[Path] = []
    try:
        while True:
            made.append(disk / f"n{len(made)}")
            made[-1].touch()
    except OSError:
        return made


@pytest.mark.parametrize("leave", [0, 48 << 10, 512 << 10])
@pytest.mark.parametrize("open_elsewhere", [False, True])
def test_without_room_the_tables_are_a_copy(tmp_path: Path, leave: int, open_elsewhere: bool) -> None:
    """Everything can be looked at and gc works; details of steps too, unless somebody else has the file open. What is
    written meanwhile is in the file as soon as there is room."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old"})
        one = ground.apply(put("a", b"1")).id
        if not open_elsewhere:
            ground.hf.close()
        _fill(disk, leave)
        scarce = Ground(disk)
        assert scarce.hf.records.volatile
        assert scarce.statuses() == scarce.ledger_statuses() == ["COMPLETED"]
        assert (scarce.hf.show(one)[1] is None) == open_elsewhere
        assert scarce.hf.gc().forgotten == ()
        scarce.hf.close()
        ground.hf.close()
        (disk / "ballast").unlink()
        ground = Ground(disk)
        assert not ground.hf.records.volatile
        ground.apply(put("a", b"2"))
        assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED", "COMPLETED"]
        assert ground.hf.show(one)[1] is not None

    _on_a_small_disk(tmp_path / "disk", "size=4m", act)


def test_a_read_only_mount(tmp_path: Path) -> None:
    """On a read-only file system every change is refused in our words, not as damage, and nothing hangs."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old"})
        ground.hf.close()
        _checked(_libc.mount(None, os.fsencode(disk), None, _READ_ONLY | _REMOUNT, None))
        for step in (put("a", b"new"), Delete("a"), Chmod("a", 0o600), Create("d", True)):
            with pytest.raises(HoldfastError) as caught:
                _change(disk, step)
            assert caught.value.code != "tampering"
            assert not caught.value.changed
        assert (disk / "a").read_bytes() == b"old"

    _on_a_small_disk(tmp_path / "disk", "size=8m", act)


def _change(disk: Path, step: object) -> None:
    with holdfast.open(str(disk)) as hf:
        ground = Ground.__new__(Ground)
        ground.path, ground.hf = disk, hf
        ground.apply(step)  # type: ignore[arg-type]


def test_another_file_system_below_the_workspace(tmp_path: Path) -> None:
    """A change that reaches into, out of, or over a mounted file system is refused before anything changes."""

    def act(disk: Path) -> None:
        (disk / "mnt").mkdir()
        _mounted(disk / "mnt", "size=1m")
        ground = guard(disk, {"a": b"old", "mnt/x": b"theirs"})
        before = ground.tree()
        for step in (
            put("mnt/x", b"n"),
            put("mnt/n", b"n"),
            Move("a", "mnt/a"),
            Move("mnt/x", "x"),
            Delete("mnt/x"),
            Delete("mnt", True),
            Move("mnt", "m"),
            Chmod("mnt/x", 0o600),
        ):
            with pytest.raises(HoldfastError):
                ground.apply(put("a", b"new"), step)
            assert ground.tree() == before
            assert ground.journal() == []

    _on_a_small_disk(tmp_path / "disk", "size=8m", act)


def test_a_state_directory_on_another_file_system(tmp_path: Path) -> None:
    """`.holdfast` must be on the workspace's own file system; otherwise no flip is one rename, and we say so."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old"})
        ground.hf.close()
        shutil.copytree(ground.state, tmp_path / "state")
        _mounted(ground.state, "size=4m,mode=0700")
        shutil.copytree(tmp_path / "state", ground.state, dirs_exist_ok=True)
        with pytest.raises(Unsupported):
            holdfast.open(str(disk))

    _on_a_small_disk(tmp_path / "disk", "size=8m", act)
