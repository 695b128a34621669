"""Undo, redo, out of order, after strangers, after gc: exact, merged or refused with nothing changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from guarded import Ground, contents, fill, guard, put, rewritten, swap
from holdfast.engine.history import collect
from holdfast.errors import Blocked, Conflict, HoldfastError, InvalidInput, UnknownId
from holdfast.model.plan import Chmod, Create, Delete, Move, Step, Symlink

_TEXT = b"".join(b"line %d\n" % n for n in range(20))
_FILES = {"a": _TEXT, "b": b"b\n", "d/c": b"c\n", "d/e/f": b"f\n", "empty/": b""}
_STEPS: dict[str, tuple[Step, ...]] = {
    "replace": (put("a", b"new"),),
    "replace and chmod": (put("a", b"new", 0o600),),
    "chmod only": (Chmod("a", 0o600), Chmod("d", 0o700)),
    "create": (put("n", b"new"), Create("m", False), put("deep/er/x", b"1")),
    "delete": (Delete("a"), Delete("d", True)),
    "move": (Move("a", "z"),),
    "move a directory": (Move("d", "far/d"),),
    "swap": (Move("a", "t"), Move("b", "a"), Move("t", "b")),
    "link": (Symlink("l", "a"),),
    "file to directory": (Delete("a"), Create("a", True), put("a/x", b"1")),
    "directory to file": (Delete("d", True), put("d", b"now a file")),
    "directory to link": (Delete("d", True), Symlink("d", "a")),
    "closed directory": (Create("shut", True, 0o500), put("shut/x", b"1"), Chmod("empty", 0o555)),
    "move and edit": (Move("a", "z"), put("z", b"edited")),
    "everything": (
        put("a", b"1"),
        Move("b", "d/b"),
        Delete("d/e", True),
        Chmod("d", 0o750),
        Symlink("l", "x"),
        put("n/n", b"2"),
    ),
}


def _ground(tmp_path: Path) -> Ground:
    return guard(tmp_path / "workspace", _FILES)


@pytest.mark.parametrize("steps", _STEPS.values(), ids=_STEPS)
def test_undo_redo_and_undo_again(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    """Each undo of an undo brings back exactly what stood, again and again, times of files included."""
    ground = _ground(tmp_path)
    old = ground.tree()
    done = ground.apply(*steps)
    new = ground.tree()
    for _ in range(3):
        back = ground.hf.undo(done.id, approved_by="me")
        assert ground.tree() == old
        assert [row.live for row in ground.hf.log() if row.id == done.id] == [False]
        ground.hf.undo(back.id, approved_by="me")
        assert ground.tree() == new
        assert [row.live for row in ground.hf.log() if row.id == done.id] == [True]
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old
    with pytest.raises(InvalidInput, match="undone already"):
        ground.hf.undo(done.id, approved_by="me")


@pytest.mark.parametrize("steps", _STEPS.values(), ids=_STEPS)
def test_undo_after_the_old_files_were_packed(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    """gc moves old files into the blob store; undo gives them back with mode and time, and so does redo."""
    ground = _ground(tmp_path)
    old = ground.tree()
    done = ground.apply(*steps)
    new = ground.tree()
    _pack(ground)
    back = ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old
    _pack(ground)
    ground.hf.undo(back.id, approved_by="me")
    assert ground.tree() == new
    _pack(ground)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == old


def _pack(ground: Ground) -> None:
    """gc as it will be in two days."""
    collect(ground.hf.pipeline, keep_ns=10**18, now_ns=time.time_ns() + 2 * 86_400 * 10**9)


def _forget(ground: Ground) -> None:
    """gc as it will be in two days, with nothing kept but the newest ten."""
    collect(ground.hf.pipeline, keep_ns=0, now_ns=time.time_ns() + 2 * 86_400 * 10**9)


def test_undo_in_reverse_order_restores_each_moment(tmp_path: Path) -> None:
    """A stack of changes to the same files comes off one by one, exactly."""
    ground = _ground(tmp_path)
    trees, done = [ground.tree()], []
    for steps in (_STEPS["replace"], _STEPS["chmod only"], _STEPS["move"], _STEPS["delete"][1:], _STEPS["create"]):
        done.append(ground.apply(*steps))
        trees.append(ground.tree())
    for execution, tree in zip(reversed(done), reversed(trees[:-1]), strict=True):
        ground.hf.undo(execution.id, approved_by="me")
        assert ground.tree() == tree


def test_undo_out_of_order_where_nothing_overlaps(tmp_path: Path) -> None:
    """The first of three changes is undone; the two later ones stand."""
    ground = _ground(tmp_path)
    one = ground.apply(put("a", b"1"))
    ground.apply(put("b", b"2"))
    ground.apply(Delete("d/c"))
    ground.hf.undo(one.id, approved_by="me")
    assert contents(ground.tree()) == {"a": _TEXT, "b": b"2", "d/e/f": b"f\n"}


def test_undo_out_of_order_in_one_text(tmp_path: Path) -> None:
    """Two changes in one file, apart from each other: undoing the first keeps the second, then the other way round."""
    ground = _ground(tmp_path)
    first = ground.apply(put("a", _TEXT.replace(b"line 2\n", b"FIRST\n")))
    second = ground.apply(put("a", _TEXT.replace(b"line 2\n", b"FIRST\n").replace(b"line 17\n", b"SECOND\n")))
    back = ground.hf.undo(first.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT.replace(b"line 17\n", b"SECOND\n")
    ground.hf.undo(second.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT
    ground.hf.undo(back.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT.replace(b"line 2\n", b"FIRST\n")


def test_a_stranger_s_edit_elsewhere_in_the_text_is_kept(tmp_path: Path) -> None:
    """Our lines go back, their line stays, and the preview says that the file is merged."""
    ground = _ground(tmp_path)
    done = ground.apply(put("a", _TEXT.replace(b"line 2\n", b"OURS\n")), put("n", b"new"))
    (ground / "a").write_bytes((ground / "a").read_bytes() + b"THEIRS\n")
    assert ground.hf.preview_undo(done.id).merged == ("a",)
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT + b"THEIRS\n"
    assert not (ground / "n").exists()


def test_a_stranger_s_mode_is_kept(tmp_path: Path) -> None:
    """Somebody changed only the mode since: the old content comes back, with their mode."""
    ground = _ground(tmp_path)
    done = ground.apply(put("a", b"new\n"))
    (ground / "a").chmod(0o711)
    ground.hf.undo(done.id, approved_by="me")
    assert ((ground / "a").read_bytes(), (ground / "a").stat().st_mode & 0o777) == (_TEXT, 0o711)


_CONFLICTS = {
    "the same line": lambda g: (g / "a").write_bytes(b"THEIRS\n"),
    "deleted": lambda g: (g / "a").unlink(),
    "replaced by a link": lambda g: ((g / "a").unlink(), os.symlink("b", g / "a")),
    "replaced by a directory": lambda g: ((g / "a").unlink(), (g / "a").mkdir()),
    "made binary": lambda g: (g / "a").write_bytes(b"\0" + b"new\n"),
    "created where we deleted": lambda g: (g / "b").write_bytes(b"THEIRS\n"),
    "edited where we created": lambda g: (g / "n").write_bytes(b"THEIRS\n"),
    "edited where we moved to": lambda g: (g / "moved").write_bytes(b"THEIRS\n"),
    "the parent deleted": lambda g: os.rename(g / "d", g.path.parent / "gone"),
    "stealthily": lambda g: rewritten(g / "a", b"eve\n"),
}


@pytest.mark.parametrize("name", _CONFLICTS)
def test_what_cannot_be_reconciled_changes_nothing(tmp_path: Path, name: str) -> None:
    """One file in the way stops the whole undo: the conflict is named, and every file stays as it is."""
    ground = _ground(tmp_path)
    fill(ground.path, {"m": b"m\n"})
    done = ground.apply(put("a", b"new\n"), Delete("b"), put("n", b"n\n"), Move("m", "moved"), put("d/c", b"changed\n"))
    _CONFLICTS[name](ground)
    theirs = ground.tree()
    with pytest.raises(Conflict) as caught:
        ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == theirs
    assert not caught.value.changed
    assert ground.hf.log()[0].live
    assert ground.statuses() == ["COMPLETED"]


def test_every_conflict_is_named_at_once(tmp_path: Path) -> None:
    """A person sees all paths in the way, not one after the other."""
    ground = _ground(tmp_path)
    done = ground.apply(put("a", b"1\n"), put("b", b"2\n"), put("d/c", b"3\n"))
    for name in ("a", "b", "d/c"):
        (ground / name).write_bytes(b"theirs\n")
    with pytest.raises(Conflict) as caught:
        ground.hf.preview_undo(done.id)
    assert all(f"  {name} " in caught.value.message for name in ("a", "b", "d/c"))


def test_what_somebody_reverted_by_hand_is_left_alone(tmp_path: Path) -> None:
    """A file that stands already as before needs no undo, and is no conflict."""
    ground = _ground(tmp_path)
    done = ground.apply(put("a", b"new\n"), put("b", b"new\n"))
    (ground / "a").write_bytes(_TEXT)
    theirs = ground.tree()["a"]
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree()["a"] == theirs
    assert (ground / "b").read_bytes() == b"b\n"


def test_a_directory_with_foreign_files_stays(tmp_path: Path) -> None:
    """Our directory that others use now is left standing with a note; our files in it go."""
    ground = _ground(tmp_path)
    done = ground.apply(put("new/ours", b"1"), put("new/deep/ours", b"2"))
    (ground / "new/deep/theirs").write_bytes(b"t")
    way = ground.hf.preview_undo(done.id)
    assert [item.path for item in way.left] == ["new/deep", "new"]
    back = ground.hf.go_back(way, approved_by="me")
    assert {path for path in ground.tree() if path.startswith("new")} == {"new", "new/deep", "new/deep/theirs"}
    ground.hf.undo(back.id, approved_by="me")
    assert (ground / "new/ours").read_bytes() == b"1"
    (ground / "new/deep/theirs").unlink()
    ground.hf.undo(done.id, approved_by="me")
    assert not (ground / "new").exists()


def test_undo_of_what_never_happened(tmp_path: Path) -> None:
    """Only what was completed can be undone; the refusal says how it ended."""
    ground = _ground(tmp_path)
    rehearsal = ground.ready(ground.plan(put("a", b"1")))
    (ground / "a").write_bytes(b"theirs")
    with pytest.raises(Conflict):
        rehearsal.execute()
    with pytest.raises(InvalidInput, match="ABORTED"):
        ground.hf.undo(ground.hf.log()[0].id, approved_by="me")
    with pytest.raises(UnknownId):
        ground.hf.undo("e-nothere", approved_by="me")


def test_a_change_that_changes_nothing(tmp_path: Path) -> None:
    """An empty change completes, and undoing it changes nothing either."""
    ground = _ground(tmp_path)
    before = ground.tree()
    done = ground.apply(put("a", _TEXT), swap("b", b"b\n", b"b\n"))
    assert done.status == "COMPLETED"
    assert ground.tree() == before
    assert ground.hf.undo(done.id, approved_by="me").status == "COMPLETED"
    assert ground.tree() == before


def test_after_forgetting_there_is_a_clear_refusal(tmp_path: Path) -> None:
    """Older executions past keeping are refused by name; the newest ten can still be undone."""
    ground = _ground(tmp_path)
    old = ground.apply(put("a", b"0"))
    newer = [ground.apply(put("b", b"%d" % n)) for n in range(10)]
    _forget(ground)
    before = ground.tree()
    with pytest.raises(UnknownId, match="no longer kept"):
        ground.hf.undo(old.id, approved_by="me")
    assert ground.tree() == before
    assert not (ground.state / "kept" / old.id).exists()
    ground.hf.undo(newer[-1].id, approved_by="me")
    assert (ground / "b").read_bytes() == b"8"


def test_what_a_kept_undo_needs_is_not_forgotten(tmp_path: Path) -> None:
    """An undo that stays refers to the slots of an older execution, which therefore stays too."""
    ground = _ground(tmp_path)
    old = ground.apply(put("a", b"0"), Delete("d", True))
    for n in range(9):
        ground.apply(put("b", b"%d" % n))
    middle = ground.tree()
    back = ground.hf.undo(old.id, approved_by="me")
    _forget(ground)
    assert (ground.state / "kept" / old.id).exists()
    ground.hf.undo(back.id, approved_by="me")
    assert ground.tree() == middle


# ── restore ──


def test_restore_brings_back_a_moment(tmp_path: Path) -> None:
    """Everything since a moment is taken back in one transaction, through moves, edits, undo, redo; and forth again."""
    ground = _ground(tmp_path)
    old, moment = ground.tree(), time.time_ns()
    ground.apply(put("a", b"1"))
    ground.apply(Move("a", "z"))
    ground.apply(put("z", b"2"))
    back = ground.hf.undo(ground.apply(Delete("d", True)).id, approved_by="me")
    ground.hf.undo(back.id, approved_by="me")
    ground.apply(Create("d", True), put("d/c", b"another"))
    new = ground.tree()
    restored = ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == old
    ground.hf.undo(restored.id, approved_by="me")
    assert ground.tree() == new


def test_restore_across_a_move_and_an_edit(tmp_path: Path) -> None:
    """A file that was moved and then replaced comes back to its first place: its old object lies in the later slot."""
    ground = _ground(tmp_path)
    old, moment = ground.tree(), time.time_ns()
    ground.apply(Move("a", "z"))
    ground.apply(put("z", b"\0binary, so that no text of it is kept"))
    ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == old


def test_restore_to_now_is_nothing(tmp_path: Path) -> None:
    """Nothing happened since: that is said, and nothing is done."""
    ground = _ground(tmp_path)
    ground.apply(put("a", b"1"))
    with pytest.raises(Blocked):
        ground.hf.restore(time.time_ns(), approved_by="me")


def test_restore_revives_what_was_undone_since(tmp_path: Path) -> None:
    """An undo after the moment is itself taken back, and the record shows the first change as live again."""
    ground = _ground(tmp_path)
    done = ground.apply(put("a", b"1"))
    new, moment = ground.tree(), time.time_ns()
    ground.hf.undo(done.id, approved_by="me")
    ground.hf.restore(moment, approved_by="me")
    assert ground.tree() == new
    assert [row.live for row in ground.hf.log() if row.id == done.id] == [True]
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").read_bytes() == _TEXT


# ── doing it again ──


def test_a_plan_whose_effect_stands_is_known_as_done(tmp_path: Path) -> None:
    """Asked twice, the engine knows the execution that did it, until anything of it is undone or touched."""
    ground = _ground(tmp_path)
    plan = ground.plan(put("a", b"new\n"), Chmod("b", 0o600), Create("n", True), Delete("d", True))
    assert ground.hf.already_done(plan) is None
    done = ground.hf.execute(ground.hf.simulate(plan), approved_by="me")
    row = ground.hf.already_done(plan)
    assert row is not None and row.id == done.id
    back = ground.hf.undo(done.id, approved_by="me")
    assert ground.hf.already_done(plan) is None
    ground.hf.undo(back.id, approved_by="me")
    assert ground.hf.already_done(plan) is not None


@pytest.mark.parametrize(
    "touch",
    [
        lambda g: rewritten(g / "a", b"evl\n"),
        lambda g: (g / "a").write_bytes(b"theirs"),
        lambda g: (g / "b").chmod(0o644),
        lambda g: (g / "n").rmdir(),
        lambda g: (g / "d").mkdir(),
        lambda g: os.setxattr(g / "a", "user.x", b"1"),
    ],
    ids=["stealthily", "edited", "chmodded", "removed", "made again", "attribute"],
)
def test_a_plan_whose_effect_was_touched_is_not_done(tmp_path: Path, touch: object) -> None:
    """A single touched path, even with its size and time put back, and the plan counts as not done."""
    ground = _ground(tmp_path)
    plan = ground.plan(put("a", b"new\n"), Chmod("b", 0o600), Create("n", True), Delete("d", True))
    ground.hf.execute(ground.hf.simulate(plan), approved_by="me")
    touch(ground)  # type: ignore[operator]
    assert ground.hf.already_done(plan) is None


def test_an_undo_where_a_hard_link_was_made_since(tmp_path: Path) -> None:
    """A second name for what we wrote stops the undo: taking it back would separate the two."""
    ground = _ground(tmp_path)
    done = ground.apply(put("a", b"new"))
    os.link(ground / "a", ground / "second")
    before = ground.tree()
    with pytest.raises(HoldfastError):
        ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before
