"""Two engines in one workspace: one works, the other is told who does; a dead one holds nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import holdfast
from guarded import Ground, Interloper, contents, guard, in_child, put
from holdfast.errors import Conflict, HoldfastError, Locked


def _busy(ground: Ground) -> int:
    """A child that holds the lock, in the middle of an apply, until it is killed; its pid."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        calls = Interloper()

        def wait() -> None:
            os.write(told, b"!")
            time.sleep(60)

        try:
            mine = Ground(ground.path, calls)
            calls.arm("exchange", wait, skip=1)
            mine.apply(put("a", b"child"), put("b", b"child"))
        finally:
            os._exit(1)
    os.close(told)
    assert os.read(ready, 1) == b"!"
    os.close(ready)
    return pid


def test_a_second_engine_is_locked_out(tmp_path: Path) -> None:
    """While one process applies, another is refused with the first one's pid, and changes nothing."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    pid = _busy(ground)
    try:
        mixed = ground.tree()
        with pytest.raises(Locked, match=f"pid {pid}"):
            ground.apply(put("c", b"mine"))
        with pytest.raises(Locked):
            ground.hf.recover()
        with pytest.raises(Locked):
            ground.hf.gc()
        assert ground.tree() == mixed
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_deleting_the_lock_file_frees_nothing(tmp_path: Path) -> None:
    """Somebody takes the lock file for stale and deletes it while an engine is at work: it is still alone."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    pid = _busy(ground)
    try:
        mixed = ground.tree()
        (ground.state / "lock").unlink()
        with pytest.raises(Locked):
            ground.apply(put("c", b"mine"))
        assert ground.tree() == mixed
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_lock_of_a_killed_engine_is_free(tmp_path: Path) -> None:
    """SIGKILL of the holder frees the lock at once, and the next verb rolls back what it left."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    pid = _busy(ground)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    ground.apply(put("c", b"mine"))
    assert contents(ground.tree()) == {"a": b"old", "b": b"old", "c": b"mine"}
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK", "COMPLETED"]


def test_waiting_for_the_lock(tmp_path: Path) -> None:
    """With time to wait, the second engine goes on when the first one ends."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    pid = _busy(ground)
    timer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    timer.start()
    try:
        with holdfast.open(str(ground.path), wait=20) as hf, hf.transaction("later", approved_by="me") as tx:
            tx.write("c", b"mine")
    finally:
        timer.join()
        os.waitpid(pid, 0)
    assert contents(ground.tree()) == {"a": b"old", "b": b"old", "c": b"mine"}


def test_many_engines_at_once(tmp_path: Path) -> None:
    """Processes that race with the same update: exactly one wins each round, the others conflict; nothing is mixed."""
    ground = guard(tmp_path / "workspace", {"a": b"0", "b": b"0"})
    ground.hf.close()

    def race(number: int) -> None:
        own = str(number).encode()
        with holdfast.open(str(ground.path), wait=30) as hf:
            for turn in range(5):
                value = own + b"." + str(turn).encode()
                try:
                    with hf.transaction(f"racer {number}", approved_by="me") as tx:
                        tx.write("a", value)
                        tx.write("b", value)
                except Conflict:
                    continue

    pids = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            os._exit(in_child(lambda number=number: race(number)))  # type: ignore[misc]
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 4
    assert (ground / "a").read_bytes() == (ground / "b").read_bytes() != b"0"
    ground = Ground(ground.path)
    assert ground.statuses() == ground.ledger_statuses()
    assert ground.statuses().count("COMPLETED") >= 4
    assert ground.hf.audit().ok
    assert ground.journal() == []


def test_two_threads_with_two_engines(tmp_path: Path) -> None:
    """Two engines in one process lock each other out as two processes do."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    calls = Interloper()
    refused: list[type[HoldfastError]] = []

    def second() -> None:
        with holdfast.open(str(ground.path)) as hf:
            try:
                with hf.transaction("second", approved_by="me") as tx:
                    tx.write("c", b"second")
            except HoldfastError as error:
                refused.append(type(error))

    def start() -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    calls.arm("exchange", start)
    Ground(ground.path, calls).apply(put("a", b"first"))
    assert refused == [Locked]
    assert contents(ground.tree()) == {"a": b"first", "b": b"old"}


def test_a_rehearsal_is_good_once(tmp_path: Path) -> None:
    """Executing the same rehearsal again is a conflict: the base it stands on is gone."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new"), put("b", b"new")))
    ground.hf.execute(rehearsal, approved_by="me")
    before = ground.tree()
    with pytest.raises(Conflict):
        ground.hf.execute(rehearsal, approved_by="me")
    assert ground.tree() == before
