"""Can an agent be given work right now: its program, and where it needs a model, a provider with a key and a price."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.agents.protocol import Agent, Health, Person
from holdfast.agents.providers import key_of, provider_for, require_price
from holdfast.errors import AgentFailed, Blocked, HoldfastError, InvalidInput
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Settings
from holdfast.model.path import printable

_MOST_SAID = 300


class Readiness(NamedTuple):
    """`health` as the agent tells it, and not usable where its model is out of reach; `provider` is whose it is."""

    health: Health
    provider: str = ""


def require_person(agent: Agent, person: Person | None) -> None:
    """Blocked where the agent is a person, and there is nobody who could be asked to work by hand."""
    if "person" in agent.capabilities and person is None:
        raise Blocked(
            f"{agent.name} is a person who works at a terminal, and nobody can be asked here",
            hint="Start it at a terminal, without --json; or name another agent: holdfast agents",
        )


def health_of(agent: Agent) -> Health:
    """As the agent itself tells it, and not usable where something is wrong with its configuration."""
    wrong, health = agent.validate(), agent.health()
    if not wrong and health.usable:
        return health
    return health._replace(usable=False, why_not="; ".join(wrong) or health.why_not or "it is not usable")


def require_able(agent: Agent, name: str) -> None:
    """InvalidInput where it says that it cannot work; AgentFailed where it cannot even be asked that."""
    try:
        health, _ = health_of(agent), (agent.capabilities, agent.api)
    except HoldfastError:
        raise
    except Exception as error:  # whatever somebody's adapter raises is its failure, and has its name
        raise AgentFailed(
            f"{printable(name)} cannot be asked whether it can work: {raised(error)}",
            hint="Nothing was changed.",
            ill=True,
        ) from error
    if not health.usable:
        raise InvalidInput(
            f"the agent {printable(name)} cannot be used: {health.why_not}", hint=health.hint or "See: holdfast agents"
        )


def raised(error: Exception) -> str:
    """In words, on one line."""
    said = " ".join(str(error).split())
    return f"it raised {type(error).__name__}" + (f": {printable(said)[:_MOST_SAID]}" if said else "")


def readiness(agent: Agent, settings: Settings) -> Readiness:
    """Nothing is asked of the network."""
    health, own = agent.health(), settings.agent(agent.name) or AgentSettings(agent.name)
    if not health.usable or (agent.api is None and own.network != "proxy"):
        return Readiness(health)
    try:
        provider = provider_for(settings, own.provider, agent.api)
        if not own.replay:  # a tape asks for no key
            key_of(provider)
        require_price(provider, own)
    except InvalidInput as error:
        return Readiness(health._replace(usable=False, why_not=error.message, hint=error.hint))
    return Readiness(health, provider.name)
