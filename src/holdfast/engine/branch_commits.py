"""On a branch whose work tree Holdfast keeps, everything that lands becomes a commit, whoever asked for it.

A run commits what its tasks landed, with their boxes; what is left is `apply`, `undo` and their fellows.

Invariants
  BC1  One execution, one commit (CK2 of `checkpoint`): killed between landing and commit, the next verb makes it.
  BC2  What a run is still to commit is left to that run: it knows the task, and its box.
  BC3  That a commit cannot be made is found before anything lands.
  BC4  A run never ends as if all were well while something that it landed is not committed: it stops, says why, and
       `resume` goes on there. Where the branch is gone that is no attempt of any task.
  BC5  Boxes that are set where nothing landed (a task that was done already, `sync`, a person's own hand) are a commit
       of their own, at the end of a run and by `sync`. Whatever else a person wrote into the roadmap stays theirs (N2).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from holdfast.engine.branch_lost import STOPPED_BECAUSE, lost_branch
from holdfast.engine.checking import why_unverified
from holdfast.engine.landmarks import changes_of, roadmap_change
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_file import tick_of
from holdfast.engine.run_following import ids_of, late_commits
from holdfast.engine.taskbook import TaskBook
from holdfast.errors import Blocked, HoldfastError
from holdfast.model.changeset import Change
from holdfast.model.run import RunRecord
from holdfast.model.saved_simulation import receipt_from
from holdfast.settlement.runs import task_records
from holdfast.store.database import Row
from holdfast.store.runs import Runs
from holdfast.workspace.checkpoint import Commit, Landing, check_possible, checkpoint, note_of, prepare
from holdfast.workspace.gitbench import Bench, Move
from holdfast.workspace.githistory import checkpoints_since
from holdfast.workspace.repository import Repository
from holdfast.workspace.trailers import Trailers


def require_committable(pipeline: Pipeline, changes: Iterable[Change], services: bool) -> None:
    """BC3. Services run on this host, over the person's files and no others."""
    if services:
        raise Blocked(
            "a plan that acts on services cannot land on a branch: they serve what stands in the workspace itself",
            hint="Nothing was changed. Land it without --branch, or leave its service steps out.",
        )
    check_possible(_repository(pipeline), changes)


def settled(pipeline: Pipeline, book: TaskBook) -> str:
    """At the end of a run: make the commits that could not be made before. Why some still cannot, with the way on;
    empty where all is committed (BC4)."""
    lost = lost_branch(pipeline.site)
    if lost or book.run.options.checkpoint == "none":
        return lost
    failed = list(late_commits(pipeline, book).failed)
    try:
        commit_boxes(pipeline, book.run)
    except (HoldfastError, OSError) as error:
        failed.append(f"the boxes are not committed: {error}")
    return f"{STOPPED_BECAUSE}: {'; '.join(failed)}." if failed else ""


def commit_boxes(pipeline: Pipeline, run: RunRecord) -> Commit | None:
    """BC5. None where nothing but boxes would have to be committed, and where there are none. Killed before the branch
    moves, the next call makes it; after that, there is nothing to commit."""
    if not pipeline.site.is_branch or run.options.checkpoint == "none":
        return None
    change = roadmap_change(pipeline.site, run.roadmap)
    if change is None:
        return None
    title = tick_of(run.roadmap)
    rows = [
        row for row in pipeline.records.executions(limit=1, search=title) if row.intent.startswith(title) and row.live
    ]
    words, at = (rows[0].intent, rows[0].at_ns // 10**9) if rows else (title.rstrip(": "), int(time.time()))
    repository = _repository(pipeline)
    with Bench(repository) as bench:
        commit = prepare(bench, Landing((change,), words, Trailers("", "", run=run.id), at))
        if commit is not None:
            bench.move(Move(commit.ref, commit.parent, commit.id), note_of(commit))
            bench.finish()
        return commit


def commit_rest(pipeline: Pipeline) -> tuple[Commit, ...]:
    """Commit every execution that nobody committed, in the order in which they landed."""
    mine = _of_runs(pipeline)
    if mine is None:
        return ()
    rows = [row for row in pipeline.records.executions(limit=-1) if row.landed and row.changes and row.id not in mine]
    rows = [row for row in reversed(rows) if not mine.intersection((*ids_of(row, "undoes"), *ids_of(row, "revives")))]
    if not rows:
        return ()
    repository = _repository(pipeline)
    known = checkpoints_since(repository, min(row.at_ns for row in rows) // 10**9)
    made = []
    for row in rows:
        if row.id not in known and not (ids_of(row, "undoes") and not _committed(row, known)):
            commit = _commit(pipeline, repository, row, known)
            if commit is not None:
                known[row.id] = commit.id
                made.append(commit)
    return tuple(made)


def _commit(pipeline: Pipeline, repository: Repository, row: Row, known: dict[str, str]) -> Commit | None:
    back = [known[id] for id in ids_of(row, "undoes") if id in known]
    words = f"{row.intent}\n\nThis takes back commit {' '.join(back)}." if back else row.intent
    document = pipeline.records.execution(row.id)[1] or {}
    unverified = "" if back else why_unverified(map(receipt_from, document.get("receipts", [])))
    trailers = Trailers(row.id, str(row.summary["change_set"]), undoes=" ".join(back), unverified=unverified)
    return checkpoint(repository, Landing(changes_of(pipeline, row.id), words, trailers, row.at_ns // 10**9))


def _committed(row: Row, known: Collection[str]) -> bool:
    """Where nothing of what it takes back was committed, it leaves the branch as it is."""
    return any(id in known for id in (*ids_of(row, "undoes"), *ids_of(row, "revives")))


def _of_runs(pipeline: Pipeline) -> set[str] | None:
    """Executions that are for runs to commit: of tasks, and of their boxes. None while a run is not settled (BC2)."""
    runs = Runs(pipeline.records)
    if not runs.exist():
        return set()
    rows = runs.runs()
    if any(row.state == "RUNNING" for row in rows):
        return None
    tasks = {record.execution for row in rows for record in task_records(runs, row.id).values() if record.execution}
    ticks = tuple({tick_of(row.roadmap) for row in rows})
    executions = pipeline.records.executions(limit=-1)
    return tasks | {row.id for row in executions if row.intent.startswith(ticks)}


def _repository(pipeline: Pipeline) -> Repository:
    found = Repository.at(pipeline.site.path, pipeline.site.calls)
    if found is None:
        raise Blocked("the work tree of this branch has lost its repository", hint="Nothing was changed.")
    return found
