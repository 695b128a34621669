"""Landmarks: what landed becomes a commit, with its roadmap's tick where that is all that changed there.

Invariants
  N1  One execution, one commit in each repository that it touched, made now or found (see `workspace.checkpoint`).
  N2  The roadmap goes into the commit only if check boxes are all that differs from what is checked out: whatever else
      a person wrote there stays theirs to commit.
  N3  The work tree, and what a person staged, stays as it is. Where a landed path held edits of theirs which were not
      committed, the agent worked on top of them, so they cannot be told apart from its work: they are in the commit,
      and that is never silent (`remarks_on`).
  N4  Where a landing changed the roadmap itself, its commit holds what landed there with the boxes as they stand now,
      and nothing of what a person wrote there since.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from blake3 import blake3

from holdfast.engine.difference import PastDifference, past_difference
from holdfast.engine.orders import LandOrder
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.errors import Blocked, HoldfastError
from holdfast.intake.roadmap import boxes, parse, ticked
from holdfast.model.changeset import Change, files_in
from holdfast.model.path import parent_of, printable
from holdfast.model.task import TaskRecord
from holdfast.settlement.record import KIND
from holdfast.store.database import Row
from holdfast.workspace.checkpoint import Commit, Landing, entries_of
from holdfast.workspace.checkpoints import Part, checkpoint_all, parts_of
from holdfast.workspace.gitbench import Bench
from holdfast.workspace.gitcontent import Kept, landed, nothing_kept
from holdfast.workspace.gitobjects import commit_text, of_bytes
from holdfast.workspace.gittree import Entry
from holdfast.workspace.observe import observe
from holdfast.workspace.repository import Repository
from holdfast.workspace.site import Site
from holdfast.workspace.trailers import Trailers

# As many ids as a trailer has room for.
_MOST_NAMED = 7
_SHOWN = 3


def checkpoint_of(
    pipeline: Pipeline, order: LandOrder, execution: str, tasks: Sequence[str] = ()
) -> tuple[Commit, ...]:
    """Commit what this execution changed; nothing where no repository holds any of it.

    `tasks` are those that it completed, where the order asked for several: the message names each of them.
    """
    row, asked = pipeline.records.row(execution), order.order
    done = tuple(dict.fromkeys(tasks)) or (asked.task,)
    trailers = Trailers(execution, str(row.summary["change_set"]), " ".join(done), asked.run, asked.agent)
    trailers = trailers._replace(unverified=order.unverified)
    words = asked.intent if done == (asked.task,) and not asked.together else _group_words(pipeline, order, done)
    return _commits(pipeline, row, order.roadmap, words, trailers)


def _group_words(pipeline: Pipeline, order: LandOrder, done: Sequence[str]) -> str:
    """The title is the first task; where there are more, each has a line."""
    try:
        known = {task.id: task for task in RoadmapFile(pipeline.site, order.roadmap).read()[1].tasks}
    except HoldfastError:
        known = {}  # the ids are names too
    labels = [f"{known[id].number} {known[id].title}".strip() if id in known else id for id in done]
    if len(labels) == 1:
        return labels[0]
    return "\n".join((f"{labels[0]} and {len(labels) - 1} more", "", *(f"- {label}" for label in labels)))


# The same, as those call it who make up for it later.
commits_of_landing = checkpoint_of


def commits_of_return(
    pipeline: Pipeline, records: Sequence[TaskRecord], undo: str, roadmap: str, *, again: bool
) -> tuple[Commit, ...]:
    """Commit what an undo took back, in every repository where a task was a commit; or, `again`, brought back.

    A restore takes back what several tasks landed, and is one commit all the same (N1).
    """
    row, first = pipeline.records.row(undo), records[0]
    verb, does = ("Redo", "brings") if again else ("Undo", "takes")
    commits = list(dict.fromkeys(id for record in records for id in record.commit.split()))
    trailers = Trailers(undo, str(row.summary["change_set"]), first.task, first.run, first.agent)
    title = f"{verb} {pipeline.records.row(first.execution).intent}"
    if any(record.execution != first.execution for record in records):
        title, trailers = row.intent, trailers._replace(task="", agent="")
    if not again:
        trailers = trailers._replace(undoes=" ".join(commits[:_MOST_NAMED]))
    return _commits(pipeline, row, roadmap, f"{title}\n\nThis {does} back commit {' '.join(commits)}.", trailers)


def remarks_on(commits: Iterable[Commit]) -> Iterator[str]:
    """What a person must know of commits, since it is about work of their own (N3)."""
    for commit in commits:
        short = commit.id[:7]
        if commit.carried:
            yield f"commit {short} also holds edits of yours that were not committed: {_named(commit.carried)}"
        if commit.staged:
            yield (
                f"something else is staged, and stays so: {_named(commit.staged)}; committed as it is, it would take "
                f"back what {short} holds there"
            )
        if commit.overtaken:
            yield f"changed again and committed since, so not in commit {short}: {_named(commit.overtaken)}"


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(printable, paths[:_SHOWN])) + more


def _commits(pipeline: Pipeline, row: Row, roadmap: str, words: str, trailers: Trailers) -> tuple[Commit, ...]:
    changes, tick = changes_of(pipeline, row.id), None
    kept: Kept = nothing_kept
    edit = next((change for change in changes if change.path == roadmap), None)
    if edit is not None:
        boxed, kept = _boxed(pipeline, row.id, edit)
        changes = tuple(boxed if change is edit else change for change in changes)
    elif roadmap:
        tick = roadmap_change(pipeline.site, roadmap)
        changes = (*changes, *([tick] if tick is not None else []))
    parts = parts_of(pipeline.site.path, changes, pipeline.site.calls)
    commits = checkpoint_all(parts, Landing((), words, trailers, row.at_ns // 10**9, kept))
    made = zip(parts, commits, strict=True)
    known = ((part, commit) for part, commit in made if commit is not None)
    return tuple(_recalled(part, commit, tick) if commit.found else commit for part, commit in known)


def _boxed(pipeline: Pipeline, execution: str, edit: Change) -> tuple[Change, Kept]:
    """What an execution wrote into the roadmap, with the boxes as they stand now (N4); as it landed where its text is
    not kept, or where there is no roadmap any more."""
    landed_text = _text(_past(pipeline, execution), edit)
    if edit.post is None or landed_text is None:
        return edit, nothing_kept
    try:
        now = boxes(RoadmapFile(pipeline.site, edit.path).read()[0], edit.path)
    except HoldfastError:
        return edit, nothing_kept
    there = boxes(landed_text, edit.path)
    text = ticked(landed_text, edit.path, {id: done for id, done in now.items() if id in there})
    post = edit.post._replace(digest=blake3(text).hexdigest(), size=len(text))
    boxed = edit._replace(post=post)
    return boxed, lambda change: of_bytes(text)() if change.post == post else None


def _recalled(part: Part, commit: Commit, tick: Change | None) -> Commit:
    """A commit that was found, with what it carried: whoever made it may have been killed before they told (N3).

    `tick` is what boxes differ by now: how they stood then, and whose they are, it does not tell (N2).
    """
    repository = part.repository
    own = tuple(change for change in part.changes if tick is None or change.post is not tick.post)
    paths = [repository.prefix + change.path for change in own]
    with Bench(repository) as bench:
        bench.open()
        before: dict[str, Entry] = {}
        if commit.parent:
            first = commit_text(bench.git, commit.parent).split(b"\n", 1)[0]
            before = entries_of(bench, first.removeprefix(b"tree ").decode("ascii"), paths)
        after = entries_of(bench, commit.tree, paths)
        rows = landed(bench.git, repository, own, before)
    return commit._replace(
        carried=tuple(row.path for row in rows if not row.is_base and after.get(row.path) != row.head)
    )


def changes_of(pipeline: Pipeline, execution: str) -> tuple[Change, ...]:
    """What an execution changed, from the log that the ledger vouches for."""
    return tuple(_past(pipeline, execution).changes) if pipeline.records.row(execution).changes else ()


def text_left(pipeline: Pipeline, execution: str, path: str) -> bytes | None:
    """What an execution wrote to this path; None where it wrote nothing there. Blocked where that is kept no more."""
    past = _past(pipeline, execution)
    edit = next((change for change in past.changes if change.path == path and change.post is not None), None)
    if edit is None:
        return None
    text = _text(past, edit)
    if text is None:
        raise Blocked(f"what {execution} wrote to {printable(path)} is kept no more")
    return text


def _text(past: PastDifference, edit: Change) -> bytes | None:
    is_file = edit.post is not None and edit.post.kind == "file"
    return next(new.data for _, _, new in past.compared([edit])) if is_file else None


def _past(pipeline: Pipeline, execution: str) -> PastDifference:
    entry = pipeline.ledger.find(KIND, execution)
    if entry is None:
        raise Blocked(f"the ledger does not know {execution}")
    return past_difference(pipeline.site, execution, str(entry.body["root"]))


def files_of(pipeline: Pipeline, execution: str) -> int:
    """How many files it changed; where its log cannot be read any more, how many paths."""
    try:
        return files_in(changes_of(pipeline, execution))
    except (HoldfastError, OSError):
        return pipeline.records.row(execution).changes


def roadmap_change(site: Site, path: str) -> Change | None:
    """The difference of the roadmap to what is checked out, if check boxes are all of it (N2)."""
    repository = Repository.at(os.path.join(site.path, parent_of(path)), site.calls)
    if repository is None:
        return None
    before = _checked_out(repository, os.path.basename(path))
    site.workspace.forget()
    seen = observe(site.calls, site.workspace.directory(parent_of(path)), os.path.basename(path))
    if before is None or seen is None or seen.image.kind != "file":
        return None
    now, new = RoadmapFile(site, path).read()
    if blake3(now).hexdigest() != seen.image.digest:
        return None  # it is being written to
    old = parse(before, path)
    flags = {task.id: task.done for task in old.tasks}
    changed = {task.id: task.done for task in new.tasks if task.id in flags and flags[task.id] != task.done}
    if not changed or ticked(before, path, changed) != now:
        return None
    was = seen.image._replace(digest=blake3(before).hexdigest(), size=len(before))
    return Change(path, was, seen.image)


def _checked_out(repository: Repository, name: str) -> bytes | None:
    head = repository.check_ready()
    if not head.commit:
        return None
    try:
        return repository.git.asked("cat-file", "blob", f"{head.commit}:{repository.prefix}{name}")
    except HoldfastError:
        return None  # not there: the person never committed it
