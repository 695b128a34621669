"""`recover --accept`: a person decides that what stands now, stands; the old bytes are kept whatever happens next."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import Ground, Interloper, contents, guard, in_child, put
from holdfast.disk.calls import Calls
from holdfast.errors import NeedsHuman, Tampering
from holdfast.testing import FaultyCalls, KillAt

_PRECIOUS = b"PRECIOUS old b"
_EDIT = b"an edit after the crash"


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after_the_sector() -> Calls:
    calls = Interloper()
    calls.arm("fdatasync", _kill, after=True)  # the first sync of an acceptance is that of the head
    return calls


_DEATHS: dict[str, Callable[[], Calls]] = {
    "after the sector": _after_the_sector,
    "ledger.durable": lambda: FaultyCalls(KillAt("ledger.durable")),
    "in-ledger": lambda: FaultyCalls(KillAt("in-ledger")),
    "put-away": lambda: FaultyCalls(KillAt("put-away")),
}


def _divergent(tmp_path: Path) -> Ground:
    """A change died between flips and commit, and before anybody recovered, somebody edited one of its files."""
    ground = guard(tmp_path / "workspace", {"a": b"old a", "b": _PRECIOUS})
    ground.hf.close()

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        rehearsal = there.ready(there.plan(put("a", b"new a"), put("b", b"new b")))
        calls.arm(KillAt("flipped"))
        rehearsal.execute()

    assert in_child(die) == -9
    (ground / "b").write_bytes(_EDIT)
    ground = Ground(ground.path)
    with pytest.raises(NeedsHuman, match="b"):
        ground.hf.recover()
    assert [item.path for item in ground.hf.open_divergence()] == ["b"]
    return ground


def _is_left_with_its_bytes(ground: Ground) -> None:
    assert contents(ground.tree()) == {"a": b"old a", "b": _EDIT}
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    row = ground.hf.log()[0]
    assert row.kept
    assert any(str(error).startswith("b ") for error in row.summary["errors"])
    kept = [path for path in (ground.state / "kept" / row.id).iterdir() if path.read_bytes() == _PRECIOUS]
    assert len(kept) == 1
    assert ground.journal() == []
    assert ground.hf.audit().ok


def test_accepting_keeps_the_old_bytes(tmp_path: Path) -> None:
    """What a person leaves as it stands ends as FAILED, named in the record, with its old content still in kept/."""
    ground = _divergent(tmp_path)
    ground.hf.recover(accept=True)
    _is_left_with_its_bytes(ground)
    ground.apply(put("b", b"next"))
    assert (ground / "b").read_bytes() == b"next"


@pytest.mark.parametrize("death", _DEATHS)
def test_an_interrupted_acceptance_keeps_the_old_bytes(tmp_path: Path, death: str) -> None:
    """Killed anywhere after the head was written, a plain recovery ends it as FAILED and nobody is asked again."""
    ground = _divergent(tmp_path)
    ground.hf.close()
    assert in_child(lambda: Ground(ground.path, _DEATHS[death]()).hf.recover(accept=True)) == -9
    ground = Ground(ground.path)
    ground.hf.recover()
    _is_left_with_its_bytes(ground)


def test_nothing_can_be_accepted_without_the_journal(tmp_path: Path) -> None:
    """When the folder of an open transaction is gone, accepting and looking say tampering, and change nothing."""
    ground = _divergent(tmp_path)
    before = ground.tree()
    (folder,) = ground.journal()
    os.rename(ground.state / "journal" / folder, tmp_path / "elsewhere")
    ground = ground.reopened()
    for verb in (ground.hf.recover, lambda: ground.hf.recover(accept=True), ground.hf.open_divergence):
        with pytest.raises(Tampering, match="removed"):
            verb()
    assert ground.tree() == before
    os.rename(tmp_path / "elsewhere", ground.state / "journal" / folder)
    ground = ground.reopened()
    ground.hf.recover(accept=True)
    _is_left_with_its_bytes(ground)
