"""The HOME of an agent: a directory of the shadow's, for settings we write before it starts and sessions it keeps.

It lives as long as the shadow, so a second attempt finds the first one's session, and nothing of it outlives the task.
The agent owns it and is hostile: whatever stands there may be a link, a FIFO or a directory where a file was.

Invariants
  M1  Nothing is opened, read or written through a symbolic link; everything stays beneath the directory.
  M2  What we write replaces whatever the agent put in its place, also where it took the rights to its own folders away.
  M3  Nobody else works in it meanwhile: every process of the agent has ended when we write or read.
"""

from __future__ import annotations

import os
import stat

from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.path import printable
from holdfast.workspace.removal import remove_whole

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Home:
    """`shift`: owners on the disk are this much higher than the agent sees them."""

    def __init__(self, root: Root, shift: int) -> None:
        self._root, self._shift = root, shift
        self.path = root.path
        if shift:
            os.fchown(root.fd, shift, shift)

    def put(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file; its directories are made, and whatever else stands in the way goes."""
        *folders, name = path.split("/")
        if "\0" in path or not all(part and part not in (".", "..") for part in (*folders, name)):
            raise Blocked(f"{printable(path)} is no place in a home")
        try:
            directory = self._folder(folders)
            try:
                self._write(directory, name, data, mode)
            finally:
                os.close(directory)
        except OSError as error:
            raise Blocked(f"{printable(path)} cannot be written in the agent's home: {error.strerror}") from error

    def read(self, path: str, most: int) -> bytes | None:
        """A file's first bytes; None when no plain file stands there."""
        try:
            fd = self._root.calls.open_beneath(path, _READ, self._root.fd)
        except (OSError, ValueError):
            return None  # not there, a link, or too odd a name: the agent's own doing either way
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            pieces = []
            while most > 0 and (piece := os.read(fd, min(most, 1 << 20))):
                pieces.append(piece)
                most -= len(piece)
            return b"".join(pieces)
        finally:
            os.close(fd)

    def _write(self, directory: int, name: str, data: bytes, mode: int) -> None:
        _clear(directory, name)
        fd = os.open(name, _NEW, mode, dir_fd=directory)
        try:
            os.fchmod(fd, mode)
            self._give(fd)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def _folder(self, names: list[str]) -> int:
        """A descriptor of the directory, made where it is missing, opened where it was closed (M2)."""
        os.fchmod(self._root.fd, 0o700)
        fd = os.dup(self._root.fd)
        for name in names:
            try:
                inner = self._inner(fd, name)
            finally:
                os.close(fd)
            fd = inner
            self._give(fd)
        return fd

    def _inner(self, parent: int, name: str) -> int:
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            found = None
        if found is None or not stat.S_ISDIR(found.st_mode):
            _clear(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
        elif found.st_mode & 0o700 != 0o700:
            # No link: we have just seen that it is a directory (M3).
            os.chmod(name, 0o700, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)

    def _give(self, fd: int) -> None:
        if self._shift:
            os.fchown(fd, self._shift, self._shift)


def _clear(directory: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        os.chmod(name, 0o700, dir_fd=directory)
        remove_whole(directory, name)
    else:
        os.unlink(name, dir_fd=directory)


def give_back(directory: str, shift: int) -> None:
    """After a person worked in a shadow's copy: what they made there belongs to whom programs inside would see.

    Only where we are root: owners in a shadow are `shift` higher, and root's own files are not.
    """
    if not shift:
        return
    for folder, names, files in os.walk(directory, followlinks=False):
        for path in (os.path.join(folder, name) for name in (*names, *files)):
            found = os.lstat(path)
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                continue  # it may be a file of somebody's elsewhere; capture refuses it by its owner
            if found.st_uid < shift or found.st_gid < shift:
                os.lchown(path, found.st_uid % shift + shift, found.st_gid % shift + shift)
