"""Executions: what happened, in the words of one status machine.

    PENDING ─▶ VALIDATING ─▶ BACKING_UP ─▶ APPLYING ─▶ VERIFYING ─▶ HEALTH_CHECKING ─▶ COMPLETED | PARTIAL
       │           │             │            │            │               │
       └───────────┴─ ABORTED ───┤            └────────────┴───────────────┴─▶ FAILED ─▶ ROLLED_BACK
                                 └─▶ FAILED

COMPLETED    everything landed
PARTIAL      the files landed; a service action failed, and the plan says to go on or to stop there
ABORTED      nothing in the workspace was changed
FAILED       something failed after paths had moved. It stays so when the rollback could not finish: files that somebody
             else changed meanwhile were left to them, a service action could not be taken back, or a human is needed
             (from BACKING_UP: nothing moved, but the journal can no longer be told so)
ROLLED_BACK  everything was changed back, and a digest over the touched paths proves it

Before the second release a rollback that left something to others ended as PARTIAL, and nothing had landed. Ledger
entries say whether something landed (`landed_in`), so that those keep their meaning.

Invariant X1: `ROLLED_BACK` is entered only with equal before and after digests; asserted in `advanced`.
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from holdfast.model.canonical import Json

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

MOVES: dict[Status, tuple[Status, ...]] = {
    "PENDING": ("VALIDATING", "ABORTED"),
    "VALIDATING": ("BACKING_UP", "ABORTED"),
    "BACKING_UP": ("APPLYING", "ABORTED", "FAILED"),
    "APPLYING": ("VERIFYING", "FAILED"),
    "VERIFYING": ("HEALTH_CHECKING", "FAILED"),
    "HEALTH_CHECKING": ("COMPLETED", "PARTIAL", "FAILED"),
    "COMPLETED": (),
    "PARTIAL": (),
    "FAILED": ("ROLLED_BACK",),
    "ROLLED_BACK": (),
    "ABORTED": (),
}
LANDED: tuple[Status, ...] = ("COMPLETED", "PARTIAL")
# What did not land and may yet have left something in the workspace; in the first release PARTIAL was the word for it.
LEFT_SOMETHING: tuple[Status, ...] = ("FAILED", "PARTIAL")
# Reasons that say nothing about the change itself: it may be tried again as it is.
INTERRUPTED = "interrupted"
NOT_FINISHED = "it was not finished by the process that began it"
TAKEN_BACK = f"{NOT_FINISHED}; recovery rolled it back"
TAKEN_BACK_IN_PART = f"{NOT_FINISHED}; recovery took back all but what is named here"


def result_word(status: str) -> str:
    """The word other tools read in an execution result (features.md, appendix)."""
    return "SUCCESS" if status == "COMPLETED" else status


def intent_id(words: str) -> str:
    """The id of an intent: the same words are the same intent, whichever plan came of them."""
    return (
        "i-" + b32encode(hashlib.sha256(words.encode("utf-8", "surrogateescape")).digest())[:8].decode("ascii").lower()
    )


def landed_in(body: Mapping[str, Json]) -> bool:
    """Does a ledger entry about an execution say that its files landed? Older entries say it by their status alone."""
    return bool(body.get("landed", body.get("status") == "COMPLETED"))


class Moment(NamedTuple):
    status: Status
    at_ns: int


class Divergence(NamedTuple):
    """Somebody else's change, seen and left alone."""

    path: str
    detail: str


ActionType = Literal[
    "WRITE", "UPDATE", "CREATE", "DELETE", "MOVE", "CHMOD", "SYMLINK", "READ", "RUN", "AGENT", "SERVICE"
]  # fmt: skip


class StepResult(NamedTuple):
    """One planned step. One that was never begun has no times.

    `superseded_by` is the last later step on one of its paths: what stands there is that one's.
    `type`, `size`, `permissions` and `digest` are what the look after landing found where the step's work is to be
    seen; empty for nothing there, and for programs and services.
    """

    step_id: str
    operation: str
    target: str
    started_ns: int | None
    completed_ns: int | None
    precondition_met: bool
    precondition_detail: str
    expected_vs_actual_match: bool
    actual_state_change: str
    success: bool
    rollback_invoked: bool = False
    rollback_succeeded: bool = False
    error_message: str = ""
    action_type: ActionType = "WRITE"
    superseded_by: str = ""
    type: str = ""
    size: int | None = None
    permissions: str = ""
    digest: str = ""

    @property
    def was_executed(self) -> bool:
        """Was it begun, whatever became of it?"""
        return self.started_ns is not None

    @property
    def duration_ms(self) -> int | None:
        if self.started_ns is None or self.completed_ns is None:
            return None
        return (self.completed_ns - self.started_ns) // 1_000_000


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
    # Why it says nothing about the change although it is not held against it: it failed before too.
    unverified: str = ""

    def document(self) -> dict[str, object]:
        """As it is digested and kept: without the last two it is what it was before there were any."""
        row = self._asdict()
        return {name: value for name, value in row.items() if value or name not in ("origin", "unverified")}

    def row(self) -> tuple[object, ...]:
        """The same, without names."""
        return tuple(self) if self.unverified else tuple(self)[:-1] if self.origin else tuple(self)[:-2]


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
    # Why the tree elsewhere was not looked at for changes by others; empty where it was.
    not_looked_at: str = ""

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
