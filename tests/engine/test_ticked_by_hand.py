"""Whose tick it is: a person's counts, and what an execution left ticked proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.engine.taskbook import begin_run
from holdfast.engine.ticked_by_hand import ticked_by_hand
from holdfast.model.run import RunRecord
from holdfast.model.task import TaskRecord
from laned import ROADMAP, site, task_id


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def counted(ground: Ground, run: RunRecord, **fields: object) -> bool:
    """Whether the task Two, which the run left open, counts as done by a person."""
    record = TaskRecord(run.id, task_id(ground, "Two"))._replace(**fields)  # type: ignore[arg-type]
    return bool(ticked_by_hand(ground.hf.pipeline, run, [record]))


def test_a_persons_tick_counts_and_that_of_an_execution_does_not(ground: Ground) -> None:
    """Left ticked by what landed, it is to do; open then, and ticked by a person since, it is done (TH1)."""
    pipeline = ground.hf.pipeline
    run = begin_run(pipeline, RunRecord("", "ROADMAP.md", by=ME))
    file, two = RoadmapFile(pipeline.site, "ROADMAP.md"), task_id(ground, "Two")
    assert not counted(ground, run)
    file.tick(pipeline, {two: True}, ME)
    assert not counted(ground, run)
    file.tick(pipeline, {two: False}, ME)
    (ground / "ROADMAP.md").write_bytes(ROADMAP.replace(b"[ ] Two", b"[x] Two"))
    assert counted(ground, run) and not counted(ground, run, part=1, parts=2)
    tick = next(row for row in ground.hf.log() if row.intent.startswith("Tick "))
    (ground / ".holdfast/kept" / tick.id / "contents").unlink()
    assert not counted(ground, run)  # nobody can tell any more (TH2)


def test_a_tick_that_is_older_than_the_wish_to_have_it_done_again_does_not_count(ground: Ground) -> None:
    """`reset` asks for a task that only its box calls done; the box stays as it is, and the task is to do."""
    run = begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", by=ME))
    (ground / "ROADMAP.md").write_bytes(ROADMAP.replace(b"[ ] Two", b"[x] Two"))
    (record,) = ground.hf.runs.again([task_id(ground, "Two")], run.id, "it was reset")
    (told,) = ground.hf.runs.standing(run.id).records.values()
    assert record.ticked and told.ticked and counted(ground, run) and not counted(ground, run, ticked=True)
    (ground / "ROADMAP.md").write_bytes(ROADMAP)
    (record,) = ground.hf.runs.again([task_id(ground, "One")], run.id, "it was reset")
    assert not record.ticked
