"""A repository around or inside the workspace: where it is, whose it is, and whether a checkpoint may be made now.

Invariants
  C1  Everything here only looks. Each reason not to make a checkpoint is found before anything is changed.
  C2  A `.git` that leads elsewhere counts only if that place knows this work tree:
      otherwise a tree from a stranger could have us commit into another repository of the user.
  C3  Nothing we will write to is reached through a symbolic link: git follows them, in its logs too.
  C4  Belonging to another user, it is left alone, unless the user's own `safe.directory` names it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import Blocked, Locked
from holdfast.model.path import ancestors_of, printable
from holdfast.workspace.gitsettings import GitSettings, read_settings
from holdfast.workspace.plumbing import Git, around

WAIT = 5.0
_LOOK = os.O_PATH | os.O_NOFOLLOW
_LONGEST_POINTER = 8192
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
_WRITTEN_SHARED = ("config", "objects", "refs", "packed-refs")
_WRITTEN_OWN = ("HEAD", "index", "logs/HEAD")


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
        git_dir = _git_dir(top)
        common = _common(git_dir, top)
        settings = read_settings(git_dir, top, calls)
        found = cls(place, top, git_dir, common, settings, calls, wait)
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
        head = self.head()
        _check_plain(self, head.ref)
        return head


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


def _git_dir(top: str) -> str:
    path = os.path.join(top, ".git")
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        return path
    if not stat.S_ISREG(mode):
        raise Blocked(f"{printable(path)} is neither a directory nor a file; git's data must not be behind a link")
    text = _pointer(path)
    if not text.startswith("gitdir: "):
        raise Blocked(f"{printable(path)} does not say where the repository is")
    target = os.path.realpath(os.path.join(top, text.removeprefix("gitdir: ")))
    if not os.path.isdir(target):
        raise Blocked(f"{printable(path)} leads to {printable(target)}, which is not there")
    return target


def _common(git_dir: str, top: str) -> str:
    """Where objects and branches are: elsewhere for a linked work tree, which its repository must know (C2)."""
    pointer = os.path.join(git_dir, "commondir")
    if not os.path.lexists(pointer):
        return git_dir
    if git_dir == os.path.join(top, ".git"):
        raise Blocked(f"{printable(git_dir)} borrows its objects and branches from another place")
    back = os.path.join(git_dir, "gitdir")
    known = os.path.join(git_dir, _pointer(back)) if os.path.isfile(back) else ""
    if not known or os.path.realpath(known) != os.path.join(top, ".git"):
        raise Blocked(f"{printable(top)} claims to be a work tree of {printable(git_dir)}, which does not know it")
    return os.path.realpath(os.path.join(git_dir, _pointer(pointer)))


def _pointer(path: str) -> str:
    with open(path, "rb") as file:
        return os.fsdecode(file.read(_LONGEST_POINTER)).rstrip("\n")


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
    named = os.path.realpath(os.path.join(git_dir, settings.work_tree)) if settings.work_tree else ""
    if named and named != top:
        raise Blocked(f"the repository at {printable(top)} has its work tree elsewhere, in {printable(named)}")
    if not named and git_dir != os.path.join(top, ".git") and repository.common == git_dir:
        raise Blocked(
            f"{printable(top)} leads to the repository {printable(git_dir)}, which does not know this work tree",
            hint=f"If it is yours: git config core.worktree {printable(top)}",
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


def _check_plain(repository: Repository, ref: str) -> None:
    """C3, and no lock that is held by somebody: one that ended without taking it along, or one that is at work."""
    shared = [*_WRITTEN_SHARED, *_above(f"logs/{ref}"), f"logs/{ref}", *_above(ref), ref]
    _check_links(repository.common, shared, repository.calls)
    _check_links(repository.git_dir, [*_WRITTEN_OWN, "logs"], repository.calls)
    for directory, name in ((repository.git_dir, "HEAD.lock"), (repository.common, f"{ref}.lock")):
        if os.path.lexists(os.path.join(directory, name)):
            raise Locked(f"another git is at work: {printable(os.path.join(directory, name))} exists", hint=_STALE)


_STALE = "If no git is running there, it was left by one that was killed: remove that file."


def _above(path: str) -> Iterable[str]:
    return ancestors_of(path)


def _check_links(directory: str, names: Iterable[str], calls: Calls) -> None:
    with Root(directory, calls) as root:
        for name in names:
            try:
                fd = calls.open_beneath(name, _LOOK, root.fd)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise Blocked(
                    f"{printable(os.path.join(directory, name))} lies behind a link or mount: {error.strerror}"
                ) from error
            try:
                found = calls.fstat(fd)
            finally:
                calls.close(fd)
            if stat.S_ISLNK(found.st_mode):
                raise Blocked(f"{printable(os.path.join(directory, name))} is a symbolic link")
