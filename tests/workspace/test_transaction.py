"""The transaction by itself: its states, its order, its proofs."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest
from blake3 import blake3

from guarded import Ground, Refusing, guard, put
from holdfast.errors import Blocked, Conflict, HoldfastError
from holdfast.model.changeset import Change, change_set
from holdfast.model.image import Image
from holdfast.model.plan import Chmod, Create, Delete, Move, Step, Symlink
from holdfast.simulation.rehearsal import Rehearsal
from holdfast.store.journal import Op, log_chunks, parse_log
from holdfast.workspace.staging import Bytes
from holdfast.workspace.transaction import Transaction, new_txn

_FILES = {"a": b"old a", "b": b"old b", "d/c": b"old c", "d/e/f": b"old f"}


def _rehearsed(ground: Ground, *steps: Step) -> Rehearsal:
    return ground.hf.simulate(ground.plan(*steps))


def _transaction(ground: Ground) -> Transaction:
    return Transaction(ground.hf.site, new_txn(), {"intent": "t"})


def _prepared(ground: Ground, *steps: Step) -> Transaction:
    rehearsal = _rehearsed(ground, *steps)
    transaction = _transaction(ground)
    transaction.prepare(rehearsal.change_set, rehearsal.seen, rehearsal.sources)
    return transaction


def test_preparing_changes_nothing_in_the_workspace(tmp_path: Path) -> None:
    """PREPARED has every new object in its slot with its final mode, and the tree as it was."""
    ground = guard(tmp_path / "workspace", _FILES)
    before = ground.tree()
    transaction = _prepared(ground, put("a", b"new a", 0o640), Delete("b"), Symlink("l", "x"), Create("n", True, 0o555))
    assert ground.tree() == before
    folder = ground.state / "journal" / transaction.txn
    assert [
        (p.read_bytes(), p.stat().st_mode & 0o777) for p in folder.iterdir() if p.is_file() and p.name.isdecimal()
    ] == [(b"new a", 0o640)]
    assert transaction.roll_back().divergence == ()
    assert (transaction.state, ground.tree()) == ("ABORTED", before)


def test_removals_come_first_deepest_first_and_creations_parents_first(tmp_path: Path) -> None:
    """The order makes every single rename possible, and its mirror image too."""
    ground = guard(tmp_path / "workspace", _FILES)
    transaction = _prepared(
        ground, put("a", b"1"), Delete("d", True), put("n/m/x", b"1"), Create("z", True, 0o500), put("z/y", b"")
    )
    paths = [(op.action, op.path, op.post is None) for op in transaction.ops]
    assert paths == [
        ("flip", "d/e/f", True),
        ("flip", "d/e", True),
        ("flip", "d/c", True),
        ("flip", "d", True),
        ("flip", "a", False),
        ("flip", "n", False),
        ("flip", "n/m", False),
        ("flip", "n/m/x", False),
        ("flip", "z", False),
        ("flip", "z/y", False),
        ("mode", "z", False),
    ]


@pytest.mark.parametrize("until", ["prepare", "apply", "verify"])
def test_every_state_can_be_rolled_back(tmp_path: Path, until: str) -> None:
    """From PREPARED, APPLIED and VERIFIED the way back leads to exactly the old tree, times of directories included."""
    ground = guard(tmp_path / "workspace", _FILES)
    for place in ("", "d", "d/e"):
        os.utime(ground / place, ns=(10**18, 10**18))
    before, times = ground.tree(), _directory_times(ground)
    transaction = _prepared(ground, put("a", b"1"), Delete("d", True), Move("b", "x/b"), Chmod("a", 0o600))
    if until != "prepare":
        transaction.apply()
        assert ground.tree() != before
    if until == "verify":
        transaction.verify()
    assert transaction.roll_back().divergence == ()
    assert ground.tree() == before
    assert _directory_times(ground) == times


def _directory_times(ground: Ground) -> dict[str, int]:
    return {place: os.stat(ground / place).st_mtime_ns for place in ("", "d", "d/e")}


def test_states_cannot_be_skipped(tmp_path: Path) -> None:
    """Nothing is applied before it is prepared, or committed before it is verified."""
    ground = guard(tmp_path / "workspace", _FILES)
    fresh = _transaction(ground)
    for act in (fresh.apply, fresh.verify, fresh.commit, fresh.roll_back):
        with pytest.raises(AssertionError):
            act()
    transaction = _prepared(ground, put("a", b"1"))
    with pytest.raises(AssertionError):
        transaction.commit()
    transaction.apply()
    with pytest.raises(AssertionError):
        transaction.commit()
    transaction.verify()
    transaction.commit()
    assert transaction.state == "COMMITTED"
    with pytest.raises(AssertionError):
        transaction.roll_back()


def test_a_source_that_changed_is_not_staged(tmp_path: Path) -> None:
    """Bytes copied for a move are hashed on the way; if they are not the rehearsed ones, nothing is prepared."""
    ground = guard(tmp_path / "workspace", _FILES)
    rehearsal = _rehearsed(ground, Move("a", "t"), Move("b", "a"), Move("t", "b"))
    (ground / "a").write_bytes(b"EVIL!")
    before = ground.tree()
    transaction = _transaction(ground)
    with pytest.raises(Conflict):
        transaction.prepare(rehearsal.change_set, rehearsal.seen, rehearsal.sources)
    assert ground.tree() == before
    assert ground.journal() == []


def test_a_source_that_grows_without_end_is_cut(tmp_path: Path) -> None:
    """A file that keeps growing while it is copied does not fill the disk."""
    ground = guard(tmp_path / "workspace", _FILES)
    rehearsal = _rehearsed(ground, Move("a", "t"), Move("b", "a"), Move("t", "b"))
    with open(ground / "a", "ab") as file:
        file.truncate(1 << 34)
    with pytest.raises(HoldfastError):
        _transaction(ground).prepare(rehearsal.change_set, rehearsal.seen, rehearsal.sources)
    assert ground.journal() == []


@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync", "symlink", "fchmod", "utime", "setxattr"])
def test_a_failure_while_staging_leaves_no_trace(tmp_path: Path, call: str) -> None:
    """Whichever call fails while slots are filled, the stage is gone and the tree untouched."""
    calls = Refusing(call, errno.EIO)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    os.setxattr(ground / "a", "user.x", b"1")
    before = ground.tree()
    rehearsal = _rehearsed(ground, put("a", b"n", 0o611), Symlink("l", "x"), Create("n", True, 0o711), Move("b", "t"),
                           Move("d/c", "b"), Move("t", "d/c"))  # fmt: skip
    calls.armed = True
    with pytest.raises(Blocked):
        _transaction(ground).prepare(rehearsal.change_set, rehearsal.seen, rehearsal.sources)
    assert calls.refused
    calls.armed = False
    assert ground.tree() == before
    assert ground.journal() == []


def test_ids_are_random_and_well_formed() -> None:
    """A transaction's id cannot be guessed, and never repeats in a thousand."""
    ids = {new_txn() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(id.startswith("e-") and id[2:].isalnum() and len(id) == 10 for id in ids)


@pytest.mark.parametrize(("count", "kind"), list(itertools.product([7, 8, 9, 600], ["create", "update", "delete"])))
def test_few_and_many(tmp_path: Path, count: int, kind: str) -> None:
    """Around the limit where syncing changes its way, and around the size of a log record, all is the same."""
    names = [f"d{n % 7}/f{n}" for n in range(count)]
    ground = guard(tmp_path / "workspace", {} if kind == "create" else dict.fromkeys(names, b"old"))
    before = ground.tree()
    done = ground.apply(*(Delete(name) if kind == "delete" else put(name, b"new") for name in names))
    assert sum(thing.kind == "file" for thing in ground.tree().values()) == (0 if kind == "delete" else count)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


def test_a_log_that_recovery_would_not_read_is_not_begun(tmp_path: Path) -> None:
    """A change whose journal would be larger than recovery reads is blocked before the head names it."""
    ground = guard(tmp_path / "workspace", _FILES)
    before = ground.tree()
    ground.hf.site.log_limit = 1000
    with pytest.raises(Blocked, match="too large") as caught:
        ground.apply(put("a", b"new a"), put("b", b"new b"))
    assert not caught.value.changed
    assert (ground.tree(), ground.journal(), ground.statuses()) == (before, [], ["ABORTED"])


@pytest.mark.parametrize("size", [-1, 0])
def test_what_is_written_can_be_read(size: int) -> None:
    """The limit is the same to the byte: a log of exactly the limit is whole, one byte less and it is blocked."""
    ops = tuple(Op("flip", f"f{n}", f"e-aaaa/{n}", None, None) for n in range(2000))
    whole = b"".join(log_chunks({}, ops, ()))
    if size:
        with pytest.raises(Blocked):
            list(log_chunks({}, ops, (), len(whole) + size))
    else:
        assert parse_log(b"".join(log_chunks({}, ops, (), len(whole)))).ops == ops


def test_a_path_that_recovery_would_not_touch_is_not_begun(tmp_path: Path) -> None:
    """Whatever made the change set: an operation that rolling back would refuse is blocked before anything moves."""
    ground = guard(tmp_path / "workspace", _FILES)
    before = ground.tree()
    image = Image("file", 0o644, os.geteuid(), os.getegid(), 1, blake3(b"1").hexdigest())
    for path in ("/".join(["n" * 200] * 21), ".git/config", "d/../b2"):
        change = change_set([Change(path, None, image), Change("z", None, image)])
        with pytest.raises(HoldfastError):
            _transaction(ground).prepare(change, {}, {path: Bytes(b"1"), "z": Bytes(b"1")})
        assert (ground.tree(), ground.journal()) == (before, [])
