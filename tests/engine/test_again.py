"""The same plan once more, and plans that find things as they want them: what is claimed was looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import ME, Ground, guard, put
from holdfast.errors import Conflict, VerificationFailed
from holdfast.model.plan import Chmod, CommandCheck, Create, Delete, Inline, Read, Step, Symlink, Update

_FILES = {"a": b"1", "b": b"0", "c": b"c"}


def _once(ground: Ground, *steps: Step, health: tuple[CommandCheck, ...] = ()) -> object:
    plan = ground.plan(*steps, health=health)
    ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
    return plan


@pytest.mark.parametrize(
    ("steps", "touch"),
    [
        ((put("a", b"1"), put("b", b"2")), lambda g: (g / "a").write_bytes(b"x")),
        ((put("a", b"1"), put("b", b"2"), Delete("c")), lambda g: (g / "a").write_bytes(b"x")),
        ((Chmod("a", 0o644), put("b", b"2"), Delete("c")), lambda g: (g / "a").chmod(0o600)),
        ((Read("a"), put("b", b"2"), Delete("c")), lambda g: (g / "a").unlink()),
        ((Create("t", False), Delete("t"), Delete("c")), lambda g: (g / "t").touch()),
        ((Symlink("l", "a"), put("b", b"2")), lambda g: (os.unlink(g / "l"), os.symlink("b", g / "l"))),
    ],
    ids=["written", "with a deletion", "mode", "only read", "made and deleted", "link"],
)
def test_a_path_that_needed_no_change_counts_too(
    tmp_path: Path, steps: tuple[Step, ...], touch: Callable[[Ground], object]
) -> None:
    """A plan counts as done while all that it names stands so, also what stood so before it came."""
    ground = guard(tmp_path / "workspace", _FILES)
    os.symlink("a", ground / "l")
    plan = _once(ground, *steps)
    assert ground.hf.already_done(plan) is not None  # type: ignore[arg-type]
    touch(ground)
    assert ground.hf.already_done(plan) is None  # type: ignore[arg-type]


def test_health_is_never_taken_from_the_past(tmp_path: Path) -> None:
    """A plan with health checks is not known as done: asked again, they run again, and may fail."""
    ground = guard(tmp_path / "workspace", {**_FILES, "flag": b""})
    check = (CommandCheck(("test", "-e", "flag"), 200),)
    plan = _once(ground, Read("a"), put("b", b"2"), health=check)
    assert ground.hf.already_done(plan) is None  # type: ignore[arg-type]
    (ground / "flag").unlink()
    with pytest.raises(VerificationFailed):
        _once(ground, Read("a"), put("b", b"2"), health=check)


@pytest.mark.parametrize(
    ("step", "touch"),
    [
        (Update("a", b"1", Inline(b"1")), lambda g: (g / "a").write_bytes(b"x")),
        (put("a", b"1"), lambda g: (g / "a").unlink()),
        (Chmod("a", 0o644), lambda g: (g / "a").chmod(0o600)),
        (Symlink("l", "a"), lambda g: (os.unlink(g / "l"), os.symlink("b", g / "l"))),
    ],
    ids=["update", "write", "chmod", "link"],
)
def test_what_stood_as_wanted_must_still_stand(tmp_path: Path, step: Step, touch: Callable[[Ground], object]) -> None:
    """A step that needs no change relies on what it saw: changed between rehearsal and apply, it is a conflict."""
    ground = guard(tmp_path / "workspace", _FILES)
    os.symlink("a", ground / "l")
    rehearsal = ground.ready(ground.plan(step, put("b", b"2")))
    assert [change.path for change in rehearsal.change_set.changes] == ["b"]
    touch(ground)
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert (ground / "b").read_bytes() == b"0"
    assert ground.statuses() == ["ABORTED"]


def test_checks_that_fail_the_second_time_are_recorded(tmp_path: Path) -> None:
    """The tree moved after the checks, they ran again and failed: the refusal is in the records, with its receipts."""
    ground = guard(tmp_path / "workspace", {**_FILES, "flag": b""})
    plan = ground.plan(put("a", b"2"), verify=(CommandCheck(("test", "-e", "flag"), 5_000),))
    rehearsal = ground.hf.simulate(plan)
    proof = ground.hf.verify(rehearsal)
    (ground / "flag").unlink()
    with pytest.raises(VerificationFailed):
        ground.hf.execute(rehearsal, approved_by=ME, verified=proof)
    assert ground.statuses() == ground.ledger_statuses() == ["ABORTED"]
    assert ground.hf.last is not None and ground.hf.last.status == "ABORTED"
    assert [receipt.passed for receipt in ground.hf.last.receipts] == [False]
