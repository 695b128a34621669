"""The test gate reads reports that somebody hostile may have written, and passes nothing it has not seen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.checks.junit import Case, Results, read_junit
from holdfast.checks.linecoverage import Coverage, read_coverage
from holdfast.checks.reports import Criteria, Ended, judged
from holdfast.checks.xmltext import MAX_DEPTH, BadReport

JUNIT = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites tests="999" failures="0"><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_one" time="0.1"/>
<testcase classname="tests.test_a" name="test_two"><failure message="no">trace</failure></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped/></testcase>
<testcase classname="tests.test_b" name="test_one"><error message="broken"/></testcase>
</testsuite></testsuites>"""
COBERTURA = b"""<?xml version="1.0" ?>
<!DOCTYPE coverage SYSTEM 'http://cobertura.sourceforge.net/xml/coverage-04.dtd'>
<coverage line-rate="0.99"><packages><package><classes>
<class filename="a.py"><methods><method><lines><line number="1" hits="0"/></lines></method></methods>
<lines><line number="1" hits="1"/><line number="2" hits="0"/><line number="3" hits="7"/></lines></class>
</classes></package></packages></coverage>"""
LCOV = b"TN:\nSF:a.js\nDA:1,1\nDA:2,0\nDA:3,4\nDA:4,0\nLF:4\nLH:2\nend_of_record\nSF:b.js\nDA:1,0\nend_of_record\n"
COVERAGE_PY = json.dumps({"meta": {}, "totals": {"covered_lines": 81, "num_statements": 100}}).encode()


def _bomb() -> bytes:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return f'<!DOCTYPE x [<!ENTITY l0 "lol">{entities}]><testsuites>&l9;</testsuites>'.encode()


HOSTILE = {
    "a billion laughs": _bomb(),
    "an outside entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><testsuites>&e;</testsuites>',
    "a parameter entity": b'<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><testsuites/>',
    "endless depth": b"<testsuites>" + b"<a>" * (MAX_DEPTH + 1),
    "a broken end": JUNIT[:-20],
    "another root": b"<html/>",
    "an unknown encoding": b'<?xml version="1.0" encoding="klingon"?><testsuites/>',
    "a case in a case": b"<testsuite><testcase name='a'><testcase name='b'/></testcase></testsuite>",
    "nothing": b"",
}


def test_only_single_cases_are_counted() -> None:
    """The totals a suite claims are not believed; every case is counted by itself."""
    results = read_junit(JUNIT)
    assert results.summary == "1 passed, 2 failed, 1 skipped"
    assert results.failed == ("tests.test_a.test_two", "tests.test_b.test_one")


def test_a_required_test_is_known_by_each_of_its_names() -> None:
    """A test is found by its name, by its full name and as pytest writes it; the worst of several counts."""
    results = read_junit(JUNIT)
    assert results.state_of("tests/test_a.py::test_one") == "passed"
    assert results.state_of("tests.test_a.test_three") == "skipped"
    assert results.state_of("test_one") == "failed"
    assert results.state_of("test_nine") is None


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused(name: str) -> None:
    """Entities, outside files, depth and nonsense are refused with a sentence, at once."""
    started = time.process_time()
    with pytest.raises(BadReport) as caught:
        read_junit(HOSTILE[name])
    assert "root:" not in str(caught.value)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (COBERTURA, Coverage(2, 3, "Cobertura")),
        (b'<coverage line-rate="0.825"/>', Coverage(8250, 10_000, "Cobertura")),
        (LCOV, Coverage(2, 5, "lcov")),
        (b"SF:a\nLF:10\nLH:9\nend_of_record\n", Coverage(9, 10, "lcov")),
        (COVERAGE_PY, Coverage(81, 100, "coverage.py")),
    ],
)
def test_coverage_is_read_from_three_formats(data: bytes, expected: Coverage) -> None:
    """Lines listed one by one count; a rate is believed only where no lines are listed."""
    assert read_coverage(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"", b"hello", b"<x/>", b"{}", b'{"totals": {"covered_lines": 5, "num_statements": 3}}',
        b'{"totals": {"covered_lines": true, "num_statements": 1}}', b'{"totals": {"covered_lines": 1e9}}',
        b"SF:a\nDA:1,-5\n", b"SF:a\nLF:1\nLH:2\n", b"SF:a\nLF:9999999999999999\n", b"{" * 100_000,
        b'<coverage><class filename="a"><line number="1" hits="many"/></class></coverage>', HOSTILE["a billion laughs"],
    ],
)  # fmt: skip
def test_a_wrong_coverage_report_is_refused(data: bytes) -> None:
    """What is no report, or says what cannot be, is refused with a sentence."""
    with pytest.raises(BadReport):
        read_coverage(data)


def _outcome(read: Callable[[bytes], Results | Coverage], data: bytes) -> str:
    """What a reading came to, in words; any exception but BadReport is a failure of the test."""
    try:
        return read(data).summary
    except BadReport as error:
        return str(error)


@given(st.one_of(st.binary(), st.binary().map(lambda tail: JUNIT[: len(tail) * 7] + tail)))
@example(b"\xff\xfe<")
@example(b"<?xml version='1.0' encoding='utf-16'?><testsuites/>")
def test_any_bytes_are_results_or_a_refusal(data: bytes) -> None:
    """Whatever the bytes, reading them gives a value or BadReport."""
    assert _outcome(read_junit, data) != ""
    assert _outcome(read_coverage, data) != ""


starts = st.sampled_from([b"TN:\nSF:a\n", b"<coverage line-rate='", b'{"totals": {', b"<coverage><class><line "])


@given(starts, st.text("0123456789<>/='\"{}:,DALFH\n.-e nanhits", max_size=60))
def test_a_damaged_coverage_report_is_a_value_or_a_refusal(start: bytes, rest: str) -> None:
    """A report that begins well and goes on anyhow is a possible coverage, or is refused."""
    try:
        coverage = read_coverage(start + rest.encode())
    except BadReport:
        return
    assert 0 <= coverage.covered <= coverage.total


def _results(*states: str) -> Results:
    return Results(tuple(Case(f"test_{n}", "s", state) for n, state in enumerate(states)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("criteria", "ended", "results", "coverage", "reason"),
    [
        (Criteria(), Ended(0), _results("passed"), None, ""),
        (Criteria(), Ended(1), _results("failed"), None, "the tests exited with 1"),
        (Criteria(), Ended(0), _results("failed", "failed"), None, "2 tests failed: s.test_0, s.test_1"),
        (Criteria(), Ended(0), _results(), None, "no tests were run"),
        (Criteria(), Ended(0), _results("skipped"), None, "no tests were run"),
        (Criteria(), Ended(0), None, None, "there is no readable report of the tests"),
        (Criteria(needs_results=False), Ended(0), None, None, ""),
        (Criteria(needs_results=False), Ended(3), None, None, "the tests exited with 3"),
        (Criteria(), Ended(None, timed_out=True), _results("passed"), None, "the tests did not end in time"),
        (Criteria(), Ended(None), _results("passed"), None, "the tests did not end by themselves"),
        (Criteria(maximum_failures=1), Ended(1), _results("passed", "failed"), None, ""),
        (Criteria(maximum_failures=1), Ended(1), _results("failed", "failed"), None, "2 tests failed; 1 may"),
        (Criteria(maximum_failures=1), Ended(2), _results("passed", "failed"), None, "the tests exited with 2"),
        (Criteria(maximum_failures=1), Ended(1), _results("passed"), None, "the tests exited with 1"),
        (Criteria(required=("test_0",)), Ended(0), _results("passed"), None, ""),
        (Criteria(required=("test_0",)), Ended(0), _results("skipped", "passed"), None, "test_0 is skipped"),
        (Criteria(required=("test_9",)), Ended(0), _results("passed"), None, "test_9 was not run"),
        (Criteria(8000), Ended(0), _results("passed"), Coverage(8000, 10_000, "x"), ""),
        (Criteria(8000), Ended(0), _results("passed"), Coverage(79_999, 100_000, "x"), "coverage is 79.99 %, 80 %"),
        (Criteria(8000), Ended(0), _results("passed"), None, "no readable report of the coverage"),
        (Criteria(0), Ended(0), _results("passed"), Coverage(0, 0, "x"), "of no lines at all"),
    ],
)
def test_the_gate_gives_its_reasons(
    criteria: Criteria, ended: Ended, results: Results | None, coverage: Coverage | None, reason: str
) -> None:
    """The gate passes exactly when it has no reason not to, and says each reason in words."""
    verdict = judged(criteria, ended, results, coverage)
    assert verdict.passed == (not reason)
    assert reason in "; ".join(verdict.reasons)
