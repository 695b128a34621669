"""The suite's own eyes: what stands in a directory, looked at with nothing but `os`.

It shares no code with Holdfast, so a mistake there cannot hide itself here.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

# Fixture files are dated long before this; whatever a test run touches is dated after it.
RECENT_NS = 1_500_000_000 * 10**9
HIDDEN = ".holdfast"


class Thing(NamedTuple):
    """Everything a person could mean by "the same": content is bytes of a file or the text of a link."""

    kind: str
    mode: int
    uid: int
    gid: int
    content: bytes
    xattrs: tuple[tuple[str, bytes], ...]
    mtime_ns: int


Tree = dict[bytes, Thing]


def walk(root: str, *, hidden: str = HIDDEN) -> Tree:
    """Every path below the root, and the root itself as the empty path; without the state directory."""
    top = os.fsencode(root)
    tree: Tree = {b"": _thing(top)}
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        for entry in os.scandir(directory):
            if directory == top and entry.name == os.fsencode(hidden):
                continue
            thing = _thing(entry.path)
            tree[entry.path[len(top) + 1 :]] = thing
            if thing.kind == "directory":
                waiting.append(entry.path)
    return tree


def undated(tree: Tree) -> Tree:
    """Times that a run made are only "recent"; times of the fixture stay exact."""
    return {path: thing._replace(mtime_ns=min(thing.mtime_ns, RECENT_NS)) for path, thing in tree.items()}


def differences(found: Tree, wanted: Tree) -> str:
    """The paths that differ and how, for a person who must find out why."""
    lines = []
    for path in sorted(found.keys() | wanted.keys()):
        if found.get(path) != wanted.get(path):
            lines.append(f"{os.fsdecode(path)!r}: {_short(found.get(path))} instead of {_short(wanted.get(path))}")
    return "; ".join(lines)


def _short(thing: Thing | None) -> str:
    if thing is None:
        return "nothing"
    owner, attributes = f"{thing.uid}:{thing.gid}", f"{len(thing.xattrs)} attributes"
    return f"{thing.kind} {thing.mode:o} {owner} {thing.content[:20]!r} {attributes} {thing.mtime_ns}"


def _thing(path: bytes) -> Thing:
    found = os.lstat(path)
    kind = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}[stat.S_IFMT(found.st_mode)]
    content = b""
    if kind == "file":
        with open(path, "rb") as file:
            content = file.read()
    elif kind == "symlink":
        content = os.readlink(path)
    names = sorted(os.listxattr(path, follow_symlinks=False))
    xattrs = tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)
    return Thing(kind, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, content, xattrs, found.st_mtime_ns)
