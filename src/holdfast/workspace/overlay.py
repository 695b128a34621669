"""The upper layer of an overlay: how the kernel writes down what programs changed.

| in the upper layer                    | means                                              |
|---------------------------------------|----------------------------------------------------|
| file, link                            | replaces whatever the workspace has there          |
| directory                             | is merged with the workspace's                     |
| directory with `overlay.opaque` = y   | replaces the workspace's, with everything below it |
| character device 0:0                  | the path is gone                                   |
| `overlay.redirect`, `overlay.metacopy`| features that we never ask for: refused            |

Invariants
  V1  Only the upper layer is walked, so a capture costs what was changed.
  V2  A note is the kernel's only under its exact name. What a program names alike, the kernel escapes
      (`user.overlay.overlay.…`); that says nothing about the layer, and cannot land.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.path import MAX_PATH_BYTES, parent_of, printable
from holdfast.workspace.shifting import ESCAPED_XATTRS, OVERLAY_XATTRS
from holdfast.workspace.touched import Doors, Touch, Touched, is_plain, is_too_long

OPAQUE = "user.overlay.opaque"
_OPAQUE = frozenset(f"{start}opaque" for start in OVERLAY_XATTRS)
_FOREIGN = frozenset(f"{start}{name}" for start in OVERLAY_XATTRS for name in ("redirect", "metacopy"))
# What the kernel notes on directories that it copied up; it says nothing about what they hold.
_NOTES = frozenset(f"{start}{name}" for start in OVERLAY_XATTRS for name in ("origin", "impure"))


class Upper:
    """One upper layer, read."""

    programs_own: tuple[str, ...] = ESCAPED_XATTRS

    def __init__(self, root: Root) -> None:
        self.root = root

    def touches(self, doors: Doors) -> Iterator[Touched]:
        """The files of a directory together with it, then the directories in it: each is opened once."""
        waiting: list[Touch] = []
        yield self._listed("", [], waiting)
        while waiting:
            touch = waiting.pop()
            path, found, _, _ = touch
            # Four bytes a character are the most.
            if found is None or (4 * len(path) > MAX_PATH_BYTES and is_too_long(path)):
                yield Touched(parent_of(path), [], [touch])
            else:
                yield self._listed(path, [_entered(doors.enter(path, found), touch)], waiting)

    def _listed(self, path: str, own: list[Touch], waiting: list[Touch]) -> Touched:
        """What is in a directory; other directories wait, to be taken from the end."""
        folder, start = self.root.directory(path), f"{path}/" if path else ""
        names = CALLS.names(folder)
        names.sort()
        found = [os.stat(name, dir_fd=folder, follow_symlinks=False) for name in names]
        pairs = zip(names, found, strict=True)
        files = [(path, name, start + name, about) for name, about in pairs if is_plain(about)]
        if len(files) < len(names):
            odd = [(start + name, about) for name, about in zip(names, found, strict=True) if not is_plain(about)]
            waiting += [Touch(below, about) for below, about in reversed(odd) if stat.S_ISDIR(about.st_mode)]
            own += [
                Touch(below, None if is_whiteout(about) else about)
                for below, about in odd
                if not stat.S_ISDIR(about.st_mode)
            ]
        return Touched(path, files, own)


def _entered(fd: int, touch: Touch) -> Touch:
    """A directory with what the kernel and programs noted on it."""
    names = os.listxattr(fd)
    if _NOTES.issuperset(names):  # nearly all
        return Touch(touch.path, touch.found, opaque=False, bare=True)
    bare = all(name.startswith(OVERLAY_XATTRS) and not name.startswith(ESCAPED_XATTRS) for name in names)
    return touch._replace(opaque=_hides(fd, touch.path, names), bare=bare)


def is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(fd: int, path: str) -> bool:
    """Whether a directory hides what is below it; Blocked when it says things we do not understand."""
    return _hides(fd, path, os.listxattr(fd))


def _hides(fd: int, path: str, xattrs: list[str]) -> bool:
    if not _FOREIGN.isdisjoint(xattrs):
        raise Blocked(f"the shadow's {printable(path)} uses an overlay feature that Holdfast does not ask for")
    return any(name in _OPAQUE and os.getxattr(fd, name) == b"y" for name in xattrs)


def make_whiteout(name: str, folder: int) -> None:
    os.mknod(name, stat.S_IFCHR, 0, dir_fd=folder)


def why_not(folder: int) -> str:
    """Why this file system cannot hold an upper layer; empty when it can. Tried, not looked up in a table."""
    try:
        make_whiteout("trial", folder)
        os.unlink("trial", dir_fd=folder)
        os.mkdir("trial", 0o700, dir_fd=folder)
        fd = os.open("trial", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.setxattr(fd, OPAQUE, b"y")
        finally:
            os.close(fd)
            os.rmdir("trial", dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return f"the file system cannot hold an overlay's layer: {error.strerror}"
    return ""
