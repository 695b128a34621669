"""The tables are a projection of the ledger: what they lose comes back, and without them the verbs still work."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import Ground, Refusing, contents, guard, in_child, put
from holdfast.engine.history import collect
from holdfast.errors import Conflict, HoldfastError
from holdfast.testing import FaultyCalls, KillAt

_DAY_NS = 86_400 * 10**9
_BIG = 400_000


def _tables(ground: Ground) -> list[Path]:
    return [path for suffix in ("", "-wal", "-shm") if (path := ground.state / f"holdfast.db{suffix}").exists()]


def _put_in_place(ground: Ground, older: Path) -> None:
    """What a power cut may leave: the tables as they were some time ago."""
    for path in _tables(ground):
        path.unlink()
    shutil.copy(older, ground.state / "holdfast.db")


def _guard_and_copy(tmp_path: Path) -> tuple[Ground, Path]:
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    ground.hf.close()
    older = tmp_path / "older.db"
    shutil.copy(ground.state / "holdfast.db", older)
    return Ground(ground.path), older


def _killed(ground: Ground, point: str, path: str) -> None:
    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        rehearsal = there.ready(there.plan(put(path, b"2")))
        calls.arm(KillAt(point))
        rehearsal.execute()

    assert in_child(die) == -9


@pytest.mark.parametrize("point", ["flipped", "committed", "ledger.durable", "in-ledger", "in-tables", "put-away"])
def test_rows_lost_in_a_power_cut_come_back_before_a_newer_one(tmp_path: Path, point: str) -> None:
    """A recorded change is gone from the tables and a newer one died unsettled: both are listed, in their order."""
    ground, older = _guard_and_copy(tmp_path)
    first = ground.apply(put("a", b"1"))
    ground.hf.close()
    _killed(ground, point, "b")
    _put_in_place(ground, older)
    ground = Ground(ground.path)
    ground.hf.recover()
    assert ground.hf.log()[-1].id == first.id
    assert ground.statuses() == ["COMPLETED", "ROLLED_BACK" if point == "flipped" else "COMPLETED"]
    assert ground.statuses() == ground.ledger_statuses()
    assert not ground.hf.needs_recovery()
    ground.hf.undo(first.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"0"


def test_a_gap_stays_open_until_it_is_filled(tmp_path: Path) -> None:
    """A row written beyond lost ones does not hide them: recovery is still due, and brings all of them back."""
    ground, older = _guard_and_copy(tmp_path)
    done = [ground.apply(put("a", b"%d" % n)).id for n in range(3)]
    undone = ground.hf.undo(done[2], approved_by="me")
    newest = ground.hf.log()[0]
    ground.hf.close()
    _put_in_place(ground, older)
    ground = Ground(ground.path)
    head = ground.hf.ledger.head()
    assert head is not None
    ground.hf.records.save_execution(newest, None, head.seq, off=[], on=[])
    assert ground.hf.records.projected < head.seq
    assert ground.hf.needs_recovery()
    ground.hf.recover()
    live = {row.id: row.live for row in ground.hf.log()}
    assert live == {done[0]: True, done[1]: True, done[2]: False, undone.id: True}
    assert not ground.hf.needs_recovery()


def test_a_database_that_somebody_holds_at_the_settlement(tmp_path: Path) -> None:
    """The change landed and no row can be written: it is no failure of the change, and the next verb writes the row."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    rehearsal = ground.ready(ground.plan(put("a", b"1")))
    ground.hf.records.connection.execute("PRAGMA busy_timeout=50")  # the real patience would make this test a slow one
    other = sqlite3.connect(ground.state / "holdfast.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done = rehearsal.execute()
    assert done.status == "COMPLETED"
    assert [row.id for row in ground.hf.log()] == [done.id]
    assert "cannot be used (database is locked). The ledger has every record" in ground.hf.records.trouble
    other.close()
    assert (ground / "a").read_bytes() == b"1"
    ground = ground.reopened()
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    ground.hf.undo(ground.hf.log()[0].id, approved_by="me")
    assert (ground / "a").read_bytes() == b"0"


def test_a_refusal_that_cannot_be_recorded_promises_nothing(tmp_path: Path) -> None:
    """Nothing moved and the ledger is full: the error says so, and does not claim that the next verb will record it."""
    calls = Refusing("pwrite", errno.ENOSPC, lambda fd, data, offset: b'"kind":"execution"' in bytes(data))
    ground = guard(tmp_path / "workspace", {"a": b"0"}, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"1")))
    (ground / "a").write_bytes(b"theirs")
    calls.armed = True
    with pytest.raises(HoldfastError, match="nothing was changed, but it is not recorded") as caught:
        rehearsal.execute()
    assert calls.refused == 1
    assert not caught.value.changed
    assert "next verb" not in caught.value.hint
    calls.armed = False
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == []
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert ground.statuses() == ["ABORTED"]


# ── no room ──


def _on_a_small_disk(tmp_path: Path, act: Callable[[Path], None]) -> None:
    """Act on a small ext4 of its own, mounted where only a child sees it, and gone with it."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    mkfs = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if mkfs is None:
        pytest.skip("there is no mkfs.ext4 here")
    subprocess.run([mkfs, "-q", "-F", "-m", "0", str(image)], check=True)

    def alone() -> None:
        new_mount_namespace = 0x20000
        assert ctypes.CDLL(None, use_errno=True).unshare(new_mount_namespace) == 0, os.strerror(ctypes.get_errno())
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)

    if in_child(alone):
        pytest.skip("no loop device or mount namespace is to be had here")
    assert in_child(lambda: (alone(), act(disk))) == 0


def _fill(disk: Path) -> None:
    """Take every last byte."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        for size in (1 << 16, 512):
            with pytest.raises(OSError, match="No space left"):
                file.writelines(itertools.repeat(bytes(size)))
    # Not every file system of the machine: tests beside this one cut the power of theirs.
    subprocess.run(["sync", "-f", str(disk)], check=True)


@pytest.mark.root
def test_a_full_disk_can_still_be_looked_at_and_emptied(tmp_path: Path) -> None:
    """Without a free byte open, log, recover and gc work; gc makes the room in which the next change lands."""

    def act(disk: Path) -> None:
        ground = guard(disk / "workspace")
        for n in range(14):
            ground.apply(put("big", bytes([n]) * _BIG))
        ground.hf.close()
        _fill(disk)
        ground = Ground(ground.path)
        assert ground.statuses() == ["COMPLETED"] * 14
        assert ground.hf.recover() is None
        with pytest.raises(HoldfastError) as caught:
            ground.apply(put("big", b"x" * _BIG))
        assert not caught.value.changed
        freed = collect(ground.hf.pipeline, keep_ns=30 * _DAY_NS, now_ns=time.time_ns() + 40 * _DAY_NS)
        assert len(freed.forgotten) == 4 and freed.bytes > 3 * _BIG
        ground = ground.reopened()
        ground.apply(put("big", b"x" * _BIG))
        assert contents(ground.tree()) == {"big": b"x" * _BIG}
        assert ground.hf.audit().ok

    _on_a_small_disk(tmp_path, act)
