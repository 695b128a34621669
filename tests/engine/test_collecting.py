"""gc: interrupted, after the tables were rebuilt, among other people's files; it ends its work and breaks no undo."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import holdfast
from delegated import configured
from guarded import ME, Ground, Interloper, as_user, contents, guard, in_child, put
from holdfast.engine.history import collect
from holdfast.errors import Conflict, UnknownId
from holdfast.model.plan import CommandCheck, Delete, Run
from holdfast.store.blobs import Blobs
from holdfast.workspace.keeping import Reclaimed

_DAY_NS = 86_400 * 10**9


def _gc(ground: Ground, *, days: int = 40) -> Reclaimed:
    """gc as it will be in so many days, with thirty days kept."""
    return collect(ground.hf.pipeline, keep_ns=30 * _DAY_NS, now_ns=time.time_ns() + days * _DAY_NS)


def _twelve(tmp_path: Path) -> tuple[Ground, list[str]]:
    """Twelve changes to one file; the first two are past keeping."""
    ground = guard(tmp_path / "workspace", {"a": b"v"})
    return ground, [ground.apply(put("a", b"v%d" % n)).id for n in range(12)]


def _is_collected(ground: Ground, ids: list[str]) -> None:
    """The two oldest are forgotten everywhere, the others can be undone, and there is nothing left to do."""
    assert sorted(os.listdir(ground.state / "kept")) == sorted(ids[2:])
    assert {row.id for row in ground.hf.log() if row.kept} == set(ids[2:])
    assert _gc(ground) == Reclaimed((), 0, 0)
    with pytest.raises(UnknownId, match="no longer kept"):
        ground.hf.undo(ids[1], approved_by="me")
    ground.hf.undo(ids[-1], approved_by="me")
    assert (ground / "a").read_bytes() == b"v10"


@pytest.mark.parametrize(
    ("call", "after", "skip"),
    [("unlink", True, 0), ("rmdir", False, 0), ("rmdir", True, 0), ("rmdir", True, 1)],
    ids=["a file gone", "an empty folder", "one folder gone", "both gone, not said"],
)
def test_gc_that_was_killed_is_ended_by_the_next(tmp_path: Path, call: str, after: bool, skip: int) -> None:
    """Killed between a file, its folder and the record of it, gc leaves nothing that stops the next one."""
    ground, ids = _twelve(tmp_path)
    ground.hf.close()

    def die() -> None:
        calls = Interloper()
        there = Ground(ground.path, calls)
        calls.arm(call, lambda: os.kill(os.getpid(), signal.SIGKILL), after=after, skip=skip)
        _gc(there)

    assert in_child(die) == -9
    ground = Ground(ground.path)
    assert set(_gc(ground).forgotten) == set(ids[:2])
    _is_collected(ground, ids)


def test_gc_after_the_tables_were_rebuilt(tmp_path: Path) -> None:
    """Rebuilt from the ledger and the folders, the tables know what is gone: nothing claims that it can be undone."""
    ground, ids = _twelve(tmp_path)
    assert set(_gc(ground).forgotten) == set(ids[:2])
    ground.hf.close()
    for path in ground.state.glob("holdfast.db*"):
        path.unlink()
    ground = Ground(ground.path)
    assert {row.id for row in ground.hf.log() if not row.kept} == set(ids[:2])
    assert _gc(ground).forgotten == ()
    _is_collected(ground, ids)


def test_somebody_s_file_in_an_old_directory(tmp_path: Path) -> None:
    """A process sat in a directory that was deleted and wrote there: the file stays, and gc goes on with the others."""
    ground = guard(tmp_path / "workspace", {"d/x": b"0"})
    inside = os.open(ground / "d", os.O_RDONLY)
    removed = ground.apply(Delete("d", True)).id
    with open(os.open("late.log", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inside), "wb") as file:
        file.write(b"theirs")
    os.close(inside)
    ids = [ground.apply(put("a", b"v%d" % n)).id for n in range(12)]
    assert set(_gc(ground).forgotten) == set(ids[:2])
    assert _gc(ground) == Reclaimed((), 0, 0)
    assert [path.read_bytes() for path in (ground.state / "kept" / removed).glob("*/late.log")] == [b"theirs"]
    before = contents(ground.tree())
    try:
        ground.hf.undo(removed, approved_by="me")
    except Conflict:  # gc had come as far as d/x when it found the directory in use
        assert contents(ground.tree()) == before
    else:
        assert contents(ground.tree()) == {**before, "d/x": b"0", "d/late.log": b"theirs"}


def test_the_log_of_a_check_that_has_no_record_yet(tmp_path: Path) -> None:
    """Between a check and the record of its change another process runs gc: what the check printed is not lost."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    check = (CommandCheck(("sh", "-c", "echo printed by the check"), 10_000),)
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"1"), verify=check))
    verified = ground.hf.verify(rehearsal)
    _gc(other := Ground(ground.path))
    other.hf.close()
    done = ground.hf.execute(rehearsal, approved_by=ME, verified=verified)
    (receipt,) = done.receipts
    assert b"printed by the check" in Blobs(ground.hf.site.state).get(receipt.log_digest)


@pytest.mark.root
def test_a_file_of_somebody_else_stays_in_its_slot(public: Path) -> None:
    """An ordinary user deleted root's file: gc cannot take it into the store, does the rest, and undo gives it back."""
    foreign = public / "workspace" / "foreign"
    foreign.write_bytes(b"root's")

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"mine"})
        before = ground.tree()
        done = ground.apply(Delete("foreign"), Delete("a"))
        assert [_gc(ground, days=2).packed for _ in range(2)] == [1, 0]
        ground.hf.undo(done.id, approved_by="me")
        assert ground.tree() == before
        assert contents(ground.tree()) == {"foreign": b"root's", "a": b"mine"}

    as_user(public, act)


# ── beside somebody who is at work ──


def _gc_elsewhere(path: Path) -> None:
    """gc --keep-days 0 in a process of its own."""

    def gc() -> None:
        with holdfast.open(str(path)) as hf:
            hf.gc(keep_days=0)

    assert in_child(gc) == 0


def _simulations(ground: Ground) -> list[str]:
    return sorted(os.listdir(ground.state / "simulations"))


def test_gc_takes_nothing_from_a_running_apply(tmp_path: Path) -> None:
    """Between the rehearsal of a command and its landing gc keeps what will land, whatever it was told to keep."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    simulated = ground.hf.simulate(ground.plan(Run(("cp", "a", "b"))))
    _gc_elsewhere(ground.path)
    assert ground.hf.execute(simulated, approved_by=ME).status == "COMPLETED"
    assert (ground / "b").read_bytes() == b"old"


def test_gc_takes_nothing_from_who_executes_a_kept_simulation(tmp_path: Path) -> None:
    """A simulation that was kept, and is being executed by another command, stays until that has landed."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    first = ground.hf.simulate(ground.plan(Run(("cp", "a", "b"))))
    id = ground.hf.keep(first, ground.hf.verify(first)).report.id
    del first
    simulated, verified = ground.hf.kept(id)
    _gc_elsewhere(ground.path)
    assert ground.hf.execute(simulated, approved_by=ME, verified=verified).status == "COMPLETED"
    assert (ground / "b").read_bytes() == b"old"


def test_gc_keeps_the_logs_of_a_simulation_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of a check is needed as long as a kept simulation names it, however old it is; others of its age go."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    plan = ground.plan(Run(("cp", "a", "b")), verify=(CommandCheck(("echo", "checked"), 60_000),))
    simulated = ground.hf.simulate(plan)
    verified = ground.hf.verify(simulated)
    ground.hf.keep(simulated, verified)
    del simulated
    (receipt,) = verified.receipts
    blobs = Blobs(ground.hf.site.state)
    unneeded = blobs.put(b"the log of nothing")
    # Change times cannot be set, so everything counts as old instead.
    monkeypatch.setattr("holdfast.workspace.keeping._YOUNG_NS", 0)
    ground.hf.gc(keep_days=30)
    assert unneeded not in blobs.digests()
    assert b"checked" in blobs.get(receipt.log_digest)


def test_simulations_that_wait_for_nobody_are_collected_at_once(tmp_path: Path) -> None:
    """Landed, rejected, denied, or made by a process that died: gc frees them now, and says how much it freed."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    make = Run(("dd", "if=/dev/urandom", "of=big", "bs=64k", "count=4"))
    ground.apply(make)
    simulated = ground.hf.simulate(ground.plan(make))
    ground.hf.keep(simulated, ground.hf.verify(simulated))
    ground.hf.reject(ground.hf.evaluate(simulated), by=ME)
    configured('[policy]\nwithout_verification = "deny"\n')
    denied = ground.hf.simulate(ground.plan(make))
    ground.hf.keep(denied, ground.hf.verify(denied))
    assert ground.hf.evaluate(denied).verdict == "DENY"
    del simulated, denied

    def die() -> None:
        there = Ground(ground.path)
        there.hf.simulate(there.plan(make))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -9
    waiting = ground.hf.simulate(ground.plan(make))
    kept = ground.hf.keep(waiting, ground.hf.verify(waiting)).report.id
    del waiting
    assert len(_simulations(ground)) > 4
    done = ground.hf.gc(keep_days=30)
    assert _simulations(ground) == [kept]
    assert done.bytes > 4 * 200_000
