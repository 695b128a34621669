"""Which paths of a workspace programs must not see: the patterns of the configuration, looked up in the tree.

`*`, `?` and `[…]` match inside one name; `**` matches any number of directories.
A pattern that ends in `/**` hides the directory itself: it looks empty.
The fixed names at the start of a pattern are followed without a walk; `**` walks what is below, but not into `.git`.

Invariant H2: a match behind a symbolic link hides what the link leads to inside the workspace,
since a link itself cannot be covered.
Paths that a change set makes are in `withheld`. Deliberately absent: paths that others make after the shadow was
opened, and what a repository keeps of a hidden file under `.git`; whoever commits a secret has told it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from holdfast.disk.confined import Root
from holdfast.errors import InvalidInput
from holdfast.model.path import STATE_DIRECTORY, ancestors_of, printable
from holdfast.workspace.observe import look

_GLOB = frozenset("*?[")
_Place = tuple[str, tuple[str, ...]]


def masked_paths(workspace: Root, patterns: Iterable[str]) -> tuple[str, ...]:
    """The topmost paths that match, and `.holdfast`, sorted."""
    found = {STATE_DIRECTORY}
    seen: set[_Place] = set()
    waiting: list[_Place] = [("", _parts(pattern)) for pattern in patterns]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        path, parts = place
        if not parts or parts == ("**",):
            found.add(path)
        else:
            waiting += _next(workspace, path, parts)
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


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern names this path or a directory above it."""
    names = path.split("/")
    parts = _parts(pattern)
    if parts[-1] == "**":
        parts = parts[:-1]
    return any(_matches(names[:end], parts) for end in range(1, len(names) + 1))


def _matches(names: list[str], parts: tuple[str, ...]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        return any(_matches(names[skip:], parts[1:]) for skip in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def _parts(pattern: str) -> tuple[str, ...]:
    parts = tuple(pattern.rstrip("/").split("/"))
    if pattern.startswith("/") or "\0" in pattern or not {"", ".", ".."}.isdisjoint(parts) or set(parts) == {"**"}:
        raise InvalidInput(
            f"{printable(pattern)} is no pattern for paths of the workspace",
            hint="Write it relative to the workspace, without '..', and not for everything.",
        )
    # Two in a row say the same as one.
    return tuple(part for n, part in enumerate(parts) if part != "**" or parts[n - 1 : n] != ("**",))


def _next(workspace: Root, path: str, parts: tuple[str, ...]) -> Iterator[_Place]:
    head, rest = parts[0], parts[1:]
    if head == "**":
        yield path, rest
        for name in _names(workspace, path):
            if name != ".git" and _kind(workspace, path, name) == stat.S_IFDIR:
                yield _joined(path, name), parts
        return
    fixed = _GLOB.isdisjoint(head)
    for name in [head] if fixed else [name for name in _names(workspace, path) if fnmatchcase(name, head)]:
        kind = _kind(workspace, path, name)
        target = _joined(path, name) if kind != stat.S_IFLNK else _behind(workspace, _joined(path, name))
        if kind and target:
            yield target, rest


def _names(workspace: Root, path: str) -> list[str]:
    try:
        names = workspace.calls.names(workspace.directory(path))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []  # nothing there that a program of this user could see
    return [name for name in names if path or name != STATE_DIRECTORY]


def _kind(workspace: Root, path: str, name: str) -> int:
    """The type bits; 0 for nothing there."""
    try:
        found = look(workspace.calls, workspace.directory(path), name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return 0
    return stat.S_IFMT(found.st_mode) if found is not None else 0


def _behind(workspace: Root, path: str) -> str:
    """Where a link leads inside the workspace; the empty string for elsewhere."""
    root = os.path.realpath(workspace.path)
    target = os.path.realpath(os.path.join(root, path))
    return target[len(root) + 1 :] if target.startswith(root + "/") else ""


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
