"""Runs as ledger entries: the tables are their fold, what no task does is refused, and old entries are read forever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import Ground, guard
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import Tampering
from holdfast.model.agent import Usage
from holdfast.model.configuration import Budget
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import MOVES, TaskRecord, TaskState, Tried
from holdfast.settlement.runs import (
    ANSWER,
    RUN,
    TASK,
    answer_body,
    folded,
    project_run,
    run_body,
    run_from,
    task_body,
    task_record,
    task_records,
)
from holdfast.store.chain import Entry, Record
from holdfast.store.database import Records
from holdfast.store.runs import NO_QUESTION, Runs, Said

GOLDEN = Path(__file__).parent.parent / "golden" / "runs" / "entries.jsonl"
STATES: tuple[TaskState, ...] = tuple(MOVES)
TRIED = Tried(1, "test", "red", "retry with context", "hand", 12, Usage(1, 2, 3, None))
OPTIONS = RunOptions(
    "hand", 3, 7, budget=Budget(1, 2, 3, 4), ask=("before", "after"), only=("one", "two"), landing="roadmap"
)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": b"- [ ] One\n"})
    yield found
    found.hf.close()


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    found = Records(str(tmp_path))
    yield found
    found.close()


def test_a_run_comes_back_as_it_was_written(ground: Ground) -> None:
    """With all its options, also those that are more than one word."""
    made = begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", OPTIONS, by="tester", yes=True))
    row = Runs(ground.hf.pipeline.records).run(made.id)
    assert row is not None and run_from(row.document) == made
    assert run_from(json.loads(json.dumps(run_body(made)))) == made


def test_the_tables_are_the_fold_of_the_ledger(ground: Ground) -> None:
    """Taken away and made again from the ledger, they say the same."""
    book = TaskBook(ground.hf.pipeline, begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md")), lambda event: None)
    first = TaskRecord(book.run.id, "one", state="IN_PROGRESS", attempt=1, usage=Usage(1, 2, 3, 4))
    book.move_all([(first, None), (first._replace(task="two"), None)])
    book.move(first._replace(state="PENDING"), tried=TRIED)
    book.move(first._replace(state="IN_PROGRESS", attempt=2))
    before = task_records(Runs(ground.hf.pipeline.records), book.run.id)
    assert before == book.records and before["one"].tried == (TRIED,)
    ground.hf.close()
    for path in ground.state.glob("holdfast.db*"):
        path.unlink()
    again = Ground(ground.path)
    again.hf.recover()
    assert task_records(Runs(again.hf.pipeline.records), book.run.id) == before
    again.hf.close()


@pytest.mark.parametrize("before", STATES)
def test_only_moves_of_the_table_are_folded(before: TaskState) -> None:
    """Every pair of states: those that the table knows, and staying; all others are Tampering."""
    for after in STATES:
        body = task_body(TaskRecord("u-1", "one", state=after))
        if after == before or after in MOVES[before]:
            assert folded(TaskRecord("u-1", "one", state=before), body, 5).state == after
        else:
            with pytest.raises(Tampering, match=f"from {before} to {after}"):
                folded(TaskRecord("u-1", "one", state=before), body, 5)


def test_an_illegal_move_in_a_ledger_is_not_projected(records: Records) -> None:
    """The row stays as it was."""
    project_run(records, Entry(1, TASK, task_body(TaskRecord("u-1", "one", state="IN_PROGRESS")), 5, ""))
    with pytest.raises(Tampering):
        project_run(records, Entry(2, TASK, task_body(TaskRecord("u-1", "one", state="COMPLETED")), 6, ""))
    assert task_record(Runs(records), "u-1", "one").state == "IN_PROGRESS"


def test_entries_of_other_kinds_are_not_ours(records: Records) -> None:
    """And make no tables."""
    assert not project_run(records, Entry(1, "execution", {}, 5, ""))
    assert not Runs(records).exist()


@given(
    st.builds(
        TaskRecord,
        run=st.just("u-1"),
        task=st.just("one"),
        state=st.just("IN_PROGRESS"),
        tried=st.just(()),
        agent=st.text(),
        proposal=st.text(),
        because=st.text(),
        attempt=st.integers(0, 1 << 53),
        landing=st.booleans(),
        wait_until_ns=st.integers(0, 1 << 62),
        usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9)),
    ),
    st.text(),
)
def test_whatever_a_record_says_comes_back(record: TaskRecord, evidence: str) -> None:
    """Written, read, folded; half characters are the only thing that is lost."""
    tried = TRIED._replace(evidence=evidence)
    body = json.loads(json.dumps(task_body(record, tried)))
    found = folded(TaskRecord("u-1", "one"), body, 7)
    assert found == record._replace(at_ns=7, tried=(tried,))


def test_words_of_others_are_bounded_and_can_always_be_written(ground: Ground) -> None:
    """A worker's name for its agent may be endless, or no text at all: the book takes it, cut and made whole."""
    book = TaskBook(ground.hf.pipeline, begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md")), lambda event: None)
    hostile = "\ud800" * 3 + "x" * 100_000
    tried = TRIED._replace(agent=hostile, evidence=hostile)
    book.move(TaskRecord(book.run.id, "one", state="IN_PROGRESS", because=hostile, agent=hostile), tried=tried)
    row = task_record(Runs(ground.hf.pipeline.records), book.run.id, "one")
    assert row == book.of("one")
    assert max(map(len, (row.because, row.agent, row.tried[0].agent, row.tried[0].evidence))) == 4_000


def test_an_answer_comes_back(records: Records) -> None:
    """The newest one counts."""
    for number, yes in enumerate((True, False), start=1):
        said = Said("u-1", "one", yes, not yes, "tester", f"because {number}", 0, 3, "s-1")
        project_run(records, Entry(number, ANSWER, answer_body(said), number, ""))
    found = Said("u-1", "one", False, True, "tester", "because 2", 2, 3, "s-1")
    assert Runs(records).said("u-1", "one", 3) == found
    assert Runs(records).said("u-1", "one", 4) is None and Runs(records).said("u-1", "two", 3) is None


def golden() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="ascii").splitlines()]


def test_entries_of_the_first_version_are_read(records: Records) -> None:
    """One of each kind, as the first release wrote them; a field that came later stays at its default."""
    for number, row in enumerate(golden(), start=1):
        assert project_run(records, Entry(number, row["kind"], row["body"], 1_000 + number, ""))
    runs = Runs(records)
    (row,) = runs.runs()
    assert run_from(row.document) == RunRecord(
        "u-golden00", "ROADMAP.md", OPTIONS, "STOPPED", "somebody asked for it", "tester", True, 11, 22, 33, "c0ffee"
    )
    record = task_record(runs, "u-golden00", "one-7a6c86f1")
    assert (record.state, record.attempt, record.tried) == ("COMPLETED", 2, (TRIED,))
    assert (record.execution, record.commit, record.files, record.usage) == ("e-1", "c0ffee", 3, Usage(1, 2, 3, 4))
    assert runs.said("u-golden00", "one-7a6c86f1", NO_QUESTION) == Said(
        "u-golden00", "one-7a6c86f1", True, False, "tester", "looks good", 1_006
    )


def test_the_golden_file_has_one_of_each(records: Records) -> None:
    """A kind that is added gets a line there."""
    assert {row["kind"] for row in golden()} == {RUN, TASK, ANSWER}
    assert Record(RUN, {}, 1).kind == RUN
