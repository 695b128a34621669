"""The simulation: what happened when a plan was tried in a shadow. A report of facts, with a digest over all of them.

    SUCCESS   every step was done, every precondition held
    BLOCKED   a step could not be done; there is nothing to land, and steps after it are "unknown"
    UNSAFE    the steps were done, but something about it must not land (see `dangers`)

Invariant M1: the digest covers every field but the id and the time; an edited report has another digest.
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from holdfast.model.canonical import canonical_rows, digest_of
from holdfast.model.execution import BaseTests, Receipt
from holdfast.model.plan import Launch, Risk, Service, Signal

VERSIONS = (1, 2)
Outcome = Literal["SUCCESS", "BLOCKED", "UNSAFE"]
Precondition = Literal["met", "unmet", "unknown"]
StepRisk = Literal["SAFE", "CAUTIOUS", "RISKY", "CRITICAL"]
STEP_RISKS: tuple[StepRisk, ...] = ("SAFE", "CAUTIOUS", "RISKY", "CRITICAL")
Capability = Literal["FULL", "PARTIAL", "NONE"]
_STEPS_AT_ONCE = 512


class Rollback(NamedTuple):
    """How one step would be taken back. Feasible: the means are there. Coherent: it restores all the step changed."""

    exists: bool
    procedure: str
    coherent: bool
    feasible: bool
    capability: Capability


class SimulatedStep(NamedTuple):
    step_id: str
    operation: str
    target: str
    precondition: Precondition
    detail: str
    predicted_change: str
    affected: tuple[str, ...]
    rollback: Rollback
    ways_to_fail: tuple[str, ...]
    risk: StepRisk
    confirmations: tuple[str, ...] = ()
    # What a `run` step did in the shadow; none for file steps.
    receipt: Receipt | None = None
    # An effect outside the files: named, never rehearsed.
    unrehearsed: str = ""


class ByProduct(NamedTuple):
    """Made in the shadow, seen, and not part of the change: ignored by the repository's own rules."""

    path: str
    size: int


class _Facts(NamedTuple):
    """What follows from the steps, found in one pass."""

    risk: StepRisk
    irreversible: tuple[str, ...]
    unrehearsed: tuple[str, ...]
    all_rollbacks_exist: bool
    feasible: bool


def _facts(steps: Sequence[SimulatedStep], status: Outcome) -> _Facts:
    """A plan is feasible if it can land and every step can be taken back; what must not land is critical."""
    worst = STEP_RISKS.index("CRITICAL") if status == "UNSAFE" else 0
    exist, feasible = True, status == "SUCCESS"
    irreversible: list[str] = []
    unrehearsed: list[str] = []
    for step in steps:
        worst = max(worst, STEP_RISKS.index(step.risk))
        exist, feasible = exist and step.rollback.exists, feasible and step.rollback.feasible
        if step.rollback.capability == "NONE":
            irreversible.append(step.step_id)
        if step.unrehearsed:
            unrehearsed.append(step.unrehearsed)
    return _Facts(STEP_RISKS[worst], tuple(irreversible), tuple(unrehearsed), exist, feasible)


@dataclass(frozen=True, slots=True)
class Simulation:
    plan_id: str
    plan_digest: str
    status: Outcome
    change_set: str
    base: str
    # The tree of the workspace the shadow stood on, and the tree it would become.
    base_tree: str
    predicted_tree: str
    # A tuple, or something that makes each step when it is looked at: there may be 100,000.
    steps: Sequence[SimulatedStep]
    receipts: tuple[Receipt, ...] = ()
    by_products: tuple[ByProduct, ...] = ()
    # What programs did in the shadow that is discarded and worth a look: hooks, configuration or refs of .git.
    suspicious: tuple[str, ...] = ()
    dangers: tuple[str, ...] = ()
    # What the sandbox really enforced while programs ran; empty when none ran.
    enforced: tuple[str, ...] = ()
    shadow: str = ""
    at_ns: int = 0
    # What the receipts stand on: the tree of the workspace while the checks ran, and the digest of what decided
    # which checks those were. Empty where none ran, and in reports of the first release.
    checked_on: str = ""
    checks: str = ""
    # Of the document; each version that ever was stays readable (tests/golden).
    version: int = VERSIONS[-1]
    # Where the change touches tests: what those of the base say. None elsewhere, and in reports of earlier releases.
    base_tests: BaseTests | None = None
    # The environment that the checks ran in; empty where none ran, and in reports of earlier releases.
    checked_in: str = ""
    # Made once: a report has as many steps as the plan, and everybody asks for its digest.
    digest: str = field(init=False, repr=False, compare=False)
    _facts: _Facts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Version 1 derived them from the steps alone, also for what could not land.
        object.__setattr__(self, "_facts", _facts(self.steps, self.status if self.version > 1 else "SUCCESS"))
        digest = hashlib.sha256(canonical_rows({**self.head(), "steps": len(self.steps)}))
        for start in range(0, len(self.steps), _STEPS_AT_ONCE):
            digest.update(canonical_rows([_row(step) for step in self.steps[start : start + _STEPS_AT_ONCE]]))
        object.__setattr__(self, "digest", digest.hexdigest())

    @property
    def id(self) -> str:
        """Content and time: the same plan simulated twice gives two reports."""
        seed = bytes.fromhex(digest_of([self.digest, self.at_ns]))
        return "s-" + b32encode(seed)[:8].decode("ascii").lower()

    @property
    def highest_risk(self) -> StepRisk:
        return self._facts.risk

    @property
    def irreversible(self) -> tuple[str, ...]:
        """The ids of the steps that nothing takes back."""
        return self._facts.irreversible

    @property
    def unrehearsed(self) -> tuple[str, ...]:
        return self._facts.unrehearsed

    def document(self) -> dict[str, object]:
        """The report as JSON shows it, without id and time."""
        return {**self.head(), "steps": [step_document(step) for step in self.steps]}

    def head(self) -> dict[str, object]:
        """Everything but the steps."""
        grounds = {"checked_on": self.checked_on, "checks": self.checks, "checked_in": self.checked_in}
        return {
            "version": self.version,
            "plan_id": self.plan_id,
            "plan_digest": self.plan_digest,
            "status": self.status,
            "change_set": self.change_set,
            "base": self.base,
            "base_tree": self.base_tree,
            "predicted_tree": self.predicted_tree,
            "receipts": [receipt.document() for receipt in self.receipts],
            **{name: value for name, value in grounds.items() if value},
            **({"base_tests": self.base_tests.document()} if self.base_tests is not None else {}),
            "by_products": [item._asdict() for item in self.by_products],
            "suspicious": list(self.suspicious),
            "dangers": list(self.dangers),
            "enforced": list(self.enforced),
            "shadow": self.shadow,
            "highest_risk": self.highest_risk,
            "all_rollbacks_exist": self._facts.all_rollbacks_exist,
            "irreversible_actions": list(self.irreversible),
            "feasible": self._facts.feasible,
        }


# The words of the steps' report in the words of a plan.
PLAN_RISK: dict[StepRisk, Risk] = {"SAFE": "low", "CAUTIOUS": "medium", "RISKY": "high", "CRITICAL": "critical"}


def step_document(step: SimulatedStep) -> dict[str, object]:
    """A step as JSON shows it."""
    row = step._asdict()
    row["rollback"] = step.rollback._asdict()
    row["receipt"] = step.receipt.document() if step.receipt is not None else None
    return row


def _row(step: SimulatedStep) -> tuple[object, ...]:
    """A step as its digest sees it."""
    if step.receipt is None:
        return step
    return tuple(value.row() if isinstance(value, Receipt) else value for value in step)


# What a signal to a service is taken back by: another one, to the same service, that can undo it.
_WAYS_BACK: dict[str, frozenset[str]] = {
    "start": frozenset(("stop",)),
    "stop": frozenset(("start", "restart")),
    "restart": frozenset(("restart", "reload")),
    "reload": frozenset(("reload", "restart")),
}


def has_way_back(step: Service) -> bool:
    """Is there something that takes the effect back, as far as anybody can tell beforehand?

    What a call did, nobody knows, and so nobody knows what takes it back: a declared undo is carried out, not believed.
    """
    if isinstance(step.effect, Launch):
        return True  # it is ended by whoever launched it
    effect, back = step.effect, step.compensation
    if not isinstance(effect, Signal) or not isinstance(back, Signal):
        return False
    return effect.name == back.name and back.verb in _WAYS_BACK[effect.verb]
