"""Who came from a program we started: found by session and by a mark in the environment, signalled by pidfd.

A process belongs when it is in the program's session, or carries the mark that only this run was given.
Zombies do not count: they do nothing more, and their parent or init collects them.
Only those are looked at who can have come from it (`newcomers.py`), or everybody where that cannot be told.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

from holdfast.sandbox.newcomers import Moment, moment, newcomers

# Ordinarily two looks are enough. One that forks and ends without pause is met within far less than all of these.
_LOOKS, _PATIENCE_S = 9, 0.5
# Positions in /proc/PID/stat after the name; the last two are where in its memory the environment is.
_STATE, _FLAGS, _THREADS, _ENVIRONMENT, _ENVIRONMENT_END = 0, 6, 17, 47, 48
_KERNEL_THREAD = 0x00200000
# Between its old program and its new one a process has no environment. That takes far less than so many pauses.
_PAUSES, _PAUSE_S = 200, 0.0005


class Family:
    """All that came from one program. `session` is its pid, which must stay unreaped while this is used.

    `since` is a moment before its start; without it everybody is looked at.
    """

    def __init__(self, session: int, mark: str, since: Moment | None = None) -> None:
        self.session = session
        self._mark = os.fsencode(mark)
        self._since = since

    def members(self) -> list[int]:
        """The living ones.

        A process may fork a child that we did not know of when we began to look, and end before we look at it.
        So we look again, at those who are new, until none of them has ended: whatever such a process forked before
        it ended has a number by then. Each look goes back to the moment before the last one, for a child may have
        a number and not be seen yet while its parent lives; so parents come before their children, too.
        Where this has no end, the program itself stands for whoever is left.
        """
        known: set[int] = set()
        since = previous = self._since
        looks, end = 0, time.monotonic() + _PATIENCE_S
        while looks < _LOOKS or time.monotonic() < end:
            now = moment()
            verdicts = {pid: self._has(pid) for pid in _candidates(since, now) if pid not in known}
            found = [pid for pid, belongs in verdicts.items() if belongs and _is_process(pid)]
            if found or all(belongs is False for belongs in verdicts.values()):
                return found
            known.update(verdicts)
            since, previous, looks = previous, now, looks + 1
        return [self.session]

    def send(self, pid: int, number: signal.Signals) -> None:
        """Signal a process that is still the one we meant; whoever survives is found by the next look.

        The pidfd is opened first and the process recognised again after that,
        so a pid that was given to a stranger meanwhile is left alone.
        """
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if self._has(pid):
                signal.pidfd_send_signal(fd, number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            os.close(fd)

    def kill(self, members: list[int]) -> None:
        """One call for the whole group, so that no fork slips between; then those outside of it, one by one."""
        try:
            os.killpg(self.session, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # nobody there, or nobody of ours; the next look finds whoever is left
        for pid in members:
            self.send(pid, signal.SIGKILL)

    def _has(self, pid: int) -> bool | None:
        """Whether a process belongs; None when it has ended, or has nothing to look at as kernel threads do."""
        try:
            if os.getsid(pid) == self.session:
                return not _is_zombie(pid)
            environment = _environment(pid)
            return self._mark in environment if environment else None
        except PermissionError:
            return False  # another user's, or one that closed itself to inspection
        except (FileNotFoundError, ProcessLookupError):
            return None


def _candidates(since: Moment | None, now: Moment | None) -> Iterable[int]:
    started = newcomers(since, now)
    return started if started is not None else [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_process(pid: int) -> bool:
    """Threads have numbers too; what is signalled is their process, which has a number of its own."""
    try:
        os.close(os.pidfd_open(pid))
    except OSError:
        return False
    return True


def _environment(pid: int) -> bytes:
    """That of its program; of the new one, when it is just becoming another. Empty when it has none, or has ended."""
    for _ in range(_PAUSES):
        environment = _read(f"/proc/{pid}/environ")
        if environment:
            return environment
        fields = _stat(pid)
        begin, end = int(fields[_ENVIRONMENT]), int(fields[_ENVIRONMENT_END])
        if _has_ended(fields) or int(fields[_FLAGS]) & _KERNEL_THREAD or (end and begin == end):
            return b""
        if not end:  # otherwise it came while we asked for it
            time.sleep(_PAUSE_S)
    return b""


def _is_zombie(pid: int) -> bool:
    return _has_ended(_stat(pid))


def _has_ended(fields: list[bytes]) -> bool:
    # A process whose first thread ended is shown as a zombie although other threads run on.
    return fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) < 2


def _stat(pid: int) -> list[bytes]:
    # pid (name, which may hold anything) state parent group session ... threads ...
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while chunk := os.read(fd, 1 << 16):
            content += chunk
        return content
    finally:
        os.close(fd)
