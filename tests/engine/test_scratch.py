"""The copy that checks run in: made without itself, refused with a name when it cannot be made, and always removed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from attacks.conftest import public as public
from guarded import ME, Ground, as_user, contents, guard, in_child, put
from holdfast.errors import Blocked, VerificationFailed
from holdfast.model.plan import CommandCheck


def _temporary_files_go_to(directory: Path) -> None:
    """Only ever called in a child, whose environment ends with it."""
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None  # it is looked up once and remembered


def _check(script: str) -> tuple[CommandCheck, ...]:
    return (CommandCheck(("sh", "-c", script), 10_000),)


def _apply(ground: Ground, script: str) -> None:
    plan = ground.plan(put("a", b"1"), verify=_check(script))
    ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)


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
