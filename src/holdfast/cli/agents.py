"""holdfast agents: which agents there are, which can be used here, and why not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.cli.opening import reading
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb

if TYPE_CHECKING:
    from holdfast.agents.protocol import Agent, Health
    from holdfast.engine.router import Choice
    from holdfast.model.configuration import Settings


class _Row(NamedTuple):
    agent: Agent
    health: Health
    provider: str


@verb(name="agents")
@click.option("--why", metavar="TASK", help="Say which agent would get this task, and why.")
def command(face: Face, why: str | None) -> None:
    """List the agents: installed, usable, healthy; and why not."""
    if why is not None:
        with reading(face) as hf:
            _explain(face.screen, hf.route(why))
        return
    from holdfast.agents.registry import every_agent
    from holdfast.settings import load, places_of

    settings = load(places_of(os.getcwd()))
    _tell(face.screen, [_row(agent, settings) for agent in every_agent(settings)])


def _explain(screen: Screen, choice: Choice) -> None:
    screen.answer({"kind": "choice", **choice.document()})
    for place, item in enumerate(choice.ranking):
        screen.say(screen.style(f"{shown(item.agent)}  {item.score:.2f}", "bold" if not place else "dim"))
        for term in item.reasons:
            screen.say(f"  {term.value * term.weight:+7.2f}  {term.name}: {shown(term.because)}")
    for out in choice.rejected:
        screen.say(f"{shown(out.agent)}  cannot: {shown(out.why)}")


def _row(agent: Agent, settings: Settings) -> _Row:
    from holdfast.agents.readiness import readiness

    return _Row(agent, *readiness(agent, settings))


def _tell(screen: Screen, rows: list[_Row]) -> None:
    screen.answer({"kind": "list", "items": [_document(row) for row in rows]})
    width = max(len(shown(row.agent.name)) for row in rows)
    for row in sorted(rows, key=lambda row: not row.health.usable):
        health = row.health
        state = "usable" if health.usable else ("installed" if health.installed else "not here")
        about = f"{health.version} {'on ' + row.provider if row.provider else ''}".strip()
        why = f"{health.why_not}. {health.hint}".rstrip() if health.why_not else ""
        styled = screen.style(f"{state:<9}", "green" if health.usable else "dim")
        screen.say(f"{shown(row.agent.name):<{width}}  {styled}  {shown(about if health.usable else why)}".rstrip())


def _document(row: _Row) -> dict[str, object]:
    return {
        "name": row.agent.name,
        "installed": row.health.installed,
        "usable": row.health.usable,
        "version": row.health.version,
        "provider": row.provider,
        "capabilities": sorted(row.agent.capabilities),
        "why_not": row.health.why_not,
        "hint": row.health.hint,
    }
