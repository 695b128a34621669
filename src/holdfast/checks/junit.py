"""JUnit XML, as pytest, node, Maven, Gradle and most others write it.

Only the single test cases are counted; the totals in a suite's attributes are somebody's claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from holdfast.checks.xmltext import BadReport, read_xml

State = Literal["passed", "failed", "skipped"]
_ROOTS = frozenset(("testsuites", "testsuite"))
_BAD = frozenset(("failure", "error"))
MAX_NAME = 2000


class Case(NamedTuple):
    name: str
    suite: str
    state: State

    @property
    def full_name(self) -> str:
        return f"{self.suite}.{self.name}" if self.suite else self.name


class Results(NamedTuple):
    cases: tuple[Case, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(case.full_name for case in self.cases if case.state == "failed")

    @property
    def passed(self) -> tuple[str, ...]:
        return tuple(case.full_name for case in self.cases if case.state == "passed")

    @property
    def ran(self) -> int:
        return sum(case.state != "skipped" for case in self.cases)

    @property
    def summary(self) -> str:
        counts = {state: sum(case.state == state for case in self.cases) for state in ("passed", "failed", "skipped")}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no tests"

    def state_of(self, wanted: str) -> State | None:
        """The worst state of the cases with this name, given in full or without the suite; None when there is none."""
        states = {case.state for case in self.cases if wanted in (case.name, case.full_name, _as_path(case))}
        worst: tuple[State, ...] = ("failed", "skipped", "passed")
        return next((state for state in worst if state in states), None)


def read_junit(data: bytes) -> Results:
    """The single results, or BadReport."""
    reading = _Reading()
    read_xml(data, reading.start, reading.end)
    if reading.open_case is not None:
        raise BadReport("a test case is not closed")
    return Results(tuple(reading.cases))


def _as_path(case: Case) -> str:
    """`tests.test_a` and `test_b` as pytest names them on its command line."""
    return f"{case.suite.replace('.', '/')}.py::{case.name}"


class _Reading:
    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.open_case: Case | None = None
        self._case_depth = 0

    def start(self, name: str, attributes: Mapping[str, str], depth: int) -> None:
        if depth == 1 and name not in _ROOTS:
            raise BadReport(f"it is not JUnit XML: its outermost element is {name[:40]}")
        if name == "testcase":
            if self.open_case is not None:
                raise BadReport("a test case stands inside another")
            self._case_depth = depth
            suite, title = attributes.get("classname", ""), attributes.get("name", "")
            self.open_case = Case(title[:MAX_NAME], suite[:MAX_NAME], "passed")
        elif self.open_case is not None and depth == self._case_depth + 1:
            if name in _BAD:
                self.open_case = self.open_case._replace(state="failed")
            elif name == "skipped" and self.open_case.state == "passed":
                self.open_case = self.open_case._replace(state="skipped")

    def end(self, name: str, depth: int) -> None:
        if self.open_case is not None and depth == self._case_depth:
            self.cases.append(self.open_case)
            self.open_case = None
