"""A clock that is set back does not bring an approval to life again; a wrong entry does not end those after it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from guarded import ME, Ground, guard, put
from holdfast.errors import ApprovalNeeded
from holdfast.gates.approvals import Office
from holdfast.gates.approvals import standing as standing_of
from holdfast.model.approval import Approval
from holdfast.store.chain import Record

_HOUR = 3600 * 10**9
_YEAR_2099 = 4_070_908_800 * 10**9


def _dated(ground: Ground, *at_ns: int) -> None:
    """Entries as a process would have written them whose clock said so."""
    ground.hf.ledger.append_many([Record("refusal", {"id": "r-x", "simulation": "", "reason": ""}, at) for at in at_ns])


def test_an_expired_approval_stays_expired_when_the_clock_goes_back(tmp_path: Path) -> None:
    """An entry after it was made when it had expired: now that the clock says less, it does not count."""
    ground = guard(tmp_path / "workspace")
    ready = ground.ready(ground.plan(put("a", b"1")))
    assert ready.approval is not None
    _dated(ground, ready.approval.expires_ns + 1, time.time_ns())
    with pytest.raises(ApprovalNeeded):
        ground.hf.execute(ready.simulated, ready.approval, verified=ready.verified, decision=ready.decision)
    assert not (ground / "a").exists()


def test_one_entry_of_the_year_2099_ends_no_later_approval(tmp_path: Path) -> None:
    """An approval that is given after it counts."""
    ground = guard(tmp_path / "workspace")
    _dated(ground, _YEAR_2099, time.time_ns())
    ready = ground.ready(ground.plan(put("a", b"1")))
    _dated(ground, time.time_ns())
    ground.hf.execute(ready.simulated, ready.approval, verified=ready.verified, decision=ready.decision)
    assert (ground / "a").exists()


class History(NamedTuple):
    """What the clock said at entries before the approval, at those after it, and now; in hours from its making."""

    before: list[int]
    after: list[int]
    now: int


_CLOCK = some.integers(-50, 50) | some.just(600_000)


@settings(max_examples=60)
@given(some.builds(History, some.lists(_CLOCK, max_size=4), some.lists(_CLOCK, max_size=4), some.integers(0, 50)))
def test_only_what_comes_after_an_approval_can_end_it(history: History) -> None:
    """It is in time if and only if neither now nor any entry after it has reached its end, whatever was before it."""
    with tempfile.TemporaryDirectory() as folder:
        ground = guard(Path(folder) / "workspace")
        simulated = ground.hf.simulate(ground.plan(put("a", b"1")))
        decision = ground.hf.evaluate(simulated)
        _dated(ground, *(time.time_ns() + hours * _HOUR for hours in history.before))
        approval = ground.hf.approve(decision, by=ME)
        _dated(ground, *(approval.issued_ns + hours * _HOUR for hours in history.after))
        custody = ground.hf.pipeline.governance.custody_of(simulated.report.id)
        now = approval.issued_ns + history.now * _HOUR
        office = Office({ME: approval.key}, now, since_ns=custody.since_ns)
        stands = standing_of(decision, custody.approvals, office, _is_signed)
        lifetime = (approval.expires_ns - approval.issued_ns) // _HOUR
        assert stands.granted == (max([history.now, *history.after]) < lifetime)
        ground.hf.close()


def _is_signed(approval: Approval) -> bool:
    return bool(approval.signature)
