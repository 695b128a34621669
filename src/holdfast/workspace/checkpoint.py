"""Checkpoints: what landed becomes a commit, and nothing of the user's own work is touched.

    landed change ─contents→ blobs ─edited→ trees → commit ─Bench.move→ branch, and the index entries of landed paths

Invariants
  CK1  The commit holds the landed paths and, apart from them, exactly what its parent holds.
  CK2  One execution, one commit: called again after a crash at any point, the commit is found, or made once.
  CK3  No hook, filter, signature, watcher or other program runs, whatever the repository configures.
  CK4  Work tree, stash, untracked files: not touched. In the index only entries of landed paths change,
       and only where the entry was what is checked out; other staged work stays, and is told.
  CK5  Until the branch moves nothing can be seen of it; every reason to refuse is found before.

The parts are pure or small: `gitcontent` (bytes), `gittree` (trees), `gitbench` (lock, index, reference),
`githistory` (finding), `gitplace` (where), `repository` (whether), `plumbing` (how git is started).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.changeset import Change
from holdfast.model.path import ancestors_of
from holdfast.workspace.gitbench import Bench, Move
from holdfast.workspace.gitcontent import Kept, contents, landed, nothing_kept, refuse_filters, written
from holdfast.workspace.githistory import Commit, find_checkpoint
from holdfast.workspace.gitobjects import Written, commit_text, of_bytes, read_folders, write_objects
from holdfast.workspace.gitsettings import Person
from holdfast.workspace.gittree import SUBMODULE, TREE, Entry, Folder, edited, entry_at, object_id
from holdfast.workspace.repository import Head, Repository
from holdfast.workspace.trailers import Trailers, message_text, title_of

__all__ = ["Commit", "Landing", "Trailers", "check_possible", "checkpoint", "find_checkpoint", "revert"]


class Landing(NamedTuple):
    """What landed, in words and in changes. `at` is when, in seconds of the epoch: it is the date of the commit.

    Paths of changes are relative to the repository's `place`. `kept` opens landed bytes that the work tree
    no longer holds.
    """

    changes: tuple[Change, ...]
    message: str
    trailers: Trailers
    at: int
    kept: Kept = nothing_kept


def checkpoint(repository: Repository, landing: Landing) -> Commit | None:
    """The commit of this landing, made now or before; None when it changed nothing that git can hold."""
    check_landing(landing)
    with Bench(repository) as bench:
        found = find_checkpoint(repository, landing.trailers.execution, landing.at)
        if found is not None:
            return found
        commit = prepare(bench, landing)
        if commit is not None:
            bench.move(Move(commit.ref, commit.parent, commit.id), note_of(commit))
            bench.finish()
        return commit


def revert(repository: Repository, commit: str, landing: Landing) -> Commit | None:
    """The checkpoint of an undo: commits what the undo's own execution changed, and says what it takes back."""
    with Bench(repository) as bench:
        bench.open()
        _, _, message = commit_text(bench.git, commit).decode("utf-8", "replace").partition("\n\n")
    words = f"Undo {title_of(message)}\n\nThis takes back commit {commit}.\n{landing.message}"
    return checkpoint(repository, landing._replace(message=words, trailers=landing.trailers._replace(undoes=commit)))


def check_possible(repository: Repository, changes: Iterable[Change]) -> None:
    """Before anything lands: Blocked or Locked with the reason, where its checkpoint could not be made afterwards."""
    repository.check_ready()
    files = [repository.prefix + change.path for change in changes if change.post and change.post.kind == "file"]
    with Bench(repository) as bench:
        bench.hold()
        refuse_filters(bench.git, files)


def check_landing(landing: Landing) -> None:
    if not landing.trailers.execution:
        raise InvalidInput("a checkpoint needs the id of the execution it belongs to")


def prepare(bench: Bench, landing: Landing) -> Commit | None:
    """Everything but the move: objects written, the new index at hand, nothing to be seen yet (CK5)."""
    repository = bench.repository
    bench.hold()
    # Looked at only now: with the index held, nobody switches branches or begins a merge.
    head = repository.check_ready()
    paths: dict[str, Entry | None] = dict.fromkeys(repository.prefix + change.path for change in landing.changes)
    tree = _tree_of(bench, head)
    folders = read_folders(bench.git, tree, paths, repository.hashing)
    heads = dict(_files(folders, paths))
    rows = landed(bench.git, repository, landing.changes, heads)
    chosen = list(contents(repository, rows, landing.kept))
    after = written(bench.git, [content for content in chosen if content is not None])
    root = _write_trees(bench, folders, after)
    if root == tree or (not tree and not any(after.values())):
        bench.leave()
        return None
    staged = stage_entries(bench, heads, after)
    carried = [row.path for row in rows if not row.is_base and after.get(row.path, row.head) != row.head]
    overtaken = [row.path for row, content in zip(rows, chosen, strict=True) if content is None]
    commit = _write_commit(bench, head, root, landing)
    return commit._replace(carried=tuple(carried), staged=staged, overtaken=tuple(overtaken))


def stage_entries(bench: Bench, before: Mapping[str, Entry], after: Mapping[str, Entry | None]) -> tuple[str, ...]:
    """Put `after` into the index where it holds `before`; the paths for which it holds something else (CK4)."""
    there = bench.staged(sorted(after))
    others: set[str] = set()
    updates: dict[str, Entry | None] = {}
    for path, entry in sorted(after.items()):
        old = before.get(path)
        expected = (f"{old.mode} {old.id} 0",) if old else ()
        if there.get(path, ()) != expected or any(above in others for above in ancestors_of(path)):
            others.add(path)
        elif entry != old:
            updates[path] = entry
    for path in _covering(updates, there):
        del updates[path]
        others.add(path)
    bench.stage(updates)
    return tuple(sorted(path for path in others if there.get(path, ()) != _expected(after[path])))


def _expected(entry: Entry | None) -> tuple[str, ...]:
    return (f"{entry.mode} {entry.id} 0",) if entry else ()


def _covering(updates: Mapping[str, Entry | None], there: Iterable[str]) -> list[str]:
    """Files to be added where the index keeps something below: staged by the user when it was a folder."""
    staying = {above for path in there if path not in updates for above in ancestors_of(path)}
    return [path for path, entry in updates.items() if entry is not None and path in staying]


def _tree_of(bench: Bench, head: Head) -> str:
    if not head.commit:
        return ""
    first = commit_text(bench.git, head.commit).split(b"\n", 1)[0]
    return first.removeprefix(b"tree ").decode("ascii")


def _files(folders: Mapping[str, Folder], paths: Iterable[str]) -> Iterator[tuple[str, Entry]]:
    for path in paths:
        entry = entry_at(folders, path)
        if entry is not None and entry.mode not in (TREE, SUBMODULE):
            yield path, entry


def _write_trees(bench: Bench, folders: Mapping[str, Folder], after: Mapping[str, Entry | None]) -> str:
    new = edited(folders, after, bench.repository.hashing)
    wanted = [Written(id, of_bytes(text), "a folder") for id, text in new.texts.items()]
    write_objects(bench.git, "tree", wanted)
    return new.root


def _write_commit(bench: Bench, head: Head, tree: str, landing: Landing) -> Commit:
    settings = bench.repository.settings
    parents = f"parent {head.commit}\n" if head.commit else ""
    people = f"author {_signed(settings.author, landing.at)}\ncommitter {_signed(settings.committer, landing.at)}\n"
    words = message_text(landing.message, landing.trailers)
    text = os.fsencode(f"tree {tree}\n{parents}{people}\n") + words
    id = object_id(bench.repository.hashing, "commit", text)
    write_objects(bench.git, "commit", [Written(id, of_bytes(text), "the commit")])
    return Commit(id, head.commit, tree, head.ref, title_of(words.decode()))


def _signed(person: Person, at: int) -> str:
    return f"{person.name} <{person.email}> {at} +0000"


def note_of(commit: Commit) -> str:
    """What the reference's log says."""
    return f"holdfast: checkpoint: {commit.title}"[:200]


def entries_of(bench: Bench, tree: str, paths: Sequence[str]) -> dict[str, Entry]:
    """The files and links of a tree at these paths."""
    folders = read_folders(bench.git, tree, dict.fromkeys(paths), bench.repository.hashing)
    return dict(_files(folders, paths))
