"""What a step asked for is never lost to a program that runs in the same plan, and never told to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, guard, put
from holdfast.engine.checking import ShadowKind
from holdfast.engine.simulator import Simulated
from holdfast.errors import Blocked
from holdfast.model.execution import Execution
from holdfast.model.plan import Chmod, CommandCheck, Delete, Move, Run, Step, Symlink

KEY = b"not-for-programs\n"
FILES = {
    "secrets/key": KEY,
    "secrets/other": b"other-hidden-bytes\n",
    "conf/.env": b"PASSWORD=of-the-tests\n",
    "conf/a": b"a\n",
    ".gitignore": b"build/\n",
    "build/old": b"old\n",
    "holdfast.toml": b'[workspace]\nhidden = ["secrets/**", "**/.env"]\n',
}
TOUCH = Run(("touch", "touched"))
ROTATE = put("secrets/key", b"rotated\n")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "workspace", FILES)
    subprocess.run(["git", "init", "-q", str(ground.path)], check=True)
    yield ground
    ground.hf.close()


@pytest.fixture(params=["overlay", "copy"])
def kind(request: pytest.FixtureRequest) -> ShadowKind:
    chosen: ShadowKind = request.param
    return chosen


def shell(script: str) -> Run:
    return Run(("sh", "-c", script))


def simulated(ground: Ground, kind: ShadowKind, *steps: Step) -> Simulated:
    return ground.hf.simulate(ground.plan(*steps), shadow=kind)


def landed(ground: Ground, kind: ShadowKind, *steps: Step) -> Execution:
    found = simulated(ground, kind, *steps)
    done = ground.hf.execute(found, approved_by=ME, consent=found.plan.id)
    assert [step.success for step in done.steps] == [True] * len(steps)
    assert ground.hf.tree().digest == found.report.predicted_tree
    return done


@pytest.mark.parametrize("steps", [(ROTATE, TOUCH), (TOUCH, ROTATE), (ROTATE, TOUCH, Run(("cp", "touched", "x")))])
def test_a_hidden_file_is_written(ground: Ground, kind: ShadowKind, steps: tuple[Step, ...]) -> None:
    """A write to a hidden path lands although a program runs before or after it, and an undo takes it back."""
    done = landed(ground, kind, *steps)
    assert (ground / "secrets/key").read_bytes() == b"rotated\n"
    assert (ground / "touched").exists()
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "secrets/key").read_bytes() == KEY


def test_every_step_on_hidden_paths_is_done(ground: Ground, kind: ShadowKind) -> None:
    """Create, chmod, symlink, move and delete in a hidden directory all land beside a program."""
    landed(ground, kind, put("secrets/new", b"n\n", 0o600), Chmod("secrets/key", 0o600), Delete("secrets/other"), TOUCH,
           Symlink("secrets/link", "key"), Move("secrets/new", "secrets/newer"), shell("true"))  # fmt: skip
    assert sorted(os.listdir(ground / "secrets")) == ["key", "link", "newer"]
    assert (ground / "secrets/key").stat().st_mode & 0o777 == 0o600


def test_a_directory_with_a_hidden_file_is_removed(ground: Ground, kind: ShadowKind) -> None:
    """A plan that removes a directory removes the hidden file in it too, whatever runs afterwards."""
    landed(ground, kind, Delete("conf", recursive=True), TOUCH)
    assert not (ground / "conf").exists()


def test_a_moved_secret_is_moved_and_not_told(ground: Ground, kind: ShadowKind) -> None:
    """A move out of a hidden directory lands as a move; programs see nothing of it at its new place either."""
    found = simulated(
        ground, kind, Move("secrets", "public"), shell("cat public/key public/other > seen; cat public/*")
    )
    receipt = found.report.steps[1].receipt
    assert receipt is not None
    done = ground.hf.execute(found, approved_by=ME, consent=found.plan.id)
    assert [step.success for step in done.steps] == [True, True]
    assert not (ground / "secrets").exists()
    assert (ground / "public/key").read_bytes() == KEY
    assert (ground / "seen").read_bytes() == b""
    assert not _holds(ground.state / "objects", KEY)


@pytest.mark.parametrize("steps", [(Move("secrets/key", "told"),), (Move("secrets/key", "told"), Chmod("told", 0o600)),
                                   (Move("conf", "told.d"), Move("secrets/key", "told"))])  # fmt: skip
def test_a_check_is_not_told_a_moved_secret(ground: Ground, steps: tuple[Step, ...]) -> None:
    """Checks see a moved secret as empty, in the first process and after the simulation was kept and read back."""
    check = CommandCheck(("sh", "-c", "cat told told.d/.env; test ! -s told && test ! -s told.d/.env"))
    found = ground.hf.simulate(ground.plan(*steps, verify=(check,)))
    verified = ground.hf.verify(found)
    kept = ground.hf.keep(found, verified)
    again, _ = ground.hf.kept(kept.report.id)
    assert [receipt.passed for receipt in (*verified.receipts, *ground.hf.verify(again).receipts)] == [True, True]
    assert not _holds(ground.state / "objects", KEY)
    assert not _holds(ground.state / "objects", FILES["conf/.env"])


def test_a_moved_secret_that_goes_home_again(ground: Ground, kind: ShadowKind) -> None:
    """Moved away before a program and back after it, everything stands as it did, and the next program sees it so."""
    steps = (Move("secrets", "public"), TOUCH, Move("public", "secrets"), shell("ls -A secrets > names; ls >> names"))
    landed(ground, kind, *steps)
    assert (ground / "secrets/key").read_bytes() == KEY
    assert (ground / "names").read_text().split() == ["build", "conf", "holdfast.toml", "names", "secrets", "touched"]


def test_a_hidden_file_that_only_the_plan_makes_is_hidden(ground: Ground, kind: ShadowKind) -> None:
    """A new file that a hidden pattern names lands, and the programs of its plan see it empty."""
    landed(ground, kind, put("sub/.env", KEY), shell("cat sub/.env > seen; echo x > sub/.env || true"))
    assert (ground / "seen").read_bytes() == b""
    assert (ground / "sub/.env").read_bytes() == KEY


def test_nothing_comes_in_place_of_a_hidden_path_that_the_plan_removes(ground: Ground, kind: ShadowKind) -> None:
    """What a program puts where the plan removed a hidden path is refused by name, never dropped in silence."""
    found = simulated(ground, kind, Delete("secrets", recursive=True), shell("mkdir secrets; echo mine > secrets/key"))
    assert found.report.status == "UNSAFE"
    assert any(line.startswith("secrets") and "hidden" in line for line in found.report.dangers)


def test_a_program_that_takes_the_ground_from_a_hidden_file(ground: Ground, kind: ShadowKind) -> None:
    """Where a program moved away the directory that the plan made for a hidden file, the plan cannot be done."""
    with pytest.raises(Blocked, match="removed sub"):
        simulated(ground, kind, put("sub/.env", KEY), shell("mv sub bus"))


def test_an_ignored_file_that_a_step_writes_lands(ground: Ground, kind: ShadowKind) -> None:
    """The repository's ignore rules are about by-products; what a step names lands, as the program left it."""
    found = simulated(
        ground, kind, put("build/out", b"planned\n"), shell("echo more >> build/out; echo x > build/junk")
    )
    assert [by.path for by in found.report.by_products] == ["build/junk"]
    ground.hf.execute(found, approved_by=ME, consent=found.plan.id)
    assert (ground / "build/out").read_bytes() == b"planned\nmore\n"
    assert not (ground / "build/junk").exists()


def test_an_ignored_directory_that_a_step_deletes_goes(ground: Ground, kind: ShadowKind) -> None:
    """A delete step of an ignored directory is done beside a program, too."""
    landed(ground, kind, Delete("build", recursive=True), TOUCH)
    assert not (ground / "build").exists()


def test_what_stood_right_already_is_part_of_the_base(ground: Ground, kind: ShadowKind) -> None:
    """A write that found its content in place stays in the base of a plan that goes on with a program."""
    found = simulated(ground, kind, put("conf/a", b"a\n"), TOUCH)
    assert "conf/a" in {read.path for read in found.change_set.reads}
    done = ground.hf.execute(found, approved_by=ME, consent=found.plan.id)
    assert done.steps[0].success


def test_what_a_later_program_tidies_away_was_suspicious(ground: Ground, kind: ShadowKind) -> None:
    """A hook written by one program is told although the next one removes it."""
    steps = shell("mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit"), shell("rm .git/hooks/pre-commit")
    assert any("pre-commit" in line for line in simulated(ground, kind, *steps).report.suspicious)


def test_steps_that_undo_each_other_are_done(ground: Ground, kind: ShadowKind) -> None:
    """A file that the plan makes and takes away again is no step that failed, whoever takes it away."""
    landed(ground, kind, put("t1", b"t"), put("t2/x", b"t"), put("t3/x", b"t"), put("t4", b"t"), TOUCH,
           shell("rm t1"), Delete("t2", recursive=True), Move("t3", "t5"), Delete("t4"))  # fmt: skip
    assert (ground / "t5/x").read_bytes() == b"t"


def _holds(place: Path, data: bytes) -> bool:
    return any(data in path.read_bytes() for path in place.rglob("*") if path.is_file())


def test_the_eyes_of_this_file(ground: Ground) -> None:
    """`_holds` finds bytes that are there, so that not finding them means something."""
    (ground.state / "objects" / "trial").write_bytes(b"x" + KEY)
    assert _holds(ground.state / "objects", KEY)
