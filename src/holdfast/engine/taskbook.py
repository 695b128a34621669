"""The book of a run: every move of a task is in the ledger before anything is done because of it.

    move ──▶ ledger (durable, keyed) ──▶ table ──▶ watchers

Invariants
  K1  A move that returned survives kill -9 and a power cut; one that raised did not happen. Inside `together` that
      holds from its end on: all of its moves are written with one sync, or none is and the book is used no more.
      So nothing may be done because of them in there; watchers hear of them afterwards.
  K2  Moves follow `model.task.MOVES`; the book refuses others before they are written.
  K3  The book is the only writer of run and task entries; the driver holds it, one process at a time.
  K4  Every question about a task has a number of its own, which the book gives it. What was said to another one, sooner
      or later and by whatever clock, is no answer to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked
from holdfast.model.agent import Usage
from holdfast.model.run import RunEvent, RunRecord, RunState, RunWatcher, TaskMoved
from holdfast.model.task import MOVES, TaskRecord, TaskState, Tried
from holdfast.settlement.runs import RUN, TASK, folded, run_body, task_body, task_records
from holdfast.store.chain import Record
from holdfast.store.runs import Runs
from holdfast.workspace.borrowed import head_of
from holdfast.workspace.transaction import new_txn

RUN_ID = "u"


class TaskBook:
    """Of one run. `on_move` hears of every move after it was written."""

    def __init__(self, pipeline: Pipeline, run: RunRecord, watcher: RunWatcher) -> None:
        self._pipeline = pipeline
        self._watcher = watcher
        self.run = run
        self.records: dict[str, TaskRecord] = task_records(Runs(pipeline.records), run.id)
        self.usage = Usage()
        # How many tasks had an attempt.
        self.begun = 0
        self.on_move: Callable[[TaskRecord], None] = lambda record: None
        # What is not written yet, and not told yet; None outside of `together`.
        self._unwritten: list[Record] | None = None
        self._untold: list[RunEvent] = []
        self._by_state: dict[TaskState, dict[str, None]] = {}
        self._landing: dict[str, None] = {}
        for record in sorted(self.records.values(), key=lambda record: record.at_ns):
            self._found(record)
            self.usage = self.usage.plus(record.usage)
            self.begun += record.attempt > 0

    def as_written(self) -> TaskBook:
        """The book as the ledger has it: for who stops in the middle of `together`, whose moves were never made."""
        return TaskBook(self._pipeline, self.run, self._watcher)

    @property
    def uncounted_ms(self) -> int:
        """How long a sitting worked that was killed, as far as its moves tell; moves by hand lead to PENDING."""
        began = self.run.at_ns
        last = max((record.at_ns for record in self.records.values() if record.state != "PENDING"), default=began)
        return max(0, last - began) // 1_000_000 if self.run.state == "RUNNING" else 0

    def of(self, task: str) -> TaskRecord:
        return self.records.get(task) or TaskRecord(self.run.id, task)

    def in_state(self, state: TaskState) -> tuple[TaskRecord, ...]:
        """Oldest first; costs what there is in that state."""
        return tuple(self.records[task] for task in self._by_state.get(state, ()))

    @property
    def landing(self) -> tuple[TaskRecord, ...]:
        """Those whose landing is under way; one at most, unless somebody wrote that who is not the driver."""
        return tuple(self.records[task] for task in self._landing)

    def counted(self, *states: TaskState) -> int:
        return sum(len(self._by_state.get(state, ())) for state in states)

    def move(self, record: TaskRecord, *, tried: Tried | None = None) -> None:
        self.move_all([(record, tried)])

    def move_all(self, moves: Iterable[tuple[TaskRecord, Tried | None]]) -> None:
        """All of them with one sync."""
        now, entries, made = time.time_ns(), [], []
        for record, tried in moves:
            before = self.of(record.task)
            if record.state != before.state and record.state not in MOVES[before.state]:
                raise Blocked(f"task {record.task} is {before.state}, which does not lead to {record.state}")
            record = record._replace(asked=before.asked + _asks_anew(before, record))  # K4
            body = task_body(record, tried)
            made.append(folded(before, body, now))  # as it will be read: whoever goes on after a kill decides the same
            entries.append(Record(TASK, body, now))
        if self._unwritten is None:
            self._write(entries)
        else:
            self._unwritten += entries
        for after in made:
            self._known(after)
            self.on_move(after)
            self.tell(TaskMoved(self.run.id, after.task, after.state, after.because, after.part))

    @contextmanager
    def together(self) -> Iterator[None]:
        """One sync for all moves that are made in here (K1)."""
        self._unwritten = []
        yield
        entries, self._unwritten = self._unwritten, None
        self._write(entries)
        untold, self._untold = self._untold, []
        for event in untold:
            self._watcher(event)

    def tell(self, event: RunEvent) -> None:
        """To whoever looks on, once what it tells of is written."""
        if self._unwritten is None:
            self._watcher(event)
        else:
            self._untold.append(event)

    def _write(self, entries: list[Record]) -> None:
        if entries:
            self._pipeline.note_run(entries)

    def _known(self, after: TaskRecord) -> None:
        before = self.of(after.task)
        self._by_state.get(before.state, {}).pop(after.task, None)
        self._landing.pop(after.task, None)
        self.records[after.task] = after
        self._found(after)
        self.usage = self.usage.plus(after.usage.since(before.usage))
        self.begun += (after.attempt > 0) - (before.attempt > 0)

    def _found(self, record: TaskRecord) -> None:
        self._by_state.setdefault(record.state, {})[record.task] = None
        if record.landing and record.state == "VALIDATING":
            self._landing[record.task] = None

    def move_run(self, state: RunState, because: str = "", worked_ms: int = 0) -> None:
        now = time.time_ns()
        self.run = self.run._replace(state=state, because=because, at_ns=now, worked_ms=worked_ms or self.run.worked_ms)
        self._pipeline.note_run([Record(RUN, run_body(self.run), now)])


def _asks_anew(before: TaskRecord, record: TaskRecord) -> bool:
    waits = record.state == "NEEDS_REVIEW"
    return waits and (before.state, before.simulation) != (record.state, record.simulation)


def _checked_out(workspace: str) -> str:
    return head_of(workspace) if os.path.lexists(os.path.join(workspace, ".git")) else ""


def begin_run(pipeline: Pipeline, record: RunRecord) -> RunRecord:
    """Write a new run down; its id comes with it."""
    now = time.time_ns()
    made = record._replace(id=new_txn(RUN_ID), started_ns=now, at_ns=now, commit=_checked_out(pipeline.site.path))
    pipeline.note_run([Record(RUN, run_body(made), now)])
    return made
