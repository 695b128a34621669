"""What earlier runs over a roadmap landed, where the file does not show it: it is done, and no run begins it again.

    roadmap as the file says ──▶ the same, with what stands of earlier runs done

The file shows what is done by its boxes. There may be none (a numbered list, prose), and one that is there may never
have been ticked (`--no-sync`, a file that could not be written).

Invariants
  B1  A box that a run ticked is a person's from then on: once it is open again, somebody asks for the task again.
  B2  What moved last decides, in whichever run: what was taken back, set back or failed since is to do.
  B3  What the run that asks has done itself is in its own book, and not told here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from holdfast.engine.roadmap_file import RoadmapFile, set_box, tick_of
from holdfast.errors import UnknownId
from holdfast.intake.roadmap import tickable
from holdfast.model.task import Roadmap, TaskRecord
from holdfast.settlement.runs import newest_records
from holdfast.store.database import Records
from holdfast.store.runs import Runs


def is_gone(records: Records, execution: str) -> bool:
    """Whether somebody took it back; of what never was, nothing was taken back."""
    try:
        return bool(execution) and not records.row(execution).live
    except UnknownId:
        return False


def with_landed(records: Records, file: RoadmapFile, data: bytes, roadmap: Roadmap, run: str = "") -> Roadmap:
    """The roadmap with what earlier runs landed done. `data` and `roadmap` are one reading of the file; `run` is the
    one that asks."""
    landed = {record.task for record in landed_before(records, file, data, roadmap, run)}
    if not landed:
        return roadmap
    tasks = tuple(task._replace(done=True) if task.id in landed else task for task in roadmap.tasks)
    return roadmap._replace(tasks=tasks, held=tuple(row for row in roadmap.held if row.task not in landed))


def landed_before(
    records: Records, file: RoadmapFile, data: bytes, roadmap: Roadmap, run: str = ""
) -> tuple[TaskRecord, ...]:
    """What is done by earlier runs, and does not stand in the file."""
    open_ones = {task.id for task in roadmap.tasks if not task.done}
    return landed_elsewhere(records, file, data, open_ones, open_ones, run) if open_ones else ()


def landed_elsewhere(
    records: Records, file: RoadmapFile, data: bytes, wanted: Container[str], open_ones: Container[str], run: str
) -> tuple[TaskRecord, ...]:
    """Which of these tasks another run landed, that stand, and that nobody asks for again; `open_ones` has all that the
    file calls open."""
    found = [
        record
        for record in newest_records(Runs(records), file.path, "COMPLETED", run)
        if record.task in wanted and not is_gone(records, record.execution)
    ]
    asked = set(_asked_for_again(records, file.path, data, [record for record in found if record.task in open_ones]))
    return tuple(record for record in found if record.task not in asked)


def _asked_for_again(records: Records, path: str, data: bytes, found: Iterable[TaskRecord]) -> Iterator[str]:
    """B1."""
    since = {record.task: _landed_ns(records, record) for record in found}
    if not since:
        return
    ticks = [row for row in records.executions(since_ns=min(since.values()), search=tick_of(path)) if row.landed]
    ticked = [
        task
        for task, at_ns in since.items()
        if any(row.at_ns >= at_ns and set_box(row.intent, path, task) for row in ticks)
    ]
    boxes = tickable(data, path) if ticked else frozenset()
    yield from (task for task in ticked if task in boxes)


def _landed_ns(records: Records, record: TaskRecord) -> int:
    """Its box was ticked after that, and before its record said so; what stood so already landed at no moment."""
    try:
        return records.row(record.execution).at_ns if record.execution else record.started_ns
    except UnknownId:
        return record.started_ns
