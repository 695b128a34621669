"""One process at a time in a workspace.

The lock is the kernel's (`flock`): it vanishes with its holder, so no lock is ever stale.
The text inside only tells a waiting person who holds it.

Threads of one process wait for each other too. `wait` bounds the wait for other processes: a thread of this process
ends for certain, so that one that waits at all waits until it has.

Deliberately absent: lock files judged by age or pid; they are wrong after a crash or a reboot.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from contextlib import suppress
from types import TracebackType

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Blocked, Locked

_POLL_SECONDS = 0.02
# Which process and thread hold a lock, by device and inode of its directory; a forked child is another process.
_held: dict[tuple[int, int], tuple[int, int]] = {}


class Lock:
    """Use as a context manager; raises Locked when another process holds it for `wait` seconds."""

    def __init__(self, path: str, *, wait: float = 0.0, calls: Calls = CALLS) -> None:
        self._path = path
        self._wait = wait
        self._calls = calls
        self._directory = -1
        self._fd = -1
        self._key: tuple[int, int] | None = None

    def __enter__(self) -> Lock:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # The directory is what is locked: a lock file is deleted by people who think that it is stale.
            folder = os.path.dirname(self._path) or "."
            self._directory = self._calls.open(folder, os.O_RDONLY | os.O_DIRECTORY | flags)
            self._fd = self._calls.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        except OSError as error:
            self._close()
            raise Blocked(f"the workspace cannot be locked: {error.strerror}", hint="Nothing was changed.") from error
        try:
            self._acquire()
            self._sign()
        except BaseException:
            # Ctrl-C while waiting too: `__exit__` is not called for what was never entered.
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        directory, fd, self._directory, self._fd = self._directory, self._fd, -1, -1
        if self._key is not None:
            # Before the descriptor is closed: afterwards it may be another thread's.
            _held.pop(self._key, None)
            self._key = None
        try:
            if directory >= 0:
                self._let_go(directory)
        finally:
            # Both, whatever the first one says: a descriptor left open would keep the lock as long as we live.
            if fd >= 0:
                self._let_go(fd)

    def _let_go(self, fd: int) -> None:
        """Whatever closing says, the descriptor is gone and the lock with it; what was done under it stays as told."""
        with suppress(OSError):
            self._calls.close(fd)

    def _sign(self) -> None:
        """For people who wait, and nothing else: a disk that is full keeps nobody from making room on it."""
        try:
            self._calls.pwrite(self._fd, _holder().ljust(120).encode("ascii") + b"\n", 0)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _acquire(self) -> None:
        deadline = time.monotonic() + self._wait
        about = os.fstat(self._directory)
        key, me = (about.st_dev, about.st_ino), (os.getpid(), threading.get_ident())
        while True:
            try:
                fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._key, _held[key] = key, me
                return
            except BlockingIOError:
                pid, thread = _held.get(key, (0, 0))
                if self._wait and pid == me[0] and thread != me[1]:
                    deadline = time.monotonic() + self._wait
                elif time.monotonic() >= deadline:
                    who = self._calls.pread(self._fd, 120, 0).decode("ascii", "replace").strip()
                    raise Locked(
                        f"another holdfast is at work in this workspace ({who or 'unknown process'})"
                    ) from None
                time.sleep(_POLL_SECONDS)


def _holder() -> str:
    return f"pid {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC"
