"""What failed before is known: unrelated work lands, a new failure does not, and what a task was to mend must pass."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from delegated import Given, configured, delegations, give
from guarded import ME, Ground, fill, put
from holdfast.checks.baseline import about_new_failures
from holdfast.engine.checking import Verified
from holdfast.errors import AgentFailed, VerificationFailed
from holdfast.model.plan import Plan
from holdfast.planning.recovery import understood_evidence
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import EditFile, WriteFile

FILES = {
    "pyproject.toml": b"[tool.pytest.ini_options]\n",
    "calc.py": b"def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a + b\n",
    "tests/test_calc.py": (
        b"import sys\nsys.path.insert(0, '.')\nfrom calc import add, sub\n\n\n"
        b"def test_add():\n    assert add(1, 2) == 3\n\n\n"
        b"def test_sub():\n    assert sub(3, 2) == 1\n\n\n"
        b"def test_old():\n    assert sub(2, 2) == 0\n"
    ),
}
TAKEN = "verify: the tests as they were before the change"


class Watched(Ground):
    """A project with two failing tests, and what its user is told while checks run."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        fill(path, FILES)
        holdfast.init(str(path))
        self.path = path
        self.told: list[str] = []
        self.at_baseline: Callable[[], None] = lambda: None
        self.hf = holdfast.open(str(path), progress=self._heard)

    def _heard(self, text: str, done: int, total: int) -> None:
        self.told.append(text)
        if text == TAKEN:
            self.at_baseline()

    def written(self, name: str, text: str, words: str = "Run tests") -> Verified:
        plan = Plan("a test", (put(name, text.encode()),), words=(words,))
        return self.hf.verify(self.hf.simulate(plan))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    found = Watched(tmp_path / "workspace")
    yield found
    found.hf.close()


def details(verified: Verified) -> list[tuple[bool, str]]:
    return [(receipt.passed, receipt.detail) for receipt in verified.receipts if receipt.kind == "tests"]


def test_unrelated_work_passes_where_tests_failed_before(project: Watched) -> None:
    """The two tests that fail on the base are named and forgiven; the change counts as verified."""
    verified = project.written("notes.py", "x = 1\n")
    ((passed, detail),) = details(verified)
    assert passed
    assert "2 tests failed before this change too: tests.test_calc.test_sub, tests.test_calc.test_old" in detail
    assert verified.unverified == ""


def test_a_new_failure_is_not_forgiven(project: Watched) -> None:
    """A third one fails the change, named apart from those that failed before."""
    broken = FILES["calc.py"].replace(b"return a + b", b"return a + b + 1").decode()
    ((passed, detail),) = details(project.written("calc.py", broken))
    assert not passed
    assert "new: tests.test_calc.test_add" in detail and "2 tests failed before this change too" in detail


def test_the_base_is_tested_once(project: Watched) -> None:
    """Several changes on one base need one baseline, and a change that passes needs none."""
    good = FILES["calc.py"].replace(b"def sub(a, b):\n    return a + b", b"def sub(a, b):\n    return a - b").decode()
    assert details(project.written("calc.py", good))[0][0]
    assert TAKEN not in project.told
    for text in ("x = 1\n", "x = 2\n"):
        assert details(project.written("notes.py", text))[0][0]
    assert project.told.count(TAKEN) == 1


def test_what_a_task_was_to_mend_must_pass(project: Watched) -> None:
    """A test that the task names is not forgiven, nor any where the task speaks of failing tests."""
    edit = WriteFile("notes.py", "x = 1\n")
    for task in ("Make test_sub right.", "Mend the failing tests.", "Let all tests pass."):
        with pytest.raises(AgentFailed) as caught:
            give(project, ScriptedAgent(edit), Given(task=task))
        assert "test_sub" in str(caught.value)
    give(project, ScriptedAgent(edit), Given(task="Add notes.py."))


def test_the_agent_is_told_what_is_new(project: Watched) -> None:
    """Its evidence names the failure it made, and those that are not its own."""
    right, wrong = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a * b"
    breaks, mends = EditFile("calc.py", right, wrong), EditFile("calc.py", wrong, right)
    agent = ScriptedAgent(breaks, later={2: (mends, WriteFile("notes.py", "x = 1\n"))})
    give(project, agent, Given(task="Add notes.py.", attempts=2))
    told = delegations(project)[0]["attempts"][0]["evidence"]
    assert "new: tests.test_calc.test_add" in told and "failed before this change too" in told
    assert "assert add(1, 2) == 3" in told and "FAILED tests/test_calc.py::test_add" in told
    assert "assert sub(" not in told and "::test_sub" not in told and "::test_old" not in told


LOG = """\
FF.F [100%]
=== FAILURES ===
___ test_old ___
E   ConnectionRefusedError: [Errno 111] Connection refused
tests/test_a.py:3: ConnectionRefusedError
___ TestB.test_new[a-1] ___
E   assert 1 == 2
___ ERROR at setup of test_old2 ___
E   fixture
=== short test summary info ===
FAILED tests/test_a.py::test_old - ConnectionRefusedError
FAILED tests/test_b.py::TestB::test_new[a-1] - assert 1 == 2
ERROR tests/test_a.py::test_old2 - fixture
3 failed, 1 passed
"""


def test_what_is_said_of_a_failure_leaves_out_those_before_it() -> None:
    """So that it is classified, and told, by what the change did; as it is where the new ones are not found in it."""
    detail = "pytest exited with 1; 3 failed; new: {}; 2 tests failed before this change too: tests.test_a.test_old"
    told = about_new_failures(detail.format("tests.test_b.TestB.test_new[a-1]"), LOG)
    assert understood_evidence(LOG).category == "environment"
    assert understood_evidence(told).category == "test"
    assert "assert 1 == 2" in told and "test_old" not in told and "3 failed, 1 passed" in told
    for names in ("tests.test_b.test_other", "tests.test_b.TestB.test_new[a-1] and 3 more"):
        assert about_new_failures(detail.format(names), LOG) == LOG
    assert about_new_failures("pytest exited with 1; 3 failed", LOG) == LOG


def test_a_flaky_test_is_recognised(project: Watched, tmp_path: Path) -> None:
    """One that fails, and passes when everything is run again over the same tree, is told and not held against it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    configured(f'[environment]\nreadable = ["{outside}"]\n')
    (project.path / "tests" / "test_flaky.py").write_text(
        f"import os\n\n\ndef test_flaky():\n    assert os.path.exists('{outside}/ready')\n"
    )
    project.at_baseline = lambda: (outside / "ready").touch()
    ((passed, detail),) = details(project.written("notes.py", "x = 1\n"))
    assert passed
    assert "flaky, failed once and passed when everything was run again: tests.test_flaky.test_flaky" in detail


def test_a_configured_command_is_never_forgiven(project: Watched) -> None:
    """Somebody named it: failing before and after, it fails the change."""
    configured('[checks]\nrun = [["false"]]\n')
    plan = Plan("a test", (put("notes.py", b"x = 1\n"),), words=("Run all checks",))
    verified = project.hf.verify(project.hf.simulate(plan))
    assert [r.passed for r in verified.receipts if r.kind == "acceptance"] == [False]
    assert project.hf.evaluate(project.hf.simulate(plan), verified).verdict != "ALLOW"


def test_a_landing_passes_over_known_failures(project: Watched) -> None:
    """From the change file to the ledger: it lands, and the record says what it passed over."""
    plan = Plan("a test", (put("notes.py", b"x = 1\n"),), words=("Run tests",))
    done = project.hf.execute(project.hf.simulate(plan), approved_by=ME)
    assert done.status == "COMPLETED"
    assert any("failed before this change too" in receipt.detail for receipt in done.receipts)


def test_what_failed_before_is_what_a_fix_repairs(project: Watched) -> None:
    """A fix looks for what fails, so nothing is forgiven there: neither at the first look nor when it is measured."""
    broken = project.hf.broken()
    assert broken is not None and broken.failure.category == "test"
    agents = {
        "idle": ScriptedAgent(WriteFile("notes.py", "x = 1\n"), name="idle"),
        "good": ScriptedAgent(EditFile("calc.py", "b):\n    return a + b\n\n\ndef sub(a, b):\n    return a + b",
                                       "b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b"), name="good"),
    }  # fmt: skip
    with pytest.raises((AgentFailed, VerificationFailed)):
        project.hf.fix(broken, agent="idle", attempts=1, agents=agents)
    assert project.hf.fix(broken, agent="good", attempts=1, agents=agents).record.good
