"""What tasks landed in parts: which executions, in which order.

Invariants
  N1  Parts stand on each other: the last one is taken back first, or all that stand at once. Otherwise a task would
      count as done of which a piece is gone, and nobody would be told.

The records of a run keep the newest part only; the ledger has every one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import TASK, task_records
from holdfast.store.runs import Runs


def require_last_first(pipeline: Pipeline, undoes: Collection[str]) -> None:
    """Blocked where an earlier part would go, and a later one would stay (N1)."""
    runs = Runs(pipeline.records)
    every = (record for row in runs.runs() for record in task_records(runs, row.id).values())
    landed = _landed_by(pipeline, [record for record in every if record.parts > 1 and record.execution])
    for record, executions in landed:
        standing = [id for id in executions if pipeline.records.row(id).live]
        going = [place for place, id in enumerate(standing) if id in undoes]
        if going and going != list(range(going[0], len(standing))):
            later = next(id for id in reversed(standing) if id not in undoes)
            raise Blocked(
                f"{record.task} landed in parts, and a later one than {standing[going[0]]} stands",
                hint=f"Nothing was changed. The last one first: holdfast undo {later}",
            )


def _landed_by(pipeline: Pipeline, records: Sequence[TaskRecord]) -> list[tuple[TaskRecord, list[str]]]:
    """For each task the executions of its parts, in the order in which they landed; no look where there is no task."""
    found: dict[tuple[str, str], dict[str, None]] = {(record.run, record.task): {} for record in records}
    if not found:
        return []
    for entry in pipeline.ledger.entries():
        if entry.kind == TASK and (entry.body["run"], entry.body["task"]) in found:
            parts = found[str(entry.body["run"]), str(entry.body["task"])]
            if execution := str(entry.body.get("execution", "")):
                parts.setdefault(execution)
    return [(record, list(found[record.run, record.task])) for record in records]
