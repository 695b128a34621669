"""Hiring: who does the agent steps of a plan. The caller's own agents first, then those of the configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from holdfast.agents.protocol import Agent, Person, Watcher
from holdfast.agents.readiness import readiness
from holdfast.agents.registry import agent_named, every_agent
from holdfast.engine.breaker import Breakers
from holdfast.engine.candidates import candidates_of
from holdfast.engine.delegation import Delegating
from holdfast.engine.needs import needs_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.router import Choice, choose
from holdfast.engine.routing_file import RoutingDecision
from holdfast.engine.simulator import Hire
from holdfast.errors import Blocked, InvalidInput, Shortage
from holdfast.model.agent import Delegation, Happening
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Budget, Settings
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
    most: Budget | None = None,
    stop: Callable[[], bool] = bool,
    home: Pipeline | None = None,
    model: str = "",
    context: str = "",
    *,
    patient: bool = False,
    repeats: int = 0,
) -> Hire:
    """For `Simulator.simulate`: work is noted in the pipeline's ledger, whatever becomes of it; `told` hears of it.

    `most` is what is left of a run's budget, where the configuration of the agent allows no less; `stop` ends it
    (Interrupted).
    `home` is where breakers and past success are kept, if not with the pipeline: an agent that is ill over one mirror
    of a workspace is ill over all of them. `model` stands above the one of the agent's configuration;
    `context` is told to the agent as data, beside the hints of the project. `patient`: a provider that serves
    nothing is waited for, as long as the configuration says. `repeats`: how often the orders before came to the same.
    """
    known = home or pipeline

    def note(plan: Plan, delegation: Delegation) -> None:
        pipeline.note_delegation(plan, delegation)
        if told is not None:
            told(delegation)

    def for_plan(plan: Plan, settings: Settings) -> Delegate:
        _require_one_author(plan)
        return Delegating(
            pipeline.site,
            adjusted(settings, plan.agent, most or Budget(), model),
            plan,
            pipeline.simulator.checking,
            lambda name: agents[name] if name in agents else agent_named(name, settings),
            lambda delegation: note(plan, delegation),
            watcher or _unwatched,
            Breakers(Adapters(known.records), ResilienceLog(known.site.state), time.time_ns),
            person,
            stop,
            context,
            _of_run(settings.agent(plan.agent), most or Budget()),
            settings.run.outage_ms if patient else 0,
            repeats,
        )

    return for_plan


def routed(
    pipeline: Pipeline,
    task: str,
    id: str = "",
    decisions: Sequence[RoutingDecision] = (),
    *,
    patient: bool = False,
    most: Budget = Budget(),  # noqa: B008 (frozen)
) -> Choice:
    """Which agent should get a task, and why; Blocked when none can. A person is asked only when the words say so.

    `decisions` are what somebody decided beforehand, about tasks by their ids. `patient`: where all who could do it are
    left alone by their breakers, the best of them, for whom the task can wait. `most`: the budget of a run; with one of
    money nobody is asked whose model has no price.
    """
    settings = pipeline.governance.settings()
    each = ((agent, adjusted(settings, agent.name, most)) for agent in every_agent(settings))
    found = ((agent, readiness(agent, within).health) for agent, within in each)
    candidates = candidates_of(found, Adapters(pipeline.records), time.time_ns())
    needs = needs_of(task)
    try:
        return choose(id or task, needs, candidates, decisions)
    except Blocked:
        if not patient:
            raise
        return choose(id or task, needs, [each._replace(ready=True) for each in candidates], decisions)


def adjusted(settings: Settings, name: str, most: Budget, model: str = "") -> Settings:
    """The settings in which this agent may spend no more than that, and asks this model."""
    own = settings.agent(name) or AgentSettings(name)
    tighter = own._replace(
        model=model or own.model,
        micro_usd=_less(own.micro_usd, most.micro_usd),
        tokens=_less(own.tokens, most.tokens),
        turns=_less(own.turns, most.turns),
    )
    return replace(settings, agents=(tighter, *(agent for agent in settings.agents if agent.name != name)))


def _of_run(own: AgentSettings | None, most: Budget) -> frozenset[Shortage]:
    """Of what the run leaves the agent less than its own configuration does."""
    own = own or AgentSettings("")
    bounds: tuple[tuple[Shortage, int | None, int | None], ...] = (
        ("money", own.micro_usd, most.micro_usd),
        ("price", own.micro_usd, most.micro_usd if own.micro_usd is None else None),
        ("tokens", own.tokens, most.tokens),
        ("requests", own.turns, most.turns),
    )
    return frozenset(what for what, mine, left in bounds if left is not None and (mine is None or left < mine))


def _less(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _require_one_author(plan: Plan) -> None:
    """What an agent may change is policy by its name, so a change has one agent for an author."""
    names = sorted({step.name for step in plan.steps if isinstance(step, AgentStep)})
    if len(names) > 1:
        raise InvalidInput(f"a plan has one agent, not {len(names)}: {', '.join(names)}", hint="Make it several plans.")


def _unwatched(happening: Happening) -> None:
    """Nobody looks on."""
