"""A task that an earlier run landed, or that landed in part: it is shown and undone all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guarded import ME, Ground, put
from holdfast.cli.task_shown import landings_of, task_asked
from holdfast.cli.undo import _execution
from holdfast.engine.orders import Landed
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import InvalidInput
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import TaskRecord, TaskState
from laned import lane_of, order_of, proposed, site
from roadmapped import boxes, git, mapped, states


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def landed(ground: Ground, state: TaskState = "COMPLETED", part: int = 0, parts: int = 0) -> TaskRecord:
    """A run with one task that landed, and stands in that state; then a second run that had nothing to do with it."""
    pipeline = ground.hf.pipeline
    run = begin_run(pipeline, RunRecord("", "ROADMAP.md", RunOptions(), by=ME))
    answer = lane_of(ground).land(proposed(ground, put("new.py", b"N = 1\n")))
    assert isinstance(answer, Landed)
    book = TaskBook(pipeline, run, lambda event: None)
    begun = TaskRecord(run.id, order_of(ground).task, "IN_PROGRESS", attempt=1, agent="hand", part=part, parts=parts)
    book.move(begun)
    for move in ("VALIDATING", state):
        book.move(begun._replace(state=move, execution=answer.execution, commit=answer.commit))  # type: ignore[arg-type]
    book.move_run("FINISHED")
    later = begin_run(pipeline, RunRecord("", "ROADMAP.md", RunOptions(), by=ME))
    TaskBook(pipeline, later, lambda event: None).move_run("FINISHED")
    return book.of(begun.task)


def test_a_task_of_an_earlier_run_is_found_with_what_it_landed(ground: Ground) -> None:
    """The newest run had nothing to do with it: its record is the one of the run that landed it."""
    record = landed(ground)
    asked = task_asked(ground.hf, record.task)
    assert asked is not None and asked[0].run.id == record.run and asked[2] == record
    assert _execution(ground.hf, record.task) == record.execution


def test_what_landed_of_a_task_that_failed_can_be_undone(ground: Ground) -> None:
    """One of its parts did: that is what undo takes."""
    record = landed(ground, "FAILED", part=1, parts=3)
    assert _execution(ground.hf, record.task) == record.execution


def test_several_parts_of_a_task_that_failed_are_counted(ground: Ground) -> None:
    """Two of three landed: it says two, and which goes first."""
    record = landed(ground, "FAILED", part=2, parts=3)
    with pytest.raises(InvalidInput, match="landed in 2 parts") as refused:
        _execution(ground.hf, record.task)
    assert f"holdfast undo {record.execution}" in refused.value.hint


def test_what_was_taken_back_is_not_called_never_landed(ground: Ground) -> None:
    """It says that somebody took it back."""
    record = landed(ground)
    undo = ground.hf.undo(record.execution, approved_by=ME)
    ground.hf.runs.followed(undo.id)
    assert list(landings_of(ground.hf, "ROADMAP.md", record.task)) == []
    with pytest.raises(InvalidInput, match="was taken back"):
        _execution(ground.hf, record.task)


def test_a_task_that_never_landed_says_so(ground: Ground) -> None:
    """There is nothing to undo."""
    landed(ground)
    with pytest.raises(InvalidInput, match="landed nothing"):
        _execution(ground.hf, order_of(ground, "Two").task)


@pytest.mark.long
def test_undo_and_show_after_a_second_run(guarded: Any) -> None:
    """`run --max-tasks 1`, `run`, then the first task: shown with execution and commit, and taken back."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    first = here.fresh("run", "--agent", "mine", "--yes", "--max-tasks", "1", "--json").document["tasks"][0]
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    shown = here("show", "1.1", "--json").document
    assert (shown["execution"], shown["commit"]) == (first["execution"], first["commit"])
    assert first["execution"] in here("show", "1.1").out
    done = here.fresh("undo", "1.1", "--yes")
    assert done.status == 0 and "To do again" in done.out, done
    assert (boxes(here), (here.directory / "a.py").exists()) == (".x", False)
    assert states(here)[0] == "PENDING" and git(here, "status", "--short") == ""
