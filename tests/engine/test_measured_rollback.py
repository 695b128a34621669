"""ROLLED_BACK is a measurement: every path that moved is read again, and only what was read is called proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from guarded import ME, guard, put, rewritten
from holdfast.errors import Conflict, NeedsHuman, VerificationFailed
from holdfast.model.plan import CommandCheck
from holdfast.testing import At, FaultyCalls

_SICK = (CommandCheck(("false",), 50),)


def test_old_bytes_altered_in_their_slot_are_not_called_rolled_back(tmp_path: Path) -> None:
    """Somebody rewrote the old file while it was put away, size and time as before: FAILED, and a person is needed."""
    ground = guard(tmp_path / "workspace", {"a": b"0123\n", "b": b"b old\n"}, calls := FaultyCalls())
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new\n"), put("b", b"new\n"), health=_SICK))

    def alter() -> None:
        (folder,) = ground.journal()
        rewritten(ground.state / "journal" / folder / "1", b"EVIL\n")

    calls.arm(At("applied", alter))
    with pytest.raises(NeedsHuman, match="not everything is as before") as caught:
        ground.hf.execute(rehearsal, approved_by=ME)
    assert caught.value.changed
    assert (ground / "a").read_bytes() == b"EVIL\n"
    done = ground.hf.last
    assert done is not None
    assert (done.status, done.proven, [item.path for item in done.divergence]) == ("FAILED", 1, ["a"])
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    document = ground.hf.show(done.id)[1]
    assert document is not None
    assert document["snapshot_before"] != document["snapshot_after"]
    assert document["divergence_detected"]


def test_a_rollback_that_stands_is_proven_path_by_path(tmp_path: Path) -> None:
    """With nobody interfering every path counts as proven, and the digests before and after are equal."""
    ground = guard(tmp_path / "workspace", {"a": b"0123\n", "b": b"b old\n"})
    before = ground.tree()
    with pytest.raises(VerificationFailed):
        ground.apply(put("a", b"new\n"), put("b", b"new\n"), put("c", b"new\n"), health=_SICK)
    assert ground.tree() == before
    done = ground.hf.last
    assert done is not None
    assert (done.status, done.proven, done.divergence) == ("ROLLED_BACK", 3, ())
    assert done.before_digest == done.after_digest


def test_somebody_s_change_that_never_moved_is_divergence_and_not_proven(tmp_path: Path) -> None:
    """Two planned paths were changed by others before their turn: left alone, both named, and only the third proven."""
    ground = guard(tmp_path / "workspace", {"a": b"0", "b": b"0", "c": b"0"}, calls := FaultyCalls())
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"1"), put("b", b"1"), put("c", b"1")))

    def interfere() -> None:
        (ground / "b").write_bytes(b"somebody else")
        (ground / "c").unlink()

    calls.arm(At("prepared", interfere))
    with pytest.raises(Conflict):
        ground.hf.execute(rehearsal, approved_by=ME)
    assert [(ground / name).read_bytes() for name in ("a", "b")] == [b"0", b"somebody else"]
    assert not (ground / "c").exists()
    done = ground.hf.last
    assert done is not None
    assert (done.status, done.changes, done.proven) == ("ROLLED_BACK", 3, 1)
    assert sorted(item.path for item in done.divergence) == ["b", "c"]
    document = ground.hf.show(done.id)[1]
    assert document is not None
    assert document["divergence_detected"]
    assert ground.journal() == []
