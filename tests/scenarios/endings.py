"""What must hold when a scenario is over, and when one of its tasks was taken back; whoever played it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.run import RunRecord
from holdfast.model.task import TaskRecord
from scenarios.playing import Ending, Move, Scenario, Stage


def at_the_end(stage: Stage, run: RunRecord, given: Sequence[str]) -> None:
    """`given` is everything that the agent, or its model, was told: each text once or more, in order."""
    played, records = stage.played, stage.records()
    assert run.state == played.run, run.because
    for ending in played.endings:
        _ended(ending, records)
    _was_told(played, records, given)
    assert stage.commits() == list(played.commits)
    assert len({record.commit for record in records.values() if record.commit}) == len(played.commits)
    assert stage.files() == played.stands()
    assert stage.git("status", "--short") == ""
    assert stage.ticked() == {ending.task for ending in played.endings if ending.state == "COMPLETED"}
    _accepted(stage, records)
    done = stage.passes()
    assert done.returncode == 0, done.stdout + done.stderr


def _ended(ending: Ending, records: dict[str, TaskRecord]) -> None:
    record = records[ending.task]
    assert record.state == ending.state, f"{ending.task}: {record.state}, {record.because}"
    assert tuple((each.category, each.strategy) for each in record.tried) == ending.tried, ending.task
    if ending.with_:
        other = records[ending.with_]
        assert (record.execution, record.commit) == (other.execution, other.commit)
    elif ending.state == "COMPLETED":
        assert record.commit and record.execution


def _accepted(stage: Stage, records: dict[str, TaskRecord]) -> None:
    """A task that names a command was ticked by it: the execution that landed it holds its receipt, and it passed."""
    for number, argv in stage.acceptance().items():
        receipts = stage.receipts(records[number].execution)
        assert argv in [tuple(receipt["command"]) for receipt in receipts if receipt["passed"]], number


def _was_told(played: Scenario, records: dict[str, TaskRecord], given: Sequence[str]) -> None:
    """Nobody was told at first; the repair was played by somebody who had all of it in one text, as evidence."""
    for move in played.moves:
        texts = [text for text in given if move.task in text]
        assert texts, f"nobody was asked: {move.task}"
        assert not any(words in texts[0] for words in _news(move)), "the first attempt knew it already"
        assert any(all(words in text for words in move.told) for text in texts), f"nobody was told {move.told}"
    failed = [each for record in records.values() for each in record.tried]
    for each in failed[:-1] if played.run == "WAITING" else failed:
        assert any(each.evidence.splitlines()[0] in text for text in given), each.evidence


def _news(move: Move) -> tuple[str, ...]:
    """The first words decide: they are what was measured. The others name places, which a task may name as well."""
    return move.told[:1]


def after_the_undo(stage: Stage) -> None:
    """`holdfast undo TASK`: its files are as they were, its box is open, a commit says so; all else stays."""
    played, ticked = stage.played, stage.ticked()
    commit = stage.records()[played.undo].commit
    leader, group = _group(played, played.undo)
    undone = stage.holdfast("undo", played.undo, "--yes")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert stage.files() == played.stands(without=leader)
    assert stage.ticked() == ticked - group
    assert stage.git("status", "--short") == ""
    assert stage.commits()[:-1] == list(played.commits)
    assert commit in stage.git("show", "-s", "--format=%B", "HEAD")


def _group(played: Scenario, task: str) -> tuple[str, set[str]]:
    """The task that landed it, and all that landed with that one."""
    leader = next(ending.with_ or ending.task for ending in played.endings if ending.task == task)
    return leader, {leader, *(ending.task for ending in played.endings if ending.with_ == leader)}
