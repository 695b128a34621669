"""What follows for the tasks of a run when what they landed goes or comes back; and what was left undone.

    an undo ──▶ its `undoes`:  COMPLETED ──▶ PENDING      box empty, a commit that takes back
    restore ──▶ its `revives`: PENDING… ──▶ COMPLETED     box ticked, a commit that brings back
    sync    ──▶ boxes, tasks whose landing stands again or does not, commits that could not be made then

Invariants
  F1  The executions decide: a task is to do again because what it landed does not stand, and done again because it does
      (T3 of `model.task`). Done twice it is done once, so a kill in between costs nothing but asking again.
  F2  Nothing that fails here makes a landing or an undo not have happened: it is a remark.
  F3  A commit is made for what an execution changed, or found (CK2 of `workspace.checkpoint`); what was changed again
      since is in the commit of whoever did that. Landings are committed in the order in which they landed.
  F4  What may have landed and is in no book yet is not taken back: whoever goes on with that run would not know. It is
      found by its plan, and settled first. The same holds for a task that is under way, over a part that landed.
  F5  A part is no task: what came back of a task that was in the middle of its parts completes nothing.
  F6  A task is to do again once its box is empty, or is left alone: from then on that box is a person's own, who may do
      the task by hand, and tick it. Until then `sync` empties it.

The caller holds the lock of the workspace's home: the book of a run has one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.engine.landed_before import is_gone
from holdfast.engine.landmarks import commits_of_landing, commits_of_return, remarks_on
from holdfast.engine.orders import plan_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.engine.roadmap_orders import kept_order, land_order_of
from holdfast.engine.run_standing import find_run, resume_with
from holdfast.engine.taskbook import TaskBook
from holdfast.engine.ticked_by_hand import boxes_now
from holdfast.errors import Blocked, HoldfastError, Tampering, UnknownId
from holdfast.model.run import RunRecord
from holdfast.model.task import MOVES, TaskRecord
from holdfast.settlement.runs import task_records
from holdfast.store.database import Row
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.runs import Runs
from holdfast.workspace.githistory import Commit
from holdfast.workspace.repository import Repository


class Followed(NamedTuple):
    """What followed an undo: tasks to do again, tasks done again, the commits, and what could not be done."""

    tasks: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    commits: str = ""
    remarks: tuple[str, ...] = ()


class Synced(NamedTuple):
    """What `sync` put right: whether a box was set, tasks done again, commits by task, what it could not do, and tasks
    to do again."""

    ticked: bool
    returned: tuple[str, ...] = ()
    commits: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.ticked or bool(self.returned or self.commits or self.gone)


class Switched(NamedTuple):
    """Tasks, of one run, whose landing an undo switches off and on; `unwritten` are those that landed as one of what
    goes, and nobody wrote it down."""

    run: RunRecord
    gone: tuple[TaskRecord, ...]
    back: tuple[TaskRecord, ...]
    unwritten: tuple[TaskRecord, ...]


def switched(pipeline: Pipeline, undoes: Collection[str], revives: Collection[str]) -> tuple[Switched, ...]:
    """Every run in which tasks landed any of these."""
    runs = Runs(pipeline.records)
    every = []
    for row in runs.runs():
        found = tuple(task_records(runs, row.id).values())
        gone = tuple(record for record in found if record.execution in undoes and _counts(record))
        back = tuple(record for record in found if record.execution in revives and _is_whole(record))
        unwritten = tuple(record for record in found if record.landing and _landed_as(pipeline, record, undoes))
        if gone or back or unwritten:
            every.append(Switched(find_run(pipeline.records, row.id), gone, back, unwritten))
    return tuple(every)


def _counts(record: TaskRecord) -> bool:
    """It goes on from what it landed: it is done, or its next part is to do."""
    return record.state == "COMPLETED" or record.part > 0


def _is_whole(record: TaskRecord) -> bool:
    """It is to do, and had landed as a whole (F5)."""
    return record.state != "COMPLETED" and not record.part


def _landed_as(pipeline: Pipeline, record: TaskRecord, executions: Collection[str]) -> bool:
    """Whether the landing that is under way for it made one of these (F4)."""
    try:
        plan = plan_of(kept_order(LargeBlobs(pipeline.site.state), record))
    except (UnknownId, Tampering):
        return False  # without its order it is never landed again
    return any(row.id in executions for row in pipeline.landed(plan.digest))


def require_settled(found: Switched) -> None:
    """Blocked while it is not known what landed, or a task is under way over what would go or come back (F4)."""
    resume = f"Go on first: {resume_with(found.run, found.run.id)}"
    if found.unwritten:
        names, waits = _tasks(found.unwritten), any(record.state == "NEEDS_REVIEW" for record in found.unwritten)
        hint = f"Answer first: holdfast review. Then: {resume_with(found.run, found.run.id)}" if waits else resume
        raise Blocked(f"{', '.join(names)}: landed, and the run was cut off before it could be written down", hint=hint)
    under_way = [record.task for record in (*found.gone, *found.back) if _is_under_way(record)]
    if under_way:
        raise Blocked(f"{', '.join(under_way)}: begun again, and not settled", hint=resume)


def _is_under_way(record: TaskRecord) -> bool:
    return record.state in ("IN_PROGRESS", "VALIDATING") or record.landing


def followed(pipeline: Pipeline, undo: str, by: str) -> Followed:
    """After an undo or a restore, whatever it undid, in all runs."""
    row = pipeline.records.row(undo)
    found = switched(pipeline, ids_of(row, "undoes"), ids_of(row, "revives"))
    every = [each for each in found if each.gone or each.back]
    for each in every:
        require_settled(each)
    remarks: list[str] = []
    moving = [each if _boxes_set(pipeline, each, by, remarks) else each._replace(gone=()) for each in every]  # F6
    ids = " ".join(commit.id for commit in _commits(pipeline, undo, every, remarks))
    for run, gone, back, _ in moving:
        book = TaskBook(pipeline, run, lambda event: None)
        moved_back(pipeline, book, gone, f"{undo} took it back")
        brought_back(book, back, f"{undo} brought it back", ids)
    gone = tuple(record for each in moving for record in each.gone)
    back = tuple(record for each in moving for record in each.back)
    return Followed(_tasks(gone), _tasks(back), ids, tuple(remarks))


def _boxes_set(pipeline: Pipeline, found: Switched, by: str, remarks: list[str]) -> bool:
    """Also where they are left alone."""
    if not found.run.options.sync:
        return True
    boxes = {record.task: record in found.back for record in (*found.gone, *found.back)}
    file = RoadmapFile(pipeline.site, found.run.roadmap)
    return _tried(remarks, "the box stays as it is", lambda: file.tick(pipeline, boxes, by))


def _commits(pipeline: Pipeline, undo: str, every: Sequence[Switched], remarks: list[str]) -> list[Commit]:
    """One for all that went and came back: it is one execution."""
    made: list[Commit] = []
    committed = [(each, record) for each in every for record in (*each.gone, *each.back) if record.commit]
    if committed:
        roadmap, records = committed[0][0].run.roadmap, [record for _, record in committed]
        again = not any(record in each.gone for each, record in committed)
        _tried(
            remarks,
            "not committed",
            lambda: made.extend(commits_of_return(pipeline, records, undo, roadmap, again=again)),
        )
    remarks += remarks_on(made)
    return made


def moved_back(pipeline: Pipeline, book: TaskBook, chosen: Sequence[TaskRecord], because: str) -> list[TaskRecord]:
    """To PENDING, with how their boxes stand (TH1 of `ticked_by_hand`), and with those that were blocked: the driver
    finds out whether they still are. What this book does not have yet may be done by what the file or an earlier run
    says: from then on it is not."""
    set_now = boxes_now(pipeline, book.run)
    moved = [_fresh(record, because)._replace(ticked=set_now.get(record.task, False)) for record in chosen]
    names = {record.task for record in chosen}
    freed = [
        record._replace(state="PENDING", because="what it needs is tried again")
        for record in book.in_state("BLOCKED")
        if record.task not in names and chosen
    ]
    wanted = [record for record in (*moved, *freed) if _moves(book.records.get(record.task), record)]
    book.move_all((record, None) for record in wanted)
    if wanted and book.run.state == "FINISHED":
        book.move_run("STOPPED", because)  # there is something left to do, so `resume` does it
    return moved


def _fresh(record: TaskRecord, because: str) -> TaskRecord:
    """To do from its beginning; what it landed is remembered, for it may come back, unless that was a part (F5)."""
    new = record._replace(state="PENDING", because=because, wait_until_ns=0, simulation="", proposal="", cleared_by="")
    if record.state != "COMPLETED" and record.part:
        new = new._replace(execution="", commit="")
    return new._replace(part=0, parts=0, parts_files=0)


def _moves(before: TaskRecord | None, after: TaskRecord) -> bool:
    return before is None or _at_stake(before) != _at_stake(after)


def _at_stake(record: TaskRecord) -> tuple[object, ...]:
    return record.state, record.part, record.execution, record.ticked


def brought_back(book: TaskBook, chosen: Iterable[TaskRecord], because: str, commit: str = "") -> None:
    """To COMPLETED: what they landed stands (F1)."""
    for record in chosen:
        if "COMPLETED" not in MOVES[record.state]:
            book.move(record._replace(state="PENDING", because=because))
        done = record._replace(state="COMPLETED", because=because, commit=commit or record.commit, wait_until_ns=0)
        book.move(done._replace(simulation="", cleared_by="", landing=False, part=0, parts=0, parts_files=0))


# ── what was left undone ──


def returned(pipeline: Pipeline, run: RunRecord) -> tuple[str, ...]:
    """Tasks whose landing stands again, by an undo that nobody followed: they are done (F1)."""
    book = TaskBook(pipeline, run, lambda event: None)
    free = [
        record
        for record in book.records.values()
        if record.execution
        and _is_whole(record)
        and not _is_under_way(record)
        and pipeline.records.row(record.execution).live
    ]
    brought_back(book, free, f"{free[0].execution} stands again" if free else "")
    return _tasks(free)


def taken_away(pipeline: Pipeline, run: RunRecord) -> tuple[str, ...]:
    """Tasks whose landing does not stand any more, by an undo that nobody followed: they are to do again (F1)."""
    book = TaskBook(pipeline, run, lambda event: None)
    gone = gone_from(pipeline, book.records.values())
    moved_back(pipeline, book, gone, "what it landed does not stand")
    return _tasks(gone)


def is_behind(pipeline: Pipeline, run: str) -> bool:
    """Whether `taken_away` would find any."""
    return bool(gone_from(pipeline, task_records(Runs(pipeline.records), run).values()))


def gone_from(pipeline: Pipeline, records: Iterable[TaskRecord]) -> list[TaskRecord]:
    free = (record for record in records if _counts(record) and not _is_under_way(record))
    return [record for record in free if is_gone(pipeline.records, record.execution)]


def unfollowed(pipeline: Pipeline) -> tuple[str, ...]:
    """Undos, and restores, of what counts as landed in some run: somebody was killed in between."""
    runs = Runs(pipeline.records)
    every = (record for row in runs.runs() for record in task_records(runs, row.id).values())
    gone = dict.fromkeys(record.execution for record in gone_from(pipeline, every))
    found = [undone_by(pipeline, pipeline.records.row(id)) for id in gone]
    return tuple(dict.fromkeys(undo.id for undo in found if undo is not None))


class Late(NamedTuple):
    """Commits by task, what a person must know of them, and why some could not be made."""

    commits: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class _NothingToCommit(Blocked):
    """It is no fault: nothing of it is missing in the history."""


def late_commits(pipeline: Pipeline, book: TaskBook) -> Late:
    """Make the commits that could not be made when it landed, or was taken back; by task, and why not (F3)."""
    if book.run.options.checkpoint == "none":
        return Late()
    made, remarks, failed = list[tuple[str, str]](), list[str](), list[str]()
    rows = {id: pipeline.records.row(id) for id in {record.execution for record in book.records.values()} if id}
    for execution, row in sorted(rows.items(), key=lambda item: item[1].at_ns):
        mine = [record for record in book.records.values() if record.execution == execution]
        try:
            found = _late(pipeline, book, row, mine)
        except (HoldfastError, OSError) as error:
            remarks.append(f"{mine[0].task} is not committed: {error}")
            failed += [] if isinstance(error, _NothingToCommit) else remarks[-1:]
            continue
        new = " ".join(commit.id for commit in found)
        told = list(remarks_on(found))
        if new and row.live:
            book.move_all((record._replace(commit=new, because="; ".join(told)), None) for record in mine)
        made += [(record.task, new) for record in mine[:1] if any(not commit.found for commit in found)]
        remarks += [f"{mine[0].task}: {text}" for text in told]
    return Late(tuple(made), tuple(remarks), tuple(failed))


def _late(pipeline: Pipeline, book: TaskBook, row: Row, mine: Sequence[TaskRecord]) -> tuple[Commit, ...]:
    """What is missing for one execution: its commit, or that of the undo that took it back."""
    if row.live:
        leader = next((record for record in mine if record.order and record.state == "COMPLETED"), None)
        if leader is None or leader.commit:
            return ()
        order = land_order_of(book.run, LargeBlobs(pipeline.site.state), leader)
        done = [record.task for record in (leader, *mine) if record.state == "COMPLETED"]
        made = commits_of_landing(pipeline, order, row.id, done)
        if not made and Repository.at(pipeline.site.path, pipeline.site.calls) is not None:
            raise _NothingToCommit("all that it changed is committed already, was changed again, or is ignored by git")
        return made
    undo = undone_by(pipeline, row)
    if undo is None or not any(record.commit and record.state != "COMPLETED" for record in mine):
        return ()
    with_it = ids_of(undo, "undoes")
    gone = [record for record in book.records.values() if record.commit and record.state != "COMPLETED"]
    gone = [record for record in gone if record.execution in with_it]
    return commits_of_return(pipeline, gone, undo.id, book.run.roadmap, again=False)


def undone_by(pipeline: Pipeline, row: Row) -> Row | None:
    """The undo that took an execution back, and stands."""
    later = pipeline.records.executions(since_ns=row.at_ns)
    return next((other for other in later if other.live and row.id in ids_of(other, "undoes")), None)


def ids_of(row: Row, key: str) -> tuple[str, ...]:
    value = row.summary.get(key)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _tasks(records: Iterable[TaskRecord]) -> tuple[str, ...]:
    return tuple(record.task for record in records)


def _tried(remarks: list[str], what: str, act: Callable[[], object]) -> bool:
    """F2."""
    try:
        act()
    except (HoldfastError, OSError) as error:
        remarks.append(f"{what}: {error}")
        return False
    return True
