"""A view as a tree: what a program in the sandbox would see, read from outside, without mounting anything.

Layers lie over the base; the topmost that knows a path decides about it:
a whiteout says that it is gone, an opaque directory hides all that lies below it in the layers under it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from holdfast.checks.tree import READ_LIMIT, Tree, read_beneath
from holdfast.disk.calls import CALLS
from holdfast.sandbox.view import View
from holdfast.workspace.overlay import is_opaque, is_whiteout


class _Found(NamedTuple):
    """What one layer says of a path; `final` when the layers under it have nothing to add."""

    about: os.stat_result | None
    final: bool


@contextmanager
def tree_in(view: View) -> Iterator[Tree]:
    """The view's tree as it is at each call; hidden paths are not there."""
    with ExitStack() as stack:
        roots = []
        for path in (*(layer.upper for layer in reversed(view.layers)), view.base):
            roots.append(CALLS.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            stack.callback(CALLS.close, roots[-1])
        seeing = _Seeing(tuple(roots), view.masked)
        yield Tree(seeing.names, seeing.read)


class _Seeing:
    """`roots` from the top down."""

    def __init__(self, roots: tuple[int, ...], masked: tuple[str, ...]) -> None:
        self._roots, self._masked = roots, masked

    def names(self, path: str) -> frozenset[str]:
        found: dict[str, str] = {}
        if self._is_masked(path):
            return frozenset()
        for root in self._roots:
            layer = _look(root, path)
            if layer.about is not None and stat.S_ISDIR(layer.about.st_mode):
                for name, shown in _entries(root, path):
                    found.setdefault(name, shown)
            if layer.final:
                break
        return frozenset(shown for name, shown in found.items() if shown and not self._is_masked(_joined(path, name)))

    def read(self, path: str) -> bytes:
        if self._is_masked(path):
            raise FileNotFoundError(2, "hidden", path)
        for root in self._roots:
            layer = _look(root, path)
            if layer.about is not None:
                return read_beneath(root, path, READ_LIMIT)
            if layer.final:
                break
        raise FileNotFoundError(2, "no such file", path)

    def _is_masked(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{name.rstrip('/')}/") for name in self._masked)


def _look(root: int, path: str) -> _Found:
    """Follow a path down one layer, name by name, as the kernel would."""
    final = False
    walked = ""
    about = os.stat(root)
    for name in path.split("/") if path else ():
        walked = _joined(walked, name)
        try:
            fd = CALLS.open_beneath(walked, os.O_PATH | os.O_NOFOLLOW, root)
        except OSError:
            return _Found(None, final)
        try:
            about = os.fstat(fd)
        finally:
            CALLS.close(fd)
        if is_whiteout(about):
            return _Found(None, True)
        if not stat.S_ISDIR(about.st_mode):
            return _Found(about if walked == path else None, True)
        final = final or _hides_what_is_below(root, walked)
    return _Found(about, final)


def _hides_what_is_below(root: int, path: str) -> bool:
    fd = CALLS.open_beneath(path, os.O_RDONLY | os.O_DIRECTORY, root)
    try:
        return is_opaque(fd, path)
    finally:
        CALLS.close(fd)


def _entries(root: int, path: str) -> Iterator[tuple[str, str]]:
    """Names in one layer, and how they are shown: directories with a slash, whiteouts not at all."""
    fd = CALLS.open_beneath(path, os.O_RDONLY | os.O_DIRECTORY, root)
    try:
        with CALLS.entries(fd) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                slash = "/" if stat.S_ISDIR(about.st_mode) else ""
                yield entry.name, "" if is_whiteout(about) else f"{entry.name}{slash}"
    finally:
        CALLS.close(fd)


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
