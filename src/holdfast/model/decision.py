"""The decision: the write gate's verdict on one change set, with every reason, replayable from what it names.

Invariant N1: the digest covers inputs and outcome; the same inputs give the same decision, whoever asks and when.
"""

from __future__ import annotations

from base64 import b32encode
from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.model.canonical import digest_of
from holdfast.model.plan import Risk

Verdict = Literal["ALLOW", "NEED_APPROVAL", "DENY"]
VERDICTS: tuple[Verdict, ...] = ("ALLOW", "NEED_APPROVAL", "DENY")


class Reason(NamedTuple):
    """One rule that had something to say. `rule` is its name, a sentence; `layer` says where it comes from."""

    rule: str
    layer: str
    verdict: Verdict
    risk: Risk
    paths: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class Decision:
    simulation: str
    simulation_digest: str
    plan_digest: str
    change_set: str
    base: str
    policy: str
    gate_version: int
    # Who made the change ("person", or an agent's name): an agent never approves.
    author: str
    risk_proposed: Risk
    risk_effective: Risk
    verdict: Verdict
    reasons: tuple[Reason, ...]
    # How many different people must say yes; 0 with ALLOW and DENY.
    approvals_needed: int
    # From `high` on, a yes is typed out, never given by --yes.
    typed_consent: bool
    # Digests of instruction files an agent was given (AGENTS.md, CLAUDE.md…), by path.
    instructions: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        return digest_of(self.document())

    @property
    def id(self) -> str:
        return "d-" + b32encode(bytes.fromhex(self.digest))[:8].decode("ascii").lower()

    def document(self) -> dict[str, object]:
        return {
            "version": 1,
            "simulation": self.simulation,
            "simulation_digest": self.simulation_digest,
            "plan_digest": self.plan_digest,
            "change_set": self.change_set,
            "base": self.base,
            "policy": self.policy,
            "gate_version": self.gate_version,
            "author": self.author,
            "risk_proposed": self.risk_proposed,
            "risk_effective": self.risk_effective,
            "verdict": self.verdict,
            "reasons": [reason._asdict() for reason in self.reasons],
            "approvals_needed": self.approvals_needed,
            "typed_consent": self.typed_consent,
            "instructions": [list(item) for item in self.instructions],
        }
