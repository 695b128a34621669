"""Real projects are verified for real, right and wrong ones, and what cannot run here is never passed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.checks.gather import Ground, Wanted, gather
from holdfast.checks.levels import Verification
from holdfast.checks.reports import Criteria
from holdfast.checks.viewed import tree_in
from holdfast.environment.found import Shell
from holdfast.environment.tools import tools_of
from holdfast.errors import InvalidInput
from holdfast.sandbox.process import run
from holdfast.sandbox.view import View
from projects import MAVEN, NODE, PYTHON, REAL_HOME, RUST, need, need_maven

Gather = Callable[..., Verification]
AUTO = Wanted()


@pytest.fixture
def check(workspace: Path, save_log: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> Gather:
    """Verify a project of these files, all of them touched; `python3` is the one that runs the tests."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")

    def verified(files: dict[str, str], wanted: Wanted = AUTO, touched: list[str] | None = None) -> Verification:
        for name, text in files.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(text)
        with tree_in(View(str(workspace), str(workspace))) as tree:
            ground = Ground(
                tree,
                str(workspace),
                "tree-7",
                run,
                save_log,
                tools_of(Shell(os.environ, REAL_HOME), "/nonexistent", ()).variables,
            )
            return gather(ground, touched if touched is not None else list(files), wanted)

    return verified


def kinds(verification: Verification) -> dict[str, bool]:
    """Every level that ran, and whether all of it passed."""
    levels: dict[str, bool] = {}
    for receipt in verification.receipts:
        levels[receipt.kind] = levels.get(receipt.kind, True) and receipt.passed
    return levels


class TestPython:
    def test_a_right_project_passes_every_level(self, check: Gather, logs: dict[str, bytes]) -> None:
        """Syntax, imports, types, tests and lint each give a receipt, bound to the tree, with what was counted."""
        verification = check(PYTHON, Wanted(expected=("app/core.py",)))
        assert kinds(verification) == dict.fromkeys(("files", "syntax", "imports", "types", "tests", "lint"), True)
        assert (verification.tested, verification.unverified, verification.not_run) == (True, "", ())
        (tests,) = [receipt for receipt in verification.receipts if receipt.kind == "tests"]
        assert (tests.exit_code, tests.tree_digest) == (0, "tree-7")
        assert tests.command[:3] == ("python3", "-m", "pytest")
        assert tests.detail.endswith("; 1 passed")
        assert b"1 passed" in logs[tests.log_digest]

    def test_a_test_run_is_told_as_a_person_would_type_it(self, check: Gather) -> None:
        """Where our own reports go is recorded with the command, and no part of what people read."""
        verification = check(PYTHON, Wanted(levels=("tests",)))
        (tests,) = verification.receipts
        assert tests.detail.startswith("python3 -m pytest -q exited with 0 (")
        assert "--junitxml={reports}/junit.xml" in tests.command

    def test_tests_that_leave_no_report_have_not_passed(self, check: Gather) -> None:
        """Code that ends the run with 0 before any test was run is told by the report that is missing."""
        ends = "import os\nos._exit(0)\ndef double(x: int) -> int:\n    return 2 * x\n"
        (tests,) = check({**PYTHON, "app/core.py": ends}, Wanted(levels=("tests",))).receipts
        assert (tests.exit_code, tests.passed) == (0, False)
        assert "no readable report" in tests.detail

    @pytest.mark.parametrize(
        ("level", "name", "text"),
        [
            ("imports", "app/core.py", "import reqeusts\ndef double(x: int) -> int:\n    return 2 * x\n"),
            ("types", "app/core.py", "def double(x: int) -> str:\n    return 2 * x\n"),
            ("tests", "app/core.py", "def double(x: int) -> int:\n    return 3 * x\n"),
            ("lint", "app/core.py", "import os\ndef double(x: int) -> int:\n    return 2 * x\n"),
        ],
    )
    def test_each_level_finds_its_own_fault(self, check: Gather, level: str, name: str, text: str) -> None:
        """A wrong import, type, result or style is found by its level, and the change is not verified."""
        verification = check({**PYTHON, name: text}, Wanted(levels=(level,)))  # type: ignore[arg-type]
        assert kinds(verification) == {level: False}
        assert not verification.tested

    def test_broken_syntax_stops_the_rest(self, check: Gather, workspace: Path) -> None:
        """Above broken syntax nothing is run, and everything that was not is named; no bytecode is written."""
        verification = check({**PYTHON, "app/core.py": "def double(x:\n"})
        assert kinds(verification) == {"syntax": False}
        assert {item.level for item in verification.not_run} == {"imports", "types", "tests", "lint"}
        assert list(workspace.rglob("*.pyc")) == []

    def test_a_dependency_that_is_declared_and_missing_cannot_be_judged(self, check: Gather) -> None:
        """An import of something that is declared and not installed here is no fault of the change."""
        pyproject = '[project]\nname = "x"\nversion = "1"\ndependencies = ["no-such-thing>=1"]\n'
        files = {"pyproject.toml": pyproject, "app/__init__.py": "import no_such_thing\n"}
        verification = check(files)
        assert "imports" not in kinds(verification)
        assert any(item.level == "imports" for item in verification.not_run)

    @pytest.mark.parametrize("ending", ["raise SystemExit(0)", "raise SystemExit(77)", "raise KeyboardInterrupt"])
    def test_a_module_that_ends_its_own_import_is_broken(self, check: Gather, ending: str) -> None:
        """Whatever a module throws while it is imported, even an exit that looks like success, the level has failed."""
        verification = check({**PYTHON, "app/core.py": f"{ending}\n"}, Wanted(levels=("imports",)))
        assert kinds(verification) == {"imports": False}

    def test_tests_that_do_not_exist_prove_nothing(self, check: Gather) -> None:
        """A runner that finds no tests leaves the change unverified, and says so."""
        verification = check({"pytest.ini": "[pytest]\n", "setup.cfg": "", "a.py": "x = 1\n"})
        assert (verification.passed, verification.tested) == (True, False)
        assert "had nothing to judge" in verification.unverified

    def test_a_runner_that_succeeds_without_a_test_proves_nothing(self, check: Gather) -> None:
        """unittest exits with 0 where it found no test, up to Python 3.11: that is no test that passed."""
        files = {"setup.cfg": "", "tests/__init__.py": "", "tests/test_a.py": "import unittest\n", "a.py": "x = 1\n"}
        verification = check(files)
        assert (verification.passed, verification.tested) == (True, False)
        assert "had nothing to judge" in verification.unverified

    def test_a_run_that_skipped_every_test_proves_nothing(self, check: Gather) -> None:
        """Code that skips what is tested, as it is imported, passes no test; where one other test ran, it counts."""
        ran = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"
        files = {"setup.cfg": "", "tests/__init__.py": "", "a.py": "import unittest\nraise unittest.SkipTest('x')\n"}
        files["tests/test_a.py"] = "import a, unittest\n"
        assert not check(files).tested
        assert check({**files, "tests/test_b.py": ran}).tested

    def test_unittest_is_used_where_nobody_speaks_of_pytest(self, check: Gather) -> None:
        """A project with plain unittest is tested by it."""
        text = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, {})\n"
        for value, passed in (("1", True), ("2", False)):
            verification = check(
                {"setup.py": "", "tests/__init__.py": "", "tests/test_a.py": text.replace("{}", value)}
            )
            assert (kinds(verification)["tests"], verification.tested) == (passed, passed)


class TestNode:
    def test_right_and_wrong(self, check: Gather) -> None:
        """npm test is run for real; a wrong result, a broken import and broken syntax are each found."""
        need("npm")
        assert kinds(check(NODE)) == {"syntax": True, "imports": True, "tests": True}
        wrong = {**NODE, "lib.js": "module.exports = { double: (x) => 3 * x };\n"}
        assert kinds(check(wrong))["tests"] is False
        assert kinds(check({**NODE, "check.js": "require('./gone');\n"}))["imports"] is False
        assert kinds(check({**NODE, "lib.js": "module.exports = {\n"}))["syntax"] is False

    def test_its_own_runner_reports(self, check: Gather) -> None:
        """Without a test script node's own runner is used, and its report is counted."""
        need("node")
        test = "const test = require('node:test');\ntest('adds', () => { if (1 + 1 !== 2) throw 1; });\n"
        verification = check({"package.json": "{}", "test/a.test.js": test})
        (receipt,) = [receipt for receipt in verification.receipts if receipt.kind == "tests"]
        assert receipt.passed
        assert "1 passed" in receipt.detail


class TestMake:
    def test_right_and_wrong(self, check: Gather) -> None:
        """The target test decides."""
        need("make")
        for command, passed in (("true", True), ("false", False)):
            verification = check({"Makefile": f"test:\n\t@{command}\n"})
            assert (kinds(verification), verification.tested) == ({"tests": passed}, passed)


class TestRust:
    def test_right_and_wrong(self, check: Gather) -> None:
        """cargo check and cargo test are run offline, in a home of their own."""
        need("cargo")
        for factor, passed in (("2", True), ("3", False)):
            verification = check({**RUST, "src/lib.rs": RUST["src/lib.rs"].replace("2 * x", f"{factor} * x")})
            if verification.not_run:
                pytest.skip(verification.not_run[0].detail)
            assert kinds(verification) == {"syntax": True, "types": True, "tests": passed}
            assert verification.tested == passed

    def test_a_crate_without_tests_is_unverified(self, check: Gather) -> None:
        """cargo test exits with 0 where there is no test: that is no test that passed."""
        need("cargo")
        verification = check({**RUST, "src/lib.rs": "pub fn double(x: i32) -> i32 { 2 * x }\n"})
        if any("nothing to judge" not in item.detail for item in verification.not_run):
            pytest.skip(verification.not_run[0].detail)
        assert (kinds(verification), verification.tested) == ({"syntax": True, "types": True}, False)


class TestJava:
    @pytest.mark.long
    def test_a_maven_project_right_and_wrong(self, check: Gather, tmp_path: Path) -> None:
        """By detection: Maven compiles it and runs its tests; a wrong result and a wrong type are each found."""
        need_maven(tmp_path)
        right = check(MAVEN)
        assert (kinds(right), right.tested) == ({"types": True, "tests": True}, True), right
        wrong = "class Sum { static int of(int a, int b) { return a - b; } }\n"
        assert kinds(check({**MAVEN, "src/main/java/Sum.java": wrong}))["tests"] is False
        broken = 'class Sum { static int of(int a, int b) { return "four"; } }\n'
        assert kinds(check({**MAVEN, "src/main/java/Sum.java": broken}))["types"] is False

    def test_a_command_of_the_configuration_right_and_wrong(self, check: Gather) -> None:
        """A project of no known kind is verified by the command its people configured."""
        need("java")
        source = "class Check { public static void main(String[] a) { if (2 + 2 != %s) System.exit(1); } }\n"
        wanted = Wanted(commands=(("java", "Check.java"),))
        for value, passed in (("4", True), ("5", False)):
            verification = check({"Check.java": source % value}, wanted)
            assert (kinds(verification), verification.tested) == ({"acceptance": passed}, passed)


MISSING = [
    ({"go.mod": "module x\n"}, "go"),
    ({"App.sln": ""}, "dotnet"),
    ({"build.gradle": ""}, "gradle"),
    ({"Gemfile": "", ".rspec": ""}, "rspec"),
]


@pytest.mark.parametrize(("files", "tool"), MISSING, ids=[tool for _, tool in MISSING])
def test_a_missing_tool_is_said_and_never_passed(
    check: Gather, files: dict[str, str], tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a tool is not installed the check is named as not run here, and the change is unverified."""
    monkeypatch.setenv("PATH", "/nonexistent")
    verification = check(files)
    assert (verification.receipts, verification.tested) == ((), False)
    assert verification.unverified == f"unverified by tests: cannot run here: {tool} is not installed"


def test_a_level_asked_for_by_name_must_run(check: Gather, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for and cannot run is a failure; what was only detected is not."""
    monkeypatch.setenv("PATH", "/nonexistent")
    files = {"go.mod": "module x\n", "a.json": "{}"}
    assert check(files).passed
    asked = check(files, Wanted(levels=("tests",)))
    assert [receipt.kind for receipt in asked.failed] == ["tests"]
    nothing = check({"README": ""}, Wanted(levels=("lint",)))
    assert nothing.failed[0].detail == "cannot run here: no check of the level lint was found"


def test_only_the_levels_asked_for_are_run(check: Gather) -> None:
    """Named levels are run and no others, apart from configured commands."""
    assert set(kinds(check(PYTHON, Wanted(levels=("lint",))))) == {"lint"}


def test_without_detection_only_configured_commands_and_syntax_are_run(check: Gather) -> None:
    """Where detection is off no project is looked for; what was asked for by name is then not found, and fails."""
    alone = check(PYTHON, Wanted(detect=False))
    assert (kinds(alone), alone.tested) == ({"syntax": True}, False)
    assert "[checks] detect is false" in alone.unverified
    configured = check(PYTHON, Wanted(detect=False, commands=(("true",),)))
    assert (kinds(configured)["acceptance"], configured.tested) == (True, True)
    for level in ("tests", "lint"):
        assert [receipt.kind for receipt in check(PYTHON, Wanted(levels=(level,), detect=False)).failed] == [level]


def test_checks_are_skipped_only_for_a_reason(check: Gather) -> None:
    """Skipping runs nothing and keeps the reason; without one it is refused."""
    verification = check(PYTHON, Wanted("skip", "only a comment"))
    assert (verification.receipts, verification.tested) == ((), False)
    assert verification.unverified == "unverified: checks were skipped (only a comment)"
    with pytest.raises(InvalidInput):
        check(PYTHON, Wanted("skip", "  "))


def test_an_agents_own_checks_are_run_and_prove_little(check: Gather) -> None:
    """What an agent proposes is run by us beside the syntax, and never makes a change tested."""
    good = check(PYTHON, Wanted("agent", commands=(("true",),)))
    assert (kinds(good), good.passed, good.tested) == ({"syntax": True, "acceptance": True}, True, False)
    assert "agent" in good.unverified
    assert not check(PYTHON, Wanted("agent", commands=(("false",),))).passed


def test_expected_files_are_looked_for_first(check: Gather) -> None:
    """A file that the change should have left and did not fails the lowest level."""
    verification = check(PYTHON, Wanted(expected=("app/core.py", "app/gone.py")))
    assert kinds(verification) == {"files": False, "syntax": True}
    assert "app/gone.py is missing" in verification.failed[0].detail


def test_criteria_are_asked_of_detected_tests(check: Gather) -> None:
    """Required tests and coverage are judged for detected tests too; coverage that cannot be measured is not passed."""
    required = Criteria(required=("test_double",), needs_results=False)
    assert check(PYTHON, Wanted(criteria=required)).tested
    assert not check(PYTHON, Wanted(criteria=required._replace(required=("test_other",)))).passed
    make = {"Makefile": "test:\n\t@true\n"}
    covered = check(make, Wanted(criteria=Criteria(5000, needs_results=False)), touched=["Makefile"])
    assert not covered.tested


def test_a_monorepo_is_checked_where_it_was_touched(check: Gather) -> None:
    """Each touched project runs in its own directory; untouched ones do not run."""
    need("make")
    files = {f"{name}/Makefile": f"test:\n\t@test $(notdir $(CURDIR)) = {name}\n" for name in ("a", "b", "c")}
    files["c/Makefile"] = "test:\n\t@false\n"
    verification = check(files, touched=["a/Makefile", "b/Makefile"])
    assert [receipt.passed for receipt in verification.receipts] == [True, True]
    assert [" in a " in r.detail or " in b " in r.detail for r in verification.receipts] == [True, True]


def test_data_files_are_judged_without_any_project(check: Gather) -> None:
    """A broken JSON file is found in a tree of no kind at all, and a tree without checks is unverified."""
    good = check({"conf/a.json": "{}", "b.yaml": "a: 1\n"})
    assert (kinds(good), good.unverified) == ({"syntax": True}, "unverified by tests: no tests were found")
    assert not check({"conf/a.json": "{"}).passed


def test_checks_see_no_secrets_and_have_a_home_of_their_own(
    check: Gather, logs: dict[str, bytes], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's environment and home are not a check's."""
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", "hunter2")
    verification = check({"a": ""}, Wanted(commands=(("sh", "-c", "env; echo home=$HOME"),)))
    log = logs[verification.receipts[0].log_digest]
    assert b"hunter2" not in log
    assert f"home={home}\n".encode() not in log
