"""The place of a socket while a task lasts: a directory of its own, named so that it is found again after a crash.

It stands in the system's temporary directory, since not every file system that holds a workspace can hold a socket.

Invariants
  O1  The directory is made new and closed to others; an old one, or somebody else's, is never used.
  O2  Only what is a directory of this user, and no link, is cleared away; and only by the name of the task.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import InvalidInput
from holdfast.model.path import printable

_SOCKET = "model.sock"


@contextmanager
def socket_place(name: str) -> Iterator[str]:
    """The path for a socket; its directory is there until the block ends."""
    folder = _folder(name)
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        raise InvalidInput(f"there is no place for a socket at {printable(folder)}: {error.strerror}") from error
    try:
        yield os.path.join(folder, _SOCKET)
    finally:
        clear_place(name)


def clear_place(name: str) -> None:
    """Remove the directory and the socket in it, whoever made them died or not; nothing else is in it."""
    folder = _folder(name)
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return  # O2
        try:
            os.unlink(os.path.join(folder, _SOCKET))
        except FileNotFoundError:
            pass
        os.rmdir(folder)
    except FileNotFoundError:
        return


def _folder(name: str) -> str:
    return os.path.join(tempfile.gettempdir(), f"holdfast-{name}")
