"""Descriptors are borrowed: whatever is kept open for long is one's own, however small the cache is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from guarded import Ground, contents, guard, put
from holdfast.disk.confined import CACHE, Root
from holdfast.engine.history import collect
from holdfast.model.plan import Chmod, CommandCheck, Create, Delete, Move, Symlink

_LATER_NS = 2 * 86_400 * 10**9
_STEPS = (
    put("a/x", b"new"),
    put("b/y", b"new"),
    put("n/m/z", b"new"),
    Move("c", "far/away/c"),
    Delete("d", True),
    Chmod("e/f", 0o600),
    Symlink("l/l", "a"),
    Create("shut", True, 0o500),
)
_FILES = {f"{d}/{n}": f"old {d}{n}".encode() for d in "abcde" for n in "xyf"}


def _narrow(path: Path) -> Ground:
    """Two descriptors at a time: the least that is promised to stay open."""
    ground = guard(path, _FILES)
    ground.hf.site.workspace.capacity = ground.hf.site.state.capacity = 2
    return ground


def _pack(ground: Ground) -> int:
    return collect(ground.hf.pipeline, keep_ns=10**18, now_ns=time.time_ns() + _LATER_NS).packed


def test_every_verb_with_the_smallest_cache(tmp_path: Path) -> None:
    """Apply with checks, undo, redo, gc, undo from the store and restore: exact with room for two descriptors."""
    ground = _narrow(tmp_path / "workspace")
    old = ground.tree()
    plan = ground.plan(*_STEPS, verify=(CommandCheck(("true",), 10_000),))
    done = ground.hf.execute(ground.hf.simulate(plan), approved_by="me")
    new = ground.tree()
    back = ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old
    again = ground.hf.undo(back.id, approved_by="me")
    assert ground.tree() == new
    assert _pack(ground) > 3
    ground.hf.undo(again.id, approved_by="me")
    assert ground.tree() == old
    ground.apply(put("a/x", b"later"), Delete("b", True))
    ground.hf.restore(0, approved_by="me")
    assert contents(ground.tree()) == contents(old)
    assert ground.journal() == []


def test_more_packed_files_than_the_cache_has_room_for(tmp_path: Path) -> None:
    """Old files that gc spread over more folders of the store than descriptors are kept open come back all the same."""
    count = 3 * CACHE
    ground = guard(tmp_path / "workspace", {f"f{n}": b"old %d" % n for n in range(count)})
    old = ground.tree()
    done = ground.apply(*(put(f"f{n}", b"new %d" % n) for n in range(count)))
    assert _pack(ground) == count
    assert len(os.listdir(ground.state / "objects")) > CACHE
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old
    assert ground.hf.audit().ok


def test_a_descriptor_of_ones_own_outlives_the_cache(tmp_path: Path) -> None:
    """What `open_directory` gives stays open whatever else is opened, until its owner closes it."""
    for name in "abc":
        (tmp_path / name).mkdir()
    with Root(str(tmp_path)) as root:
        root.capacity = 2
        mine, borrowed = root.open_directory("a"), root.directory("a")
        root.directory("b")
        root.directory("c")
        assert os.fstat(mine).st_ino == (tmp_path / "a").stat().st_ino
        os.close(mine)
        with pytest.raises(OSError):
            os.fstat(borrowed)
