"""How an agent's work went before: one attempt added to its row, and the row read as numbers for routing.

An attempt is good when its measured result was (something changed, nothing missing, every check passed);
what the agent says of it is not asked.

Invariants
  P1  Counts fade: after HALF_LIFE an attempt weighs half. A clock that was set back fades nothing.
  P2  The same row at the same time gives the same numbers.
  P3  An attempt without a known price says nothing about the mean price; it is not free.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model.agent import Ending, Result
from holdfast.store.adapters import Adapter

HALF_LIFE_NS = 14 * 86_400 * 10**9


class Outcome(NamedTuple):
    """How one attempt at one task ended; `limit` names the limit, `detail` is in our words, `crashed` by a signal."""

    task: str
    ending: Ending
    good: bool
    limit: str = ""
    detail: str = ""
    crashed: bool = False
    micro_usd: int | None = None
    duration_ms: int = 0


class Past(NamedTuple):
    """`attempts` and `good` are faded to now; the means are over all attempts, None where nothing is known."""

    attempts: float = 0.0
    good: float = 0.0
    mean_micro_usd: int | None = None
    mean_duration_ms: int | None = None


def outcome_of(task: str, result: Result, *, good: bool) -> Outcome:
    # No model of ours was asked: what that agent costs is not known here (P3).
    price = result.usage.micro_usd if result.usage.requests else None
    crashed = result.ending == "killed" or (result.ending == "failed" and result.signal is not None)
    return Outcome(task, result.ending, good, result.limit, result.detail, crashed, price, result.duration_ms)


def with_attempt(adapter: Adapter, outcome: Outcome, now_ns: int) -> Adapter:
    """The row after one more attempt."""
    past = past_of(adapter, now_ns)
    return adapter._replace(
        attempts=adapter.attempts + 1,
        successes=adapter.successes + outcome.good,
        recent_attempts=past.attempts + 1,
        recent_successes=past.good + outcome.good,
        micro_usd=adapter.micro_usd + (outcome.micro_usd or 0),
        priced=adapter.priced + (outcome.micro_usd is not None),
        duration_ms=adapter.duration_ms + outcome.duration_ms,
        at_ns=max(adapter.at_ns, now_ns),
    )


def past_of(adapter: Adapter, now_ns: int) -> Past:
    fading = 0.5 ** (max(0, now_ns - adapter.at_ns) / HALF_LIFE_NS)  # P1
    return Past(
        adapter.recent_attempts * fading,
        adapter.recent_successes * fading,
        adapter.micro_usd // adapter.priced if adapter.priced else None,
        adapter.duration_ms // adapter.attempts if adapter.attempts else None,
    )
