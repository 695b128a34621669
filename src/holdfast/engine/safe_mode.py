"""When nothing should be started at all: no agent can be used, a breaker stays open for long, nothing can be confined.

In safe mode looking, going back and recovering work as ever; no agent is started.

Invariants
  F1  Safe mode is computed from what is true now, never switched on: when its reasons are gone, so is it.
  F2  It cannot keep itself alive: a breaker whose pause is over may be tried, so it is no reason any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from holdfast.agents.protocol import Health
from holdfast.engine.breaker import TUNING, Tuning, paused_until_ns
from holdfast.store.adapters import Adapter

_MS = 1_000_000
LONG_NS = 30 * 60_000 * _MS


class NoneUsable(NamedTuple):
    """Why each of the agents cannot be used: (name, reason)."""

    agents: tuple[tuple[str, str], ...]
    kind: Literal["none_usable"] = "none_usable"


class OpenForLong(NamedTuple):
    agent: str
    for_ms: int
    kind: Literal["open_for_long"] = "open_for_long"


class Unconfined(NamedTuple):
    """Programs cannot be run as their profile demands."""

    why: str
    kind: Literal["unconfined"] = "unconfined"


Reason: TypeAlias = NoneUsable | OpenForLong | Unconfined


class SafeMode(NamedTuple):
    reasons: tuple[Reason, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentence(reason) for reason in self.reasons)


class Limits(NamedTuple):
    """`long_ns` must be longer than the longest pause of a breaker, or a single pause would be long."""

    long_ns: int = LONG_NS
    tuning: Tuning = TUNING


LIMITS = Limits()


def safe_mode(
    healths: Mapping[str, Health],
    adapters: Iterable[Adapter],
    now_ns: int,
    *,
    unconfined_because: str = "",
    limits: Limits = LIMITS,
) -> SafeMode | None:
    """None when work may begin. `healths` are the agents that there are; rows of others are history."""
    pausing = {
        row.name: row
        for row in adapters
        # Before `opened_ns` the clock was set back; the breaker itself says so when it is asked next.
        if row.name in healths and row.opened_ns <= now_ns < paused_until_ns(row, limits.tuning)
    }
    reasons: list[Reason] = [Unconfined(unconfined_because)] if unconfined_because else []
    unusable = tuple((name, why) for name in sorted(healths) if (why := _why_not(healths[name], name in pausing)))
    if len(unusable) == len(healths):
        reasons.append(NoneUsable(unusable))
    for name in sorted(pausing):
        lasted = now_ns - pausing[name].unwell_ns
        if lasted >= limits.long_ns:
            reasons.append(OpenForLong(name, lasted // _MS))
    return SafeMode(tuple(reasons)) if reasons else None


def _why_not(health: Health, is_pausing: bool) -> str:
    if not health.usable:
        return health.why_not or "not usable"
    return "its breaker is open" if is_pausing else ""


def _sentence(reason: Reason) -> str:
    match reason:
        case NoneUsable():
            each = "; ".join(f"{name}: {why}" for name, why in reason.agents)
            return f"no agent can be used ({each})" if each else "there is no agent"
        case OpenForLong():
            return f"{reason.agent} has not worked for {reason.for_ms // 60_000} minutes"
        case Unconfined():
            return f"programs cannot be confined here: {reason.why}"
