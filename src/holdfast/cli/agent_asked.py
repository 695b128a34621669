"""A task for an agent: its options, and its way to somebody who does it.

`--agent auto` asks the router; when the agent it chose turns out to be ill, the next in its ranking is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import click

from holdfast.cli.screen import Screen, shown
from holdfast.cli.watching import Watching, person_at
from holdfast.errors import AgentFailed, InvalidInput
from holdfast.intake.fields import duration_of
from holdfast.intake.values import Fault

if TYPE_CHECKING:
    from holdfast.engine.checking import ShadowKind
    from holdfast.engine.simulator import Simulated
    from holdfast.model.plan import Plan
    from holdfast.wiring import Holdfast

AUTO = "auto"
_Command = TypeVar("_Command", bound=Callable[..., Any])
_Work = TypeVar("_Work")
_MOST_ATTEMPTS = 20
_ATTEMPTS = 3
_WITHIN = "20m"


class AskedOfAgent(TypedDict):
    """What click hands over."""

    agent: str | None
    expect: tuple[str, ...]
    attempts: int | None
    within: str | None


class TaskAsked(NamedTuple):
    agent: str
    expected: tuple[str, ...]
    attempts: int
    within_ms: int


def agent_options(command: _Command) -> _Command:
    for option in (
        click.option(
            "--within", metavar="TIME", help=f"The agent's time, all attempts together; {_WITHIN} if not given."
        ),
        click.option(
            "--attempts",
            type=click.IntRange(1, _MOST_ATTEMPTS),
            help=f"How often it may try; {_ATTEMPTS} times if not given.",
        ),
        click.option("--expect", multiple=True, metavar="PATH", help="A file that must be there afterwards."),
        click.option(
            "--agent", metavar="NAME", help="Give the words to this agent; auto chooses one (see: holdfast agents)."
        ),
    ):
        command = option(command)
    return command


def task_of(asked: AskedOfAgent) -> TaskAsked | None:
    """None when no agent is asked for."""
    if asked["agent"] is None:
        for option in ("expect", "attempts", "within"):
            if asked[option]:
                raise InvalidInput(f"--{option} is for a task that is given to an agent", hint="Add: --agent NAME")
        return None
    try:
        within = duration_of(asked["within"] or _WITHIN, "--within")
    except Fault as fault:
        raise InvalidInput(fault.message, hint=fault.hint) from None
    return TaskAsked(asked["agent"], asked["expect"], asked["attempts"] or _ATTEMPTS, within)


def delegated(screen: Screen, hf: Holdfast, words: str, task: TaskAsked, shadow: ShadowKind) -> tuple[Plan, Simulated]:
    """The work of the first agent that is well; AgentFailed of the last one otherwise."""
    if words == "-" or os.path.isfile(words):
        raise InvalidInput(
            f"--agent takes a task in words, and {shown(words)} is a change file",
            hint="A change file gives a task to an agent with a step of its own: agent, task",
        )

    def asked_of(name: str) -> tuple[Plan, Simulated]:
        plan = hf.task(words, **task._replace(agent=name)._asdict())
        return plan, hf.simulate(plan, shadow=shadow, watcher=Watching(screen), person=person_at(screen))

    return in_turn(screen, hf, words, task.agent, asked_of)


def in_turn(screen: Screen, hf: Holdfast, words: str, agent: str, work: Callable[[str], _Work]) -> _Work:
    """What the agent makes of it; with `auto`, the first of the router's ranking that is not ill."""
    names = [agent] if agent != AUTO else [ranked.agent for ranked in hf.route(words).ranking]
    for place, name in enumerate(names):
        try:
            return work(name)
        except AgentFailed as error:
            if not error.ill or place == len(names) - 1:
                raise
            screen.note(f"{name} is ill, {names[place + 1]} is asked instead: {shown(error.message.splitlines()[0])}")
    raise AssertionError("a ranking is never empty")
