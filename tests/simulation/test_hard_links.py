"""A file with several names: what the transaction would refuse, the rehearsal refuses, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, guard, put
from holdfast.errors import Blocked
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Read, Step, Symlink, Update

REFUSED: dict[str, tuple[Step, ...]] = {
    "write": (put("lib/calc.py", b"new\n"),),
    "update": (Update("lib/calc.py", b"old\n", Inline(b"new\n")),),
    "delete": (Delete("lib/calc.py"),),
    "delete the other name": (Delete("twin"),),
    "delete its directory": (Delete("lib", recursive=True),),
    "move": (Move("lib/calc.py", "moved.py"),),
    "move its directory": (Move("lib", "library"),),
    "chmod": (Chmod("lib/calc.py", 0o600),),
}
ALLOWED: dict[str, tuple[Step, ...]] = {
    "read": (Read("lib/calc.py"), put("other", b"x")),
    "the same bytes": (put("lib/calc.py", b"old\n"), put("other", b"x")),
    "there and back": (put("lib/calc.py", b"new\n"), put("lib/calc.py", b"old\n"), put("other", b"x")),
    "beside it": (Create("lib/new.py", directory=False), Symlink("link", "lib/calc.py")),
}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "workspace", {"lib/calc.py": b"old\n"})
    os.link(ground.path / "lib/calc.py", ground.path / "twin")
    yield ground
    ground.hf.close()


@pytest.mark.parametrize("steps", REFUSED.values(), ids=REFUSED)
def test_what_cannot_land_is_refused_in_the_rehearsal(
    ground: Ground, steps: tuple[Step, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation says it before anybody is asked, in the words and with the advice of the transaction."""
    before, plan = ground.tree(), Plan("a test", steps)
    with pytest.raises(Blocked, match="has 2 hard links; changing it would separate them") as early:
        ground.hf.simulate(plan)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.simulation.rehearsal.refuse_shared_inodes", lambda change_set, seen: None)
        found = ground.hf.simulate(plan)
    with pytest.raises(Blocked) as late:
        ground.hf.execute(found, approved_by=ME, consent=plan.id)
    assert early.value.message == late.value.message
    assert late.value.hint.startswith(early.value.hint.partition("\nSee the report")[0])
    assert ground.tree() == before


@pytest.mark.parametrize("steps", ALLOWED.values(), ids=ALLOWED)
def test_what_leaves_the_file_alone_is_rehearsed_and_lands(ground: Ground, steps: tuple[Step, ...]) -> None:
    """Reading it, wanting it as it is, or working beside it is no reason to refuse."""
    assert ground.apply(*steps).status == "COMPLETED"
    assert os.stat(ground.path / "twin").st_nlink == 2
