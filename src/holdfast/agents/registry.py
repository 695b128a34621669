"""Which agents there are: those that come with Holdfast, each loaded when it is asked for, and those of the user.

A user adds one by a table: `[agents.NAME] command = [...]`; a table named like one of ours changes its settings.
"""

from __future__ import annotations

from importlib import import_module

from holdfast.agents.protocol import Agent
from holdfast.errors import InvalidInput
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Settings
from holdfast.model.path import printable

# Each in the module of its name: a Program, of which ProgramAgent makes an agent, or an Agent made from its settings.
PROGRAMS: dict[str, str] = {
    "claude": "Claude",
    "codex": "Codex",
    "opencode": "Opencode",
    "gemini": "Gemini",
    "qwen": "Qwen",
    "goose": "Goose",
}
OTHERS: dict[str, str] = {"aider": "Aider", "deep": "Deep", "manual": "Manual"}
NAMES: tuple[str, ...] = (*PROGRAMS, *OTHERS)


def agent_named(name: str, settings: Settings) -> Agent:
    """InvalidInput when nobody is called so."""
    table = settings.agent(name)
    own = table or AgentSettings(name)
    # A table whose name is not a built-in agent's needs a command, unless the agent is passed in from Python.
    if own.command or own.transport == "command" or (table is not None and name not in NAMES):
        from holdfast.agents.command import CommandAgent

        return CommandAgent(own)
    if name in PROGRAMS:
        from holdfast.agents.programs import ProgramAgent

        return ProgramAgent(getattr(import_module(f"holdfast.agents.{name}"), PROGRAMS[name])(), own)
    if name in OTHERS:
        made: Agent = getattr(import_module(f"holdfast.agents.{name}"), OTHERS[name])(own)
        return made
    known = ", ".join(dict.fromkeys((*NAMES, *(agent.name for agent in settings.agents if agent.command))))
    raise InvalidInput(
        f"there is no agent {printable(name)}",
        hint=f"Known: {known}. One of your own needs a command, under [agents.{printable(name)}] in your config.toml.",
    )


def every_agent(settings: Settings) -> tuple[Agent, ...]:
    names = dict.fromkeys((*NAMES, *(agent.name for agent in settings.agents)))
    return tuple(agent_named(name, settings) for name in names)
