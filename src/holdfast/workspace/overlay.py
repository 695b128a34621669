"""The upper layer of an overlay: how the kernel writes down what programs changed.

| in the upper layer                    | means                                              |
|---------------------------------------|----------------------------------------------------|
| file, link                            | replaces whatever the workspace has there          |
| directory                             | is merged with the workspace's                     |
| directory with `overlay.opaque` = y   | replaces the workspace's, with everything below it |
| character device 0:0                  | the path is gone                                   |
| `overlay.redirect`, `overlay.metacopy`| features that we never ask for: refused            |

Invariant V1: only the upper layer is walked, so a capture costs what was changed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.path import printable
from holdfast.workspace.shifting import OVERLAY_XATTRS
from holdfast.workspace.touched import Doors, Touch, is_too_long, joined

OPAQUE = "user.overlay.opaque"
_FOREIGN = ("redirect", "metacopy")


class Upper:
    """One upper layer, read."""

    def __init__(self, root: Root) -> None:
        self.root = root

    def touches(self, doors: Doors) -> Iterator[Touch]:
        waiting = [""]
        while waiting:
            path = waiting.pop()
            folder = self.root.directory(path)
            # All looks come first: the descriptor is borrowed, and whoever reads the touches borrows others.
            found = [(name, os.stat(name, dir_fd=folder, follow_symlinks=False)) for name in sorted(os.listdir(folder))]
            inner = []
            for name, about in found:
                touch = _touch(doors, joined(path, name), about)
                yield touch
                if stat.S_ISDIR(about.st_mode) and not is_too_long(touch.path):
                    inner.append(touch.path)
            waiting += reversed(inner)


def _touch(doors: Doors, path: str, found: os.stat_result) -> Touch:
    if is_whiteout(found):
        return Touch(path, None)
    if not stat.S_ISDIR(found.st_mode) or is_too_long(path):
        return Touch(path, found)
    fd = doors.enter(path, found)
    names = os.listxattr(fd)
    return Touch(path, found, _hides(fd, path, names), all(name.startswith(OVERLAY_XATTRS) for name in names))


def is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(fd: int, path: str) -> bool:
    """Whether a directory hides what is below it; Blocked when it says things we do not understand."""
    return _hides(fd, path, os.listxattr(fd))


def _hides(fd: int, path: str, xattrs: list[str]) -> bool:
    names = [name for name in xattrs if name.startswith(OVERLAY_XATTRS)]
    if any(name.endswith(_FOREIGN) for name in names):
        raise Blocked(f"the shadow's {printable(path)} uses an overlay feature that Holdfast does not ask for")
    return any(name.endswith(".opaque") and os.getxattr(fd, name) == b"y" for name in names)


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
