"""A tree as detection sees it: names of a directory, and small reads. Anything that can answer these two is a tree.

Files are read beneath an open directory, where the kernel keeps us: no symlink is followed, no device opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.disk.calls import CALLS

READ_LIMIT = 4 << 20
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class TooLarge(OSError):
    """More than a small read; whoever asked must say that it was not looked at."""


class Tree(NamedTuple):
    """Paths are relative to the tree, "" is the tree itself.

    `names` of a directory, each directory among them with a trailing slash; empty where there is no directory.
    `read` gives a plain file whole, up to READ_LIMIT; TooLarge beyond, OSError where there is none.
    """

    names: Callable[[str], frozenset[str]]
    read: Callable[[str], bytes]


def present(tree: Tree, paths: Iterable[str]) -> tuple[str, ...]:
    """Those that are there and no directories. Each directory is listed once: a change may have very many in one."""
    listed: dict[str, frozenset[str]] = {}
    found = []
    for path in paths:
        parent, _, name = path.rpartition("/")
        if parent not in listed:
            listed[parent] = tree.names(parent)
        if name in listed[parent]:
            found.append(path)
    return tuple(found)


def read_beneath(root: int, path: str, limit: int) -> bytes:
    """A plain file's bytes, found beneath `root` without following a symlink."""
    fd = CALLS.open_beneath(path, _READING, root)
    with open(fd, "rb", buffering=0) as file:
        found = CALLS.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(22, "not a plain file", path)
        data = bytearray()
        while len(data) <= limit and (chunk := file.read(limit + 1 - len(data))):
            data += chunk
    if len(data) > limit:
        raise TooLarge(27, f"larger than {limit >> 20} MiB", path)
    return bytes(data)
