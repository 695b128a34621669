"""Can an agent be given work right now: its program, and where it needs a model, a provider with a key and a price."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.agents.protocol import Agent, Health, Person
from holdfast.agents.providers import key_of, provider_for, require_price
from holdfast.errors import Blocked, InvalidInput
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Settings


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
