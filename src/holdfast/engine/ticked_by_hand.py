"""Boxes that a person ticked while a run was stopped: they did these tasks, and no agent is asked for them.

Invariants
  TH1  Only a person's tick says so. What an execution left ticked, an agent may have ticked, and proves nothing (B2 of
       `second_look`): a box counts where the last execution that wrote the roadmap left it open. One that stood ticked
       when the task was asked for again is older than that wish.
  TH2  Where that cannot be told any more, the task is to do, as it was.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.engine.landmarks import text_left
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.errors import HoldfastError
from holdfast.intake.roadmap import boxes
from holdfast.model.run import RunRecord
from holdfast.model.task import TaskRecord


def ticked_by_hand(pipeline: Pipeline, run: RunRecord, left: Collection[TaskRecord]) -> list[TaskRecord]:
    """Which of these open tasks a person did."""
    now = boxes_now(pipeline, run)
    ticked = [record for record in left if now.get(record.task) and not record.part and not record.ticked]
    try:
        before = _as_we_left_it(pipeline, run) if ticked else {}
    except HoldfastError:
        return []  # TH2
    return [record for record in ticked if not before.get(record.task)]


def boxes_now(pipeline: Pipeline, run: RunRecord) -> dict[str, bool]:
    """None where there is no roadmap that could be read."""
    try:
        return boxes(RoadmapFile(pipeline.site, run.roadmap).read()[0], run.roadmap)
    except HoldfastError:
        return {}


def _as_we_left_it(pipeline: Pipeline, run: RunRecord) -> dict[str, bool]:
    """The boxes as the newest execution of this run's time left them; those that no execution set were open when the
    run took their tasks to be done."""
    for row in pipeline.records.executions(since_ns=run.started_ns):
        if row.landed and row.changes and (text := text_left(pipeline, row.id, run.roadmap)) is not None:
            return boxes(text, run.roadmap)
    return {}
