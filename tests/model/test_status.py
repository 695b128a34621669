"""The status machine of an execution: every legal move, every illegal one."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from holdfast.model.execution import (
    MOVES,
    Execution,
    IllegalMove,
    Moment,
    Status,
    advanced,
    landed_in,
    result_word,
)

_ALL: tuple[Status, ...] = get_args(Status)
_FRESH = Execution("e-x", "t", "p-x", "0", "0", "0")
# Written out here a second time, so that a slip in the product's table shows.
_LEGAL = {
    ("PENDING", "VALIDATING"),
    ("PENDING", "ABORTED"),
    ("VALIDATING", "BACKING_UP"),
    ("VALIDATING", "ABORTED"),
    ("BACKING_UP", "APPLYING"),
    ("BACKING_UP", "ABORTED"),
    *itertools.product(("BACKING_UP", "APPLYING", "VERIFYING", "HEALTH_CHECKING"), ("FAILED",)),
    ("APPLYING", "VERIFYING"),
    ("VERIFYING", "HEALTH_CHECKING"),
    ("HEALTH_CHECKING", "COMPLETED"),
    ("HEALTH_CHECKING", "PARTIAL"),
    ("FAILED", "ROLLED_BACK"),
}


def _in(status: Status) -> Execution:
    return Execution("e-x", "t", "p-x", "0", "0", "0", history=(Moment(status, 1),))


@pytest.mark.parametrize(("old", "new"), list(itertools.product(_ALL, _ALL)))
def test_only_the_moves_of_the_table_are_possible(old: Status, new: Status) -> None:
    """A status leads exactly where the table says, and nowhere else."""
    if (old, new) in _LEGAL:
        assert advanced(_in(old), new, 2).status == new
    else:
        with pytest.raises(IllegalMove):
            advanced(_in(old), new, 2)


@pytest.mark.parametrize("status", _ALL)
def test_a_life_begins_pending(status: Status) -> None:
    """The first status is PENDING; no other can come first."""
    if status == "PENDING":
        assert advanced(_FRESH, status, 1).history == (Moment("PENDING", 1),)
    else:
        with pytest.raises(IllegalMove):
            advanced(_FRESH, status, 1)


def test_rolled_back_needs_proof() -> None:
    """ROLLED_BACK is entered only with equal digests before and after."""
    execution = _in("FAILED")
    unequal = Execution(**{**_fields(execution), "before_digest": "a", "after_digest": "b"})
    with pytest.raises(IllegalMove):
        advanced(unequal, "ROLLED_BACK", 2)
    equal = Execution(**{**_fields(execution), "before_digest": "a", "after_digest": "a"})
    assert advanced(equal, "ROLLED_BACK", 2).status == "ROLLED_BACK"


def _fields(execution: Execution) -> dict[str, object]:
    return {name: getattr(execution, name) for name in Execution.__slots__}


def test_ends_are_ends() -> None:
    """From an end nothing leads on; a failure leads only to a finished rollback."""
    assert {status for status, moves in MOVES.items() if not moves} == {
        "COMPLETED",
        "ROLLED_BACK",
        "ABORTED",
        "PARTIAL",
    }
    assert MOVES["FAILED"] == ("ROLLED_BACK",)
    assert set(MOVES) == set(_ALL)


def test_other_tools_read_success() -> None:
    """In a result COMPLETED is called SUCCESS; the other ends keep their names."""
    words = {status: result_word(status) for status in ("COMPLETED", "PARTIAL", "FAILED", "ROLLED_BACK", "ABORTED")}
    assert words.pop("COMPLETED") == "SUCCESS"
    assert all(status == word for status, word in words.items())


def test_an_entry_of_the_first_release_keeps_its_meaning() -> None:
    """PARTIAL without a word about landing was a rollback that left something; only COMPLETED had landed."""
    assert [landed_in({"status": status}) for status in ("COMPLETED", "PARTIAL", "ROLLED_BACK")] == [True, False, False]
    assert landed_in({"status": "PARTIAL", "landed": True})
