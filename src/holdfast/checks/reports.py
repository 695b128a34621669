"""The test gate: what a test run must have shown, judged by the reports it left.

    junit, coverage ──read──▶ Results, Coverage ──judged against Criteria──▶ Verdict with reasons

A report that is missing, stale or unreadable is a reason to fail, never a reason to pass;
so is a run without tests, and a coverage of no lines at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.checks.attempt import plural
from holdfast.checks.junit import Results
from holdfast.checks.linecoverage import Coverage
from holdfast.model.check import SuiteCheck
from holdfast.model.path import printable

_NAMED = 5


class Criteria(NamedTuple):
    """Coverage in hundredths of a percent; None where it does not matter.

    `maximum_failures` is None where nobody said a number, and then none may fail.
    With `needs_results` False, a run without a JUnit report is judged by its exit code alone.
    """

    minimum_coverage: int | None = None
    maximum_failures: int | None = None
    required: tuple[str, ...] = ()
    needs_results: bool = True

    @property
    def may_fail(self) -> int:
        return self.maximum_failures or 0


class Verdict(NamedTuple):
    passed: bool
    reasons: tuple[str, ...]
    # What was counted, for people: "41 passed, 2 skipped, coverage 81.25 %"
    summary: str = ""


class Ended(NamedTuple):
    """How the run itself ended."""

    exit_code: int | None
    timed_out: bool = False


def criteria_of(check: SuiteCheck) -> Criteria:
    # More failures than none can only be counted in a report.
    counted = bool(check.junit) or check.maximum_failures > 0
    return Criteria(check.minimum_coverage, check.maximum_failures, check.required, counted)


def judged(criteria: Criteria, ended: Ended, results: Results | None, coverage: Coverage | None) -> Verdict:
    """Pure: the same reports always give the same verdict."""
    reasons = (
        *_of_the_run(criteria, ended, results),
        *_of_the_results(criteria, results),
        *_of_the_coverage(criteria, coverage),
    )
    counted = ([results.summary] if results else []) + ([coverage.summary] if coverage else [])
    return Verdict(not reasons, reasons, ", ".join(counted))


def _of_the_run(criteria: Criteria, ended: Ended, results: Results | None) -> Iterator[str]:
    if ended.timed_out:
        yield "the tests did not end in time"
    elif ended.exit_code is None:
        yield "the tests did not end by themselves"
    elif ended.exit_code != 0 and not _excused(criteria, ended.exit_code, results):
        yield f"the tests exited with {ended.exit_code}"


def _excused(criteria: Criteria, exit_code: int, results: Results | None) -> bool:
    """Runners exit with 1 for failed tests; that many may fail. Any other code means that the run itself broke."""
    return exit_code == 1 and results is not None and 0 < len(results.failed) <= criteria.may_fail


def _of_the_results(criteria: Criteria, results: Results | None) -> Iterator[str]:
    if results is None:
        if criteria.needs_results or criteria.required:
            yield "there is no readable report of the tests"
        return
    if not results.ran:
        yield "no tests were run"
    failed = results.failed
    if len(failed) > criteria.may_fail:
        names = ", ".join(printable(name) for name in failed[:_NAMED])
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        allowed = f"; {criteria.may_fail} may" if criteria.may_fail else ""
        yield f"{plural(len(failed), 'test', 'tests')} failed{allowed}: {names}{more}"
    for name in criteria.required:
        state = results.state_of(name)
        if state != "passed":
            yield f"the required test {printable(name)} {'was not run' if state is None else f'is {state}'}"


def _of_the_coverage(criteria: Criteria, coverage: Coverage | None) -> Iterator[str]:
    if criteria.minimum_coverage is None:
        return
    wanted = f"{percent(criteria.minimum_coverage)} is wanted"
    if coverage is None:
        yield f"there is no readable report of the coverage, {wanted}"
    elif not coverage.total:
        yield f"the coverage is of no lines at all, {wanted}"
    elif coverage.hundredths < criteria.minimum_coverage:
        yield f"coverage is {percent(coverage.hundredths)}, {wanted}"


def percent(hundredths: int) -> str:
    whole, rest = divmod(hundredths, 100)
    return f"{whole}.{rest:02d} %" if rest else f"{whole} %"
