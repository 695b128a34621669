"""The states of a patch, from the text that somebody sent to the commit, or to where it cannot do harm: one table.

    created ──▶ validated ──▶ queued ──▶ applied ──▶ verified ──▶ committed ◀── applied (no check ran)
      │ ▲           │          │  ▲         │            │            │
      │ └ released  │          ▼  │         └────────────┴────────────┴──▶ rolled_back ──▶ queued, quarantined, dropped
      │   by a      │     apply_failed ──▶ quarantined, dropped
      │   person    │
      └─────────────┴──▶ quarantined ──▶ created (released), dropped

created       known, and not yet found to be sound; a failed validation leaves it here, with one failure more
validated     its form, paths and scope are sound; it may be queued
queued        somebody wants it applied, by the plan that it names; anew by another, when the files moved meanwhile
applied       it stands in the workspace
verified      the checks passed on what stands there; left out where none ran
committed     recorded for good (it can still be undone: rolled_back)
apply_failed  it did not apply, or its simulation or gate refused; nothing was changed
rolled_back   it was taken back
quarantined   not to be applied until a person says so
dropped       nobody wants it any more; the end

Invariants
  W1  A move that is not in MOVES is refused; asserted again for every line that is read back.
  W2  `MOST_FAILURES` failures, or one grave objection, lead to quarantine at once, in the same breath as the failure.
  W3  Out of quarantine leads only a person, by name, and then everything is judged anew.
"""

from __future__ import annotations

from base64 import b32encode
from typing import Literal, NamedTuple

from holdfast.errors import Blocked

State = Literal[
    "created", "validated", "queued", "applied", "verified", "committed",
    "apply_failed", "rolled_back", "quarantined", "dropped",
]  # fmt: skip
# A failure while validating, while applying, or after it was applied.
Stage = Literal["validation", "apply", "verification"]

MOVES: dict[State, tuple[State, ...]] = {
    "created": ("created", "validated", "quarantined", "dropped"),
    "validated": ("queued", "quarantined", "dropped"),
    "queued": ("queued", "applied", "apply_failed", "quarantined", "dropped"),
    "applied": ("verified", "committed", "rolled_back"),
    "verified": ("committed", "rolled_back"),
    "committed": ("rolled_back",),
    "apply_failed": ("queued", "quarantined", "dropped"),
    "rolled_back": ("queued", "quarantined", "dropped"),
    "quarantined": ("created", "dropped"),
    "dropped": (),
}
STATES: tuple[State, ...] = tuple(MOVES)
MOST_FAILURES = 3
_FAILED: dict[Stage, State] = {"validation": "created", "apply": "apply_failed", "verification": "rolled_back"}


class Standing(NamedTuple):
    """Where a patch stands. `text` is the digest of its bytes in the store, `execution` what applied it last.

    `plan` is the digest of the plan that it was last queued with.
    """

    patch: str
    digest: str
    text: str
    state: State = "created"
    failures: int = 0
    reason: str = ""
    by: str = ""
    execution: str = ""
    source: str = ""
    paths: tuple[str, ...] = ()
    at_ns: int = 0
    plan: str = ""

    @property
    def may_be_applied(self) -> bool:
        return self.state == "queued"


def patch_id(digest: str) -> str:
    """Made from what the patch does: sent again, it is the same patch, and is as quarantined as before."""
    return "x-" + b32encode(bytes.fromhex(digest))[:16].decode("ascii").lower()


def moved(
    standing: Standing,
    to: State,
    at_ns: int,
    *,
    reason: str = "",
    by: str = "",
    execution: str = "",
    plan: str = "",
) -> Standing:
    """The patch in its next state, or Blocked (W1, W3)."""
    if to not in MOVES[standing.state]:
        hint = "A person can release it; then it is validated anew." if standing.state == "quarantined" else ""
        raise Blocked(f"patch {standing.patch} is {standing.state}, which does not lead to {to}", hint=hint)
    released = standing.state == "quarantined" and to == "created"
    if released and not by.strip():
        raise Blocked(f"patch {standing.patch} is quarantined ({standing.reason}); only a person, by name, releases it")
    return standing._replace(
        state=to,
        at_ns=at_ns,
        reason=reason,
        by=by,
        failures=0 if released else standing.failures,
        execution=execution or standing.execution,
        plan=plan if to == "queued" else standing.plan,
    )


def failed(
    standing: Standing, stage: Stage, reason: str, at_ns: int, *, grave: bool = False, execution: str = ""
) -> tuple[Standing, ...]:
    """The state that the failure leads to, and the quarantine where that was one too many (W2)."""
    after = moved(standing, _FAILED[stage], at_ns, reason=reason, execution=execution)
    after = after._replace(failures=standing.failures + 1)
    if not grave and after.failures < MOST_FAILURES:
        return (after,)
    why = reason if grave else f"{after.failures} failures, the last: {reason}"
    return after, moved(after, "quarantined", at_ns, reason=why)
