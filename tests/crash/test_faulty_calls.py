"""`holdfast.testing.FaultyCalls`: faults happen exactly where they were asked for, and nowhere else."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.disk.calls import Calls
from holdfast.errors import Blocked
from holdfast.testing import ALL, CHANGES, SYNCS, At, Drop, Fail, FaultyCalls, Kill, KillAt, ShortWrite


def signal_that_ends(work: Callable[[], object]) -> int:
    """The signal that ended a child which did this work; 0 for none."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] & 0x7F


def test_nothing_is_armed_at_first(tmp_path: Path) -> None:
    """Without a fault every call goes through and is counted by name."""
    calls = FaultyCalls()
    fd = calls.open(str(tmp_path / "f"), os.O_RDWR | os.O_CREAT, 0o600)
    assert calls.write(fd, b"abc") == 3
    assert calls.pread(fd, 9, 0) == b"abc"
    calls.close(fd)
    assert calls.trace == ["open", "write", "pread", "close"]
    assert calls.count == 4


def test_every_call_is_wrapped() -> None:
    """No call of the real kernel can be reached around the fault."""
    public = {name for name in dir(Calls) if not name.startswith("_")}
    assert public == ALL | {"point"}
    calls = FaultyCalls(*(Fail(number) for number in range(1, len(ALL) + 1)))
    for name in sorted(ALL - {"close"}):
        with pytest.raises(OSError, match=name):
            getattr(calls, name)()


def test_changes_and_looks() -> None:
    """Reading calls are not counted as changes, syncing and writing ones are."""
    assert {"stat", "read", "close", "names"} & CHANGES == set()
    assert {"write", "exchange", "move", "chmod", "open", *SYNCS} <= CHANGES


def test_an_unknown_call_is_refused() -> None:
    """A misspelt name would count nothing and prove nothing."""
    with pytest.raises(ValueError, match="wriite"):
        FaultyCalls(counted={"wriite"})


def test_an_error_before_the_effect(tmp_path: Path) -> None:
    """`Fail` raises before anything happened, once."""
    calls = FaultyCalls(Fail(1, errno.ENOSPC))
    with pytest.raises(OSError, match="on purpose") as caught:
        calls.mkdir(str(tmp_path / "d"))
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "d").exists()
    calls.mkdir(str(tmp_path / "d"))


def test_an_error_after_the_effect(tmp_path: Path) -> None:
    """`when="after"` lets the effect happen and raises all the same."""
    calls = FaultyCalls(Fail(1, when="after"))
    with pytest.raises(OSError, match="mkdir"):
        calls.mkdir(str(tmp_path / "d"))
    assert (tmp_path / "d").exists()


def test_an_error_that_lasts(tmp_path: Path) -> None:
    """`lasting` fails every later change, while looking still works, until it is disarmed."""
    calls = FaultyCalls(Fail(1, errno.EROFS, lasting=True))
    for _ in range(2):
        with pytest.raises(OSError, match="on purpose"):
            calls.mkdir(str(tmp_path / "d"))
    assert calls.stat(str(tmp_path)).st_mode
    calls.disarm()
    calls.mkdir(str(tmp_path / "d"))


def test_only_what_is_counted_counts(tmp_path: Path) -> None:
    """With `counted`, the n-th call is the n-th of those."""
    calls = FaultyCalls(Fail(1), counted={"rmdir"})
    calls.mkdir(str(tmp_path / "d"))
    with pytest.raises(OSError, match="rmdir"):
        calls.rmdir(str(tmp_path / "d"))


def test_a_failed_close_has_closed(tmp_path: Path) -> None:
    """As on Linux, the descriptor is gone whatever `close` says."""
    calls = FaultyCalls()
    fd = calls.open(str(tmp_path), os.O_RDONLY)
    calls.arm(Fail(1))
    with pytest.raises(OSError, match="close"):
        calls.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_short_write(tmp_path: Path) -> None:
    """`ShortWrite` takes half of the bytes and says so."""
    calls = FaultyCalls()
    fd = calls.open(str(tmp_path / "f"), os.O_RDWR | os.O_CREAT, 0o600)
    calls.arm(ShortWrite(1))
    assert calls.write(fd, b"abcdef") == 3
    assert calls.pwrite(fd, b"abcdef", 0) == 6
    calls.close(fd)


@pytest.mark.parametrize(("when", "made"), [("before", False), ("after", True)])
def test_a_kill(when: str, made: bool, tmp_path: Path) -> None:
    """`Kill` ends the process with SIGKILL before or after the effect."""
    calls = FaultyCalls(Kill(1, "before" if when == "before" else "after"))
    assert signal_that_ends(lambda: calls.mkdir(str(tmp_path / "d"))) == signal.SIGKILL
    assert (tmp_path / "d").exists() is made


def test_a_kill_at_a_point() -> None:
    """`KillAt` strikes at the named point, at the given time it is passed, and at no other."""
    calls = FaultyCalls(KillAt("here", time=2))
    assert signal_that_ends(lambda: calls.point("elsewhere")) == 0
    assert signal_that_ends(lambda: calls.point("here")) == 0
    assert signal_that_ends(lambda: (calls.point("here"), calls.point("here"))) == signal.SIGKILL


def test_a_dropped_call_does_nothing(tmp_path: Path) -> None:
    """`Drop` pretends, between two points, and says that all bytes were taken."""
    calls = FaultyCalls(Drop(frozenset({"write"}), after="from", until="to"))
    fd = calls.open(str(tmp_path / "f"), os.O_RDWR | os.O_CREAT, 0o600)
    for point in ("none", "from", "to", "from"):
        calls.point(point)
        assert calls.write(fd, b"x") == 1
    calls.close(fd)
    assert (tmp_path / "f").read_bytes() == b"xx"


def test_a_function_at_a_point() -> None:
    """`At` runs a function when the point is passed."""
    seen: list[str] = []
    calls = FaultyCalls(At("there", lambda: seen.append("now")))
    calls.point("here")
    assert seen == []
    calls.point("there")
    assert seen == ["now"]
    assert calls.points == ("here", "there")


def test_in_a_workspace(workspace: Path) -> None:
    """A user's own test: the disk is full in the middle of a change, nothing is changed, and the next one works."""
    holdfast.init(str(workspace))
    calls = FaultyCalls(counted={"write"})
    with holdfast.open(str(workspace), calls=calls) as hf:
        calls.arm(Fail(1, errno.ENOSPC))
        with pytest.raises(Blocked), hf.transaction("too much", approved_by="me") as tx:
            tx.write("a.txt", b"a")
        assert os.listdir(workspace) == [".holdfast"]
        with hf.transaction("again", approved_by="me") as tx:
            tx.write("a.txt", b"a")
    assert (workspace / "a.txt").read_bytes() == b"a"
