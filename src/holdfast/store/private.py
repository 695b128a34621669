"""Small private files in the user's own directories: the ledger's key, the ledger's anchors.

Invariants
  P1  A private file appears whole and durable, or not at all; of two racing creators one wins and both see its bytes.
  P2  A private file is regular, not reached through a symbolic link, owned by this user, closed to everyone else.
  P3  The directory that holds it belongs to this user, and nobody else may write there.
What breaks P2 or P3 is reported as tampering: whoever could write the file could have forged what it vouches for.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Tampering
from holdfast.model.path import printable

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a planted FIFO must not hang us
READ_WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Opened(NamedTuple):
    """A descriptor and what `fstat` said of it."""

    fd: int
    about: os.stat_result


def open_private(path: str, flags: int, calls: Calls) -> int:
    """Open a private file (FileNotFoundError when there is none), or Tampering (P2)."""
    fd, about = open_regular(path, flags, calls)
    if about.st_uid == os.geteuid() and not about.st_mode & _OTHERS:
        return fd
    calls.close(fd)
    if about.st_uid != os.geteuid():
        raise Tampering(f"{printable(path)} belongs to another user (uid {about.st_uid})")
    raise Tampering(
        f"{printable(path)} is open to other users (mode {stat.S_IMODE(about.st_mode):04o})",
        hint="If nobody else could have used it: chmod 600 on that file.",
    )


def open_regular(path: str, flags: int, calls: Calls, directory: int | None = None) -> Opened:
    """Open a regular file that is no symbolic link; `flags` come from READ or READ_WRITE."""
    try:
        fd = calls.open(path, flags, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise Tampering(f"{printable(path)} is a symbolic link or no regular file") from error
    about = calls.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        calls.close(fd)
        raise Tampering(f"{printable(path)} is not a regular file")
    return Opened(fd, about)


def create_private(path: str, data: bytes, calls: Calls) -> bool:
    """Make the file with these bytes, durably; False when there was one already (P1)."""
    folder, name = os.path.split(path)
    directory = _open_private_directory(folder, calls)
    try:
        made = create_in(directory, name, data, calls)
        # The loser syncs too: the winner may not have come so far, and we are about to rely on the name.
        calls.fsync(directory)
        return made
    finally:
        calls.close(directory)


def create_in(directory: int, name: str, data: bytes, calls: Calls, aside: int | None = None) -> bool:
    """The same in a directory that is open already; that it stays there is the caller's to sync.

    The name it is written under is nobody else's: two threads of one process may create the same file at once.
    `aside` is another directory to write it in, where the first may hold nothing that a kill leaves.
    """
    workbench = directory if aside is None else aside
    if _taken(directory, name, calls):
        return False
    temporary = f".{name}.{os.urandom(8).hex()}"
    fd = calls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600,
                    dir_fd=workbench)  # fmt: skip
    try:
        calls.fchmod(fd, 0o600)
        if calls.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        calls.fsync(fd)
        return _named_if_free(workbench, temporary, directory, name, calls)
    finally:
        calls.close(fd)
        _discard(workbench, temporary, calls)


def _taken(directory: int, name: str, calls: Calls) -> bool:
    try:
        calls.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _discard(directory: int, name: str, calls: Calls) -> None:
    """Remove what is left of the temporary file: nothing, when it got its name."""
    try:
        calls.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass  # renamed: the usual end


def _named_if_free(workbench: int, temporary: str, directory: int, name: str, calls: Calls) -> bool:
    """Give the file its name unless the name is taken."""
    try:
        try:
            calls.move(temporary, workbench, name, directory)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            # Some file systems (NFS among them) cannot rename without replacing; a second link cannot replace either.
            os.link(temporary, name, src_dir_fd=workbench, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _open_private_directory(path: str, calls: Calls) -> int:
    """The directory, made durably where missing, or Tampering (P3)."""
    _make_directories(path, calls)
    fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    about = calls.fstat(fd)
    if about.st_uid == os.geteuid() and not about.st_mode & _OTHERS_WRITE:
        return fd
    calls.close(fd)
    raise Tampering(
        f"{printable(path)} belongs to another user, or others may write in it",
        hint="Make it yours alone: chown and chmod 700 on that directory.",
    )


def _make_directories(path: str, calls: Calls) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directories(parent, calls)
    try:
        calls.mkdir(path, 0o700)
    except FileExistsError:
        return
    fd = calls.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        calls.fsync(fd)
    finally:
        calls.close(fd)
