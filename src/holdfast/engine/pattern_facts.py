"""The facts a pattern may ask for: which files the workspace has, and the bytes of those it must see.

Links are not followed, other file systems not entered; `.git`, `.holdfast` and what git ignores are left out.
A file that is too large is in the list and not among the contents: a pattern must say what it makes of that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from holdfast.checks.tree import TooLarge, read_beneath
from holdfast.errors import Blocked
from holdfast.model.path import is_protected
from holdfast.planning.patterns.pattern import Facts, Inputs, Pattern
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.observe import look
from holdfast.workspace.site import Site

MOST_FILES = 200_000
MOST_BYTES = 1 << 20
MOST_TOGETHER = 64 << 20


def facts_of(site: Site, pattern: Pattern, inputs: Inputs) -> Facts:
    site.workspace.forget()
    files = _files(site)
    return Facts(files, _contents(site, pattern.reads(inputs, files)))


def _files(site: Site) -> frozenset[str]:
    """Level by level, so that git is asked once for each level and never for what lies in an ignored directory."""
    found: set[str] = set()
    level = [""]
    while level:
        files, directories = _entries(site, level)
        ignored = ignored_paths(site, [*files, *(f"{path}/" for path in directories)])
        found.update(path for path in files if path not in ignored)
        if len(found) > MOST_FILES:
            raise Blocked(f"the workspace has more than {MOST_FILES} files; patterns look at all of them")
        level = [path for path in directories if path not in ignored]
    return frozenset(found)


def _entries(site: Site, directories: Iterable[str]) -> tuple[list[str], list[str]]:
    files: list[str] = []
    inner: list[str] = []
    for directory in directories:
        try:
            fd = site.workspace.directory(directory)
        except FileNotFoundError:
            continue  # gone since its parent was looked at
        except OSError as error:
            if error.errno not in _ELSEWHERE:
                raise
            continue
        for name in sorted(site.calls.names(fd)):
            path = f"{directory}/{name}" if directory else name
            about = None if is_protected(path) else look(site.calls, fd, name)
            if about is not None and stat.S_ISREG(about.st_mode):
                files.append(path)
            elif about is not None and stat.S_ISDIR(about.st_mode):
                inner.append(path)
    return files, inner


# EXDEV, ELOOP: another file system is mounted there, or a link came in between; ENOTDIR: a file did.
_ELSEWHERE = (18, 40, 20)


def _contents(site: Site, paths: Iterable[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    left = MOST_TOGETHER
    for path in dict.fromkeys(paths):
        try:
            data = read_beneath(site.workspace.fd, path, min(MOST_BYTES, left))
        except TooLarge:
            continue
        except OSError as error:
            raise Blocked(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
        contents[path] = data
        left -= len(data)
    return contents
