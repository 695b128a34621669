"""Repairs as nouns: what failed, what was tried against it, and what that came to.

    Receipt + log ──planning.failures──▶ Failure ──engine.fixes──▶ Request ──agent──▶ Attempt ──▶ FixRecord

Invariants
  O1  A fix counts as good only by what was measured: its patch was validated, the checks passed (also with the tests as
      they were before), nothing was rolled back. What the agent says of it is in the attempt, and not here.
  O2  A regression test is one that was seen to fail without the fix, or nobody could see (`unknown`); one that passes
      without it is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from holdfast.model.agent import Usage
from holdfast.model.canonical import Json

Category = Literal[
    "syntax", "import", "type", "test", "lint", "time-out", "limit", "missing file", "wrong path", "missing dependency",
    "conflict", "agent error", "environment", "unknown",
]  # fmt: skip
CATEGORIES: tuple[Category, ...] = (
    "syntax", "import", "type", "test", "lint", "time-out", "limit", "missing file", "wrong path", "missing dependency",
    "conflict", "agent error", "environment", "unknown",
)  # fmt: skip
# No change to the workspace would repair these.
BEYOND_REPAIR: tuple[Category, ...] = ("agent error", "environment")


class Place(NamedTuple):
    """A line of a file in the workspace that a log speaks of."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Failure(NamedTuple):
    """A failed check, understood by fixed rules. `because` is the line that decided; all of it is untrusted text."""

    category: Category
    because: str
    tests: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    # What the log says around the deciding line, and at its end; bounded.
    around: str = ""
    last_lines: str = ""

    @property
    def repairable(self) -> bool:
        return self.category not in BEYOND_REPAIR


# Does the regression test fail on the files without the fix? Measured; `unknown` where that could not be told.
Fails = Literal["yes", "no", "unknown"]


class Regression(NamedTuple):
    """The test that fails when the failure comes back, or why there is none."""

    test: str
    why_none: str
    fails_without: Fails = "unknown"


class FixRecord(NamedTuple):
    """One attempt at a repair. Exactly one of `regression_test` and `why_no_test` says something.

    `why_not` is why it is not good, in our words; empty when it is, or when the checks themselves said it.
    """

    category: Category
    attempt: int
    tried: str
    patch_digest: str
    validated: bool
    checks_passed: bool
    rolled_back: bool
    regression_test: str
    why_no_test: str
    usage: Usage = Usage()
    duration_ms: int = 0
    fails_without_fix: Fails = "unknown"
    why_not: str = ""

    @property
    def good(self) -> bool:
        """O1."""
        return bool(self.patch_digest) and self.validated and self.checks_passed and not self.rolled_back

    def document(self) -> dict[str, Json]:
        return {
            "version": 1,
            **{name: value for name, value in self._asdict().items() if name != "usage"},
            "good": self.good,
            "usage": {**self.usage._asdict()},
        }


class FixTotals(NamedTuple):
    """Metrics over many records."""

    attempts: int
    fixed: int
    rolled_back: int
    with_regression_test: int
    usage: Usage
    duration_ms: int


def totals(records: Iterable[FixRecord]) -> dict[Category, FixTotals]:
    """Per category, in the order of CATEGORIES; only those that occurred."""
    found = list(records)
    return {
        category: _total([record for record in found if record.category == category])
        for category in CATEGORIES
        if any(record.category == category for record in found)
    }


def _total(records: list[FixRecord]) -> FixTotals:
    usage = Usage()
    for record in records:
        usage = usage.plus(record.usage)
    return FixTotals(
        len(records),
        sum(record.good for record in records),
        sum(record.rolled_back for record in records),
        # Seen to fail. A repair that was not good has none, whatever an older record says of it.
        sum(record.fails_without_fix == "yes" and record.checks_passed for record in records),
        usage,
        sum(record.duration_ms for record in records),
    )
