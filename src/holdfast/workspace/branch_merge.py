"""A branch brought into what is checked out: merged by git in its object store, and committed with two parents.

    merged ──▶ the tree that both make together, and what it changes ──laid out──▶ files, for a plan ──▶ (they land)
           └─ conflicts are told; nothing is touched                                          committed ◀──┘

Invariants
  BM1  Work tree, index and references are only read until what was merged has landed. Objects are added.
  BM2  No merge driver, filter or other program that the repository names is run; a path that needs one is refused.
  BM3  The commit has exactly the merged tree, and moves the reference only from the commit that was merged with.
  BM4  In the index only entries of merged paths change, and none of them held anything else (CK4 of `checkpoint`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.errors import Blocked, Conflict, InvalidInput, Unsupported
from holdfast.model.path import printable
from holdfast.workspace.checkpoint import stage_entries
from holdfast.workspace.gitbench import Bench, Move
from holdfast.workspace.gitcontent import refuse_filters
from holdfast.workspace.gitobjects import Written, of_bytes, write_objects
from holdfast.workspace.gittree import LINK, SUBMODULE, Entry, object_id
from holdfast.workspace.plumbing import Git, refusal
from holdfast.workspace.removal import remove_whole
from holdfast.workspace.repository import Head, Repository
from holdfast.workspace.trailers import Trailers, message_text

_HEADS = "refs/heads/"
_ID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ROW = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [A-Z]")
_SHOWN = 5
_MOST_TITLES = 200
_BY_HAND = "Nothing was changed. Merge it yourself: git merge"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Brought(NamedTuple):
    """A merge of `tip` into `head`: what it makes of paths, before and after, relative to the repository."""

    name: str
    head: Head
    tip: str
    tree: str
    before: Mapping[str, Entry]
    after: Mapping[str, Entry | None]
    # Of the commits that come in, the newest first.
    titles: tuple[str, ...]


def merged(repository: Repository, name: str) -> Brought | None:
    """The merge of a branch into what is checked out; None where all of it is there already. Conflict tells paths."""
    ref = _HEADS + name
    with Bench(repository) as bench:
        # Only now: entering finishes a merge that somebody was killed in.
        head, tip = repository.check_ready(), repository.value(ref)
        if not tip:
            raise InvalidInput(f"there is no branch {printable(name)}", hint="Nothing was changed. See: git branch")
        if head.ref == ref:
            raise InvalidInput(f"{printable(name)} is what is checked out here", hint="Nothing was changed.")
        bench.look()
        if _is_in(bench.git, tip, head.commit):
            return None
        tree = _tree(bench.git, head.commit, tip, name)
        before, after = _difference(bench.git, head.commit, tree)
        _require_plain(bench, repository, before, after)
        titles = bench.git.listed("log", "-z", "--format=%s", f"--max-count={_MOST_TITLES}", tip, f"^{head.commit}")
    return Brought(name, head, tip, tree, before, after, tuple(os.fsdecode(title) for title in titles))


class Incoming(NamedTuple):
    """A commit of a branch that is not in what is checked out."""

    id: str
    message: str


def incoming(repository: Repository, name: str) -> tuple[str, list[Incoming], str]:
    """The branch that is checked out, the commits of the other one that are not in it, newest first, and a remote."""
    tip, head = repository.value(_HEADS + name), repository.head()
    if not tip:
        raise InvalidInput(f"there is no branch {printable(name)}", hint="Nothing was changed. See: git branch")
    if not head.ref.startswith(_HEADS) or head.ref == _HEADS + name:
        raise InvalidInput("check out the branch that it shall be merged into", hint="Nothing was changed.")
    rows = repository.git.asked("rev-list", "--format=%B%x00", tip, f"^{head.commit}", "--").split(b"\0\n")[:-1]
    found = [os.fsdecode(row).removeprefix("commit ").partition("\n") for row in rows]
    remotes = os.fsdecode(repository.git.asked("remote")).split()
    remote = "origin" if "origin" in remotes or not remotes else remotes[0]
    return head.ref.removeprefix(_HEADS), [Incoming(id, message) for id, _, message in found], remote


def lay_out(repository: Repository, brought: Brought, folder: str) -> None:
    """The files of the merged tree that it changes, as git checks them out, in a new folder of ours."""
    clear(folder)
    os.makedirs(folder, 0o700)
    paths = [path for path, entry in brought.after.items() if entry is not None]
    with Bench(repository) as bench:
        bench.look()
        bench.git.asked("read-tree", brought.tree)
        asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
        bench.git.asked("checkout-index", "--force", "--quiet", f"--prefix={folder}/", "-z", "--stdin", stdin=asked)


def clear(folder: str) -> None:
    if os.path.lexists(folder):
        above = os.open(os.path.dirname(folder), _DIRECTORY)
        try:
            remove_whole(above, os.path.basename(folder))
        finally:
            os.close(above)


def commit_merge(repository: Repository, brought: Brought, message: str, trailers: Trailers, at: int) -> str:
    """The merge commit, once what was merged stands in the work tree; Conflict where somebody committed since (BM3)."""
    with Bench(repository) as bench:
        bench.hold()
        head = repository.check_ready()
        if head != brought.head:
            raise Conflict(
                f"something was committed or checked out meanwhile, so {printable(brought.name)} is not merged",
                hint="What it brings stands in the work tree. Do the same again: it is merged with what is there now.",
            )
        stage_entries(bench, brought.before, brought.after)
        id = _write(bench, repository, brought, message_text(message, trailers), at)
        bench.move(Move(head.ref, head.commit, id), f"holdfast: merge {brought.name}")
        bench.finish()
        return id


def _write(bench: Bench, repository: Repository, brought: Brought, words: bytes, at: int) -> str:
    settings = repository.settings
    author, committer = (
        f"{role} {person.name} <{person.email}> {at} +0000\n"
        for role, person in (("author", settings.author), ("committer", settings.committer))
    )
    head = f"tree {brought.tree}\nparent {brought.head.commit}\nparent {brought.tip}\n{author}{committer}\n"
    text = os.fsencode(head) + words
    id = object_id(repository.hashing, "commit", text)
    write_objects(bench.git, "commit", [Written(id, of_bytes(text), "the merge commit")])
    return id


def _is_in(git: Git, commit: str, head: str) -> bool:
    done = git.finished("merge-base", "--is-ancestor", commit, head)
    if done.exit_code not in (0, 1):
        raise refusal(("merge-base",), done)
    return done.exit_code == 0


def _tree(git: Git, head: str, tip: str, name: str) -> str:
    done = git.finished("merge-tree", "--write-tree", "-z", "--no-messages", "--name-only", head, tip)
    tree, *conflicts = done.output.split(b"\0")
    if done.exit_code not in (0, 1) or not _ID.fullmatch(tree):
        if b"usage:" in done.output or b"unknown option" in done.output:
            raise Unsupported("this git cannot merge without a work tree; 2.38 and newer can")
        raise refusal(("merge-tree",), done)
    if done.exit_code == 1:
        raise Conflict(
            f"{printable(name)} and what is checked out disagree in {_named([os.fsdecode(p) for p in conflicts if p])}",
            hint=f"{_BY_HAND} {shlex.quote(name)}",
        )
    return tree.decode("ascii")


def _difference(git: Git, head: str, tree: str) -> tuple[dict[str, Entry], dict[str, Entry | None]]:
    rows = git.listed("diff-tree", "-r", "-z", "--no-renames", "--raw", f"{head}^{{tree}}", tree)
    before: dict[str, Entry] = {}
    after: dict[str, Entry | None] = {}
    for facts, name in zip(rows[::2], rows[1::2], strict=True):
        found = _ROW.fullmatch(facts)
        if found is None:
            raise Blocked("git diff-tree gave an answer that is not understood")
        old_mode, new_mode, old, new = (text.decode("ascii") for text in found.groups())
        path = os.fsdecode(name)
        if SUBMODULE in (old_mode, new_mode):
            raise Blocked(f"{printable(path)} is a submodule, which no change of ours moves", hint=_BY_HAND)
        if int(old_mode):
            before[path] = Entry(old_mode, old)
        after[path] = Entry(new_mode, new) if int(new_mode) else None
    return before, after


def _require_plain(
    bench: Bench, repository: Repository, before: Mapping[str, Entry], after: Mapping[str, Entry | None]
) -> None:
    outside = [path for path in after if not path.startswith(repository.prefix)]
    if outside:
        raise Blocked(f"the branch changes {_named(outside)}, outside of the workspace", hint=_BY_HAND)
    refuse_filters(bench.git, [path for path, entry in after.items() if entry is not None and entry.mode != LINK])
    there = bench.staged(sorted(after))
    staged = [path for path in after if there.get(path, ()) != _expected(before.get(path))]
    if staged:
        raise Blocked(
            f"something else is staged where the branch changes something: {_named(staged)}",
            hint="Nothing was changed. Commit it or unstage it first.",
        )


def _expected(entry: Entry | None) -> tuple[str, ...]:
    return (f"{entry.mode} {entry.id} 0",) if entry else ()


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(printable, paths[:_SHOWN])) + more
