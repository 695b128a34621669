"""Every file in `failures/` is a receipt with its log, and what to understand from it; a new case is a new file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.execution import Receipt
from holdfast.model.fix import CATEGORIES
from holdfast.planning.failure_rules import RULES
from holdfast.planning.failures import is_of_file, understood

CASES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((Path(__file__).parent / "failures").glob("*.json"))
}


def receipt_of(case: dict[str, Any]) -> Receipt:
    return Receipt(tuple(case["command"]), case["kind"], False, case["exit_code"], 10, "", "", case["detail"])


def receipt(detail: str = "exited with 1") -> Receipt:
    return Receipt(("check",), "test", False, 1, 10, "", "", detail)


@pytest.mark.parametrize("name", CASES)
def test_a_failure_is_understood_as_its_case_says(name: str) -> None:
    """Category, deciding line, failing tests and places are exactly those of the case."""
    case = CASES[name]
    failure = understood(receipt_of(case), "\n".join(case["log"]).encode(), frozenset(case["known"]), case["root"])
    assert (failure.category, failure.tests) == (case["category"], tuple(case["tests"]))
    assert [str(place) for place in failure.places] == case["places"]
    assert case["because"] in failure.because


def test_there_are_cases_of_every_category() -> None:
    """No category is a word only."""
    assert {case["category"] for case in CASES.values()} == set(CATEGORIES)
    assert {rule.category for rule in RULES} == set(CATEGORIES) - {"unknown"}
    assert len(CASES) >= 40


def test_a_huge_log_is_looked_at_in_bounded_time() -> None:
    """Beginning and end decide; the middle is left out, lines are cut, and the outcome stays small."""
    log = b"FAILED tests/test_a.py::test_first - x\n" + b"a" * (40 << 20) + b"\nSyntaxError: at the end\n"
    start = time.process_time()
    failure = understood(receipt(), log)
    assert time.process_time() - start < 20
    assert (failure.category, failure.tests) == ("syntax", ("tests/test_a.py::test_first",))
    assert len(failure.last_lines) + len(failure.around) < 10_000


@pytest.mark.parametrize(
    "line", ["a" * 1000, "a." * 500, "a/" * 500, "/" * 1000, "(" * 1000, ": " * 500, "error: " * 140]
)
def test_no_line_keeps_the_rules_busy(line: str) -> None:
    """Lines made to be matched slowly are matched fast."""
    start = time.process_time()
    understood(receipt(), "\n".join([line] * 300).encode())
    assert time.process_time() - start < 20


@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_understood_somehow(log: bytes) -> None:
    """There is always a category; what is quoted has no control characters and is bounded."""
    failure = understood(receipt(), log, frozenset({"a.py"}), "/srv")
    assert failure.category in CATEGORIES
    for text in (failure.because, failure.around, failure.last_lines):
        assert all(ch in "\t\n" or ch.isprintable() for ch in text)


def test_what_a_terminal_would_not_show_is_gone() -> None:
    """Colours, titles and overwritten progress do not hide what the log says."""
    failure = understood(receipt(), b"\x1b]0;title\x0710%\r50%\rFAILED a.py::t - \x1b[31mno\x1b[0m\x08\n")
    assert failure.because == "FAILED a.py::t - no\\x08"


@pytest.mark.parametrize(
    ("test", "path", "same"),
    [
        ("tests/test_a.py::test_x", "tests/test_a.py", True),
        ("tests/test_a.py", "deep/er/tests/test_a.py", True),
        ("tests/test_a.py::test_x", "tests/test_b.py", False),
        ("a.py::test_x", "tests/test_a.py", False),
        ("tests.test_a.TestA.test_x", "tests/test_a.py", True),
        ("test_a.TestA.test_x", "tests/test_a.py", True),
        ("unittest.loader._FailedTest.tests.test_a", "tests/test_a.py", True),
        ("tests.test_ab.TestA.test_a", "tests/test_a.py", False),
        ("TestSum", "sum_test.go", False),
    ],
)
def test_a_test_is_known_by_its_file(test: str, path: str, same: bool) -> None:
    """As runners name them: by path, or by module; from a folder above the file."""
    assert is_of_file(test, path) is same
