"""What stands at a path: the thing itself (`Image`) and this very copy of it (`Stamp`).

An image is what a person means by "the same file": kind, mode, owner, content, extended attributes.
It travels in change sets and digests.
A stamp is what the kernel means by it: inode, size, times.
It never enters a digest; it lets the transaction tell in one `lstat` whether somebody else was here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["file", "directory", "symlink"]

# (name, hex of value) pairs, sorted by name.
Xattrs = tuple[tuple[str, str], ...]


class Image(NamedTuple):
    """Type, permission bits, owner, content. `digest` is BLAKE3 of a file's bytes; `target` a link's text."""

    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int = 0
    digest: str = ""
    target: str = ""
    xattrs: Xattrs = ()


class Stamp(NamedTuple):
    """One particular inode as last seen."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    links: int


class Seen(NamedTuple):
    """An image together with the inode it was read from."""

    image: Image
    stamp: Stamp
