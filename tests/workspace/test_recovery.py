"""Recovery: what a crash left is finished or taken back, once, by whoever comes next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guarded import Ground, contents, guard, in_child, put
from holdfast.errors import Conflict, NeedsHuman, Tampering
from holdfast.model.plan import Chmod, Create, Delete, Move, Symlink
from holdfast.testing import At, FaultyCalls, KillAt

_FILES = {"a": b"old a", "b": b"old b", "d/c": b"old c", "m": b"old m"}
_STEPS = (
    put("a", b"new a"),
    Delete("b"),
    Move("m", "e/m"),
    Chmod("d/c", 0o600),
    Symlink("l", "a"),
    Create("shut", True, 0o500),
    put("shut/x", b"x"),
)
_BEFORE = ("staged", "logged", "prepared", "flipped", "applied", "commit")
_AFTER = ("committed", "ledger.durable", "in-ledger", "put-away")


def _killed(ground: Ground, point: str) -> None:
    """The change dies at a named point, as if the power plug of the process was pulled."""

    def act() -> None:
        calls = FaultyCalls()
        mine = Ground(ground.path, calls)
        rehearsal = mine.hf.simulate(mine.plan(*_STEPS))
        calls.arm(KillAt(point))
        mine.hf.execute(rehearsal, approved_by="me")

    assert in_child(act) == -9


@pytest.mark.parametrize("point", _BEFORE)
def test_before_the_commit_everything_is_taken_back(tmp_path: Path, point: str) -> None:
    """Killed anywhere before the commit sector: the old tree, exactly, and at most one record of it."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, point)
    assert ground.hf.needs_recovery()
    ground.hf.recover()
    assert ground.tree() == old
    assert ground.journal() == []
    assert (
        ground.statuses() == ground.ledger_statuses() == (["ROLLED_BACK"] if point not in ("staged", "logged") else [])
    )
    assert not ground.hf.needs_recovery()
    assert ground.hf.recover() is None


@pytest.mark.parametrize("point", _AFTER)
def test_after_the_commit_it_stands(tmp_path: Path, point: str) -> None:
    """Killed anywhere after the commit sector: the new tree, recorded once, and it can be undone."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, point)
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    assert (ground / "a").read_bytes() == b"new a"
    ground.hf.undo(ground.hf.log()[0].id)
    assert ground.tree() == old


@pytest.mark.parametrize("verb", ["apply", "undo", "gc", "restore"])
def test_any_verb_that_changes_something_recovers_first(tmp_path: Path, verb: str) -> None:
    """Nobody has to think of recovery: whichever verb comes next does it before its own work."""
    ground = guard(tmp_path / "workspace", _FILES)
    first = ground.apply(put("z", b"1"))
    _killed(ground, "flipped")
    if verb == "apply":
        ground.apply(put("z", b"2"))
    elif verb == "undo":
        ground.hf.undo(first.id)
    elif verb == "gc":
        ground.hf.gc()
    else:
        ground.hf.restore(0)
    assert ground.journal() == []
    assert "ROLLED_BACK" in ground.statuses()
    assert {name: (ground / name).read_bytes() for name in _FILES} == _FILES


def test_a_stage_that_was_never_prepared_is_swept(tmp_path: Path) -> None:
    """A crash while staging leaves a folder that nobody needs; the next verb removes it."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "staged")
    assert len(ground.journal()) == 1
    ground.hf.recover()
    assert ground.journal() == []


def test_foreign_work_after_a_crash_is_kept(tmp_path: Path) -> None:
    """Between crash and recovery somebody edits our new file and makes another: both kept, the rest rolled back."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "flipped")
    (ground / "a").write_bytes(b"typed after the crash")
    (ground / "shut").chmod(0o700)
    (ground / "other").write_bytes(b"theirs")
    with pytest.raises(NeedsHuman):
        ground.hf.recover()
    found = contents(ground.tree())
    assert found["a"] == b"typed after the crash"
    assert found["other"] == b"theirs"
    assert (found["b"], found["m"]) == (b"old b", b"old m")
    slots = [path for path in ground.state.glob("journal/*/[0-9]*") if path.is_file()]
    assert b"old a" in [path.read_bytes() for path in slots]
    ground.hf.recover(accept=True)
    assert contents(ground.tree())["a"] == b"typed after the crash"
    assert ground.statuses() == ["PARTIAL"]
    kept = [path.read_bytes() for path in ground.state.glob("kept/*/[0-9]*") if path.is_file()]
    assert b"old a" in kept


def test_recovery_of_recovery(tmp_path: Path) -> None:
    """Recovery itself is killed while it rolls back, again and again; the last one ends it."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped")

    def die(point: str) -> None:
        mine = Ground(ground.path, FaultyCalls(KillAt(point)))
        mine.hf.recover()

    for point in ("rolled-back", "aborted", "ledger.durable", "in-ledger", "put-away"):
        assert in_child(lambda point=point: die(point)) in (0, -9)  # type: ignore[misc]
    ground.hf.recover()
    assert ground.tree() == old
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


def test_a_crash_does_not_confuse_a_rehearsal(tmp_path: Path) -> None:
    """A rehearsal made over a half-applied tree is refused when its turn comes: recovery changed what it stood on."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped")
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"over a mixed tree")))
    with pytest.raises(Conflict):
        ground.hf.execute(rehearsal, approved_by="me")
    assert ground.tree() == old


def test_looking_does_not_recover(tmp_path: Path) -> None:
    """Verbs that only look change nothing, also after a crash."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "flipped")
    mixed, journal = ground.tree(), ground.journal()
    ground.hf.log()
    ground.hf.audit()
    ground.hf.open_divergence()
    assert ground.hf.needs_recovery()
    assert (ground.tree(), ground.journal()) == (mixed, journal)


def test_the_log_of_another_transaction_is_not_accepted(tmp_path: Path) -> None:
    """A whole log that is not the one the head names is damage."""
    ground = guard(tmp_path / "workspace", _FILES)
    done = ground.apply(put("z", b"1"))
    _killed(ground, "flipped")
    mixed = ground.tree()
    log = ground.state / "journal" / ground.journal()[0] / "log"
    log.write_bytes((ground.state / "kept" / done.id / "log").read_bytes())
    with pytest.raises(Tampering):
        ground.hf.recover()
    assert ground.tree() == mixed


def test_attacks_between_prepared_and_the_first_flip(tmp_path: Path) -> None:
    """An edit after PREPARED and before the flip is a conflict, not a case for a person: nothing of ours was there."""
    calls = FaultyCalls()
    ground = guard(tmp_path / "workspace", _FILES, calls)
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new"), Move("m", "b2"), Delete("b")))
    calls.arm(At("prepared", lambda: (ground / "b").write_bytes(b"typed")))
    with pytest.raises(Conflict):
        ground.hf.execute(rehearsal, approved_by="me")
    assert contents(ground.tree()) == {**_FILES, "b": b"typed"}
    assert ground.journal() == []
    assert ground.statuses() == ["ROLLED_BACK"]
    assert os.listdir(ground.state / "kept") == []
