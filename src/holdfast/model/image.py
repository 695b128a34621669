"""What stands at a path: the thing itself (`Image`) and this very copy of it (`Stamp`).

An image is what a person means by "the same file": kind, mode, owner, content, extended attributes.
It travels in change sets and digests.
A stamp is what the kernel means by it: inode, size, times.
It never enters a digest; it lets the transaction tell in one `lstat` whether somebody else was here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.model.canonical import canonical_rows, quoted

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


def has_special_rights(image: Image) -> bool:
    """Does a program run with more rights because of this file? Other content or another mode of it is never made."""
    return bool(image.mode & 0o6000) or any(name == "security.capability" for name, _ in image.xattrs)


def lost_attribute(old: Image, new: Image) -> str:
    """An attribute that only root sees, and a program in a shadow loses by writing; empty where none is lost."""
    kept = {name for name, _ in new.xattrs}
    return next((name for name, _ in old.xattrs if name.startswith("trusted.") and name not in kept), "")


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


def image_text(image: Image | None) -> str:
    """What `canonical_rows` makes of an image, in less than half the time: change sets and journals hold many."""
    if image is None:
        return "null"
    kind, mode, uid, gid, size, digest, target, xattrs = image
    rest = canonical_rows(xattrs).decode("ascii") if xattrs else "[]"
    return f"[{quoted(kind)},{mode},{uid},{gid},{size},{quoted(digest)},{quoted(target)},{rest}]"


def seen_text(seen: Seen | None) -> str:
    """The same for an image with its stamp."""
    if seen is None:
        return "null"
    image, (inode, size, mtime_ns, ctime_ns, links) = seen
    return f"[{image_text(image)},[{inode},{size},{mtime_ns},{ctime_ns},{links}]]"
