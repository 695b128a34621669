"""A workspace that is itself an overlay, as in a container: what stands in a lower layer, and what does not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from file_systems import mount_alone, mount_overlay, why_not
from guarded import ME, Ground, fill, put
from holdfast.errors import Blocked, HoldfastError
from holdfast.model.plan import Delete, Move, Step

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(why_not("tmpfs")), reason=why_not("tmpfs"))]

_FILES = {"dir/f": b"f\n", "dir/sub/g": b"g\n", "empty/": b"", "top": b"top\n"}


@pytest.fixture
def layered(tmp_path: Path) -> Iterator[Ground]:
    """Everything stands in the lower layer; the state, made later, is in the upper one."""
    mount_alone()
    base, at = tmp_path / "base", tmp_path / "workspace"
    base.mkdir()
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(base)], check=True)
    try:
        (base / "lower").mkdir()
        fill(base / "lower", _FILES)
        mount_overlay(str(base), str(at))
        try:
            holdfast.init(str(at))
            ground = Ground(at)
            yield ground
            ground.hf.close()
        finally:
            subprocess.run(["umount", "--lazy", str(at)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(base)], check=True)


@pytest.mark.parametrize(
    "steps",
    [
        [Delete("empty", recursive=True)],
        [Delete("dir", recursive=True)],
        [Move("dir", "elsewhere")],
        [Delete("dir/sub", recursive=True), put("dir/sub", b"a file now")],
    ],
    ids=["delete-empty", "delete", "move", "turn-into-a-file"],
)
def test_a_directory_of_the_lower_layer_is_refused_in_the_rehearsal(layered: Ground, steps: list[Step]) -> None:
    """The simulation names the directory and the reason; nothing is decided, begun or moved."""
    before = layered.tree()
    with pytest.raises(HoldfastError, match="a directory of a lower layer of this overlay file system") as caught:
        layered.hf.simulate(layered.plan(*steps))
    assert (caught.value.exit_status, caught.value.changed) == (Blocked.exit_status, False)
    assert layered.tree() == before
    assert layered.journal() == []


def test_the_way_on_can_be_pasted(layered: Ground) -> None:
    """After the commands of the hint, for each directory that is named, the change lands and can be undone."""
    plan = layered.plan(Delete("dir", recursive=True))
    for _ in range(3):
        try:
            simulated = layered.hf.simulate(plan)
            break
        except HoldfastError as error:
            found = re.search(r"cp -a .*", error.hint)
            assert found is not None
            subprocess.run(["sh", "-c", found[0]], cwd=layered.path, check=True)
    before = layered.tree()
    done = layered.hf.execute(simulated, approved_by=ME, consent=plan.id)
    assert "dir" not in layered.tree()
    layered.hf.undo(done.id, approved_by=ME)
    assert layered.tree() == before


def test_files_of_the_lower_layer_are_changed_and_come_back(layered: Ground) -> None:
    """Files can be replaced, moved and deleted; so can directories that were made in the upper layer."""
    before = layered.tree()
    done = layered.apply(put("top", b"new"), Move("dir/f", "dir/moved"), Delete("dir/sub/g"), put("made/x", b"x"))
    assert layered.hf.undo(done.id, approved_by=ME).status == "COMPLETED"
    assert layered.tree() == before


def test_an_undo_that_would_take_a_directory_of_a_lower_layer_is_refused(layered: Ground) -> None:
    """What was made in the upper layer stands in a lower one by now, as after a container's commit: nothing begins."""
    done = layered.apply(put("made/x", b"x"))
    layered.hf.close()
    base = layered.path.parent / "base"
    subprocess.run(["umount", str(layered.path)], check=True)
    for name in ("lower", "work"):
        (base / name).rename(base / f"old-{name}")
    (base / "upper").rename(base / "lower")
    mount_overlay(str(base), str(layered.path))
    ground = Ground(layered.path)
    before = ground.tree()
    with pytest.raises(HoldfastError, match="made is a directory of a lower layer of this overlay") as caught:
        ground.hf.undo(done.id, approved_by=ME)
    assert (caught.value.exit_status, caught.value.changed) == (Blocked.exit_status, False)
    assert ground.tree() == before
    assert ground.journal() == []
    ground.hf.close()


def test_nothing_that_could_be_renamed_is(layered: Ground) -> None:
    """Asking the kernel whether a directory can be renamed leaves it where it is, with what is in it."""
    layered.apply(put("made/x", b"x"), put("made/deep/y", b"y"))
    before = layered.tree()
    layered.hf.simulate(layered.plan(Delete("made", recursive=True)))
    assert layered.tree() == before
