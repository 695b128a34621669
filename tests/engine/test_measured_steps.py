"""Step results are measured against what the transaction really did, never copied from what was expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from guarded import ME, Ground, guard, put
from holdfast.engine.results import Measured, Moves, step_results
from holdfast.model.plan import Delete, Move, Read, Step
from holdfast.simulation.rehearsal import StepReport
from holdfast.workspace.transaction import Transaction, new_txn


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "workspace", {"a": b"a\n", "d/x": b"x\n"})
    yield ground
    ground.hf.close()


def _measured(ground: Ground, steps: tuple[Step, ...], *lost: str) -> list[bool]:
    """Land the steps without the changes and reads at `lost`, and ask what became of each step."""
    found = ground.hf.simulate(ground.plan(*steps))
    done = ground.hf.execute(found, approved_by=ME)
    ground.hf.undo(done.id, approved_by="me")
    again = ground.hf.simulate(ground.plan(*steps))
    kept = again.change_set._replace(
        changes=tuple(change for change in again.change_set.changes if change.path not in lost),
        reads=tuple(read for read in again.change_set.reads if read.path not in lost),
    )
    transaction = Transaction(ground.hf.site, new_txn(), {})
    transaction.prepare(kept, again.seen, again.sources)
    transaction.apply()
    transaction.verify()
    transaction.commit()
    return [result.success for result in step_results(again.steps, _look(transaction), replace(done, steps=()))]


def _look(transaction: Transaction) -> Measured:
    moves = Moves(transaction.times_ns, transaction.finished)
    return Measured(transaction.ops, moves, transaction.reads, transaction.image_now)


@pytest.mark.parametrize(
    ("steps", "lost", "expected"),
    [
        ((put("a", b"new"), put("b", b"b")), (), [True, True]),
        ((put("a", b"new"), put("b", b"b")), ("b",), [True, False]),
        ((put("a", b"new"), put("b", b"b")), ("a",), [False, True]),
        ((put("a", b"a\n"), put("b", b"b")), (), [True, True]),
        ((put("a", b"a\n"), put("b", b"b")), ("a",), [False, True]),
        ((Read("a"), put("b", b"b")), ("a",), [False, True]),
        ((Move("a", "c"), put("b", b"b")), (), [True, True]),
        ((put("b", b"b"), Delete("b"), put("c", b"c")), (), [True, True, True]),
        ((put("n/b", b"b"), Move("n", "m")), (), [True, True]),
        ((put("n/b", b"b"), Delete("n", recursive=True), put("c", b"c")), (), [True, True, True]),
        ((put("b", b"b"), Move("b", "c")), (), [True, True]),
        ((put("b", b"b"), Move("b", "c"), put("e", b"e")), ("c",), [True, False, True]),
    ],
)
def test_a_step_is_done_if_its_path_moved_or_stood_so(
    ground: Ground, steps: tuple[Step, ...], lost: tuple[str, ...], expected: list[bool]
) -> None:
    """A path that the last step naming it wanted, and that is not among what landed, is a step that was not done."""
    assert _measured(ground, steps, *lost) == expected


def test_a_missed_step_says_so(ground: Ground) -> None:
    """The result of a step that is not among what landed names that, and no state change."""
    transaction = Transaction(ground.hf.site, new_txn(), {})
    done = ground.apply(put("b", b"b"))
    report = StepReport(0, "write", "elsewhere", True, "creates the file", 1, 2)
    (result,) = step_results([report], _look(transaction), replace(done, steps=()))
    assert (result.success, result.expected_vs_actual_match, result.actual_state_change) == (
        False,
        False,
        "none: nothing",
    )
    assert result.error_message == "not done: it is not among what landed"
