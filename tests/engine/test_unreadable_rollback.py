"""A read that fails after a rollback: once it disproves nothing, twice it is told as exactly that."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from guarded import ME, Ground, Refusing, as_user, guard, in_child, put
from holdfast.errors import HoldfastError, NeedsHuman, VerificationFailed
from holdfast.model.execution import Execution
from holdfast.model.plan import Chmod, CommandCheck
from holdfast.testing import FaultyCalls, KillAt

_FILES = {"a": b"a old\n", "b": b"b old\n"}
_STEPS = (put("a", b"new\n"), put("b", b"new\n"), put("c", b"new\n"))
_SICK = (CommandCheck(("false",), 50),)
_READS = ("stat", "open", "fstat", "listxattr", "read", "close")


class Weak(Refusing):
    """A disk on which, from a point on, so many of the calls that concern one path fail."""

    def __init__(self, call: str, path: str, after: str, times: int = 1 << 30) -> None:
        self._left = times
        self._path = path
        self._after = after
        super().__init__(call, errno.EIO, self._strikes)

    def point(self, name: str) -> None:  # type: ignore[override]
        self.armed = self.armed or name == self._after

    def _strikes(self, target: int | str, *args: object, dir_fd: int | None = None, **kwargs: object) -> bool:
        if isinstance(target, int):
            there = os.readlink(f"/proc/self/fd/{target}")
        else:
            there = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else "", target)
        if not there.endswith(f"/workspace/{self._path}") or not self._left:
            return False
        self._left -= 1
        return True


def _sick(ground: Ground) -> tuple[HoldfastError, Execution]:
    """A change that lands, is not healthy, and is taken back."""
    plan = ground.plan(*_STEPS, health=_SICK)
    with pytest.raises((NeedsHuman, VerificationFailed)) as caught:
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    done = ground.hf.last
    assert done is not None
    return caught.value, done


@pytest.mark.parametrize("after", ["rolled-back", "aborted"])
@pytest.mark.parametrize("call", _READS)
def test_one_read_that_fails_after_a_rollback_changes_nothing(tmp_path: Path, call: str, after: str) -> None:
    """Of one path, once, at each kind of read: it is read again, and the rollback is called one, with every path."""
    ground = guard(tmp_path / "workspace", _FILES, calls := Weak(call, "a", after, times=1))
    before = ground.tree()
    error, done = _sick(ground)
    assert calls.refused == 1
    assert isinstance(error, VerificationFailed)
    assert ground.tree() == before
    assert (done.status, done.proven, done.divergence) == ("ROLLED_BACK", 3, ())
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]
    assert ground.journal() == []
    document = ground.hf.show(done.id)[1]
    assert document is not None
    assert [step["type"] for step in document["steps"]] == ["file", "file", ""]


@pytest.mark.parametrize("path", ["a", "c"], ids=["a file", "nothing was there"])
def test_what_cannot_be_read_after_a_rollback_is_told_as_that(tmp_path: Path, path: str) -> None:
    """FAILED and a person is needed: the path is named, with why; what the change wrote is kept, and nothing waits."""
    ground = guard(tmp_path / "workspace", _FILES, Weak("stat", path, "aborted"))
    before = ground.tree()
    error, done = _sick(ground)
    assert isinstance(error, NeedsHuman)
    assert error.changed
    assert error.message.endswith(f"rolled back, but {path} could not be read")
    assert f".holdfast/kept/{done.id}" in error.hint
    assert ground.tree() == before
    assert (done.status, done.proven) == ("FAILED", 2)
    assert done.errors[-1] == f"rolled back, but {path} could not be read"
    assert done.divergence == ((path, "could not be read: Input/output error"),)
    _is_closed_with_its_material(ground.reopened(), done.id)


def test_a_rollback_that_cannot_be_looked_at_waits(tmp_path: Path) -> None:
    """A path that cannot even be looked up keeps the journal open, by name; the next verb proves it and closes it."""
    ground = guard(tmp_path / "workspace", _FILES, Weak("stat", "a", "rolled-back"))
    before = ground.tree()
    error, done = _sick(ground)
    assert isinstance(error, NeedsHuman)
    assert "a could not be read: Input/output error" in error.message
    assert done.status == "FAILED"
    assert ground.journal() == [done.id]
    ground = ground.reopened()
    ground.hf.recover()
    assert ground.tree() == before
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]
    assert ground.journal() == []


def _killed(tmp_path: Path, point: str) -> Ground:
    ground = guard(tmp_path / "workspace", _FILES)
    ground.hf.close()

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        ready = there.ready(there.plan(*_STEPS))
        calls.arm(KillAt(point))
        ready.execute()

    assert in_child(die) == -9
    return ground


@pytest.mark.parametrize("call", _READS)
def test_one_read_that_fails_in_recovery_changes_nothing(tmp_path: Path, call: str) -> None:
    """Recovery reads again too: rolled back, and all of it proven."""
    ground = Ground(_killed(tmp_path, "flipped").path, calls := Weak(call, "a", "aborted", times=1))
    found = ground.hf.recover()
    assert calls.refused == 1
    assert found is not None
    assert (found.outcome, found.proven) == ("ABORTED", 3)
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


def test_what_recovery_cannot_read_is_told_as_that(tmp_path: Path) -> None:
    """Rolled back by recovery, and one file cannot be read: a person is needed, once; the record names the path."""
    ground = Ground(_killed(tmp_path, "flipped").path, Weak("open", "a", "aborted"))
    with pytest.raises(NeedsHuman, match="rolled back, but a could not be read") as caught:
        ground.hf.recover()
    assert caught.value.changed
    row = ground.hf.log()[0]
    assert row.summary["divergence"] == [["a", "could not be read: Input/output error"]]
    _is_closed_with_its_material(ground.reopened(), row.id)


@pytest.mark.parametrize("point", ["in-ledger", "in-tables"])
def test_a_kill_before_the_material_is_kept(tmp_path: Path, point: str) -> None:
    """The entry says that it is kept: recovery keeps it, and does not call it rolled back."""
    ground = guard(tmp_path / "workspace", _FILES)
    ground.hf.close()

    def die() -> None:
        weak = Weak("open", "a", "aborted")
        there = Ground(ground.path, calls := FaultyCalls(real=weak))
        ready = there.ready(there.plan(*_STEPS, health=_SICK))
        calls.arm(KillAt(point))
        ready.execute()

    assert in_child(die) == -9
    ground = Ground(ground.path)
    ground.hf.recover()
    _is_closed_with_its_material(ground, ground.hf.log()[0].id)


@pytest.mark.parametrize("times", [1, 1 << 30], ids=["once", "for good"])
def test_what_landed_and_cannot_be_read_in_recovery_is_nobody_s_change(tmp_path: Path, times: int) -> None:
    """It was proven before its sector said COMMITTED: its steps succeeded, and what cannot be read is told as that."""
    ground = Ground(_killed(tmp_path, "committed").path, calls := Weak("open", "a", "", times))
    calls.armed = True
    ground.hf.recover()
    assert calls.refused
    document = ground.hf.show(ground.hf.log()[0].id)[1]
    assert document is not None
    assert [step["success"] for step in document["steps"]] == [True] * 3
    told = [] if times == 1 else [{"path": "a", "detail": "could not be read: Input/output error"}]
    assert (document["state"], document["divergence"]) == ("COMPLETED", told)


@pytest.mark.root
def test_what_landed_and_is_closed_to_its_owner_is_nobody_s_change(public: Path) -> None:
    """A file whose planned mode lets nobody read it is no change of somebody else after a crash either."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, _FILES)
        ground.hf.close()

        def die() -> None:
            there = Ground(ground.path, calls := FaultyCalls())
            ready = there.ready(there.plan(Chmod("a", 0)))
            calls.arm(KillAt("committed"))
            ready.execute()

        assert in_child(die) == -9
        after = Ground(ground.path)
        after.hf.recover()
        assert after.hf.log()[0].status == "COMPLETED"
        assert "divergence" not in after.hf.log()[0].summary

    as_user(public, act)


def _is_closed_with_its_material(ground: Ground, id: str) -> None:
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    assert ground.journal() == []
    assert sorted(path.name for path in (ground.state / "kept" / id).iterdir())[-1] == "log"
    assert ground.hf.audit().ok
    ground.apply(put("a", b"next\n"))
    ground.hf.undo(ground.hf.log()[0].id, approved_by=ME)
    assert (ground / "a").read_bytes() == _FILES["a"]
