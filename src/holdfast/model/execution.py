"""Executions: what happened, in the words of one status machine.

    PENDING ─▶ VALIDATING ─▶ BACKING_UP ─▶ APPLYING ─▶ VERIFYING ─▶ HEALTH_CHECKING ─▶ COMPLETED
       │           │             │            │            │               │
       └───────────┴─ ABORTED ───┤            └────────────┴───────────────┴─▶ ROLLED_BACK | PARTIAL | FAILED
                                 └─▶ PARTIAL | FAILED

ABORTED      nothing in the workspace was changed
ROLLED_BACK  everything was changed back, and a digest over the touched paths proves it
PARTIAL      what was ours was changed back; files that somebody else changed meanwhile were left to them,
             or a service action could not be taken back
FAILED       the rollback itself could not finish; the material is kept, a human is needed
             (from BACKING_UP: nothing moved, but the journal can no longer be told so)

Invariant X1: `ROLLED_BACK` is entered only with equal before and after digests; asserted in `advanced`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Status = Literal[
    "PENDING",
    "VALIDATING",
    "BACKING_UP",
    "APPLYING",
    "VERIFYING",
    "HEALTH_CHECKING",
    "COMPLETED",
    "FAILED",
    "ROLLED_BACK",
    "ABORTED",
    "PARTIAL",
]

_AFTER_CHANGE: tuple[Status, ...] = ("ROLLED_BACK", "PARTIAL", "FAILED")
MOVES: dict[Status, tuple[Status, ...]] = {
    "PENDING": ("VALIDATING", "ABORTED"),
    "VALIDATING": ("BACKING_UP", "ABORTED"),
    "BACKING_UP": ("APPLYING", "ABORTED", "PARTIAL", "FAILED"),
    "APPLYING": ("VERIFYING", *_AFTER_CHANGE),
    "VERIFYING": ("HEALTH_CHECKING", *_AFTER_CHANGE),
    "HEALTH_CHECKING": ("COMPLETED", *_AFTER_CHANGE),
    "COMPLETED": (),
    "FAILED": (),
    "ROLLED_BACK": (),
    "ABORTED": (),
    "PARTIAL": (),
}

# The word other tools read in an execution result (features.md, appendix).
RESULT_WORDS: dict[Status, str] = {
    "COMPLETED": "SUCCESS",
    "PARTIAL": "PARTIAL",
    "FAILED": "PARTIAL",
    "ROLLED_BACK": "ROLLED_BACK",
    "ABORTED": "ABORTED",
}


class Moment(NamedTuple):
    status: Status
    at_ns: int


class Divergence(NamedTuple):
    """Somebody else's change, seen and left alone."""

    path: str
    detail: str


class StepResult(NamedTuple):
    step_id: str
    operation: str
    target: str
    started_ns: int
    completed_ns: int
    precondition_met: bool
    precondition_detail: str
    expected_vs_actual_match: bool
    actual_state_change: str
    success: bool
    rollback_invoked: bool = False
    rollback_succeeded: bool = False
    error_message: str = ""


# Who asked for a check: the plan; the project's holdfast.toml; the user's or the managed configuration; nobody, it was
# found in the tree; an agent. Health checks and steps have no origin, and neither had any receipt of the first release.
CheckOrigin = Literal["", "plan", "project", "configured", "detected", "agent"]


class Receipt(NamedTuple):
    """Proof that Holdfast itself ran one check. Without a tree digest it is for no tree that could land."""

    command: tuple[str, ...]
    kind: str
    passed: bool
    exit_code: int | None
    duration_ms: int
    log_digest: str
    tree_digest: str
    detail: str
    origin: CheckOrigin = ""

    def document(self) -> dict[str, object]:
        """As it is digested and kept: without an origin it is what it was before there were any."""
        row = self._asdict()
        return row if self.origin else {name: value for name, value in row.items() if name != "origin"}

    def row(self) -> tuple[object, ...]:
        """The same, without names."""
        return tuple(self) if self.origin else tuple(self)[:-1]


class BaseTests(NamedTuple):
    """What a change does to the tests that judge it, and what the tests of the base say to the new code.

    The receipts are for `tree`, the new code with the base's tests, which never lands: they prove nothing about what
    does. `changed` are test files of the base that were edited or removed, and new settings of tests; `added` are new
    ones. `missing` and `skipped` name tests of the base that are gone, or left out now.
    """

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    outcome: Literal["passed", "failed", "not run"] = "not run"
    why_not_run: str = ""
    missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    tree: str = ""
    receipts: tuple[Receipt, ...] = ()

    def document(self) -> dict[str, object]:
        return {**self._asdict(), "receipts": [receipt.document() for receipt in self.receipts]}


@dataclass(frozen=True, slots=True)
class Execution:
    id: str
    intent: str
    plan_id: str
    plan_digest: str
    change_set_digest: str
    base_digest: str
    approved_by: str = ""
    approved_at_ns: int = 0
    history: tuple[Moment, ...] = ()
    steps: Sequence[StepResult] = ()
    receipts: tuple[Receipt, ...] = ()
    before_digest: str = ""
    after_digest: str = ""
    divergence: tuple[Divergence, ...] = ()
    errors: tuple[str, ...] = ()
    changes: int = 0
    proven: int = 0
    # Service actions taken back after the files were, in words.
    taken_back: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        return self.history[-1].status if self.history else "PENDING"

    @property
    def duration_ms(self) -> int:
        if len(self.history) < 2:
            return 0
        return (self.history[-1].at_ns - self.history[0].at_ns) // 1_000_000


class IllegalMove(ValueError):
    """A status was entered from one that does not lead there."""


def advanced(execution: Execution, status: Status, at_ns: int) -> Execution:
    """The execution in its next status, or IllegalMove."""
    current = execution.status
    if not execution.history:
        if status != "PENDING":
            raise IllegalMove(f"an execution starts as PENDING, not {status}")
    elif status not in MOVES[current]:
        raise IllegalMove(f"{current} does not lead to {status}")
    if status == "ROLLED_BACK" and execution.before_digest != execution.after_digest:
        raise IllegalMove("ROLLED_BACK needs equal digests before and after")  # X1
    return replace(execution, history=(*execution.history, Moment(status, at_ns)))
