"""The repository that programs see over a branch: the branch's own, borrowed for one shadow.

    .holdfast/branches/<folder>/.git   a file that leads to `.git/worktrees/<folder>`, which is not shown
    <shadow>/<n>/repository/.git       borrowed (`borrowed`): HEAD and index of the branch, all references, no settings
    inside: .git ──▶ /run/holdfast/git ──▶ /run/holdfast/git-objects, which is the objects of the repository, read-only

Invariants
  BG1  It is the repository of the person's workspace, and knows this work tree (E1 of `gitplace`); else nothing starts.
  BG2  Nothing that is written inside reaches the person's: it goes into a layer in memory, or cannot be written.
  BG3  What the configuration hides below `.git` is not in it; where it hides an object, none is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.path import printable
from holdfast.sandbox.shown import OBJECTS
from holdfast.sandbox.view import Repository
from holdfast.workspace.borrowed import borrow_from
from holdfast.workspace.gitplace import Place, place_of
from holdfast.workspace.hidden import masked_paths, matches
from holdfast.workspace.removal import remove
from holdfast.workspace.site import BRANCHES, Site, home_of

GIT = ".git"
_OBJECTS = f"{GIT}/objects"


def has_branch_repository(site: Site, hidden: Sequence[str]) -> bool:
    """Whether programs see one here that has to be lent; none where the workspace is a folder of its repository."""
    is_whole = os.path.basename(os.path.dirname(site.path)) == BRANCHES
    return site.is_branch and is_whole and not any(matches(path, hidden) for path in (GIT, _OBJECTS))


def lend_repository(site: Site, target: Root, scratch: int, hidden: Sequence[str], owner: int) -> Repository:
    """Make `.git` in the target, which is new; `owner`, if any, gets all of it."""
    place = _place(site)
    borrow_from(place, target, "", scratch, objects=OBJECTS)
    unseen = [path for path in masked_paths(target, hidden) if path.startswith(f"{GIT}/")]
    for path in unseen:
        above, _, name = path.rpartition("/")
        remove(scratch, target.directory(above), name)
    hides_objects = any(path.startswith(f"{_OBJECTS}/") for path in (*unseen, *hidden))
    objects = os.path.join(target.path, _OBJECTS) if hides_objects else os.path.join(place.common, "objects")
    if owner:
        for _, _, names, folder in os.fwalk(GIT, dir_fd=target.fd):
            os.fchown(folder, owner, owner)
            for name in names:
                os.chown(name, owner, owner, dir_fd=folder, follow_symlinks=False)
    return Repository(os.path.join(target.path, GIT), objects)


def _place(site: Site) -> Place:
    """BG1."""
    own, home = place_of(site.path, site.calls), place_of(home_of(site.path), site.calls)
    if own is None or home is None or own.common != home.common:
        raise Blocked(
            f"{printable(site.path)} is no work tree of this repository any more: no program is shown what is there",
            hint="Nothing was changed. See which work trees git knows: git worktree list",
        )
    return own
