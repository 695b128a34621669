"""The tables of runs: made when the first run is, newest first, and readable by whoever only looks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.store.database import Records
from holdfast.store.runs import RunRow, Runs, Said, TaskRow


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    records = Records(str(tmp_path))
    yield Runs(records)
    records.close()


def row(id: str, state: str = "RUNNING", at_ns: int = 1) -> RunRow:
    return RunRow(id, "ROADMAP.md", state, at_ns, {"id": id})


def task(run: str, name: str, state: str = "PENDING") -> TaskRow:
    return TaskRow(run, name, state, "hand", 1, {"task": name, "words": 'é "quoted"\n'})


def test_where_no_run_ever_was_there_is_nothing(runs: Runs) -> None:
    """Looking makes no tables."""
    assert runs.runs() == [] and runs.run("u-1") is None and runs.tasks("u-1") == []
    assert runs.task("u-1", "one") is None and not runs.exist()


def test_rows_come_back_newest_first(runs: Runs) -> None:
    """A run that moves is not there twice."""
    runs.prepare()
    runs.prepare()
    for each in (row("u-1"), row("u-2"), row("u-2", "FINISHED", 2)):
        runs.save_run(each)
    assert [found.id for found in runs.runs()] == ["u-2", "u-1"] and len(runs.runs(limit=1)) == 1
    assert runs.run("u-2") == row("u-2", "FINISHED", 2)


def test_tasks_belong_to_their_run(runs: Runs) -> None:
    """The same task in two runs is two rows; a task that moves is one."""
    runs.prepare()
    for each in (task("u-1", "one"), task("u-2", "one"), task("u-1", "one", "COMPLETED")):
        runs.save_task(each)
    assert runs.tasks("u-1") == [task("u-1", "one", "COMPLETED")]
    assert runs.task("u-2", "one") == task("u-2", "one")


def test_names_are_data(runs: Runs) -> None:
    """Whatever a roadmap calls its tasks, it is no SQL."""
    runs.prepare()
    name = "one'; DROP TABLE tasks; --"
    runs.save_task(task("u-1", name))
    runs.save_answer(Said("u-1", name, True, False, "tester", name, 3, 1, name))
    assert runs.task("u-1", name) == task("u-1", name)
    assert runs.said("u-1", name, 1) == Said("u-1", name, True, False, "tester", name, 3, 1, name)


def test_a_database_of_an_earlier_release_takes_answers(runs: Runs, tmp_path: Path) -> None:
    """Its answers did not say what they were to: they count for nothing, and new ones are kept beside them."""
    runs.prepare()
    other = sqlite3.connect(next(tmp_path.glob("*.db")))
    other.execute("CREATE TABLE answers(run, task, yes, skip, by, reason, at_ns, PRIMARY KEY(run, task))")
    other.execute("INSERT INTO answers VALUES('u-1', 'one', 1, 0, 'tester', '', 3)")
    other.commit()
    other.close()
    assert runs.said("u-1", "one", 0) is None
    runs.save_answer(Said("u-1", "one", True, False, "tester", "", 4, 1))
    assert runs.said("u-1", "one", 1) is not None and runs.said("u-1", "one", 0) is None


def test_damage_is_told_in_our_words(runs: Runs, tmp_path: Path) -> None:
    """Somebody took a table away: an error of ours, and no traceback of a library."""
    runs.prepare()
    other = sqlite3.connect(next(tmp_path.glob("*.db")))
    other.execute("DROP TABLE runs")
    other.commit()
    other.close()
    with pytest.raises(HoldfastError):
        runs.save_run(row("u-1"))
