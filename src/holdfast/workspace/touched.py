"""What programs touched in a shadow, whatever kind it is, and how to look at it.

A touch is a claim, not a change: the path may be as it was. `capture` compares it with the workspace.

Invariant Q1: directories and files closed to us are opened for the look and closed again;
the modes that were found are the modes that count. Root needs none of this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.disk.confined import Root
from holdfast.model.path import MAX_PATH_BYTES, parent_of, printable

# The directory and the name of a file, both together, and what the shadow has there.
Found: TypeAlias = tuple[str, str, str, os.stat_result]

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FORM = stat.S_IFMT(0xFFFF) | stat.S_ISUID | stat.S_ISGID
# What the constructor of a NamedTuple calls, without a frame of Python for each of many.
made = tuple.__new__


class Touch(NamedTuple):
    """`found` is None where the path is gone. `opaque`: of the workspace, nothing below shows through.

    `bare`: a directory that was seen to have no attributes of its own.
    """

    path: str
    found: os.stat_result | None
    opaque: bool = False
    bare: bool = False


class Touched(NamedTuple):
    """What was touched in one directory, or a part of that. `files` are those that `is_plain` means, `others` the rest.

    The directory itself may be among the others; then it is the first.
    """

    directory: str
    files: list[Found]
    others: list[Touch]


class Remark(NamedTuple):
    """A path and what is to be said about it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason}"


class Ground(Protocol):
    """Where programs left what they did."""

    root: Root
    # How attributes begin that only a program can have made, and that cannot land.
    programs_own: tuple[str, ...]

    def touches(self, doors: Doors) -> Iterator[Touched]:
        """A directory not after what is in it. The walk does not enter paths that are too long to be ours."""


class Doors:
    """Closed directories that stand open for a while."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._opened: list[tuple[str, int]] = []

    def enter(self, path: str, found: os.stat_result) -> int:
        """A descriptor of a directory of the shadow, borrowed."""
        if found.st_mode & 0o700 != 0o700 and os.geteuid() != 0:
            mode = stat.S_IMODE(found.st_mode)
            os.chmod(name_of(path), mode | 0o700, dir_fd=self._root.directory(parent_of(path)))
            self._opened.append((path, mode))
        return self._root.directory(path)

    def close(self) -> None:
        while self._opened:
            path, mode = self._opened.pop()
            os.chmod(name_of(path), mode, dir_fd=self._root.directory(parent_of(path)))


@contextmanager
def doors(root: Root) -> Iterator[Doors]:
    """Programs may have renamed what was known by its path: every look starts afresh."""
    root.forget()
    opened = Doors(root)
    try:
        yield opened
    finally:
        opened.close()


def open_file(root: Root, path: str) -> int:
    """Open a regular file of the shadow for reading, also one whose mode forbids it to its owner."""
    directory, name = root.directory(parent_of(path)), name_of(path)
    try:
        return os.open(name, READ, dir_fd=directory)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        os.chmod(name, mode | 0o400, dir_fd=directory)
        try:
            return os.open(name, READ, dir_fd=directory)
        finally:
            os.chmod(name, mode, dir_fd=directory)


def is_plain(about: os.stat_result) -> bool:
    """A file with one name, whose mode gives no power."""
    return about.st_mode & _FORM == stat.S_IFREG and about.st_nlink == 1


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def is_too_long(path: str) -> bool:
    return len(os.fsencode(path)) > MAX_PATH_BYTES
