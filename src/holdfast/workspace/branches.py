"""Branches that Holdfast lands on: for each a work tree of its own, which nobody has checked out.

    .holdfast/branches/<folder>/      the work tree; where the workspace is in it, the state of that branch
    .git/worktrees/<folder>/          what git knows of it: HEAD and index

    absent ──git worktree add, nothing checked out──▶ added ──files, then the index──▶ kept

It is a linked work tree of the person's repository, so git itself refuses to check the branch out a second time, to
delete it, and to rebase it from elsewhere. The person's own work tree, index and HEAD are not touched.

Invariants
  BR1  A branch that is checked out anywhere else is refused: what lands would move it below a work tree.
  BR2  Killed anywhere, the next call finishes. The files are whole when the index is there, which comes last.
  BR3  No hook, filter or other program that the repository names is started; a filtered file stands as it is committed.
  BR4  A name is one that git takes for a branch, and no option, expression or path of ours.
  BR5  What is committed under `.holdfast` would become our own state: such a commit is refused.
  BR6  A branch that was deleted, and a work tree whose `.git` is gone or leads elsewhere, is BranchLost, with a way
       back: nothing lands there, nothing is made in its place, and nothing is taken away.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.disk.lock import Lock
from holdfast.errors import Blocked, BranchLost, HoldfastError, InvalidInput
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.workspace.gitbench import Bench
from holdfast.workspace.gitplace import small
from holdfast.workspace.plumbing import refusal
from holdfast.workspace.removal import remove_whole
from holdfast.workspace.repository import Repository
from holdfast.workspace.site import BRANCHES, home_of

_HEADS = "refs/heads/"
_LONGEST = 200
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")
_WAIT_S = 60.0
_MOST_LOG = 1 << 28
_MOST_NAME = 1 << 13
# Before the name of a work tree that is being taken away.
GONE = ".gone-"
_LOGGED = re.compile(rb"[0-9a-f]+ ([0-9a-f]{40}(?:[0-9a-f]{24})?) ")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Branch(NamedTuple):
    """A branch whose work tree is kept. `begun`: it was made by this call; `commit` is its tip."""

    name: str
    tree: str
    # The directory in it that is the workspace: the same as that of the person in theirs.
    workspace: str
    commit: str
    begun: bool = False

    @property
    def ref(self) -> str:
        return _HEADS + self.name


def checked_name(name: str) -> str:
    """The name, if it can be that of a branch (BR4); git has the last word about it."""
    parts = name.split("/")
    plain = name.isprintable() and not set(name) & set(" ~^:?*[\\") and "@{" not in name and ".." not in name
    whole = all(part and not part.startswith(".") and not part.endswith((".", ".lock")) for part in parts)
    if not plain or not whole or name.startswith("-") or name in ("@", "HEAD") or len(name) > _LONGEST:
        raise InvalidInput(f"{printable(name)!r} cannot be the name of a branch", hint="For example: --branch night")
    return name


def folder_of(name: str) -> str:
    return f"{_SAFE.sub('-', name)[:40]}-{sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def repository_of(workspace: str, calls: Calls = CALLS) -> Repository:
    """The repository of a workspace, with a commit; InvalidInput where it has none."""
    found = Repository.at(workspace, calls)
    if found is None:
        raise InvalidInput(
            f"{printable(workspace)} is in no git repository, so nothing can land on a branch",
            hint="Nothing was changed. Start one with: git init",
        )
    if not found.head().commit:
        raise InvalidInput(
            "the repository has no commit yet, and a branch begins at one", hint="Nothing was changed. Commit first."
        )
    return found


def find_branch(home: Repository, state: str, name: str) -> Branch | None:
    """The branch, if its work tree is kept and whole; nothing is changed."""
    branch = _branch(home, state, checked_name(name))
    own = _own(home, branch)
    if own is None or not os.path.lexists(os.path.join(own.git_dir, "index")):
        return None
    return branch._replace(commit=own.head().commit)


def keep_branch(home: Repository, state: str, name: str) -> Branch:
    """The branch with its work tree, made where there is none: from the commit that is checked out, or from its own
    tip where the branch is there. Blocked where it is checked out elsewhere (BR1)."""
    branch = _branch(home, state, checked_name(name))
    folder = os.path.join(state, BRANCHES)
    os.makedirs(folder, 0o700, exist_ok=True)
    with branches_lock(state):
        forget_gone(home, state)
        found = find_branch(home, state, name)
        if found is not None:
            return found
        tip = home.value(branch.ref)
        own = _own(home, branch)
        if own is None:
            _require_free(home, branch)
            _require_foreign_state(home, tip or home.head().commit)
            _add(home, branch, tip)
            own = _own(home, branch)
            if own is None:
                raise Blocked(f"git made no work tree for {printable(name)}")
        _check_out(own)
        # The commit may have nothing where the person's workspace is.
        os.makedirs(branch.workspace, exist_ok=True)
        return branch._replace(commit=own.head().commit, begun=not tip)


def branches_lock(state: str) -> Lock:
    """Held while a work tree is made or taken away; its directory is there."""
    return Lock(os.path.join(state, BRANCHES, "lock"), wait=_WAIT_S)


def forget_gone(home: Repository, state: str) -> None:
    """What a kill left of work trees that were being taken away: git's side first, so that none is left alone; never
    that of a work tree that is there. The caller holds the lock."""
    place, worktrees = os.path.join(state, BRANCHES), os.path.join(home.common, "worktrees")
    if os.path.islink(worktrees):
        raise Blocked(f"{printable(worktrees)} is a symbolic link")
    for name in [name for name in os.listdir(os.fspath(place)) if name.startswith(GONE)]:
        folder = name.removeprefix(GONE)
        if not os.path.lexists(_tree_file(home, place, folder)):
            _remove(worktrees, folder)
        home.calls.point("branch.forgotten")
        _remove(place, name)


def _tree_file(home: Repository, place: str, folder: str) -> str:
    """The `.git` of the work tree that git's side is of: as that says, or where it would be."""
    own = os.path.join(home.common, "worktrees", folder)
    if os.path.islink(own) or not os.path.isdir(own):
        return os.path.join(place, folder, ".git")
    with Root(own, home.calls) as root:
        said = os.fsdecode(small(root, "gitdir", _MOST_NAME) or b"").rstrip("\n")
    return os.path.join(own, said) if said else os.path.join(place, folder, ".git")


def _remove(place: str, name: str) -> None:
    if not os.path.lexists(os.path.join(place, name)):
        return
    folder = os.open(place, _DIRECTORY)
    try:
        remove_whole(folder, name)
    finally:
        os.close(folder)


def kept_branches(state: str) -> Iterator[str]:
    """The names of all branches whose work trees are kept."""
    folder = os.path.join(state, BRANCHES)
    try:
        names = sorted(os.listdir(os.fspath(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        tree = os.path.join(folder, name)
        try:
            own = Repository.at(tree) if os.path.lexists(os.path.join(tree, ".git")) else None
            ref = own.head().ref if own is not None else ""
        except HoldfastError:
            continue  # it is told by whoever asks for that branch (BR6)
        if folder_of(ref.removeprefix(_HEADS)) == name:
            yield ref.removeprefix(_HEADS)


def _branch(home: Repository, state: str, name: str) -> Branch:
    tree = os.path.join(state, BRANCHES, folder_of(name))
    return Branch(name, tree, os.path.join(tree, home.prefix).rstrip("/"), "")


def _own(home: Repository, branch: Branch) -> Repository | None:
    """The work tree as a repository, if git knows it and this branch is checked out there; BR6."""
    if not os.path.lexists(os.path.join(branch.tree, ".git")):
        if os.path.lexists(os.path.join(branch.workspace, STATE_DIRECTORY)):
            raise _astray(home, branch.tree, "has lost its .git")
        return None
    try:
        own = Repository.at(branch.tree, home.calls, wait=home.wait)
    except Blocked as error:
        raise _astray(home, branch.tree, f"cannot be used: {error.message}") from error
    if own is None or own.place != own.top:
        return None
    if own.common != home.common:
        raise _astray(home, branch.tree, "belongs to another repository")
    head = own.head()
    if head.ref != branch.ref:
        raise BranchLost(
            f"in the work tree of {printable(branch.name)} something else is checked out: {printable(head.ref)}",
            hint="Nothing was changed. It is Holdfast's own; put it back with: "
            f"git -C {shlex.quote(branch.tree)} checkout {shlex.quote(branch.name)}",
        )
    if not head.commit:
        last = last_commit(own)
        raise BranchLost(
            f"the branch {printable(branch.name)} was deleted",
            hint="Its work tree and its history are kept.\n"
            f"Put it back: git -C {shlex.quote(home.top)} branch {shlex.quote(branch.name)} {last or 'COMMIT'}",
        )
    return own


def _astray(home: Repository, tree: str, how: str) -> BranchLost:
    own, file = os.path.join(home.common, "worktrees", os.path.basename(tree)), os.path.join(tree, ".git")
    mend = f"Mend it: echo 'gitdir: {own}' > {shlex.quote(file)}\n" if os.path.isfile(os.path.join(own, "HEAD")) else ""
    away = f"Move {printable(file)} away first.\n" if mend and os.path.isdir(file) else ""
    return BranchLost(
        f"the work tree {printable(tree)} {how}",
        hint="What landed there and its history are kept in it.\n"
        f"{away}{mend}Or move that directory away, to begin the branch again without its history.",
    )


def last_commit(own: Repository) -> str:
    """Where the branch was last, as the log of its work tree has it; empty where that has nothing that is there."""
    with Root(own.git_dir, own.calls) as root:
        lines = (small(root, "logs/HEAD", _MOST_LOG) or b"").splitlines()
    found = _LOGGED.match(lines[-1]) if lines else None
    if found is None:
        return ""
    commit = found.group(1).decode("ascii")
    return commit if own.value(commit) == commit else ""


def require_standing(workspace: str, calls: Calls = CALLS) -> None:
    """BranchLost where what lands in the work tree of a branch could not be committed (BR6)."""
    at = home_of(workspace)
    state = os.path.join(at, STATE_DIRECTORY)
    folder = os.path.relpath(workspace, os.path.join(state, BRANCHES)).split("/", 1)[0]
    tree = os.path.join(state, BRANCHES, folder)
    home = Repository.at(at, calls)
    if home is None:
        raise BranchLost(f"{printable(at)} is in no git repository any more", hint="Nothing was changed.")
    if not os.path.lexists(os.path.join(tree, ".git")):
        raise _astray(home, tree, "has lost its .git")
    try:
        own = Repository.at(tree, calls)
    except Blocked as error:
        raise _astray(home, tree, f"cannot be used: {error.message}") from error
    name = own.head().ref.removeprefix(_HEADS) if own is not None else ""
    if folder_of(name) != folder:
        raise BranchLost(
            f"in the work tree {printable(tree)} something else is checked out: {printable(name)}",
            hint=f"Nothing was changed. See: git -C {shlex.quote(tree)} status",
        )
    _own(home, _branch(home, state, name))


def _require_free(home: Repository, branch: Branch) -> None:
    """BR1, in words of ours; git refuses it too."""
    output = home.git.asked("worktree", "list", "--porcelain", "-z")
    place = ""
    for line in os.fsdecode(output).split("\0"):
        kind, _, value = line.partition(" ")
        if kind == "worktree":
            place = value
        elif kind == "branch" and value == branch.ref and os.path.realpath(place) != os.path.realpath(branch.tree):
            raise Blocked(
                f"{printable(branch.name)} is checked out in {printable(place)}: what lands on it would move it there",
                hint="Nothing was changed. Check something else out there, or name another branch.",
            )


def _require_foreign_state(home: Repository, commit: str) -> None:
    """BR5."""
    listed = home.git.asked("ls-tree", "-z", "--name-only", commit, "--", f"{home.prefix}{STATE_DIRECTORY}")
    if listed:
        raise Blocked(
            f"commit {commit[:12]} holds {home.prefix}{STATE_DIRECTORY}, which is the place of Holdfast's own state",
            hint="Nothing was changed. Take it out of the repository first: git rm -r --cached .holdfast",
        )


def _add(home: Repository, branch: Branch, tip: str) -> None:
    """A linked work tree without files (BR3); what a crash left of an earlier one is taken away first."""
    home.check_writable(branch.ref)
    if home.settings.work_tree:
        raise Blocked(
            f"the repository names its work tree, {printable(home.settings.work_tree)}, and can have no other",
            hint="Nothing was changed. A submodule, for instance, is worked on without --branch.",
        )
    worktrees = os.path.join(home.common, "worktrees")
    if os.path.islink(worktrees):
        raise Blocked(f"{printable(worktrees)} is a symbolic link")
    _clear(home, branch)
    start = (branch.name,) if tip else (home.head().commit,)
    new = () if tip else ("--no-track", "-b", branch.name)
    words = ("worktree", "add", "--quiet", "--no-checkout", *new, "--", branch.tree, *start)
    done = home.git.finished(*words, lasting=True)
    if not done.succeeded:
        raise refusal(words, done)


def _clear(home: Repository, branch: Branch) -> None:
    """Half a work tree, of which git knows, or not; never one with a history."""
    if os.path.lexists(os.path.join(branch.workspace, STATE_DIRECTORY)):
        raise _astray(
            home, branch.tree, f"holds the history of {printable(branch.name)}, and is none of git's any more"
        )
    _remove(os.path.dirname(branch.tree), os.path.basename(branch.tree))
    _remove(os.path.join(home.common, "worktrees"), os.path.basename(branch.tree))


def _check_out(own: Repository) -> None:
    """The files of its tip, and then the index that says so (BR2)."""
    head = own.head()
    with Bench(own) as bench:
        bench.hold()
        bench.git.asked("read-tree", head.commit)
        bench.git.asked("checkout-index", "--all", "--force", "--quiet")
        # With the stamps of what stands there, so that git need not read it all again to say that it is clean.
        bench.git.finished("update-index", "-q", "--refresh")
        fd = os.open(own.top, _DIRECTORY)
        try:
            own.calls.sync_file_system(fd)
        finally:
            os.close(fd)
        bench.finish()


def uncommitted(home: Repository, commit: str = "") -> tuple[str, ...]:
    """Paths of the work tree that are not as the commit has them, or what is checked out; a branch begins without
    them."""
    with Bench(home) as bench:
        bench.look()
        # Of what was staged without its stamps, such as our own commits, git would only say that it has to be read.
        bench.git.finished("update-index", "-q", "--refresh")
        base = commit or home.head().commit
        changed = bench.git.listed("diff-index", "-z", "--name-only", "--ignore-submodules=all", base)
        rules = os.path.join(home.common, "info", "exclude")
        more = (f"--exclude-from={rules}",) if os.path.isfile(rules) else ()
        new = bench.git.listed("ls-files", "-z", "--others", "--exclude-standard", "--directory", *more)
    ours = f"{STATE_DIRECTORY}/"
    names = {os.fsdecode(name) for name in (*changed, *new)}
    return tuple(sorted(name for name in names if not name.startswith(ours) and not name.endswith(f"/{ours}")))
