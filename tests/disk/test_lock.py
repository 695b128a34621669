"""One process at a time in a workspace, and its threads one after the other."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.disk.lock import Lock
from holdfast.errors import Locked
from holdfast.testing import Fail, FaultyCalls


@contextmanager
def held_by_a_thread(path: str, seconds: float) -> Iterator[None]:
    """Another thread of this process has it for so long, from before the block begins."""
    holds = threading.Event()

    def hold() -> None:
        with Lock(path):
            holds.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(10)
    yield
    thread.join()


def test_a_thread_of_the_same_process_is_waited_for_until_it_is_done(tmp_path: Path) -> None:
    """However short `wait` is: it is for other processes."""
    path = str(tmp_path / "lock")
    with held_by_a_thread(path, 0.5), Lock(path, wait=0.05):
        pass


def test_who_does_not_wait_at_all_is_told_at_once(tmp_path: Path) -> None:
    """Also of a thread of the same process; and a thread that holds it already does not wait for itself."""
    path = str(tmp_path / "lock")
    with held_by_a_thread(path, 0.3), pytest.raises(Locked), Lock(path):
        pass
    with Lock(path), pytest.raises(Locked), Lock(path, wait=0.05):
        pass


def test_another_process_is_waited_for_as_long_as_asked(tmp_path: Path) -> None:
    """Then Locked, with its pid; a forked child is another process, whatever its parent held before."""
    path = str(tmp_path / "lock")
    with held_by_a_thread(path, 0.3):
        pass
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with Lock(path):
            os.write(ready[1], b".")
            os.read(go[0], 1)
        os._exit(0)
    assert os.read(ready[0], 1)
    try:
        with pytest.raises(Locked, match=f"pid {child}"), Lock(path, wait=0.1):
            pass
    finally:
        os.write(go[1], b".")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


@pytest.mark.parametrize("number", [1, 2])
def test_an_error_while_it_is_let_go_is_none_of_the_work(tmp_path: Path, number: int) -> None:
    """What was done under it stays as it was told: nothing is raised, nothing is open, and the next one has it."""
    path = str(tmp_path / "lock")
    before = os.listdir("/proc/self/fd")
    calls = FaultyCalls(counted={"close"})
    with Lock(path, calls=calls):
        calls.arm(Fail(number))
    assert calls.count == 2
    assert os.listdir("/proc/self/fd") == before
    with Lock(path):
        pass
