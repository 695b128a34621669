"""A commit whose outcome nobody knows yet: it belongs to the disk, and the next verb asks the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guarded import ME, Ground, Interloper, Refusing, contents, guard, in_child, put
from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import HoldfastError, NeedsHuman
from holdfast.testing import At, FaultyCalls, KillAt

_FILES = {f"f{n}": b"old" for n in range(6)}
_NEW = tuple(put(name, b"new") for name in _FILES)


def _press() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("call", "after", "ending"),
    [
        ("pwrite", False, "ROLLED_BACK"),
        ("pwrite", True, "COMPLETED"),
        ("fdatasync", False, "COMPLETED"),
        ("fdatasync", True, "COMPLETED"),
    ],
    ids=["before the write", "after the write", "before the sync", "after the sync"],
)
def test_ctrl_c_in_the_commit_sector_takes_nothing_back(tmp_path: Path, call: str, after: bool, ending: str) -> None:
    """Once the sector is on its way Ctrl-C moves no file: a rollback, itself interrupted, would mix old and new."""
    kernel = Interloper()
    calls = FaultyCalls(real=kernel)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    old = ground.tree()
    rehearsal = ground.hf.simulate(ground.plan(*_NEW))

    def strike() -> None:
        kernel.arm(call, _press, after=after)
        kernel.arm("exchange", _press, skip=3)

    calls.arm(At("commit", strike))
    with pytest.raises(KeyboardInterrupt):
        ground.hf.execute(rehearsal, approved_by=ME)
    assert kernel.struck == 1
    assert set(contents(ground.tree()).values()) == {b"new"}
    ground = ground.reopened()
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == [ending]
    assert (ground.tree() == old) == (ending == "ROLLED_BACK")
    assert len(set(contents(ground.tree()).values())) == 1
    assert ground.journal() == []
    assert ground.hf.audit().ok


# ── a commit that could not be synced ──


def _is_head(fd: int) -> bool:
    return _name_of(fd) == "head"


def _name_of(fd: int) -> str:
    return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))


class _Recorder(Calls):
    """The real kernel, and the order in which files were written, synced and put away."""

    def __init__(self) -> None:
        self.events: list[str] = []
        for name in ("pwrite", "fdatasync", "move"):
            setattr(self, name, self._noted(name, getattr(CALLS, name)))

    def _noted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: int | str, *args: Any) -> Any:
            self.events.append(f"{name} {_name_of(target) if isinstance(target, int) else target}")
            return real(target, *args)

        return call


def _in_doubt(tmp_path: Path) -> Ground:
    """A change whose commit sector was written, and whose sync the disk refused."""
    calls = Refusing("fdatasync", errno.EIO, _is_head)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    rehearsal = ground.ready(ground.plan(*_NEW))
    setattr(calls, "point", lambda name: setattr(calls, "armed", name == "commit"))  # noqa: B010
    with pytest.raises(NeedsHuman, match="could not be confirmed"):
        rehearsal.execute()
    assert calls.refused == 1
    return ground


def test_a_commit_in_doubt_is_written_and_synced_again_before_it_is_settled(tmp_path: Path) -> None:
    """After a failed sync memory says more than the disk: the sector goes first, then ledger, then the folder."""
    ground = _in_doubt(tmp_path).reopened(recorder := _Recorder())
    found = ground.hf.recover()
    assert found is not None and found.outcome == "COMMITTED"
    events = [event for event in recorder.events if not event.endswith(" lock")]
    assert events[:4] == ["pwrite head", "fdatasync head", "pwrite ledger.jsonl", "fdatasync ledger.jsonl"]
    assert events.index(f"move {found.txn}") > 3
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]


def test_a_disk_that_still_refuses_settles_nothing(tmp_path: Path) -> None:
    """While the sector cannot be synced nothing is recorded and nothing put away; once it can, it is recorded once."""
    calls = Refusing("fdatasync", errno.EIO, _is_head)
    ground = _in_doubt(tmp_path).reopened(calls)
    calls.armed = True
    with pytest.raises((OSError, HoldfastError)):
        ground.hf.recover()
    assert ground.ledger_statuses() == []
    assert len(ground.journal()) == 1
    calls.armed = False
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    assert ground.journal() == []


def test_a_dead_undo_whose_slots_are_back_in_the_journal(tmp_path: Path) -> None:
    """A power cut may take back the rename into kept/: the change is settled again before the dead undo is judged."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    done = ground.apply(put("f0", b"new"))
    ground.hf.close()

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        way = there.hf.preview_undo(done.id)
        calls.arm(KillAt("logged"))
        there.hf.go_back(way, approved_by=ME)

    assert in_child(die) == -9
    os.rename(ground.state / "kept" / done.id, ground.state / "journal" / done.id)
    ground = Ground(ground.path)
    assert len(ground.journal()) == 2
    ground.hf.recover()
    assert ground.journal() == []
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old
