"""What is recorded is told as it is, also where its folder cannot be put away at once: the next verb does that."""

from __future__ import annotations

from pathlib import Path

import pytest

from guarded import ME, Ground, guard, put
from holdfast.errors import HoldfastError, VerificationFailed
from holdfast.model.plan import CommandCheck
from holdfast.testing import ALL, CHANGES, At, Fail, FaultyCalls

_SICK = (CommandCheck(("false",), 50),)
_READS = ALL - CHANGES


def _weak(tmp_path: Path, fault: Fail, counted: frozenset[str]) -> tuple[Ground, FaultyCalls]:
    """The fault strikes after the ledger and the tables know how the change ended."""
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls := FaultyCalls(counted=counted))
    calls.arm(At("in-tables", lambda: calls.arm(fault)))
    return ground, calls


@pytest.mark.parametrize("number", range(1, 6))
def test_one_read_that_fails_while_a_change_is_put_away(tmp_path: Path, number: int) -> None:
    """It is read again: the change is COMPLETED, nothing is raised, and it can be undone."""
    ground, calls = _weak(tmp_path, Fail(number), _READS)
    done = ground.apply(put("a", b"new"))
    assert calls.count >= number
    calls.disarm()
    assert done.status == "COMPLETED"
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    assert ground.journal() == []
    ground.hf.undo(done.id, approved_by=ME)
    assert (ground / "a").read_bytes() == b"old"


@pytest.mark.parametrize("number", range(1, 6))
def test_a_rollback_whose_stage_cannot_be_removed_is_one(tmp_path: Path, number: int) -> None:
    """The failed health check is what is told, and not that nothing is recorded; the next verb removes the stage."""
    ground, calls = _weak(tmp_path, Fail(number), ALL)
    with pytest.raises(VerificationFailed, match="false"):
        ground.apply(put("a", b"new"), health=_SICK)
    assert calls.count >= number
    calls.disarm()
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]
    assert ground.journal() == []


def test_a_landed_change_that_cannot_be_put_away_is_told_as_recorded(tmp_path: Path) -> None:
    """The folder cannot be moved: the error says that, not that nothing is recorded; the next verb goes on."""
    ground, calls = _weak(tmp_path, Fail(1), frozenset({"move"}))
    with pytest.raises(HoldfastError, match="was applied, but its folder is not put away") as caught:
        ground.apply(put("a", b"new"))
    assert caught.value.changed
    assert caught.value.hint.startswith("It is recorded.")
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    calls.disarm()
    ground.apply(put("a", b"newer"))
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED", "COMPLETED"]
    assert ground.journal() == []
