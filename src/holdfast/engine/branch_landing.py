"""A branch brought in through the gates: one change set, one approval, and a merge commit.

    merge in the object store ─▶ plan ─▶ simulated, checked, judged, approved, landed as any change ─▶ merge commit

Invariants
  BL1  What lands is what the merge changes, over files that are as they are checked out: an edit that is not committed
       is refused, never merged over, and the transaction holds that to its last moment.
  BL2  Killed between landing and commit, the same call finds the files in place, and commits.
  BL3  An undo of what a branch brought is a commit too, so that history and files agree; killed in between, the next
       verb that changes something makes it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.engine.landmarks import changes_of
from holdfast.engine.patching import EVERY_CHECK
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.pull_request import review_of
from holdfast.engine.run_following import ids_of
from holdfast.engine.simulator import Simulated
from holdfast.errors import Blocked, InvalidInput
from holdfast.model.changeset import Change
from holdfast.model.path import ancestors_of, printable
from holdfast.model.plan import Chmod, Delete, FromFile, Plan, Step, Symlink, Write
from holdfast.store.database import Row
from holdfast.store.private import create_private
from holdfast.workspace.branch_merge import Brought, clear, commit_merge, incoming, lay_out, merged
from holdfast.workspace.branches import checked_name, folder_of, repository_of
from holdfast.workspace.checkpoint import Landing, checkpoint
from holdfast.workspace.gitbench import Bench
from holdfast.workspace.gitcontent import landed
from holdfast.workspace.githistory import checkpoints_since
from holdfast.workspace.gittree import LINK, Entry
from holdfast.workspace.repository import Repository
from holdfast.workspace.site import BRANCHES
from holdfast.workspace.trailers import Trailers

LANDED = "Land the branch "
_LAID_OUT = "laid-out"
_MOST_TITLES = 20
_PIECE = 1 << 20


class BranchLanding(NamedTuple):
    """What bringing a branch in means now; `folder` holds its files until `clear_away`."""

    repository: Repository
    brought: Brought
    plan: Plan
    folder: str

    def clear_away(self) -> None:
        clear(self.folder)


def landing_of(pipeline: Pipeline, name: str) -> BranchLanding | None:
    """None where what is checked out has all of the branch."""
    repository = repository_of(pipeline.site.path, pipeline.site.calls)
    brought = merged(repository, checked_name(name))
    if brought is None:
        return None
    folder = os.path.join(pipeline.site.state.path, BRANCHES, _LAID_OUT)
    lay_out(repository, brought, folder)
    steps = tuple(_steps(repository, brought, folder))
    rationale = f"Merges {brought.tip} into {brought.head.commit}, which makes the tree {brought.tree}."
    plan = Plan(f"{LANDED}{name}", steps, rationale=rationale, words=(EVERY_CHECK,))
    return BranchLanding(repository, brought, plan, folder)


def require_committed(landing: BranchLanding, simulated: Simulated) -> None:
    """BL1. What is not as it is checked out would be overwritten."""
    repository, changes = landing.repository, simulated.change_set.changes
    heads = landing.brought.before
    with Bench(repository) as bench:
        bench.open()
        rows = landed(bench.git, repository, _files_in(changes), heads)
    edited = [row.path for row in rows if not row.is_base]
    if edited:
        raise Blocked(
            f"not committed, and changed by the branch: {', '.join(map(printable, edited[:5]))}",
            hint="Nothing was changed. Commit or stash it first.",
        )


def _files_in(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Without directories, of which git knows nothing."""
    return tuple(c for c in changes if any(image and image.kind != "directory" for image in (c.pre, c.post)))


def merge(pipeline: Pipeline, landing: BranchLanding, execution: str) -> str:
    """The merge commit, once everything stands; the id of the execution that landed it, where there was one (BL2)."""
    row = pipeline.records.row(execution) if execution else _left_behind(pipeline, landing)
    brought = landing.brought
    titles = [f"- {title}" for title in brought.titles[:_MOST_TITLES]]
    if len(brought.titles) > _MOST_TITLES:
        titles.append(f"- and {len(brought.titles) - _MOST_TITLES:,} more")
    message = "\n".join((f"Merge branch '{brought.name}'", "", *titles))
    change_set = str(row.summary["change_set"]) if row is not None else ""
    trailers = Trailers(row.id if row is not None else "", change_set, branch=brought.name)
    at = row.at_ns // 10**9 if row is not None else int(time.time())
    return commit_merge(landing.repository, brought, message, trailers, at)


def _left_behind(pipeline: Pipeline, landing: BranchLanding) -> Row | None:
    """The execution that landed this branch, and whose merge nobody committed."""
    intent = landing.plan.intent
    rows = [row for row in pipeline.records.executions(search=intent) if row.intent == intent and row.live]
    if not rows:
        return None
    known = checkpoints_since(landing.repository, rows[-1].at_ns // 10**9, merges=True)
    return next((row for row in rows[:1] if row.id not in known), None)


def follow_undone(pipeline: Pipeline) -> None:
    """BL3. Commit each undo of what a branch brought, and each undo of such an undo, that nobody committed."""
    rows = list(reversed(pipeline.records.executions()))
    about = {row.id for row in rows if row.intent.startswith(LANDED)}
    undone = []
    for row in rows:
        if row.landed and row.changes and about.intersection((*ids_of(row, "undoes"), *ids_of(row, "revives"))):
            about.add(row.id)
            undone.append(row)
    if not undone:
        return
    repository = repository_of(pipeline.site.path, pipeline.site.calls)
    known = checkpoints_since(repository, min(row.at_ns for row in rows if row.id in about) // 10**9, merges=True)
    for row in undone:
        back = [known[id] for id in (*ids_of(row, "undoes"), *ids_of(row, "revives")) if id in known]
        if row.id in known or not back:
            continue
        words = f"{row.intent}\n\nThis follows commit {' '.join(back)}."
        trailers = Trailers(row.id, str(row.summary["change_set"]), undoes=" ".join(back))
        made = checkpoint(repository, Landing(changes_of(pipeline, row.id), words, trailers, row.at_ns // 10**9))
        if made is not None:
            known[row.id] = made.id


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class WrittenReview(NamedTuple):
    """The text of a pull request, and where it stands. It goes from the branch into `base`, by way of `remote`."""

    base: str
    remote: str
    title: str
    body: str
    file: str


def written_review(pipeline: Pipeline, branch: Pipeline | None, name: str) -> WrittenReview:
    """Written below our own state, by what it says; nothing is sent anywhere."""
    repository = repository_of(pipeline.site.path, pipeline.site.calls)
    base, commits, remote = incoming(repository, checked_name(name))
    if not commits:
        raise InvalidInput(f"all of {printable(name)} is in {printable(base)} already", hint="Nothing was changed.")
    review = review_of(branch, name, commits)
    file = os.path.join(pipeline.site.state.path, BRANCHES, f"{folder_of(name)}-{_short(review.body)}.md")
    create_private(file, review.body.encode(), pipeline.site.calls)
    return WrittenReview(base, remote, review.title, review.body, file)


def _steps(repository: Repository, brought: Brought, folder: str) -> Iterator[Step]:
    """First what goes, then what comes: a file may take the place of a folder, and the other way round."""
    inside = {path[len(repository.prefix) :]: path for path in brought.after}
    for path, full in sorted(inside.items(), key=lambda item: (-item[0].count("/"), item[0])):
        old, new = brought.before.get(full), brought.after[full]
        goes = old is not None and (new is None or (old.mode == LINK) != (new.mode == LINK))
        if goes and _is_other(os.path.join(repository.top, full), new):
            yield Delete(path)
    for path in _emptied(repository, brought):
        yield Delete(path, recursive=True)
    for path, full in sorted(inside.items()):
        new = brought.after[full]
        if new is not None:
            yield from _coming(path, os.path.join(folder, full), brought.before.get(full), new)


def _is_other(file: str, new: Entry | None) -> bool:
    """Whether something stands there that is not of the kind that comes: after a kill it may be there already."""
    if new is None:
        return os.path.lexists(file)
    return os.path.islink(file) != (new.mode == LINK) and os.path.lexists(file)


def _coming(path: str, file: str, old: Entry | None, new: Entry) -> Iterator[Step]:
    if new.mode == LINK:
        yield Symlink(path, os.readlink(file))
        return
    executable = new.mode == "100755"
    mode = 0o755 if executable and (old is None or old.mode == LINK) else None
    if old is None or old.id != new.id or old.mode == LINK:
        yield Write(path, _content(file), mode)
    if old is not None and old.mode not in (LINK, new.mode):
        yield Chmod(path, 0o755 if executable else 0o644)


def _emptied(repository: Repository, brought: Brought) -> Iterator[str]:
    """Folders in which nothing is left once the files are gone, the deepest first; git has none."""
    gone = {path for path, new in brought.after.items() if new is None}
    folders = {folder for path in gone for folder in ancestors_of(path) if len(folder) >= len(repository.prefix)}
    for folder in sorted(folders, key=lambda folder: (-folder.count("/"), folder)):
        if f"{folder}/" == repository.prefix:
            continue
        try:
            names = os.listdir(os.path.join(repository.top, folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if {f"{folder}/{name}" for name in names} <= gone:
            gone.add(folder)
            yield folder[len(repository.prefix) :]


def _content(file: str) -> FromFile:
    digest, size = hashlib.sha256(), 0
    with open(file, "rb") as opened:
        while piece := opened.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return FromFile(file, size, digest.hexdigest())
