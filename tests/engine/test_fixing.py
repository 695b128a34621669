"""The fix generator through the real product: a failing check, an agent that repairs it, and agents that do not."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from delegated import APP, FILES, FIXED, TEST, project
from guarded import ME, Ground, contents
from holdfast.engine.fixing import Fix, Passing, find_broken, past_fixes
from holdfast.errors import AgentFailed, Blocked, InvalidInput, VerificationFailed
from holdfast.model.fix import totals
from holdfast.model.patch import Patch
from holdfast.model.patch_text import parse
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act, Delete
from holdfast.testing.script import EditFile, Say, Shell, WriteFile

GOOD = EditFile("app.py", "41", "42")


def fixed(ground: Ground, *acts: Act, attempts: int = 1, later: Mapping[int, tuple[Act, ...]] | None = None) -> Fix:
    agent = ScriptedAgent(*acts, later=later or {})
    broken = ground.hf.broken()
    assert broken is not None
    return ground.hf.fix(broken, agent=agent.name, attempts=attempts, within_ms=60_000, agents={agent.name: agent})


def records(ground: Ground) -> list[dict[str, Any]]:
    """The `fix` entries of the ledger, oldest first."""
    return [dict(entry.body) for entry in ground.hf.ledger.entries() if entry.kind == "fix"]


def land(ground: Ground, fix: Fix) -> str:
    plan = fix.simulated.plan
    done = ground.hf.execute(fix.simulated, verified=fix.verified, approved_by=ME, consent=plan.id)
    ground.hf.patches.settle()
    return done.id


def test_a_failing_test_is_repaired_landed_and_undone(tmp_path: Path) -> None:
    """The check is found, the repair measured and recorded with its patch; it lands, and undo takes it back."""
    ground = project(tmp_path / "w")
    before = ground.tree()
    fix = fixed(ground, GOOD, Say("Fixed."))
    assert ground.tree() == before
    (record,) = records(ground)
    assert (record["good"], record["category"], record["fails_without_fix"]) == (True, "test", "yes")
    assert "test_answer" in record["regression_test"]
    assert record["why_no_test"] == ""
    execution = land(ground, fix)
    assert (ground / "app.py").read_bytes() == FIXED
    standing = ground.hf.patches.history.standing(fix.patch)
    assert (standing.state, standing.execution, standing.digest) == ("committed", execution, record["patch_digest"])
    assert ground.hf.broken() is None
    ground.hf.undo(execution, approved_by=ME)
    ground.hf.patches.settle()
    assert ground.tree() == before
    assert ground.hf.patches.history.standing(fix.patch).state == "rolled_back"


def test_the_patch_of_a_fix_is_what_would_land(tmp_path: Path) -> None:
    """Applied to a fresh copy of the files as a patch, the kept text gives the same files."""
    ground = project(tmp_path / "w")
    fix = fixed(ground, GOOD, WriteFile("docs/note.txt", "why\n"))
    text = ground.hf.patches.history.text(fix.patch)
    assert parse(text).digest == Patch(parse(text).files).digest
    land(ground, fix)
    (tmp_path / "copy").mkdir()
    for name, data in FILES.items():
        (tmp_path / "copy" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(data)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path / "copy", input=text, check=True)
    assert contents(ground.tree()) == {
        str(path.relative_to(tmp_path / "copy")): path.read_bytes()
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }


def test_an_agent_that_lies_repairs_nothing(tmp_path: Path) -> None:
    """Words and a change elsewhere are no repair: AgentFailed, nothing changed, and a record that is not good."""
    ground = project(tmp_path / "w")
    before = ground.tree()
    with pytest.raises(AgentFailed):
        fixed(ground, WriteFile("notes.txt", "done\n"), Say("All tests pass now."))
    assert ground.tree() == before
    (record,) = records(ground)
    assert (record["good"], record["checks_passed"], record["patch_digest"]) == (False, False, "")
    assert record["why_not"]
    assert ground.hf.patches.history.standings() == ()


@pytest.mark.parametrize(
    "acts",
    [
        pytest.param((Delete("tests/test_app.py"), WriteFile("notes.txt", "x\n")), id="deletes the test"),
        pytest.param((Delete("tests"), WriteFile("notes.txt", "x\n")), id="deletes all tests"),
        pytest.param((EditFile("tests/test_app.py", "42", "41"),), id="changes what is expected"),
        pytest.param((EditFile("tests/test_app.py", "import unittest", "import unittest\nraise unittest.SkipTest()"),),
                     id="skips the test"),
    ],
)  # fmt: skip
def test_who_removes_or_bends_the_test_repairs_nothing(tmp_path: Path, acts: tuple[Act, ...]) -> None:
    """The check is run with the tests as they were: what passes only without them is not good, and recorded so."""
    ground = project(tmp_path / "w")
    before = ground.tree()
    with pytest.raises(VerificationFailed) as caught:
        fixed(ground, *acts, Say("All green."))
    assert not caught.value.changed
    assert ground.tree() == before
    (record,) = records(ground)
    assert record["good"] is False
    assert "with the tests as they were" in record["why_not"]
    assert ground.hf.patches.history.standings() == ()


def test_a_deletion_of_one_test_among_others_is_seen(tmp_path: Path) -> None:
    """Where other tests go on passing, so that every check is green, the deletion alone gives it away."""
    other = TEST.replace(b"TestAnswer", b"TestOther").replace(b"answer(), 42", b"1, 1")
    ground = project(tmp_path / "w", {**FILES, "tests/test_other.py": other})
    with pytest.raises(VerificationFailed, match=r"removes tests/test_app\.py"):
        fixed(ground, Delete("tests/test_app.py"), Say("All green."))
    assert (ground / "tests/test_app.py").exists()


def test_a_fix_that_also_edits_tests_counts_if_it_holds_without_that(tmp_path: Path) -> None:
    """Touching an old test is no crime: what matters is that the old one passes too."""
    ground = project(tmp_path / "w")
    fix = fixed(ground, GOOD, EditFile("tests/test_app.py", "import unittest\n", "import unittest\n\n"))
    assert fix.record.good
    land(ground, fix)
    assert (ground / "app.py").read_bytes() == FIXED


def test_evidence_leads_to_a_second_attempt_and_both_are_recorded(tmp_path: Path) -> None:
    """The first attempt is recorded as not good, the second as good; both in the ledger with their numbers."""
    ground = project(tmp_path / "w")
    fix = fixed(ground, EditFile("app.py", "41", "40"), attempts=2, later={2: (EditFile("app.py", "40", "42"),)})
    assert [(each["attempt"], each["good"]) for each in records(ground)] == [(1, False), (2, True)]
    assert fix.record.attempt == 2


LINTED = {"check.py": b"import sys\nsys.exit('bad' if 'BAD' in open('app.py').read() else 0)\n",
          "holdfast.toml": b'[checks]\nrun = [["/usr/bin/python3", "check.py"]]\n'}  # fmt: skip


@pytest.mark.parametrize(
    ("test", "fails", "kept"),
    [
        pytest.param("from app import VALUE\n", "yes", True, id="one that fails without the fix"),
        pytest.param("import app\n", "no", False, id="one that passes without it"),
    ],
)
def test_a_new_test_is_tried_without_the_fix(tmp_path: Path, test: str, fails: str, kept: bool) -> None:
    """A regression test is one that fails on the files as they were; one that passes there is told to be none."""
    files = {**FILES, "app.py": FIXED + b"# BAD\n", **LINTED}
    ground = project(tmp_path / "w", files)
    body = f"import unittest\n{test}\nclass TestNew(unittest.TestCase):\n    def test_new(self):\n        pass\n"
    fix = fixed(ground, EditFile("app.py", "# BAD", "VALUE = 1"), WriteFile("tests/test_new.py", body))
    assert fix.record.fails_without_fix == fails
    assert fix.record.regression_test == ("tests/test_new.py" if kept else "")
    assert bool(fix.record.why_no_test) is not kept


SUM = b"def add(a, b):\n    return a - b\n"
ADDS = """\
import unittest
from calc import add

class Test{name}(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add({given}), {total})
"""
NEW, EASY = (ADDS.format(name="New", given=given, total=total) for given, total in (("1, 2", 3), ("1, 0", 1)))
OLD = ADDS.format(name="Old", given="2, 2", total=4).encode()
PACKAGE = {"calc.py": SUM, "setup.cfg": b"", "tests/__init__.py": b""}
# A check of which all that is known is that it fails with an AssertionError: it is classed as a test, and is none.
ASSERTED = {
    "holdfast.toml": b'[checks]\nrun = [["/usr/bin/python3", "-c", "import calc; assert calc.add(1, 2) == 3"]]\n'
}
ADDED = EditFile("calc.py", "a - b", "a + b")
NAMED = "tests.test_old.TestOld.test_it"


@pytest.mark.parametrize(
    ("files", "test", "told"),
    [
        pytest.param(ASSERTED, NEW, ("tests/test_new.py", "", "yes"), id="a command, and a new test"),
        pytest.param(ASSERTED, EASY, ("", "tests/test_new.py passes without the fix too", "no"), id="one that passes"),
        pytest.param(ASSERTED, "", ("", "the attempt wrote none", "unknown"), id="a command, and none"),
        pytest.param({"tests/test_old.py": OLD}, NEW, (f"{NAMED}, tests/test_new.py", "", "yes"), id="old and new"),
        pytest.param({"tests/test_old.py": OLD}, EASY, (NAMED, "", "yes"), id="an old one, and one that passes"),
        pytest.param({"tests/test_old.py": OLD}, "", (NAMED, "", "yes"), id="an old one alone"),
    ],
)
def test_the_tests_that_fail_without_the_fix_are_named(
    tmp_path: Path, files: dict[str, bytes], test: str, told: tuple[str, str, str]
) -> None:
    """Those that failed before, and the new ones that were seen to fail on the files as they were; none is made up."""
    ground = project(tmp_path / "w", {**PACKAGE, **files})
    fix = fixed(ground, ADDED, *([WriteFile("tests/test_new.py", test)] if test else []))
    assert (fix.record.regression_test, fix.record.why_no_test, fix.record.fails_without_fix) == told


def test_an_attempt_that_changed_nothing_has_no_regression_test(tmp_path: Path) -> None:
    """Neither in its record, nor in what all of them add up to; also where a test failed before it."""
    ground = project(tmp_path / "w")
    with pytest.raises(AgentFailed):
        fixed(ground, Say("All tests pass now."), attempts=2)
    for record in records(ground):
        assert (record["regression_test"], record["fails_without_fix"]) == ("", "unknown")
        assert record["why_no_test"] == "the attempt was not good, and no test was tried"
    (total,) = totals(past_fixes(ground.hf.ledger, ground.hf.patches)).values()
    assert (total.attempts, total.with_regression_test) == (2, 0)


def test_where_nothing_fails_there_is_nothing_to_repair(tmp_path: Path) -> None:
    """Every check passes: no task. No check at all: Blocked, since nothing says what is broken."""
    ground = project(tmp_path / "w", {**FILES, "app.py": FIXED})
    assert ground.hf.broken() is None
    bare = project(tmp_path / "bare", {"notes.txt": b"x\n"})
    with pytest.raises(Blocked, match="no check was found"):
        bare.hf.broken()


def test_checks_that_could_not_run_are_no_checks_that_pass(tmp_path: Path) -> None:
    """A project whose tests cannot run here is not called sound because its data files parse: Blocked, with why."""
    uninstalled = b'{"scripts": {"test": "jest"}, "devDependencies": {"jest": "1"}}'
    ground = project(tmp_path / "w", {"package.json": uninstalled})
    with pytest.raises(Blocked, match="no check could run here") as told:
        ground.hf.broken()
    assert "node_modules is not there" in told.value.message
    both = project(tmp_path / "both", {**FILES, "app.py": FIXED, "web/package.json": uninstalled})
    found = find_broken(both.hf.pipeline)
    assert isinstance(found, Passing)
    assert ["node_modules" in line for line in found.not_run] == [True]


def test_a_project_deep_in_the_tree_is_checked_too(tmp_path: Path) -> None:
    """Checks are looked for in every project of the workspace, not only at its root."""
    ground = project(
        tmp_path / "w", {"readme.txt": b"x\n", **{f"deep/er/{path}": data for path, data in FILES.items()}}
    )
    broken = ground.hf.broken()
    assert broken is not None
    assert "deep/er" in broken.receipt.detail


def test_attempts_are_bounded(tmp_path: Path) -> None:
    """More attempts than a repair has are refused before anybody is asked."""
    ground = project(tmp_path / "w")
    with pytest.raises(InvalidInput, match="attempts"):
        fixed(ground, GOOD, attempts=4)


def test_a_fix_that_is_no_patch_is_not_good(tmp_path: Path) -> None:
    """Where what the agent made cannot be written as a patch, the record says why, and nothing lands."""
    ground = project(tmp_path / "w")
    with pytest.raises(VerificationFailed, match="symlink"):
        fixed(ground, GOOD, Shell(("/bin/ln", "-s", "app.py", "other.py")))
    assert (ground / "app.py").read_bytes() == APP
