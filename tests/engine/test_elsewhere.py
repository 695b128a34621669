"""What others change elsewhere while an execution runs is seen, told and left alone; it never changes the exit."""

from __future__ import annotations

from pathlib import Path

import pytest

from guarded import Ground, Interloper, guard, put
from holdfast.errors import VerificationFailed
from holdfast.model.image import Image
from holdfast.model.plan import CommandCheck, Read
from holdfast.workspace.surroundings import Surroundings

_FILES = {"a": b"a", "theirs/edited": b"1", "theirs/gone": b"1", "z": b"z"}


def _meddled(tmp_path: Path) -> tuple[Ground, Interloper]:
    calls = Interloper()
    ground = guard(tmp_path / "workspace", _FILES, calls)

    def meddle() -> None:
        (ground / "theirs/edited").write_bytes(b"another")
        (ground / "theirs/gone").unlink()
        (ground / "new").mkdir()
        (ground / "new/file").write_bytes(b"1")

    calls.arm("exchange", meddle)
    return ground, calls


def test_changes_elsewhere_are_told(tmp_path: Path) -> None:
    """Created, edited and removed paths are divergence of an execution that succeeded, and stay as they are."""
    ground, calls = _meddled(tmp_path)
    done = ground.apply(put("a", b"new"))
    assert calls.struck == 1
    assert done.status == "COMPLETED"
    assert {item.path: item.detail for item in done.divergence} == {
        "new": "was created meanwhile, not by this change",
        "new/file": "was created meanwhile, not by this change",
        "theirs/edited": "was changed meanwhile, not by this change",
        "theirs/gone": "was removed meanwhile, not by this change",
    }
    assert done.not_looked_at == ""
    assert (ground / "theirs/edited").read_bytes() == b"another"
    assert all(step.success for step in done.steps)


def test_they_are_told_of_a_rollback_too(tmp_path: Path) -> None:
    """The rollback proves its own paths, and names what others did elsewhere."""
    ground, _ = _meddled(tmp_path)
    with pytest.raises(VerificationFailed):
        ground.apply(put("a", b"new"), health=(CommandCheck(("false",), 1_000),))
    _, document = ground.hf.show(ground.hf.log()[0].id)
    assert document is not None
    assert document["state"] == "ROLLED_BACK"
    assert [item["path"] for item in document["divergence"]] == ["new", "theirs/edited", "theirs/gone", "new/file"]  # type: ignore[union-attr,index,call-overload]
    assert document["paths_proven"] == 1


def test_a_path_that_a_step_only_read_may_change(tmp_path: Path) -> None:
    """The step was done, and tells what stands now, which it does not match; the execution succeeds, names the path."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", _FILES, calls)
    calls.arm("exchange", lambda: (ground / "z").write_bytes(b"another"))
    done = ground.apply(Read("z"), put("a", b"new"))
    assert done.status == "COMPLETED"
    assert [(step.success, step.expected_vs_actual_match) for step in done.steps] == [(True, False), (True, True)]
    assert done.steps[0].error_message == "z was changed meanwhile"
    assert (done.steps[0].size, done.steps[0].actual_state_change) == (7, "none: file, 7 bytes, mode 0644")
    assert [item.path for item in done.divergence] == ["z"]


def test_what_was_there_before_is_not_told(tmp_path: Path) -> None:
    """Changes after the simulation and before the execution are no changes during it."""
    ground = guard(tmp_path / "workspace", _FILES)
    ready = ground.ready(ground.plan(put("a", b"new")))
    (ground / "z").write_bytes(b"before")
    (ground / "theirs/gone").unlink()
    assert ready.execute().divergence == ()


@pytest.mark.parametrize("most", [4, 5])
def test_a_large_tree_is_not_looked_at_and_that_is_told(tmp_path: Path, most: int) -> None:
    """Above the limit the look says that the rest was not looked at; own paths are read all the same."""
    ground = guard(tmp_path / "workspace", _FILES)
    ground.hf.simulate(ground.plan(put("a", b"new")))
    around = Surroundings(ground.hf.site, most)
    (ground / "z").write_bytes(b"another")
    looked = around.look(["a"], lambda path: Image("file", 0o644, 0, 0, 1, path))
    if most == 4:
        assert (looked.elsewhere, looked.not_looked_at) == ((), "it has more than 4 paths")
        assert looked.image("a") == Image("file", 0o644, 0, 0, 1, "a")
    else:
        assert ([item.path for item in looked.elsewhere], looked.not_looked_at) == (["z"], "")


def test_why_it_was_not_looked_at_is_recorded(tmp_path: Path) -> None:
    """An execution that cannot know what others changed succeeds, and says why in its result and in its record."""
    ground = guard(tmp_path / "workspace", _FILES)
    ready = ground.ready(ground.plan(put("a", b"new")))
    (ground.state / "index").unlink()
    done = ready.execute()
    assert (done.status, done.divergence) == ("COMPLETED", ())
    assert done.not_looked_at == "it was not looked at before, so there is nothing to compare it with"
    _, document = ground.hf.show(done.id)
    assert document is not None
    assert document["divergence_not_looked_at"] == done.not_looked_at
