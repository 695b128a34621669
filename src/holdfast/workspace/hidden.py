"""Which paths of a workspace programs must not see: the patterns of the configuration, looked up in the tree.

The patterns are those of `model.patterns`: `.env` is hidden at any depth and in any spelling.
A directory is listed only where something in it may still match. A pattern for any depth walks the whole tree, since a
shadow that trusts an older look would show what was put there since; but not into `.git`, unless it names that.

Invariant H2: a match behind a symbolic link hides what the link leads to inside the workspace,
since a link itself cannot be covered.
Paths that a change set makes are in `withheld`. Deliberately absent: paths that others make after the shadow was
opened, and what a repository keeps of a hidden file under `.git`; whoever commits a secret has told it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from holdfast.disk.confined import Root
from holdfast.errors import InvalidInput
from holdfast.model.path import STATE_DIRECTORY, ancestors_of, printable
from holdfast.model.patterns import PatternIndex, Step, checked_pattern, covers, is_everything

_GIT = ".git"


def masked_paths(workspace: Root, patterns: Iterable[str]) -> tuple[str, ...]:
    """The topmost paths that match, and `.holdfast`, sorted."""
    found = {STATE_DIRECTORY}
    index = _index(tuple(patterns))
    # What was reached at each directory, on all ways together; a second way is only followed for what is new in it.
    reached: dict[str, int] = {}
    waiting = [("", index.start)] if not index.empty else []
    while waiting:
        path, at = waiting.pop()
        new = at.state & ~reached.get(path, 0)
        if not new:
            continue
        reached[path] = reached.get(path, 0) | new
        for name, kind in _names(workspace, path):
            step = index.step(Step(new, 0, 0), name)
            place = _joined(path, name)
            target = place if kind != stat.S_IFLNK else _behind(workspace, place)
            if not target:
                continue
            if step.found:
                found.add(target)
            elif kind == stat.S_IFLNK or kind == stat.S_IFDIR:
                below = step.moved if name == _GIT else step.state
                waiting.append((target, Step(below, 0, 0)))
    return topmost(found)


def topmost(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that lie below none of the others, sorted."""
    found = set(paths)
    return tuple(sorted(path for path in found if not found.intersection(ancestors_of(path))))


class Roots:
    """Some paths, and everything below them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._firsts = frozenset(path.partition("/")[0] for path in self._paths)

    def reach_into(self, directory: str) -> bool:
        """Whether something in a directory may be covered: a quick look, for many paths at once."""
        return bool(self._paths) and (not directory or directory.partition("/")[0] in self._firsts)

    def cover(self, path: str) -> bool:
        if path.partition("/")[0] not in self._firsts:
            return False
        return path in self._paths or not self._paths.isdisjoint(ancestors_of(path))


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns names this path or a directory above it."""
    return _index(tuple(patterns)).covers(path)


def require_patterns(patterns: Sequence[str]) -> None:
    """InvalidInput for patterns that are none."""
    _index(tuple(patterns))


@lru_cache(maxsize=16)
def _index(patterns: tuple[str, ...]) -> PatternIndex:
    for pattern in patterns:
        try:
            plain = checked_pattern(pattern)
        except InvalidInput as error:
            raise InvalidInput(
                f"{printable(pattern[:60])} is no pattern for paths of the workspace: {error.message}",
                hint="Write it relative to the workspace, without '..', and not for everything.",
            ) from None
        if is_everything(plain):
            raise InvalidInput(
                f"{printable(pattern)} would be the whole workspace", hint="Name the part that is meant."
            )
        if "[" in pattern:
            # It was a set of characters once: read as itself, it would silently hide nothing of that.
            raise InvalidInput(
                f"{printable(pattern)}: [ has no meaning in a pattern", hint="Write ? for any one character."
            )
    return covers(patterns)


def _names(workspace: Root, path: str) -> Iterator[tuple[str, int]]:
    """Each name in a directory with its type bits; none for what a program of this user could not see either."""
    try:
        with workspace.calls.entries(workspace.directory(path)) as entries:
            found = [(entry.name, _kind(entry)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    yield from ((name, kind) for name, kind in found if path or name != STATE_DIRECTORY)


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else stat.S_IFREG


def _behind(workspace: Root, path: str) -> str:
    """Where a link leads inside the workspace; the empty string for elsewhere."""
    root = os.path.realpath(workspace.path)
    target = os.path.realpath(os.path.join(root, path))
    return target[len(root) + 1 :] if target.startswith(root + "/") else ""


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
