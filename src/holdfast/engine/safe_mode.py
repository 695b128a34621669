"""When nothing can be started at all: no agent can be used, or nothing can be confined.

In safe mode looking, going back and recovering work as ever; no agent is started, because none can be: the breaker, the
health of each agent and the sandbox say so one by one. This is the sentence for all of it, with the way out.

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

_LEFT_ALONE = "its breaker is open"


class NoneUsable(NamedTuple):
    """Why each of the agents cannot be used: (name, reason)."""

    agents: tuple[tuple[str, str], ...]
    kind: Literal["none_usable"] = "none_usable"


class Unconfined(NamedTuple):
    """Programs cannot be run as their profile demands."""

    why: str
    kind: Literal["unconfined"] = "unconfined"


Reason: TypeAlias = NoneUsable | Unconfined


class SafeMode(NamedTuple):
    reasons: tuple[Reason, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentence(reason) for reason in self.reasons)

    @property
    def ways_out(self) -> tuple[str, ...]:
        """What a person can do about it, in the same order."""
        return tuple(_way_out(reason) for reason in self.reasons)


def safe_mode(
    healths: Mapping[str, Health],
    adapters: Iterable[Adapter],
    now_ns: int,
    *,
    unconfined_because: str = "",
    tuning: Tuning = TUNING,
) -> SafeMode | None:
    """None when work may begin. `healths` are the agents that there are; rows of others are history."""
    pausing = {
        row.name
        for row in adapters
        # Before `opened_ns` the clock was set back; the breaker itself says so when it is asked next.
        if row.name in healths and row.opened_ns <= now_ns < paused_until_ns(row, tuning)
    }
    reasons: list[Reason] = [Unconfined(unconfined_because)] if unconfined_because else []
    unusable = tuple((name, why) for name in sorted(healths) if (why := _why_not(healths[name], name in pausing)))
    if len(unusable) == len(healths):
        reasons.append(NoneUsable(unusable))
    return SafeMode(tuple(reasons)) if reasons else None


def _why_not(health: Health, is_pausing: bool) -> str:
    if not health.usable:
        return health.why_not or "not usable"
    return _LEFT_ALONE if is_pausing else ""


def _sentence(reason: Reason) -> str:
    match reason:
        case NoneUsable():
            each = "; ".join(f"{name}: {why}" for name, why in reason.agents)
            return f"no agent can be used ({each})" if each else "there is no agent"
        case Unconfined():
            return f"programs cannot be confined here: {reason.why}"


def _way_out(reason: Reason) -> str:
    match reason:
        case NoneUsable():
            left = [name for name, why in reason.agents if why == _LEFT_ALONE]
            ways = "Install or configure one of them"
            if left:
                ways += f"; {', '.join(left)} may be tried again at once with: holdfast agents --again {left[0]}"
            return ways
        case Unconfined():
            return "See what is missing: holdfast doctor"
