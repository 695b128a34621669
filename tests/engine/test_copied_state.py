"""The state was copied away and back, or came from a backup: content decides what can be undone, not inodes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import ME, Ground, Interloper, Tree, guard, put
from holdfast.errors import Conflict, NeedsHuman
from holdfast.model.plan import Chmod, CommandCheck, Delete, Move


def _copied(state: Path, aside: Path, *options: str) -> None:
    """Copy the state away, remove it, and copy it back, as a person would."""
    subprocess.run(["cp", *options, str(state), str(aside)], check=True)
    shutil.rmtree(state)
    subprocess.run(["cp", *options, str(aside), str(state)], check=True)


def _archived(state: Path, aside: Path) -> None:
    subprocess.run(["tar", "-C", str(state.parent), "-cf", str(aside), state.name], check=True)
    shutil.rmtree(state)
    subprocess.run(["tar", "-C", str(state.parent), "-xf", str(aside)], check=True)


def _bit_by_bit(state: Path, aside: Path) -> None:
    _copied(state, aside, "-r")


def _with_attributes(state: Path, aside: Path) -> None:
    _copied(state, aside, "-a")


@pytest.mark.parametrize("copied", [_with_attributes, _bit_by_bit, _archived])
def test_undo_works_after_the_state_was_copied(tmp_path: Path, copied: Callable[[Path, Path], None]) -> None:
    """A replaced, a deleted and a moved file, a mode and a directory come back from a copied state, times included."""
    ground, execution, old = _changed(tmp_path)
    ground.hf.close()
    copied(ground.state, tmp_path / "aside")
    ground = Ground(ground.path)
    ground.hf.undo(execution, approved_by=ME)
    assert ground.tree() == old


def test_a_copied_state_can_be_redone_and_undone_again(tmp_path: Path) -> None:
    """Undo, undo of the undo and undo again all work over a state that was copied between them."""
    ground, execution, old = _changed(tmp_path)
    new = ground.tree()
    ground.hf.close()
    _with_attributes(ground.state, tmp_path / "aside")
    ground = Ground(ground.path)
    back = ground.hf.undo(execution, approved_by=ME)
    ground.hf.close()
    _with_attributes(ground.state, tmp_path / "again")
    ground = Ground(ground.path)
    way = ground.hf.preview_undo(back.id)
    ground.hf.go_back(way, approved_by=ME, consent=ground.hf.again(way).plan.id)
    assert ground.tree() == new
    ground.hf.undo(execution, approved_by=ME)
    assert ground.tree() == old


def test_a_copied_slot_that_somebody_edited_is_a_conflict(tmp_path: Path) -> None:
    """Old content that was altered in a copied state is never put back, and nothing at all is undone."""
    ground = guard(tmp_path / "workspace", {"a": b"\0old"})
    execution = ground.apply(put("a", b"\0new"))
    ground.hf.close()
    _with_attributes(ground.state, tmp_path / "aside")
    slot = ground.state / "kept" / execution.id / "1"
    about = slot.stat()
    slot.write_bytes(b"\0bad")
    os.utime(slot, ns=(about.st_atime_ns, about.st_mtime_ns))
    ground = Ground(ground.path)
    before = ground.tree()
    with pytest.raises(Conflict, match="old content was changed"):
        ground.hf.undo(execution.id, approved_by=ME)
    assert ground.tree() == before


def test_a_later_edit_is_merged_with_old_text_from_a_copied_state(tmp_path: Path) -> None:
    """The old text for a three-way merge is found in a copied slot too."""
    text = b"".join(b"line %d\n" % n for n in range(20))
    ground = guard(tmp_path / "workspace", {"a": text})
    execution = ground.apply(put("a", text.replace(b"line 2\n", b"changed\n")))
    (ground / "a").write_bytes((ground / "a").read_bytes().replace(b"line 17\n", b"mine\n"))
    ground.hf.close()
    _with_attributes(ground.state, tmp_path / "aside")
    ground = Ground(ground.path)
    ground.hf.undo(execution.id, approved_by=ME)
    assert (ground / "a").read_bytes() == text.replace(b"line 17\n", b"mine\n")


@pytest.mark.parametrize("copied", [_with_attributes, _archived])
def test_what_waits_for_a_person_can_be_decided_over_a_copied_state(
    tmp_path: Path, copied: Callable[[Path, Path], None]
) -> None:
    """The record that it waits is no record of its end: a copy made since is no old one, and is gone on with."""
    ground = guard(tmp_path / "workspace", {"a": b"old a", "b": b"old b"})
    meddler = CommandCheck(("sh", "-c", "echo theirs > b; exit 1"), 1_000)
    with pytest.raises(NeedsHuman):
        ground.apply(put("a", b"new a"), put("b", b"new b"), health=(meddler,))
    ground.hf.close()
    copied(ground.state, tmp_path / "aside")
    ground = Ground(ground.path)
    with pytest.raises(NeedsHuman, match="b"):
        ground.hf.recover()
    ground.hf.recover(accept=True)
    assert ((ground / "a").read_bytes(), (ground / "b").read_bytes()) == (b"old a", b"theirs\n")
    row = ground.hf.log()[0]
    assert row.status == "FAILED"
    assert b"old b" in [slot.read_bytes() for slot in (ground.state / "kept" / row.id).iterdir()]


def test_a_rollback_that_broke_off_is_finished_from_a_copied_state(tmp_path: Path) -> None:
    """The disk failed in the middle of it, the execution waits, and the state is copied to a better one."""
    ground = guard(tmp_path / "workspace", {"a": b"old a", "b": b"old b"}, calls := Interloper())

    def broken() -> None:
        raise OSError(errno.EIO, "the disk is broken")

    ready = ground.ready(ground.plan(put("a", b"new a"), put("b", b"new b"), health=(CommandCheck(("false",), 1_000),)))
    calls.arm("exchange", broken, skip=3)  # two forward; the second one back
    with pytest.raises(NeedsHuman):
        ready.execute()
    assert calls.struck == 1
    assert {(ground / name).read_bytes()[:3] for name in "ab"} == {b"old", b"new"}
    ground.hf.close()
    _with_attributes(ground.state, tmp_path / "aside")
    ground = Ground(ground.path)
    ground.hf.recover()
    assert ((ground / "a").read_bytes(), (ground / "b").read_bytes()) == (b"old a", b"old b")
    assert ground.hf.log()[0].status == "ROLLED_BACK"


def _changed(tmp_path: Path) -> tuple[Ground, str, Tree]:
    files = {name: b"\0%s, no text" % name.encode() for name in ("edited", "deleted", "moved", "closed", "d/inside")}
    ground = guard(tmp_path / "workspace", files)
    (ground / "link").symlink_to("edited")
    old = ground.tree()
    execution = ground.apply(
        put("edited", b"\0new"),
        Delete("deleted"),
        Move("moved", "elsewhere"),
        Chmod("closed", 0o600),
        Delete("d", recursive=True),
        Delete("link"),
    )
    return ground, execution.id, old
