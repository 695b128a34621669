"""The part of a shadow that belongs to git: thrown away, and told about where it could have consequences."""

from __future__ import annotations

_GIT = ".git"
# What git runs, believes or points to, by the first name inside the repository.
_TOLD = {
    "hooks": "a hook, which git runs",
    "config": "git's configuration, which can name programs",
    "config.worktree": "git's configuration, which can name programs",
    "refs": "a branch or tag",
    "packed-refs": "branches and tags",
    "HEAD": "what is checked out",
    "info": "git's own rules for this repository",
    "modules": "the repository of a submodule",
    "worktrees": "another work tree of this repository",
}


def is_git(path: str) -> bool:
    return _GIT in path.split("/")


def git_remark(path: str) -> str:
    """What a path inside `.git` is, if changing it matters; empty otherwise."""
    names = path.split("/")
    inner = names[names.index(_GIT) + 1 :]
    if not inner:
        return "a repository"
    if inner[0] == "objects":
        return "where git finds more objects" if inner[1:] in (["info", "alternates"],) else ""
    return _TOLD.get(inner[0], "")
