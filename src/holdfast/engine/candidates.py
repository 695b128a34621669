"""An agent as routing sees it, put together from what it is, how it is, and how it did before."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agents.protocol import Agent, Health
from holdfast.engine.breaker import TUNING, Tuning, is_ready
from holdfast.engine.past import past_of
from holdfast.engine.router import Candidate
from holdfast.model.agent import Capability
from holdfast.store.adapters import Adapter, Adapters


def candidates_of(agents: Iterable[tuple[Agent, Health]], adapters: Adapters, now_ns: int) -> tuple[Candidate, ...]:
    """All of them, each with its health as far as this host knows: program, provider, key."""
    return tuple(
        candidate_of(agent.name, agent.capabilities, health, adapters.get(agent.name), now_ns)
        for agent, health in agents
    )


def candidate_of(
    name: str,
    capabilities: frozenset[Capability],
    health: Health,
    adapter: Adapter,
    now_ns: int,
    tuning: Tuning = TUNING,
) -> Candidate:
    return Candidate(
        name,
        capabilities,
        why_not="" if health.usable else health.why_not or "not usable",
        breaker=adapter.state,
        ready=is_ready(adapter, now_ns, tuning),
        failures=adapter.failures,
        past=past_of(adapter, now_ns),
    )
