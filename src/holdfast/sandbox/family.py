"""Who came from a program we started: found by session and by a mark in the environment, signalled by pidfd.

A process belongs when it is in the program's session, or carries the mark that only this run was given.
Zombies do not count: they do nothing more, and their parent or init collects them.
"""

from __future__ import annotations

import os
import signal

_LOOKS = 6
# Positions in /proc/PID/stat after the name.
_STATE, _THREADS = 0, 17


class Family:
    """All that came from one program. `session` is its pid, which must stay unreaped while this is used."""

    def __init__(self, session: int, mark: str) -> None:
        self.session = session
        self._mark = os.fsencode(mark)

    def members(self) -> list[int]:
        """The living ones.

        A listed process may fork a child that is not in the list, and end before we look at it.
        So we look again until nobody is unreadable who was not so the time before:
        whatever such a process forked before it ended is in the later list.
        """
        known: set[int] = set()
        for _ in range(_LOOKS):
            verdicts = {int(name): self._has(int(name)) for name in os.listdir("/proc") if name.isdigit()}
            found = [pid for pid, belongs in verdicts.items() if belongs]
            unreadable = {pid for pid, belongs in verdicts.items() if belongs is None}
            if found or unreadable <= known:
                return found
            known = unreadable
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
        """Whether a process belongs; None when it has ended, or has no memory to look at as kernel threads do."""
        try:
            if os.getsid(pid) == self.session:
                return not _is_zombie(pid)
            return self._mark in _read(f"/proc/{pid}/environ")
        except PermissionError:
            return False  # another user's, or one that closed itself to inspection
        except (FileNotFoundError, ProcessLookupError):
            return None


def _is_zombie(pid: int) -> bool:
    # pid (name, which may hold anything) state parent group session ... threads ...
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    # A process whose first thread ended is shown as a zombie although other threads run on.
    return fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) < 2


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while chunk := os.read(fd, 1 << 16):
            content += chunk
        return content
    finally:
        os.close(fd)
