"""Who could be given work here, as a person asks: each agent with its health and its breaker, and if any can start.

Deliberately absent: nothing is decided by it. Who starts is for the breaker, the sandbox and the router to say; this
says the same in one place, with the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.agents.protocol import Agent, Health
from holdfast.agents.readiness import readiness
from holdfast.agents.registry import every_agent
from holdfast.engine.breaker import is_ready, paused_until_ns
from holdfast.engine.safe_mode import SafeMode, safe_mode
from holdfast.model.configuration import Settings
from holdfast.store.adapters import Adapter, BreakerState

_MS = 1_000_000


class Entry(NamedTuple):
    """One agent. `provider` is whose model it asks; `replayed` says that a tape answers in its place.

    `ready`: its breaker lets an attempt begin now. `waits_ms` is how long it still leaves it alone; 0 also while one
    attempt tries it. `unwell_ms` is for how long its breaker has not been closed.
    """

    agent: Agent
    health: Health
    provider: str
    replayed: bool
    breaker: BreakerState = "CLOSED"
    ready: bool = True
    failures: int = 0
    waits_ms: int = 0
    unwell_ms: int = 0


def roster(settings: Settings, adapters: Iterable[Adapter], now_ns: int) -> tuple[Entry, ...]:
    """Nothing is asked of the network."""
    rows = {row.name: row for row in adapters}
    return tuple(_entry(agent, settings, rows.get(agent.name), now_ns) for agent in every_agent(settings))


def _entry(agent: Agent, settings: Settings, row: Adapter | None, now_ns: int) -> Entry:
    own = settings.agent(agent.name)
    entry = Entry(agent, *readiness(agent, settings), replayed=own is not None and bool(own.replay))
    if row is None or row.state == "CLOSED":
        return entry
    ready = is_ready(row, now_ns)
    return entry._replace(
        breaker=row.state,
        ready=ready,
        failures=row.failures,
        waits_ms=0 if ready else max(0, paused_until_ns(row) - now_ns) // _MS,
        unwell_ms=max(0, now_ns - row.unwell_ns) // _MS,
    )


def safe_mode_of(
    entries: Sequence[Entry], adapters: Iterable[Adapter], now_ns: int, unconfined_because: str
) -> SafeMode | None:
    """Whether any program could be started; a person, who needs none of it, does not count."""
    healths = {each.agent.name: each.health for each in entries if "person" not in each.agent.capabilities}
    return safe_mode(healths, adapters, now_ns, unconfined_because=unconfined_because)
