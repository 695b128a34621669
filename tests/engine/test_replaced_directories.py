"""A directory above a changed path that goes, or becomes something else, after the rehearsal: the workspace changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from guarded import ME, Ground, guard, put, swap
from holdfast.errors import Conflict
from holdfast.model.plan import Chmod, CommandCheck, Delete, Move, Plan, Step

_CHECK = CommandCheck(("true",))
_STEPS: dict[str, Step] = {
    "made": put("p/new", b"1"),
    "made below": put("p/q/new", b"1"),
    "updated": swap("p/x", b"old", b"new"),
    "mode": Chmod("p/x", 0o600),
    "removed": Delete("p/x"),
    "all removed": Delete("p", recursive=True),
    "moved": Move("p/x", "y"),
}
_REPLACED: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda place, elsewhere: os.symlink(elsewhere, place),
    "a file": lambda place, _: place.write_bytes(b""),
    "nothing": lambda *_: None,
}


def _replaced(ground: Ground, tmp_path: Path, by: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_bytes(b"old")
    (ground / "p").rename(ground / "p.old")
    _REPLACED[by](ground / "p", elsewhere)


@pytest.mark.parametrize("by", _REPLACED)
@pytest.mark.parametrize("shadow", ["overlay", "copy"])
@pytest.mark.parametrize("name", ["made", "made below", "updated", "mode"])
def test_checks_say_that_the_workspace_changed(
    tmp_path: Path, name: str, shadow: Literal["overlay", "copy"], by: str
) -> None:
    """It is the workspace where the directory is none any more, and not something about the shadow."""
    ground = guard(tmp_path / "workspace", {"p/x": b"old"})
    simulated = ground.hf.simulate(Plan("try", (_STEPS[name],), verify=(_CHECK,)), shadow=shadow)
    _replaced(ground, tmp_path, by)
    with pytest.raises(Conflict) as caught:
        ground.hf.verify(simulated)
    assert caught.value.message == "the workspace changed: p is no directory there any more"
    assert caught.value.hint == "Nothing was changed. Simulate again."


@pytest.mark.parametrize("by", _REPLACED)
@pytest.mark.parametrize("name", _STEPS)
def test_a_landing_says_that_the_workspace_changed(tmp_path: Path, name: str, by: str) -> None:
    """It is a conflict, whichever way the change would have used the directory; nothing moved."""
    ground = guard(tmp_path / "workspace", {"p/x": b"old"})
    simulated = ground.hf.simulate(ground.plan(_STEPS[name]))
    _replaced(ground, tmp_path, by)
    before = ground.tree()
    with pytest.raises(Conflict, match=r"^p( |/)"):
        ground.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert ground.tree() == before
    assert ground.statuses() == ["ABORTED"]


def test_a_directory_that_is_replaced_after_the_checks_is_recorded(tmp_path: Path) -> None:
    """They would have to run again, and cannot: the change that was tried is in the records, with the reason."""
    ground = guard(tmp_path / "workspace", {"p/x": b"old"})
    simulated = ground.hf.simulate(Plan("try", (put("p/x", b"new"),), verify=(_CHECK,)))
    verified = ground.hf.verify(simulated)
    _replaced(ground, tmp_path, "a link")
    with pytest.raises(Conflict, match="the workspace changed: p is no directory there any more"):
        ground.hf.execute(simulated, approved_by=ME, verified=verified)
    assert ground.statuses() == ["ABORTED"]
    assert (tmp_path / "elsewhere" / "x").read_bytes() == b"old"
