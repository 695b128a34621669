"""A test run of a plan is judged by the reports it wrote itself, not by those it found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.checks.verify import verify
from holdfast.model.check import SuiteCheck
from holdfast.model.execution import Receipt

Gate = Callable[..., Receipt]
GOOD = "<testsuite><testcase name='a'/><testcase name='b'/></testsuite>"
BAD = "<testsuite><testcase name='a'/><testcase name='b'><failure/></testcase></testsuite>"


@pytest.fixture
def gate(tmp_path: Path, save_log: Callable[[bytes], str]) -> Gate:
    def run(script: str, **wanted: object) -> Receipt:
        check = SuiteCheck(("sh", "-c", script), within_ms=5000)._replace(**wanted)  # type: ignore[arg-type]
        (receipt,) = verify([check], directory=str(tmp_path), tree_digest="tree-1", save_log=save_log)
        return receipt

    return run


def test_a_run_with_a_good_report_passes(gate: Gate) -> None:
    """The receipt says what was counted, and is bound to the tree."""
    receipt = gate(f'echo "{GOOD}" > r.xml', junit="r.xml")
    assert (receipt.passed, receipt.kind, receipt.tree_digest) == (True, "tests", "tree-1")
    assert "; 2 passed" in receipt.detail


def test_a_failure_in_the_report_outweighs_the_exit_code(gate: Gate) -> None:
    """A runner that hides failures behind exit code 0 does not pass."""
    receipt = gate(f'echo "{BAD}" > r.xml', junit="r.xml")
    assert (receipt.passed, receipt.exit_code) == (False, 0)
    assert "1 test failed: b" in receipt.detail


def test_as_many_failures_as_allowed_pass(gate: Gate) -> None:
    """Exit code 1 with no more failures than allowed passes; any other code does not."""
    assert gate(f'echo "{BAD}" > r.xml; exit 1', junit="r.xml", maximum_failures=1).passed
    assert not gate(f'echo "{BAD} " > r.xml; exit 2', junit="r.xml", maximum_failures=1).passed


def test_a_report_from_before_is_no_report(gate: Gate, tmp_path: Path) -> None:
    """A report that lay there already, and was not written by this run, does not count."""
    (tmp_path / "r.xml").write_text(GOOD)
    receipt = gate("true", junit="r.xml")
    assert not receipt.passed
    assert "r.xml was not written by this run" in receipt.detail


@pytest.mark.parametrize("script", ["true", "ln -s /etc/passwd r.xml", "mkfifo r.xml", "mkdir r.xml", "echo x > r.xml"])
def test_a_missing_or_foreign_report_fails(gate: Gate, script: str) -> None:
    """No report, a link, a pipe, a directory or nonsense in its place: the gate fails and does not hang."""
    receipt = gate(script, junit="r.xml")
    assert not receipt.passed
    assert "root:" not in receipt.detail


def test_coverage_below_the_minimum_fails(gate: Gate) -> None:
    """Coverage is read from the file named, and compared with the minimum."""
    script = "printf 'SF:a\\nDA:1,1\\nDA:2,0\\n' > lcov.info"
    assert gate(script, coverage="lcov.info", minimum_coverage=5000).passed
    receipt = gate(script + " ", coverage="lcov.info", minimum_coverage=5001)
    assert not receipt.passed
    assert "coverage is 50 %, 50.01 % is wanted" in receipt.detail


def test_a_run_that_takes_too_long_fails(gate: Gate) -> None:
    """A good report does not save a run that had to be killed."""
    receipt = gate(f'echo "{GOOD}" > r.xml; sleep 30', junit="r.xml", within_ms=300)
    assert not receipt.passed
    assert "the tests did not end in time" in receipt.detail
