"""Work trees of branches that nobody needs any more: found, and taken away.

    kept ──rename──▶ .gone-<folder> ──git's side, then the files──▶ absent

Invariants
  RM1  Only a work tree whose every commit is elsewhere goes: its branch is in what is checked out, or was deleted and
       some other reference has its last commit. Whatever cannot be told is a reason to keep it.
  RM2  Nothing goes that is not committed there: edits, staged and new files. What git ignores goes with it.
  RM3  The branch itself stays. Killed anywhere, the next call takes away what is left, and nothing of a work tree
       that was made again meanwhile. Making one and taking one away hold the same lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.errors import HoldfastError
from holdfast.model.path import printable
from holdfast.workspace.branches import GONE, branches_lock, folder_of, forget_gone, last_commit, uncommitted
from holdfast.workspace.gitbench import Bench
from holdfast.workspace.plumbing import refusal
from holdfast.workspace.repository import Repository
from holdfast.workspace.site import BRANCHES

_HEADS = "refs/heads/"
_SHOWN = 3


def kept_folders(state: str) -> Iterator[str]:
    """The folders of work trees that are kept, whole or not."""
    place = os.path.join(state, BRANCHES)
    for name in sorted(os.listdir(os.fspath(place))) if os.path.isdir(place) else ():
        if not name.startswith(GONE) and os.path.lexists(os.path.join(place, name, ".git")):
            yield name


def why_kept(home: Repository, state: str, folder: str) -> tuple[str, str]:
    """The branch of a work tree, and why it must stay; the reason is empty where it can go (RM1, RM2)."""
    try:
        own = Repository.at(os.path.join(state, BRANCHES, folder), home.calls)
        if own is None or own.common != home.common:
            return "", "it belongs to another repository"
        head = own.head()
        name = head.ref.removeprefix(_HEADS)
        if folder_of(name) != folder:
            return "", f"something else is checked out in it: {printable(head.ref)}"
        tip = head.commit or last_commit(own)
        if not tip:
            return name, "the branch was deleted, and its last commit is not known"
        if not head.commit and not _is_elsewhere(home, tip):
            return name, f"the branch was deleted, and nothing else has its last commit {tip[:12]}"
        if head.commit and not _has_landed(home, tip):
            return name, "it has not landed in what is checked out"
        left = sorted({*uncommitted(own, tip), *_staged(own, tip)})
    except HoldfastError as error:
        return "", error.message
    more = f" and {len(left) - _SHOWN:,} more" if len(left) > _SHOWN else ""
    return name, f"not committed there: {', '.join(map(printable, left[:_SHOWN]))}{more}" if left else ""


def take_away(home: Repository, state: str, folder: str) -> None:
    """RM3. The caller holds the locks of the branch, and has asked `why_kept` since."""
    place = os.path.join(state, BRANCHES)
    with branches_lock(state):
        home.calls.rename(os.path.join(place, folder), os.path.join(place, GONE + folder))
        home.calls.point("branch.renamed")
        forget_gone(home, state)


def clear_leftovers(home: Repository, state: str) -> None:
    """What a kill left of work trees that were being taken away."""
    if os.path.isdir(os.path.join(state, BRANCHES)):
        with branches_lock(state):
            forget_gone(home, state)


def _has_landed(home: Repository, tip: str) -> bool:
    words = ("merge-base", "--is-ancestor", tip, home.head().commit)
    done = home.git.finished(*words)
    if done.exit_code not in (0, 1):
        raise refusal(words, done)
    return done.exit_code == 0


def _is_elsewhere(home: Repository, commit: str) -> bool:
    return bool(home.git.asked("for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)", "refs/"))


def _staged(own: Repository, tip: str) -> set[str]:
    with Bench(own) as bench:
        bench.look()
        rows = bench.git.listed("diff-index", "--cached", "-z", "--name-only", "--ignore-submodules=all", tip)
    return {os.fsdecode(name) for name in rows}
