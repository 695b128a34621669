"""A unix socket to listen on: in a directory that is ours alone, gone when it is closed.

Invariants
  L1  Whoever can connect is whoever was shown the socket: its directory is this user's and closed to all others.
  L2  Nothing that stands at the path is replaced; at the end only the socket that was made here is removed.
"""

from __future__ import annotations

import os
import socket
import stat
from types import TracebackType

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import InvalidInput, Tampering
from holdfast.model.path import printable

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Listening:
    """`socket` accepts; `path` is where it is found."""

    def __init__(self, path: str, backlog: int = 128, calls: Calls = CALLS) -> None:
        self.path, self._calls = path, calls
        folder, self._name = os.path.split(os.path.abspath(path))
        self._folder = _private_folder(folder, calls)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._inode = 0
        try:
            # Through the descriptor: the path itself may be longer than an address of a socket can be.
            self.socket.bind(f"/proc/self/fd/{self._folder}/{self._name}")
            self._inode = calls.stat(self._name, dir_fd=self._folder, follow_symlinks=False).st_ino
            calls.chmod(self._name, 0o600, dir_fd=self._folder)
            self.socket.listen(backlog)
        except OSError as error:
            self.close()
            raise InvalidInput(f"nothing can listen at {printable(path)}: {error.strerror}") from error

    def close(self) -> None:
        """No more connections, and no more name (L2)."""
        self.socket.close()
        if self._folder < 0:
            return
        try:
            found = self._calls.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            if stat.S_ISSOCK(found.st_mode) and found.st_ino == self._inode:
                self._calls.unlink(self._name, dir_fd=self._folder)
        except FileNotFoundError:
            pass  # somebody tidied up before us
        finally:
            self._calls.close(self._folder)
            self._folder = -1

    def __enter__(self) -> Listening:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _private_folder(path: str, calls: Calls) -> int:
    fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    about = calls.fstat(fd)
    if about.st_uid == os.geteuid() and not about.st_mode & _OTHERS:
        return fd
    calls.close(fd)
    raise Tampering(
        f"{printable(path)} is open to other users, and a socket in it would be, too",
        hint="Make it yours alone: chown and chmod 700 on that directory.",
    )
