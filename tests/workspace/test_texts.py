"""What landed is kept as text for a later merge: by every road, through kills and races, and within its bounds."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import ME, Ground, guard, in_child, put
from holdfast.engine.simulator import Simulated
from holdfast.errors import Conflict
from holdfast.model.plan import Chmod, Move, Plan, Step
from holdfast.store.contents import TEXT_LIMIT
from holdfast.testing import At, FaultyCalls, Kill
from holdfast.testing.faults import CHANGES

_TEXT = b"".join(b"line %d\n" % n for n in range(20))
_OURS = _TEXT.replace(b"line 3\n", b"OURS\n")


def _kept(ground: Ground, *steps: Step) -> tuple[Plan, Simulated]:
    """A simulation that was kept, and reads its bytes from there."""
    plan = ground.plan(*steps)
    simulated = ground.hf.simulate(plan)
    return plan, ground.hf.keep(simulated, ground.hf.verify(simulated))


def _land(ground: Ground, *steps: Step) -> str:
    plan, simulated = _kept(ground, *steps)
    return ground.hf.execute(simulated, approved_by=ME, consent=plan.id).id


def _files(ground: Ground, id: str) -> set[str]:
    return {path.name for path in (ground.state / "kept" / id).iterdir()}


def _texts(ground: Ground, id: str) -> bytes:
    return (ground.state / "kept" / id / "contents").read_bytes()


@pytest.mark.parametrize("kept", [True, False], ids=["kept simulation", "in memory"])
def test_killed_anywhere_after_the_commit(tmp_path: Path, kept: bool) -> None:
    """Wherever the process ends, recovery leaves an execution whose undo merges with a later edit."""
    number, status = 0, -9
    while status == -9:
        number += 1
        ground = guard(tmp_path / f"{number}", {"a": _TEXT, "d/b": _TEXT})
        status = in_child(lambda at=number, path=ground.path: _killed(path, at, kept=kept))  # type: ignore[misc]
        ground.hf.recover()
        assert ground.statuses() == ["COMPLETED"] and ground.journal() == []
        (done,) = ground.hf.log()
        assert "contents.new" not in _files(ground, done.id)
        for name in ("a", "d/b"):
            (ground / name).write_bytes(_OURS + b"THEIRS\n")
        ground.hf.undo(done.id, approved_by="me")
        assert {(ground / name).read_bytes() for name in ("a", "d/b")} == {_TEXT + b"THEIRS\n"}
        ground.hf.close()
    assert status == 0 and number > 5


def _killed(path: Path, at: int, *, kept: bool) -> None:
    """The n-th change of the disk after the commit is the end."""
    calls = FaultyCalls(counted=CHANGES)
    ground = Ground(path, calls)
    steps = (put("a", _OURS), put("d/b", _OURS))
    plan, simulated = _kept(ground, *steps) if kept else ((plan := ground.plan(*steps)), ground.hf.simulate(plan))
    calls.arm(At("committed", lambda: calls.arm(Kill(at))))
    ground.hf.execute(simulated, approved_by=ME, consent=plan.id)


_STRANGERS: dict[str, Callable[[Path], object]] = {
    "edits it": lambda path: path.write_bytes(_OURS + b"THEIRS\n"),
    "renames another over it": lambda path: (
        path.with_name("new").write_bytes(_OURS + b"THEIRS\n") and path.with_name("new").rename(path)
    ),
}


@pytest.mark.parametrize("act", _STRANGERS.values(), ids=_STRANGERS)
def test_somebody_who_is_faster_than_the_keeping(tmp_path: Path, act: Callable[[Path], object]) -> None:
    """An edit in the instant after the commit: the text comes from what it was copied from, and the undo merges."""
    calls = FaultyCalls()
    ground = guard(tmp_path / "workspace", {"a": _TEXT}, calls)
    plan, simulated = _kept(ground, put("a", _OURS))
    calls.arm(At("committed", lambda: act(ground / "a") and None))
    done = ground.hf.execute(simulated, approved_by=ME, consent=plan.id)
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT + b"THEIRS\n"


def test_what_is_kept_and_what_is_not(tmp_path: Path) -> None:
    """Text up to 1 MiB, each content once; nothing large or binary, nothing that only moved or changed its mode."""
    files = {"a": _TEXT, "b": _TEXT, "moved": b"moved\n", "mode": b"mode\n"}
    ground = guard(tmp_path / "workspace", files)
    large, largest = b"large\n" * (TEXT_LIMIT // 6 + 1), b"x\n" * (TEXT_LIMIT // 2)
    id = _land(
        ground,
        *(put(name, _OURS) for name in ("a", "b", "c")),
        put("large", large),
        put("largest", largest),
        put("binary", b"\0binary"),
        Move("moved", "there"),
        Chmod("mode", 0o600),
    )
    texts = _texts(ground, id)
    assert texts.count(_OURS) == 1 and texts.count(largest) == 1
    assert len(texts) == len(_OURS) + len(largest) + 2 * 36


def test_a_full_disk_costs_merges_and_nothing_else(tmp_path: Path) -> None:
    """No room for the texts: the change lands and is recorded, nothing half written stays, an undo says what is so."""
    ground = guard(tmp_path / "workspace", {"a": _TEXT})
    calls = _Full()
    ground = ground.reopened(calls)
    plan, simulated = _kept(ground, put("a", _OURS))
    calls.arm(At("committed", lambda: calls.fill(True)), At("ledger.durable", lambda: calls.fill(False)))
    done = ground.hf.execute(simulated, approved_by=ME, consent=plan.id)
    assert (done.status, ground.ledger_statuses(), calls.refused) == ("COMPLETED", ["COMPLETED"], 1)
    assert _files(ground, done.id) == {"1", "log"}
    (ground / "a").write_bytes(_OURS + b"THEIRS\n")
    with pytest.raises(Conflict, match="the text that this change wrote there is not kept"):
        ground.hf.undo(done.id, approved_by="me")
    (ground / "a").write_bytes(_OURS)
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT


class _Full(FaultyCalls):
    """A disk without room for the texts of a file."""

    def __init__(self) -> None:
        super().__init__()
        self._is_full = False
        self.refused = 0
        real = self.write

        def write(fd: int, data: bytes) -> int:
            if self._is_full and _OURS in data:
                self.refused += 1
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data)

        setattr(self, "write", write)  # noqa: B010 - the class has a static method of this name

    def fill(self, full: bool) -> None:
        self._is_full = full


_REASONS = {
    "in the same place": (b"", r"was edited since, in the same place"),
    "binary": (b"\0" + _OURS, r"only text can be merged"),
    "endless": (b"".join(b"other %d\n" % n for n in range(3000)), r"was edited since; too many lines differ"),
    "large": (_OURS + b"x\n" * TEXT_LIMIT, r"more than 1 MiB is not merged"),
}


@pytest.mark.parametrize("reason", _REASONS)
def test_a_conflict_says_what_is_in_the_way(tmp_path: Path, reason: str) -> None:
    """Each way in which a merge is not possible has words of its own."""
    before = b"".join(b"line %d\n" % n for n in range(1500))
    ground = guard(tmp_path / "workspace", {"a": before})
    id = _land(ground, put("a", before.replace(b"line 3\n", b"OURS\n")))
    theirs, words = _REASONS[reason]
    (ground / "a").write_bytes(theirs)
    with pytest.raises(Conflict, match=words):
        ground.hf.undo(id, approved_by="me")
    assert (ground / "a").read_bytes() == theirs
