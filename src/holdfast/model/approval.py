"""The approval: a named, signed, expiring, single-use yes (or no) to digests, never to names.

Invariant V1: the signed bytes cover every field but the signature. A changed plan, change set, base or policy
has another digest, and therefore no approval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.model.canonical import canonical, digest_of

Answer = Literal["approve", "reject"]


@dataclass(frozen=True, slots=True)
class Approval:
    id: str
    answer: Answer
    by: str
    # Hex of the Ed25519 public key that signed; who it belongs to is configuration, never the approval's own claim.
    key: str
    simulation: str
    simulation_digest: str
    plan: str
    change_set: str
    base: str
    policy: str
    issued_ns: int
    expires_ns: int
    reason: str = ""
    signature: str = ""

    def signed_bytes(self) -> bytes:
        return canonical({"purpose": "holdfast approval 1", **self.claims()})

    @property
    def digest(self) -> str:
        return digest_of({**self.claims(), "signature": self.signature})

    def claims(self) -> dict[str, object]:
        return {
            "id": self.id,
            "answer": self.answer,
            "by": self.by,
            "key": self.key,
            "simulation": self.simulation,
            "simulation_digest": self.simulation_digest,
            "plan": self.plan,
            "change_set": self.change_set,
            "base": self.base,
            "policy": self.policy,
            "issued_ns": self.issued_ns,
            "expires_ns": self.expires_ns,
            "reason": self.reason,
        }
