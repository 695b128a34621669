"""Remove a tree that programs left: closed directories, any depth, any number of entries.

Every directory that is not empty is first moved up into one pit, so neither paths nor recursion nor descriptors grow
with the depth.
Nobody else works in the tree: the programs that made it have ended.
"""

from __future__ import annotations

import errno
import os
import stat

from holdfast.disk.calls import CALLS

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOTEMPTY, errno.EEXIST)


def remove(pit: int, folder: int, name: str) -> None:
    """Remove what is at `name` in `folder`, if anything; `pit` is a directory of ours on the same file system."""
    waiting = _lowered(pit, folder, name)
    while waiting:
        inner = _emptied(pit, waiting[-1])
        if not inner:
            os.rmdir(waiting.pop(), dir_fd=pit)
        waiting += inner


def remove_whole(parent: int, name: str) -> None:
    """Remove a directory of ours with all that is in it."""
    pit = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for entry in CALLS.names(pit):
            remove(pit, pit, entry)
    finally:
        os.close(pit)
    os.rmdir(name, dir_fd=parent)


def _emptied(pit: int, name: str) -> list[str]:
    """Move or remove every entry of a directory in the pit; the names of those that wait there now."""
    fd = os.open(name, _DIRECTORY, dir_fd=pit)
    try:
        return [lowered for entry in CALLS.names(fd) for lowered in _lowered(pit, fd, entry)]
    finally:
        os.close(fd)


def _lowered(pit: int, folder: int, name: str) -> list[str]:
    """Remove an entry at once where that is possible; a directory with something in it goes into the pit, open."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return []
    try:
        os.rmdir(name, dir_fd=folder)
        return []
    except OSError as error:
        if error.errno not in _FULL:
            raise
    if found.st_mode & 0o700 != 0o700:
        os.chmod(name, 0o700, dir_fd=folder)
    fresh = f"gone-{os.urandom(8).hex()}"
    os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=pit)
    return [fresh]
