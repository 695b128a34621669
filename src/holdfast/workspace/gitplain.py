"""Whether a repository is so plain that its rules alone say what git would.

Git refuses to answer for a repository that is broken, and its settings can change how names are compared. Both are
decided here by a short list of what is known to do neither; whatever else is found, git itself is asked.

Invariant G2: a repository is called plain only if it is a directory in its work tree that holds nothing but files and
directories where git looks (what leads elsewhere is for `gitplace` to refuse), a HEAD that git accepts, and settings
all of which are known here. Everything is read confined, and nothing waits.
"""

from __future__ import annotations

import re

from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.workspace.gitplace import small

_MOST = 1 << 16
# Of the repository's own directory, where git looks before it answers.
_LOOKED_AT = ("", "objects", "objects/info", "refs", "info")
_NEEDED = {"objects", "refs", "HEAD", "config"}
_ELSEWHERE = {"commondir", "gitdir", "reftable", "config.worktree"}
_HEAD = re.compile(rb"ref: refs/heads/[A-Za-z0-9_][A-Za-z0-9_./-]*\n|[0-9a-f]{40}\n")
_SECTION = re.compile(rb'\[(core|user|remote "[A-Za-z0-9_./-]+"|branch "[A-Za-z0-9_./-]+")\]')
_VALUE = rb"[A-Za-z0-9_.,:/@+*<> -]*[A-Za-z0-9_.,:/@+*<>-]"
# By the first word of the section.
_SETTINGS = {
    b"core": re.compile(
        rb"repositoryformatversion = 0|bare = false|(filemode|logallrefupdates|symlinks) = (true|false)"
    ),
    b"user": re.compile(rb"(name|email) = " + _VALUE),
    b"remote": re.compile(rb"(url|pushurl|fetch) = " + _VALUE),
    b"branch": re.compile(rb"(remote|merge) = " + _VALUE),
}


def is_plain(workspace: Root, repository: str) -> bool:
    """Whether nothing but the rules decides what git ignores in a repository of the workspace, as it stands now."""
    place = f"{repository}/.git" if repository else ".git"
    try:
        names = [_names(workspace, f"{place}/{inner}" if inner else place) for inner in _LOOKED_AT]
        head, settings = (small(workspace, f"{place}/{name}", _MOST) for name in ("HEAD", "config"))
    except (OSError, Blocked):
        return False
    if any(found is None for found in names) or names[0] is None or head is None or settings is None:
        return False
    whole = names[0] >= _NEEDED and names[0].isdisjoint(_ELSEWHERE)
    return whole and _HEAD.fullmatch(head) is not None and _are_known(settings)


def _names(workspace: Root, path: str) -> set[str] | None:
    """What is in a directory; None where that is anything but files and directories."""
    try:
        folder = workspace.open_directory(path)  # as it is now: no descriptor that was opened before
    except FileNotFoundError:
        return set()
    try:
        with workspace.calls.entries(folder) as entries:
            kinds = {
                entry.name: entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
                for entry in entries
            }
    finally:
        workspace.calls.close(folder)
    return set(kinds) if all(kinds.values()) else None


def _are_known(settings: bytes) -> bool:
    """Whether each line is a setting that says nothing about names, rules or places, spelled as git itself does."""
    known = None
    for line in settings.removesuffix(b"\n").split(b"\n"):
        section = _SECTION.fullmatch(line)
        if section is not None:
            known = _SETTINGS[section.group(1).partition(b" ")[0]]
        elif known is None or not line.startswith(b"\t") or known.fullmatch(line[1:]) is None:
            return False
    return True
