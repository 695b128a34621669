"""A coarse sieve before git is asked: which paths could a rule ignore at all?

To start git costs more than a whole capture, and most changes match no rule.
A path is ignored only if the last fixed name of some rule matches a name in the path: that alone is looked at.

Invariant E2: the sieve never holds back a path that git would ignore. What it does not understand it lets through:
rules that are no plain files, configuration that names more of them, a `.git` that is no directory.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from functools import lru_cache

from holdfast.disk.confined import Root
from holdfast.model.path import ancestors_of, parent_of

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_LIMIT = 1 << 20
_MORE_RULES = re.compile(rb"excludesfile|include", re.IGNORECASE)
_WILD = re.compile(rb"[*?\[\]\\]")
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_BOM = b"\xef\xbb\xbf"


class _Unclear(Exception):
    """Rules that only git can read."""


def sifted(workspace: Root, repository: str, paths: Sequence[str]) -> list[str]:
    """Those of `paths`, relative to the repository, that a rule might ignore."""
    try:
        lines = _lines(workspace, repository, paths)
    except _Unclear:
        return list(paths)
    rules = _Names(*_parsed(lines))
    return [path for path in paths if rules.may(path.rstrip("/"))]


class _Names:
    """What the last fixed names of all rules say to the names of a path."""

    def __init__(self, exact: frozenset[bytes], wild: frozenset[tuple[bytes, bytes]]) -> None:
        self._exact = exact
        # Most have a fixed end and nothing before it, and are tried at once.
        self._ends = tuple(end for start, end in wild if not start)
        self._wild = [(start, end) for start, end in wild if start]
        self._starts = tuple(start for start, _ in self._wild)
        # Directories hold many paths, and names are repeated.
        self._directories: dict[str, bool] = {"": False}
        self._names: dict[str, bool] = {}

    def may(self, path: str) -> bool:
        above, _, name = path.rpartition("/")
        found = self._directories.get(above)
        if found is None:
            found = self._directories[above] = any(map(self._matches, above.split("/")))
        return found or self._matches(name)

    def _matches(self, text: str) -> bool:
        known = self._names.get(text)
        if known is None:
            name = text.encode("utf-8", "surrogateescape").lower()
            known = name in self._exact or name.endswith(self._ends)
            if not known and name.startswith(self._starts):
                known = any(name.startswith(start) and name.endswith(end) for start, end in self._wild)
            self._names[text] = known
        return known


def _lines(workspace: Root, repository: str, paths: Sequence[str]) -> bytes:
    start = f"{repository}/" if repository else ""
    configuration = _read(workspace, f"{start}.git", "config")
    worktree = _read(workspace, f"{start}.git", "config.worktree")
    if _MORE_RULES.search(configuration + worktree):
        raise _Unclear
    parents = {parent_of(path.rstrip("/")) for path in paths}
    directories = {"", *parents, *(above for parent in parents for above in ancestors_of(parent))}
    sources = [(f"{start}.git/info", "exclude")]
    sources += [(f"{start}{path}" if path else repository, ".gitignore") for path in directories]
    return b"\n".join(_read(workspace, directory, name).removeprefix(_BOM) for directory, name in sources)


def _read(workspace: Root, directory: str, name: str) -> bytes:
    try:
        fd = workspace.calls.open_beneath(f"{directory}/{name}" if directory else name, _READ, workspace.fd)
    except OSError as error:
        # A `.git` that is no directory is a linked work tree, whose rules are elsewhere.
        if error.errno == errno.ENOENT or (error.errno in _ABSENT and not directory.endswith(".git")):
            return b""
        raise _Unclear from error
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LIMIT:
            raise _Unclear
        return os.read(fd, about.st_size)
    except OSError as error:
        raise _Unclear from error
    finally:
        os.close(fd)


@lru_cache(maxsize=8)
def _parsed(lines: bytes) -> tuple[frozenset[bytes], frozenset[tuple[bytes, bytes]]]:
    """Names, and beginnings with ends, in lower case; what un-ignores is left out, since it makes nothing ignored."""
    exact: set[bytes] = set()
    wild: set[tuple[bytes, bytes]] = set()
    for line in lines.split(b"\n"):
        rule = line.rstrip(b" \t\r").lower()
        if not rule or rule.startswith((b"#", b"!")):
            continue
        fixed = [name for name in rule.split(b"/") if name.strip(b"*")]
        last = fixed[-1] if fixed else b"*"
        specials = [match.end() for match in _WILD.finditer(last)]
        if not specials:
            exact.add(last)
        else:
            end = last[specials[-1] :]
            # The character after a backslash stands for itself, and may be a blank that was cut off above.
            wild.add((last[: specials[0] - 1], end[1:] if last[specials[-1] - 1 : specials[-1]] == b"\\" else end))
    return frozenset(exact), frozenset(wild)
