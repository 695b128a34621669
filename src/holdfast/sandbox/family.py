"""Who came from a program we started: found by session and by a mark in the environment, signalled by pidfd.

A process belongs when it is in the program's session, or carries the mark that only this run was given.
Zombies do not count: they do nothing more, and their parent or init collects them.
"""

from __future__ import annotations

import os
import signal

_RESCANS = 5
# Positions in /proc/PID/stat after the name.
_STATE, _SESSION, _THREADS = 0, 3, 17


class Family:
    """All that came from one program. `session` is its pid, which must stay unreaped while this is used."""

    def __init__(self, session: int, mark: str) -> None:
        self.session = session
        self._mark = os.fsencode(mark)

    def members(self) -> list[int]:
        """The living ones.

        A listed process may fork a child and end before we look at it; the child would be missed.
        So a look in which something vanished and nothing was found is taken again.
        """
        for _ in range(_RESCANS):
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
            verdicts = [self._has(pid) for pid in pids]
            found = [pid for pid, verdict in zip(pids, verdicts, strict=True) if verdict]
            if found or None not in verdicts:
                return found
        return []

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
        """Whether a process belongs; None when it vanished while we looked."""
        try:
            # pid (name, which may hold anything) state parent group session ... threads ...
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            # A process whose first thread ended is shown as a zombie although other threads run on.
            if fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) < 2:
                return False
            return int(fields[_SESSION]) == self.session or self._mark in _read(f"/proc/{pid}/environ")
        except PermissionError:
            return False  # another user's, or one that closed itself to inspection
        except (FileNotFoundError, ProcessLookupError):
            return None


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while chunk := os.read(fd, 1 << 16):
            content += chunk
        return content
    finally:
        os.close(fd)
