"""gc: what is packed can still be undone, what is forgotten is refused, and being killed in it loses nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from guarded import Ground, guard, in_child, put
from holdfast.disk.calls import CALLS
from holdfast.engine.history import collect
from holdfast.errors import UnknownId
from holdfast.model.plan import CommandCheck, Create, Delete, Move
from holdfast.store.blobs import Blobs
from holdfast.testing import FaultyCalls, Kill
from holdfast.workspace.keeping import Reclaimed

_LATER_NS = 2 * 86_400 * 10**9


def _gc(ground: Ground, *, forget: bool = False) -> Reclaimed:
    """gc as it will be in two days: everything is old enough to be packed, or to be forgotten."""
    keep_ns = 0 if forget else 10**18
    return collect(ground.hf.pipeline, keep_ns=keep_ns, now_ns=time.time_ns() + _LATER_NS)


def _slots(ground: Ground) -> list[str]:
    return sorted(path.name for path in ground.state.glob("kept/*/*") if path.name.isdecimal())


def test_young_files_stay_in_their_slots(tmp_path: Path) -> None:
    """gc today packs nothing of today."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.apply(put("a", b"new"))
    result = ground.hf.gc()
    assert (result.packed, result.forgotten) == (0, ())
    assert _slots(ground) == ["1"]


def test_equal_contents_are_stored_once(tmp_path: Path) -> None:
    """Ten old files with the same bytes become one blob."""
    ground = guard(tmp_path / "workspace", {f"f{n}": b"same" for n in range(10)})
    old = ground.tree()
    done = ground.apply(*(Delete(f"f{n}") for n in range(10)))
    assert _gc(ground).packed == 10
    inputs = {paper.document["inputs"] for paper in ground.hf.records.papers("decisions")}
    assert len(set(Blobs(ground.hf.site.state).digests()) - inputs) == 1
    assert _slots(ground) == []
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old


def test_a_blob_that_others_could_read_is_closed(tmp_path: Path) -> None:
    """In the store every file is its owner's only; its own mode comes back with the undo."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    (ground / "a").chmod(0o666)
    old = ground.tree()
    done = ground.apply(put("a", b"new"))
    _gc(ground)
    assert {path.stat().st_mode & 0o777 for path in ground.state.glob("objects/*/*")} == {0o600}
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old


def test_a_slot_that_somebody_wrote_into_is_not_packed(tmp_path: Path) -> None:
    """Bytes written through an old descriptor are not what the log knows: they stay where they are."""
    ground = guard(tmp_path / "workspace", {"log": b"1\n"})
    with open(ground / "log", "ab") as writer:
        ground.apply(put("log", b"fresh"))
        writer.write(b"2\n")
    assert _gc(ground).packed == 0
    assert [path.read_bytes() for path in ground.state.glob("kept/*/1")] == [b"1\n2\n"]


def test_a_damaged_blob_does_not_swallow_the_good_copy(tmp_path: Path) -> None:
    """A blob that lost its bytes is replaced by the good file, and undo restores it."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done = ground.apply(put("a", b"new"))
    digest = Blobs(ground.hf.site.state).put(b"old")
    (ground.state / "objects" / digest[:2] / digest[2:]).write_bytes(b"")
    _gc(ground)
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"old"


def test_the_newest_ten_are_never_forgotten(tmp_path: Path) -> None:
    """However old they are, ten executions can be undone; those before them are forgotten together with their blobs."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    done = [ground.apply(put("a", b"%d" % n)) for n in range(1, 16)]
    _gc(ground)
    result = _gc(ground, forget=True)
    assert set(result.forgotten) == {execution.id for execution in done[:5]}
    assert [row.kept for row in ground.hf.log()] == [True] * 10 + [False] * 5
    for execution in reversed(done[5:]):
        ground.hf.undo(execution.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"5"
    with pytest.raises(UnknownId):
        ground.hf.undo(done[4].id, approved_by="me")


def test_logs_of_checks_are_kept_with_their_record(tmp_path: Path) -> None:
    """What a check printed can still be shown after gc."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    done = ground.apply(put("a", b"1"), health=(CommandCheck(("echo", "hello"), 5_000),))
    _gc(ground, forget=True)
    assert b"hello" in Blobs(ground.hf.site.state).get(done.receipts[0].log_digest)


def test_a_directory_that_somebody_uses_is_left(tmp_path: Path) -> None:
    """A process still sitting in a deleted directory makes a file there: gc neither fails nor deletes it."""
    ground = guard(tmp_path / "workspace", {"d/x": b"1", "a": b"0"})
    fd = os.open(ground / "d", os.O_RDONLY | os.O_DIRECTORY)
    ground.apply(Delete("d", True))
    os.close(os.open("theirs", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    for n in range(12):
        ground.apply(put("a", b"%d" % n))
    _gc(ground, forget=True)
    _gc(ground, forget=True)
    assert CALLS.names(fd) == ["theirs"]
    os.close(fd)
    assert ground.apply(put("a", b"on")).status == "COMPLETED"


@pytest.mark.long
def test_killed_at_every_call_of_packing(tmp_path: Path) -> None:
    """At whatever call gc is killed, the undo afterwards restores everything exactly."""
    files = {"a": b"a" * 10, "b": b"b" * 10, "same": b"a" * 10, "d/c": b"c"}
    for number in range(1, 1000):
        ground = guard(tmp_path / str(number), files)
        old = ground.tree()
        done = ground.apply(put("a", b"1"), Delete("b"), Move("d", "e"), Delete("same"), Create("n", True))
        new = ground.tree()
        status = _killed(ground, number, forget=False)
        assert ground.tree() == new
        _gc(ground)
        ground.hf.undo(done.id, approved_by="me")
        assert ground.tree() == old, f"killed at call {number}"
        ground.hf.close()
        if status == 0:
            break
    assert number > 20


def _killed(ground: Ground, number: int, *, forget: bool) -> int:
    status = in_child(lambda: _gc_and_die(ground.path, number, forget))
    assert status in (0, -9)
    return status


def _gc_and_die(path: Path, number: int, forget: bool) -> None:
    calls = FaultyCalls()
    ground = Ground(path, calls)
    calls.arm(Kill(number))
    _gc(ground, forget=forget)


@pytest.mark.long
def test_killed_at_many_calls_of_forgetting(tmp_path: Path) -> None:
    """At whatever call gc is killed while it forgets, the next gc ends the work, and the newest can be undone."""
    template = guard(tmp_path / "template", {"a": b"0", "d/x": b"1"})
    template.apply(Delete("d", True), put("a", b"old"))
    for n in range(10):
        newest = template.apply(put("a", b"%d" % n))
    # The last calls before the end are those that remove the folder.
    calls = FaultyCalls()
    counted = template.reopened(calls)
    calls.arm()
    assert len(_gc(counted, forget=True).forgotten) == 1
    removals = [n for n, name in enumerate(calls.trace, 1) if name in ("unlink", "rmdir")]
    counted.hf.close()
    for number in removals:
        _once(tmp_path / str(number), number)
    assert len(removals) > 3
    assert newest.status == "COMPLETED"


def _once(path: Path, number: int) -> None:
    ground = guard(path, {"a": b"0", "d/x": b"1"})
    ground.apply(Delete("d", True), put("a", b"old"))
    for n in range(10):
        newest = ground.apply(put("a", b"%d" % n))
    assert _killed(ground, number, forget=True) == -9
    _gc(ground, forget=True)
    assert len(list((ground.state / "kept").iterdir())) == 10
    ground.hf.undo(newest.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"8"
    assert ground.hf.audit().ok
    ground.hf.close()
