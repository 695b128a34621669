"""Is this still the object that was seen, its content included?

Times alone cannot tell. An edit in place between a transaction's last look and its flip can put size and
modification time back, and then the flip itself sets the change time: no stamp remembers that edit.
So whatever was set aside is read before it is put back, and so is what somebody touched before the commit.

What its own mode closes to us cannot be read. It is judged by its stamp:
the very object, and nobody touched it after the transaction that put it there had settled.

One failed read disproves nothing: what a proof reads is read a second time (`read_again`). What fails twice is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.disk.calls import Calls
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.workspace.observe import RACY_NS, content_digest, is_same, look, observe, read_xattrs

_Found = TypeVar("_Found")
_NAMED = 5


def read_again(read: Callable[[], _Found]) -> _Found:
    """What `read` finds, at the second attempt where the first one fails.

    Only for what reads: a write or a sync that failed is never repeated. A missing permission is no failure.
    """
    try:
        return read()
    except PermissionError:
        raise
    except OSError:
        return read()


def why_unread(error: OSError) -> str:
    """About a path that could not be read, not even at the second attempt."""
    return f"could not be read: {error.strerror or error}"


def unread(paths: Sequence[str]) -> str:
    """The same about several, in a sentence that names the first of them."""
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f"{', '.join(map(printable, paths[:_NAMED]))}{more} could not be read"


def proven(calls: Calls, directory: int, name: str, seen: Seen, settled_ns: int) -> os.stat_result | None:
    """What stands there, if it is the very object, with the content and the attributes that it had."""
    found = look(calls, directory, name)
    if found is None or not is_same(found, seen):
        return None
    try:
        if seen.image.kind == "file":
            return _proven_file(calls, directory, name, seen)
        now = observe(calls, directory, name, wait=False)
    except PermissionError:
        return found if found.st_ctime_ns <= settled_ns + RACY_NS else None
    return found if now is not None and now.image == seen.image else None


def _proven_file(calls: Calls, directory: int, name: str, seen: Seen) -> os.stat_result | None:
    try:
        fd = calls.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None  # taken away since it was looked at
    try:
        # The stamp comes before the content: whoever writes meanwhile makes it an old one.
        found = calls.fstat(fd)
        if not is_same(found, seen) or content_digest(calls, fd, found.st_size) != seen.image.digest:
            return None
        return found if read_xattrs(calls, fd) == seen.image.xattrs else None
    finally:
        calls.close(fd)
