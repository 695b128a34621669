"""Hiring: who does the agent steps of a plan. The caller's own agents first, then those of the configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.agents.protocol import Agent, Person, Watcher
from holdfast.agents.readiness import readiness
from holdfast.agents.registry import agent_named, every_agent
from holdfast.engine.breaker import Breakers
from holdfast.engine.candidates import candidates_of
from holdfast.engine.delegation import Delegating
from holdfast.engine.needs import needs_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.router import Choice, choose
from holdfast.engine.simulator import Hire
from holdfast.errors import InvalidInput
from holdfast.model.agent import Delegation, Happening
from holdfast.model.configuration import Settings
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan
from holdfast.simulation.workshop import Delegate
from holdfast.store.adapters import Adapters
from holdfast.store.resilience import ResilienceLog


def hire(
    pipeline: Pipeline,
    agents: Mapping[str, Agent],
    watcher: Watcher | None,
    person: Person | None = None,
    told: Callable[[Delegation], None] | None = None,
) -> Hire:
    """For `Simulator.simulate`: work is noted in the pipeline's ledger, whatever becomes of it; `told` hears of it."""

    def note(plan: Plan, delegation: Delegation) -> None:
        pipeline.note_delegation(plan, delegation)
        if told is not None:
            told(delegation)

    def for_plan(plan: Plan, settings: Settings) -> Delegate:
        _require_one_author(plan)
        return Delegating(
            pipeline.site,
            settings,
            plan,
            pipeline.simulator.checking,
            lambda name: agents[name] if name in agents else agent_named(name, settings),
            lambda delegation: note(plan, delegation),
            watcher or _unwatched,
            Breakers(Adapters(pipeline.records), ResilienceLog(pipeline.site.state), time.time_ns),
            person,
        )

    return for_plan


def routed(pipeline: Pipeline, task: str) -> Choice:
    """Which agent should get a task, and why; Blocked when none can. A person is asked only when the words say so."""
    settings = pipeline.governance.settings()
    found = ((agent, readiness(agent, settings).health) for agent in every_agent(settings))
    candidates = candidates_of(found, Adapters(pipeline.records), time.time_ns())
    return choose(task, needs_of(task), candidates)


def _require_one_author(plan: Plan) -> None:
    """What an agent may change is policy by its name, so a change has one agent for an author."""
    names = sorted({step.name for step in plan.steps if isinstance(step, AgentStep)})
    if len(names) > 1:
        raise InvalidInput(f"a plan has one agent, not {len(names)}: {', '.join(names)}", hint="Make it several plans.")


def _unwatched(happening: Happening) -> None:
    """Nobody looks on."""
