"""A change of two files whose second file fails leaves the first byte-identical, and the record says what is true."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import Ground, Interloper, Refusing, guard, put, swap
from holdfast.disk.calls import Calls
from holdfast.engine.pipeline import Verified
from holdfast.errors import Blocked, Conflict, HoldfastError, NeedsHuman, VerificationFailed
from holdfast.model.plan import CommandCheck, Create, Delete, HttpCheck, Move, Step, Symlink

_FILES = {"a": b"first\n" * 100, "b": b"second\n" * 100, "d/c": b"third\n"}
_STEPS: dict[str, tuple[Step, ...]] = {
    "two updates": (put("a", b"new a"), put("b", b"new b")),
    "update and create": (put("a", b"new a"), put("fresh", b"new")),
    "update and delete": (Delete("d/c"), put("a", b"new a")),
    "move and update": (Move("d/c", "e/c"), put("b", b"new b")),
    "link and directory": (Symlink("l", "a"), Create("n", True, 0o555), put("n/x", b"x")),
}


def _nth(call: str, error: int, number: int) -> Refusing:
    """The n-th such call, counted from when it is armed, fails; all others work."""
    counted = iter(range(10_000))
    return Refusing(call, error, lambda *args, **kwargs: next(counted) == number)


def _is_as_before(ground: Ground, before: object, status: str) -> None:
    assert ground.tree() == before
    assert ground.journal() == []
    assert ground.hf.last is not None and ground.hf.last.status == status
    assert ground.statuses() == ground.ledger_statuses() == [status]
    _, document = ground.hf.show(ground.hf.last.id)
    assert document is not None
    assert (document["state"], document["steps_succeeded"]) == (status, 0)
    assert document["errors"]
    if status == "ROLLED_BACK":
        assert document["snapshot_before"] == document["snapshot_after"]
    assert ground.hf.audit().ok


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EPERM, errno.EDQUOT, errno.ENOMEM])
@pytest.mark.parametrize("call", ["exchange", "move"])
@pytest.mark.parametrize("steps", _STEPS.values(), ids=_STEPS)
def test_the_last_flip_fails(tmp_path: Path, steps: tuple[Step, ...], call: str, error: int) -> None:
    """Whatever the kernel says to the last rename of the change, all earlier ones are taken back and proven so."""
    probe = guard(tmp_path / "probe", _FILES, counting := _Counting(call))
    ready = probe.ready(probe.plan(*steps))
    counting.armed = True
    ready.execute()
    if not counting.before_commit:
        return  # this change has no such rename
    calls = _nth(call, error, counting.before_commit - 1)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(*steps))
    calls.armed = True
    with pytest.raises(HoldfastError) as caught:
        rehearsal.execute()
    calls.armed = False
    assert calls.refused == 1
    assert not caught.value.changed
    _is_as_before(ground, before, "ROLLED_BACK")


class _Counting(Calls):
    """How often a call is made, and how often up to the commit (afterwards the folder is moved away)."""

    def __init__(self, call: str) -> None:
        self.armed = False
        self.seen = 0
        self.before_commit = 0
        real = getattr(Calls, call)

        def counted(*args: object) -> object:
            self.seen += self.armed
            return real(*args)

        setattr(self, call, counted)
        setattr(self, "point", self._pass)  # noqa: B010  (the class has a static method of this name)

    def _pass(self, name: str) -> None:
        if name == "flipped":
            self.before_commit = self.seen


def _blocked_by(name: str) -> tuple[Callable[[Ground], object], type[HoldfastError]]:
    return {
        "missing": (lambda ground: None, Blocked),
        "a directory": (lambda ground: (ground / "second").mkdir(), Blocked),
        "a link": (lambda ground: os.symlink("a", ground / "second"), Blocked),
        "a FIFO": (lambda ground: os.mkfifo(ground / "second"), Blocked),
    }[name]


@pytest.mark.parametrize("name", ["missing", "a directory", "a link", "a FIFO"])
def test_a_second_file_that_cannot_be_updated_stops_the_rehearsal(tmp_path: Path, name: str) -> None:
    """When the second step is impossible the plan is blocked, the first file untouched, nothing recorded as done."""
    prepare, kind = _blocked_by(name)
    ground = guard(tmp_path / "workspace", _FILES)
    prepare(ground)
    before = ground.tree()
    with pytest.raises(kind, match="step-2"):
        ground.apply(put("a", b"new a"), swap("second", b"old", b"new"))
    assert ground.tree() == before
    assert ground.statuses() == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "open", "fchmod"])
def test_staging_of_the_second_file_fails(tmp_path: Path, call: str, error: int) -> None:
    """A disk that fails while new files are staged aborts the change before anything moved."""
    # Slots are numbered from 1; of the other calls, the first ones are for the first file.
    calls = (
        Refusing("open", error, lambda path, *args, **kwargs: path == "2") if call == "open" else _nth(call, error, 1)
    )
    ground = guard(tmp_path / "workspace", _FILES, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(put("a", b"new a", 0o700), put("b", b"new b", 0o700)))
    calls.armed = True
    os.umask(0o077 if call != "fchmod" else 0o777)
    try:
        with pytest.raises(HoldfastError) as caught:
            rehearsal.execute()
    finally:
        os.umask(0o022)
    calls.armed = False
    assert not caught.value.changed
    assert ground.tree() == before
    ground.hf.recover()
    assert ground.journal() == []
    assert "COMPLETED" not in ground.statuses()


def test_a_failing_verification_changes_nothing(tmp_path: Path) -> None:
    """Verification runs on a copy: when it fails, the workspace was never touched, and the record says ABORTED."""
    ground = guard(tmp_path / "workspace", _FILES)
    before = ground.tree()
    check = CommandCheck(("grep", "-q", "new a", "a"), 10_000), CommandCheck(("false",), 10_000)
    with pytest.raises(VerificationFailed) as caught:
        ground.hf.execute(
            ground.hf.simulate(ground.plan(put("a", b"new a"), put("b", b"new b"), verify=check)), approved_by="me"
        )
    assert not caught.value.changed
    assert ground.tree() == before
    assert ground.statuses() == ground.ledger_statuses() == ["ABORTED"]
    assert ground.hf.last is not None
    _, document = ground.hf.show(ground.hf.last.id)
    assert document is not None
    receipts = json.loads(json.dumps(document["receipts"]))
    assert [receipt["passed"] for receipt in receipts] == [True, False]


@pytest.mark.parametrize(
    "health",
    [
        CommandCheck(("false",), 300),
        CommandCheck(("/no/such/program",), 300),
        HttpCheck("http://127.0.0.1:9/", within_ms=300),
    ],
    ids=["exit 1", "no program", "nobody answers"],
)
def test_a_failing_health_check_rolls_back(tmp_path: Path, health: CommandCheck | HttpCheck) -> None:
    """When the host is not healthy with the change in place, both files are exactly as before, times included."""
    ground = guard(tmp_path / "workspace", _FILES)
    before = ground.tree()
    with pytest.raises(VerificationFailed):
        ground.apply(put("a", b"new a"), put("b", b"new b"), Delete("d/c"), Create("n", True, 0o555), health=(health,))
    _is_as_before(ground, before, "ROLLED_BACK")


def test_a_health_check_sees_the_new_files(tmp_path: Path) -> None:
    """Health runs on the real workspace with the change in place, and success commits it."""
    ground = guard(tmp_path / "workspace", _FILES)
    ground.apply(put("a", b"new a"), health=(CommandCheck(("grep", "-q", "new a", "a"), 10_000),))
    assert (ground / "a").read_bytes() == b"new a"
    assert ground.statuses() == ["COMPLETED"]


def test_a_health_check_that_breaks_the_change_is_caught(tmp_path: Path) -> None:
    """A health command that edits what was just applied does not get its edit committed as ours."""
    ground = guard(tmp_path / "workspace", _FILES)
    with pytest.raises(NeedsHuman):
        ground.apply(put("a", b"new a"), put("b", b"new b"), health=(CommandCheck(("sh", "-c", "echo x >> b"), 5_000),))
    assert (ground / "a").read_bytes() == _FILES["a"]
    assert (ground / "b").read_bytes() == b"new bx\n"
    assert len(ground.journal()) == 1


def test_health_checks_that_cannot_even_start_roll_back(tmp_path: Path) -> None:
    """When the log of a health check cannot be written, nothing is known to be healthy: rolled back, not in doubt."""
    calls = Refusing("write", errno.ENOSPC, lambda *args, **kwargs: True)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    before = ground.tree()
    rehearsal = ground.ready(
        ground.plan(put("a", b"new a"), put("b", b"new b"), health=(CommandCheck(("true",), 5_000),))
    )
    setattr(calls, "point", lambda name: setattr(calls, "armed", name == "applied"))  # noqa: B010
    with pytest.raises(VerificationFailed):
        rehearsal.execute()
    calls.armed = False
    assert calls.refused == 1
    _is_as_before(ground, before, "ROLLED_BACK")


def test_the_commit_sector_fails(tmp_path: Path) -> None:
    """When the commit cannot be confirmed nobody is told it happened, and the next verb decides it from the disk."""
    calls = Refusing("fdatasync", errno.EIO)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(put("a", b"new a"), put("b", b"new b")))
    setattr(calls, "point", lambda name: setattr(calls, "armed", name == "commit"))  # noqa: B010
    with pytest.raises(NeedsHuman, match="confirmed"):
        rehearsal.execute()
    assert ground.hf.last is not None and ground.hf.last.status == "FAILED"
    ground = ground.reopened()
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses()
    assert (ground.tree() == before) == (ground.statuses() == ["ROLLED_BACK"])
    assert (ground / "a").read_bytes() in (_FILES["a"], b"new a")
    assert ((ground / "a").read_bytes() == b"new a") == ((ground / "b").read_bytes() == b"new b")


def test_a_head_that_cannot_be_written_at_all(tmp_path: Path) -> None:
    """When not even PREPARED can be written, nothing moved, it is said so, and the workspace works again afterwards."""
    calls = Refusing("pwrite", errno.EIO, lambda fd, data, offset: len(data) == 512)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(put("a", b"new a"), put("b", b"new b")))
    calls.armed = True
    with pytest.raises(NeedsHuman) as caught:
        rehearsal.execute()
    assert not caught.value.changed
    assert ground.tree() == before
    calls.armed = False
    ground.hf.recover()
    assert ground.journal() == []
    ground.apply(put("a", b"new a"))
    assert (ground / "a").read_bytes() == b"new a"


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_a_ledger_that_fails_after_the_commit(tmp_path: Path, call: str) -> None:
    """The change is in place but not recorded: the error says exactly that, and the next verb records it once."""
    calls = Refusing(call, errno.ENOSPC)
    ground = guard(tmp_path / "workspace", _FILES, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"new a"), put("b", b"new b")))
    setattr(calls, "point", lambda name: setattr(calls, "armed", name == "committed"))  # noqa: B010
    with pytest.raises(HoldfastError, match="applied, but") as caught:
        rehearsal.execute()
    assert caught.value.changed
    calls.armed = False
    assert (ground / "a").read_bytes() == b"new a"
    ground = ground.reopened()
    ground.hf.recover()
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    assert ground.journal() == []
    ground.hf.undo(ground.hf.log()[0].id, approved_by="me")
    assert (ground / "a").read_bytes() == _FILES["a"]


def test_texts_that_cannot_be_kept_do_not_undo_the_commit(tmp_path: Path) -> None:
    """A disk that fills up right after the commit costs the texts for later merges, and nothing else."""
    calls = Refusing("open", errno.ENOSPC, lambda path, *args, **kwargs: path == "contents.new")
    ground = guard(tmp_path / "workspace", _FILES, calls)
    calls.armed = True
    done = ground.apply(put("a", b"new a"))
    assert (calls.refused, done.status) == (1, "COMPLETED")
    calls.armed = False
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").read_bytes() == _FILES["a"]


# ── receipts prove only what they were made for ──


def test_receipts_of_another_change_prove_nothing(tmp_path: Path) -> None:
    """Receipts from plan A do not carry plan B, even on the same tree: the checks of B run, and stop it."""
    ground = guard(tmp_path / "workspace", _FILES)
    before = ground.tree()
    check = (CommandCheck(("sh", "-c", "! grep -q evil a"), 10_000),)
    good = ground.hf.simulate(ground.plan(put("a", b"good"), verify=check))
    evil = ground.hf.simulate(ground.plan(put("a", b"evil"), verify=check))
    receipts = ground.hf.verify(good)
    for proof in (receipts, Verified((), ""), Verified((), receipts.base_tree, good.change_set.digest)):
        with pytest.raises(VerificationFailed):
            ground.hf.execute(evil, approved_by="me", verified=proof)
        assert ground.tree() == before


def test_receipts_go_stale_when_the_tree_moves(tmp_path: Path) -> None:
    """A file changed elsewhere after verification makes the checks run again on what stands now."""
    ground = guard(tmp_path / "workspace", _FILES)
    check = (CommandCheck(("sh", "-c", "test ! -e poison"), 10_000),)
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new"), verify=check))
    proof = ground.hf.verify(rehearsal)
    (ground / "poison").write_bytes(b"1")
    with pytest.raises(VerificationFailed):
        ground.hf.execute(rehearsal, approved_by="me", verified=proof)
    assert (ground / "a").read_bytes() == _FILES["a"]


def test_interruption_by_the_user_leaves_the_old_tree(tmp_path: Path) -> None:
    """Ctrl-C between two flips rolls back before it is let through, and the next verb records it."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", _FILES, calls)
    before = ground.tree()
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new a"), put("b", b"new b")))

    def press() -> None:
        raise KeyboardInterrupt

    calls.arm("exchange", press, skip=1)
    with pytest.raises(KeyboardInterrupt):
        ground.hf.execute(rehearsal, approved_by="me")
    assert ground.tree() == before
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


def test_a_stale_undo_preview_is_refused(tmp_path: Path) -> None:
    """An undo that was previewed, then overtaken by an edit, is a conflict and changes nothing."""
    ground = guard(tmp_path / "workspace", _FILES)
    done = ground.apply(put("a", b"new a"), put("b", b"new b"))
    way = ground.hf.preview_undo(done.id)
    (ground / "b").write_bytes(b"edited")
    theirs = ground.tree()
    with pytest.raises(Conflict):
        ground.hf.go_back(way, approved_by="me")
    assert ground.tree() == theirs
    assert ground.hf.log()[-1].live
