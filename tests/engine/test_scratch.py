"""The copy that checks run in: made without itself, refused with a name when it cannot be made, and always removed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from guarded import ME, USER, Ground, as_user, contents, guard, in_child, put
from holdfast.checks.verify import verify
from holdfast.engine.checking import Verified
from holdfast.engine.pipeline import require_passed
from holdfast.errors import Blocked, VerificationFailed
from holdfast.model.plan import CommandCheck, Move, Plan
from holdfast.workspace.scratch import scratch_copy


def _temporary_files_go_to(directory: Path) -> None:
    """Only ever called in a child, whose environment ends with it."""
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None  # it is looked up once and remembered


def _check(script: str) -> tuple[CommandCheck, ...]:
    return (CommandCheck(("sh", "-c", script), 10_000),)


def _apply(ground: Ground, script: str) -> None:
    _carried_out(ground, ground.plan(put("a", b"1")), script)


def _carried_out(ground: Ground, plan: Plan, script: str) -> None:
    """Checked in a scratch copy, as where no sandbox is to be had, and then carried out."""
    simulated = ground.hf.simulate(plan)
    with scratch_copy(ground.hf.site, simulated.change_set, simulated.sources) as directory:
        receipts = verify(_check(script), directory=directory, tree_digest="", save_log=lambda data: "")
    require_passed(Verified(receipts, ""))
    ground.hf.execute(simulated, approved_by=ME)


def test_temporary_files_inside_the_workspace(tmp_path: Path) -> None:
    """With TMPDIR below the workspace the copy does not copy itself, and the check sees everything else."""
    ground = guard(tmp_path / "workspace", {"a": b"0", "tmp/mine": b"kept", "d/x": b"x"})

    def act() -> None:
        _temporary_files_go_to(ground / "tmp")
        _apply(Ground(ground.path), 'test "$(ls -A tmp)" = mine && test "$(cat a d/x)" = 1x && test ! -e .holdfast')

    assert in_child(act) == 0
    assert contents(ground.tree()) == {"a": b"1", "tmp/mine": b"kept", "d/x": b"x"}
    assert os.listdir(ground / "tmp") == ["mine"]


@pytest.mark.parametrize("script", ["touch left", "touch left; exit 1", "rm -rf ../workspace", "chmod 0 . ; exit 1"])
def test_the_copy_is_gone_afterwards(tmp_path: Path, script: str) -> None:
    """Whatever a check did to its copy and however it ended, the copy is gone and the workspace has nothing of it."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    fails = script.endswith("exit 1")

    def act() -> None:
        _temporary_files_go_to(elsewhere)
        try:
            _apply(Ground(ground.path), script)
        except VerificationFailed:
            assert fails

    assert in_child(act) == 0
    assert os.listdir(elsewhere) == []
    assert contents(ground.tree()) == {"a": b"0" if fails else b"1"}


def _import_what_checks_need(place: Path) -> None:
    """Once as root: an ordinary user may not be able to import from an interpreter that lies in root's home."""
    _apply(guard(place, {"a": b"0"}), "true")


@pytest.mark.root
def test_a_file_that_cannot_be_copied_is_named(public: Path, tmp_path: Path) -> None:
    """An ordinary user has a file they cannot read: the checks cannot run, which is said with its name; no change."""
    _import_what_checks_need(tmp_path / "first")

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"0", "d/locked": b"0"})
        (ground / "d/locked").chmod(0)
        _temporary_files_go_to(public / "home")
        with pytest.raises(Blocked, match=r"locked: .*Permission denied") as caught:
            _apply(ground, "true")
        assert not caught.value.changed
        assert (ground / "a").read_bytes() == b"0"
        assert not any(name.startswith("holdfast-scratch") for name in os.listdir(public / "home"))
        ground.apply(put("a", b"2"))

    as_user(public, act)


@pytest.mark.root
def test_a_check_that_leaves_closed_directories(public: Path, tmp_path: Path) -> None:
    """Directories that a check closed, one inside the other, are removed with the rest, and the change lands."""
    _import_what_checks_need(tmp_path / "first")

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"0"})
        _temporary_files_go_to(public / "home")
        _apply(ground, "mkdir -p q/r/s; echo > q/r/s/t; ln -s / q/link; chmod 000 q/r/s; chmod 000 q/r; chmod 500 q")
        assert contents(ground.tree()) == {"a": b"1"}
        assert not any(name.startswith("holdfast-scratch") for name in os.listdir(public / "home"))

    as_user(public, act)


@pytest.mark.root
def test_a_file_of_somebody_else_is_moved_and_checked(tmp_path: Path) -> None:
    """The copy belongs to whoever runs the checks; that its owner differs there is no conflict."""
    ground = guard(tmp_path / "workspace", {"a": b"1", "d/b": b"2"})
    for name in ("a", "d", "d/b"):
        os.chown(ground / name, USER, USER)
    _carried_out(ground, ground.plan(Move("a", "z"), Move("d", "e/d")), 'test "$(cat z e/d/b)" = 12')
    assert [os.stat(ground / name).st_uid for name in ("z", "e/d", "e/d/b")] == [USER] * 3


@pytest.mark.parametrize("depth", [600, 1900])
def test_a_tree_deeper_than_the_stack(tmp_path: Path, depth: int) -> None:
    """However deep the tree is, the checks run in a copy of it, or it is said why not; the copy is gone afterwards."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here = os.open(ground.path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    def act() -> None:
        _temporary_files_go_to(elsewhere)
        # The check digs deeper than any path is long.
        dig = "import os\nfor n in range(3000): os.mkdir('x'); os.chdir('x')"
        _apply(Ground(ground.path), f'test -d {"d/" * 500} && {sys.executable} -c "{dig}"')

    assert in_child(act) == 0
    assert (ground / "a").read_bytes() == b"1"
    assert os.listdir(elsewhere) == []
    subprocess.run(["rm", "-rf", str(ground / "d")], check=True)  # pytest's own removal would not come to the end of it
