"""A repository around or inside the workspace: where it is, whose it is, and whether a checkpoint may be made now.

Invariants
  C1  Everything here only looks. Each reason not to make a checkpoint is found before anything is changed.
  C2  Where it is, `gitplace` says, before git is started for the first time: a `.git` that leads elsewhere counts
      only if that place knows this work tree (E1), and nothing that git reads is behind a link (E2).
  C3  Nothing we will write to is reached through a symbolic link: git follows them, in its logs too.
      That is looked at for the very reference that moves, each time before it does.
  C4  Belonging to another user, it is left alone, unless the user's own `safe.directory` names it.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Blocked, BranchLost, Locked
from holdfast.model.path import printable
from holdfast.workspace.gitplace import Place, elsewhere, place_of, require_plain, require_writable
from holdfast.workspace.gitsettings import GitSettings, read_settings
from holdfast.workspace.plumbing import Git, around
from holdfast.workspace.site import home_of

WAIT = 5.0
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# By the name inside the git directory, what is going on when it exists.
_UNDER_WAY = (
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase or `git am`"),
    ("sequencer", "a sequence of picks"),
    ("BISECT_LOG", "a bisection"),
)
_STALE = "If no git is running there, it was left by one that was killed: remove that file."


class Head(NamedTuple):
    """What is checked out: a branch by its full name, or `HEAD` when detached; no commit when the branch is unborn."""

    ref: str
    commit: str


class Repository(NamedTuple):
    """`place` is the directory that was asked for; paths of changes are relative to it. `top` is the work tree.

    `wait`: for how many seconds another git, or another Holdfast, is waited for.
    """

    place: str
    top: str
    git_dir: str
    common: str
    settings: GitSettings
    calls: Calls = CALLS
    wait: float = WAIT

    @classmethod
    def at(cls, path: str, calls: Calls = CALLS, *, wait: float = WAIT) -> Repository | None:
        """The repository whose work tree holds this directory; None for none, Blocked for one that cannot be used."""
        place = os.path.realpath(path)
        top = _top(place)
        if top is None:
            return None
        where = place_of(top, calls)
        if where is None:
            return None  # it went this very moment
        settings = read_settings(where.own, top, calls)
        found = cls(place, top, where.own, where.common, settings, calls, wait)
        _check_owner(found)
        _check_work_tree(found)
        return None if _is_ignored(found) else found

    @property
    def prefix(self) -> str:
        """What stands before a path of `place` to make it one of the repository."""
        return "" if self.place == self.top else os.path.relpath(self.place, self.top) + "/"

    @property
    def hashing(self) -> str:
        return self.settings.hashing

    @property
    def git(self) -> Git:
        return around(self.git_dir, self.top, self.calls)

    def head(self) -> Head:
        """What is checked out now."""
        ref = self.git.answer("symbolic-ref", "-q", "HEAD") or "HEAD"
        return Head(ref, self.value(ref))

    def value(self, ref: str) -> str:
        """The commit a reference names now; empty for none."""
        answer = self.git.answer("rev-parse", "--verify", "-q", f"{ref}^0")
        if answer and not _ID.fullmatch(answer):
            raise Blocked(f"git cannot say what {printable(ref)} is: {printable(answer[:200])}")
        return answer

    def check_ready(self) -> Head:
        """What is checked out, if a checkpoint may be made now; Blocked or Locked with the reason otherwise."""
        for name, what in _UNDER_WAY:
            if os.path.lexists(os.path.join(self.git_dir, name)):
                raise Blocked(
                    f"{what} is in progress in {printable(self.top)}; a commit now would become part of it",
                    hint="Finish it or abort it, then go on.",
                )
        require_plain(self.where, self.calls)
        head = self.head()
        if not head.commit and home_of(self.top) != self.top:  # a commit here would begin another history
            raise BranchLost(f"the branch {printable(head.ref)} was deleted", hint="See: holdfast status")
        self.check_writable(head.ref)
        _check_unlocked(self, head.ref)
        return head

    def check_writable(self, ref: str) -> None:
        """C3: Blocked where git would be led elsewhere when it moves this reference."""
        require_writable(self.where, ref, self.calls)

    @property
    def where(self) -> Place:
        return Place(self.top, self.git_dir, self.common)


def _top(place: str) -> str | None:
    """The nearest directory with a `.git`, on this file system."""
    if _looks_bare(place):
        raise Blocked(f"{printable(place)} is a bare repository: it has no work tree to commit from")
    device = os.stat(place).st_dev
    directory = place
    while os.stat(directory).st_dev == device:
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        if directory == "/":
            return None
        directory = os.path.dirname(directory)
    return None


def _looks_bare(place: str) -> bool:
    folders = all(os.path.isdir(os.path.join(place, name)) for name in ("objects", "refs"))
    return folders and os.path.isfile(os.path.join(place, "HEAD"))


def _check_owner(repository: Repository) -> None:
    for path in (repository.top, repository.git_dir, repository.common):
        owner = os.stat(path).st_uid
        if owner != os.geteuid() and not repository.settings.is_safe(repository.top):
            raise Blocked(
                f"{printable(path)} belongs to another user (uid {owner})",
                hint=f"If you trust it: git config --global --add safe.directory {printable(repository.top)}",
            )


def _check_work_tree(repository: Repository) -> None:
    settings, top, git_dir = repository.settings, repository.top, repository.git_dir
    if settings.bare:
        raise Blocked(f"the repository at {printable(top)} says that it is bare: it has no work tree")
    named = os.path.realpath(os.path.join(git_dir, settings.work_tree)) if settings.work_tree else top
    if named != top:
        raise elsewhere(top, named)
    if settings.own_attributes:
        named = printable(settings.own_attributes)
        raise Blocked(
            f"the repository at {printable(top)} names a file of attributes that is not looked into: {named}",
            hint="If it is yours, put what it says into .git/info/attributes: git config --unset core.attributesFile",
        )
    if settings.hooks:
        raise Blocked(
            f"the repository at {printable(top)} configures hooks that cannot be switched off: {settings.hooks[0]}"
        )


def _is_ignored(repository: Repository) -> bool:
    """Whether a bigger repository ignores the place: then it is not the one that this place belongs to."""
    if not repository.prefix:
        return False
    done = repository.git.finished("check-ignore", "-q", "--", "./" + repository.prefix.rstrip("/"))
    if done.exit_code not in (0, 1) or done.output:
        raise Blocked(f"git cannot say whether {printable(repository.place)} is ignored")
    return done.exit_code == 0


def _check_unlocked(repository: Repository, ref: str) -> None:
    """No lock that is held by somebody: one that ended without taking it along, or one that is at work."""
    for directory, name in ((repository.git_dir, "HEAD.lock"), (repository.common, f"{ref}.lock")):
        if os.path.lexists(os.path.join(directory, name)):
            raise Locked(f"another git is at work: {printable(os.path.join(directory, name))} exists", hint=_STALE)
