"""What earlier runs landed, where the roadmap does not show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, put
from holdfast.engine.landed_before import with_landed
from holdfast.engine.orders import Landed
from holdfast.engine.roadmap_file import RoadmapFile, set_box
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import InvalidInput
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import TaskRecord, TaskState
from laned import FILES, lane_of, proposed, site, task_id

PATH = "ROADMAP.md"
LIST = b"# R\n\n## Tasks\n\n1. One\n2. Two\n"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Ground]:
    """Its tasks have no boxes."""
    found = site(tmp_path / "workspace", {**FILES, PATH: LIST})
    yield found
    found.hf.close()


def begun(ground: Ground) -> TaskBook:
    pipeline = ground.hf.pipeline
    run = begin_run(pipeline, RunRecord("", PATH, RunOptions(), by=ME))
    return TaskBook(pipeline, run, lambda event: None)


def ended(
    ground: Ground, state: TaskState = "COMPLETED", execution: str = "", book: TaskBook | None = None
) -> TaskBook:
    """A run whose first task stands so now."""
    book = book or begun(ground)
    record = TaskRecord(book.run.id, task_id(ground), "IN_PROGRESS", attempt=1, agent="hand", execution=execution)
    for move in ("IN_PROGRESS", "VALIDATING", state):
        book.move(record._replace(state=move))  # type: ignore[arg-type]
    book.move_run("FINISHED")
    return book


def landed(ground: Ground, *, ticked: bool = False) -> str:
    """A run that landed its first task; the execution."""
    order = proposed(ground, put("new.py", b"N = 1\n"))
    answer = lane_of(ground).land(order if ticked else order._replace(tick=()))
    assert isinstance(answer, Landed)
    ended(ground, execution=answer.execution)
    return answer.execution


def done(ground: Ground, run: str = "") -> list[str]:
    """Titles of what another run takes for done."""
    file = RoadmapFile(ground.hf.site, PATH)
    return [task.title for task in with_landed(ground.hf.records, file, *file.read(), run).tasks if task.done]


def test_what_has_no_box_is_done_by_the_records(listed: Ground) -> None:
    """It landed and stands; once it is taken back it is open again, also before anybody followed that."""
    execution = landed(listed)
    assert done(listed) == ["One"]
    listed.hf.go_back(listed.hf.preview_undo(execution), approved_by=ME)
    assert done(listed) == []


def test_the_run_that_landed_it_has_its_own_book(listed: Ground) -> None:
    """What a run did itself is not taken from the records of others."""
    assert done(listed, ended(listed).run.id) == []


def test_what_moved_last_decides(listed: Ground) -> None:
    """A later run that failed at it leaves it to do."""
    ended(listed)
    ended(listed, "FAILED")
    assert done(listed) == []
    ended(listed)
    assert done(listed) == ["One"]


def test_a_box_that_was_never_ticked_is_no_wish(ground: Ground) -> None:
    """Whether it was left alone or could not be written: nobody asks for the task by leaving it open."""
    landed(ground)
    assert done(ground) == ["One"]


def test_a_box_that_was_ticked_is_a_persons(ground: Ground) -> None:
    """Once it is open again somebody opened it; where its place has no box any more, the records decide."""
    landed(ground, ticked=True)
    assert done(ground) == ["One"]
    (ground / PATH).write_bytes(FILES[PATH])
    assert done(ground) == []
    (ground / PATH).write_bytes(LIST)
    assert done(ground) == ["One"]


def test_what_was_dropped_or_put_off_is_done_all_the_same(ground: Ground) -> None:
    """Work on a task that somebody asked for by name landed: it is not held any more."""
    landed(ground)
    (ground / PATH).write_bytes(FILES[PATH].replace(b"[ ] One", b"[>] One"))
    file = RoadmapFile(ground.hf.site, PATH)
    found = with_landed(ground.hf.records, file, *file.read())
    assert found.tasks[0].done and not found.held


def test_another_roadmap_is_another_matter(listed: Ground) -> None:
    """Tasks of the same id in another file are not done by it."""
    ended(listed)
    (listed / "other.md").write_bytes(LIST)
    file = RoadmapFile(listed.hf.site, "other.md")
    assert not any(task.done for task in with_landed(listed.hf.records, file, *file.read()).tasks)


def test_what_landed_is_undone_and_what_stood_so_is_set_back(listed: Ground) -> None:
    """`again` from a later run: refused while a landing stands; what nobody landed is to do again."""
    ended(listed)
    later = begun(listed)
    later.move_run("FINISHED")
    listed.hf.runs.again([task_id(listed)])
    assert done(listed) == []
    assert listed.hf.runs.find().state == "STOPPED"
    landed(listed)
    begun(listed).move_run("FINISHED")
    with pytest.raises(InvalidInput, match="landed"):
        listed.hf.runs.again([task_id(listed)])


@pytest.mark.parametrize(
    ("intent", "task", "expected"),
    [
        ("Tick R.md: a, b", "a", True),
        ("Tick R.md: a, b", "b", True),
        ("Tick R.md: a, b", "c", False),
        ("Tick R.md: a-1", "a", False),
        ("Tick other.md: a", "a", False),
        ("Undo e-1: Tick R.md: a", "a", False),
        ("Tick R.md: a, b, d, e, f", "c", False),
        ("Tick R.md: a, b, d, e, f", "g", True),
    ],
)
def test_what_set_a_box_says_so(intent: str, task: str, expected: bool) -> None:
    """By its intent; of many only the first are named, so a later one counts as named too."""
    assert set_box(intent, "R.md", task) is expected
