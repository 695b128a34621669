"""Directories that cannot be escaped: every path is resolved by the kernel beneath one root.

Invariants
  D1  A descriptor handed out here was opened beneath the root without following any symlink,
      magic link or mount point (openat2 refuses them, races included).
  D2  Whoever renames a directory says so (`forget_below`); a cached descriptor never outlives its name.
  D3  At most `capacity` descriptors are cached; the two used last are never the ones closed.

  D4  A root that nobody refers to any more holds no descriptor, also where nobody closed it.

Descriptors that `directory` gives are borrowed: use them at once, never keep or close them.
Who works in one directory while others are opened asks for a descriptor of its own (`open_directory`).
"""

from __future__ import annotations

import os
from types import TracebackType

from holdfast.disk.calls import CALLS, Calls

CACHE = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


class Root:
    """One directory and everything beneath it on the same file system."""

    def __init__(self, path: str, calls: Calls = CALLS) -> None:
        self.fd = -1
        self._open: dict[str, int] = {}
        self.path = os.path.abspath(path)
        self.calls = calls
        self.fd = calls.open(self.path, _DIRECTORY | os.O_CLOEXEC)
        self.capacity = CACHE
        # Loops ask for the same directory again and again; this answers without touching the cache's order.
        self._last, self._last_fd = "", self.fd

    def directory(self, path: str) -> int:
        """A descriptor of the directory at `path`; the empty path is the root itself."""
        if path == self._last:
            return self._last_fd
        if not path:
            return self.fd
        fd = self._open.pop(path, None)
        if fd is None:
            fd = self.calls.open_beneath(path, _DIRECTORY, self.fd)
            if len(self._open) >= self.capacity:
                self.calls.close(self._open.pop(next(iter(self._open))))
        self._open[path] = fd
        self._last, self._last_fd = path, fd
        return fd

    def open_directory(self, path: str) -> int:
        """The same, to keep: the caller closes it."""
        return self.calls.open_beneath(path, _DIRECTORY, self.fd)

    def forget(self) -> None:
        """Close what is cached, so that the next look resolves the path anew."""
        self._last, self._last_fd = "", self.fd
        while self._open:
            self.calls.close(self._open.popitem()[1])

    def forget_below(self, path: str) -> None:
        """A directory was moved in or out at `path`: what was opened there is no longer what the path names."""
        inside = path + "/"
        for known in [known for known in self._open if known == path or known.startswith(inside)]:
            self.calls.close(self._open.pop(known))
        if self._last == path or self._last.startswith(inside):
            self._last, self._last_fd = "", self.fd

    def close(self) -> None:
        self.forget()
        fd, self.fd, self._last_fd = self.fd, -1, -1
        if fd >= 0:
            self.calls.close(fd)

    def __del__(self) -> None:
        # Past `calls`: whatever counts or interrupts those decides when, and the garbage collector does not know it.
        fds = [fd for fd in (self.fd, *self._open.values()) if fd >= 0]
        self.fd = self._last_fd = -1
        self._open.clear()
        for fd in fds:
            os.close(fd)

    def __enter__(self) -> Root:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
