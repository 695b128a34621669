"""holdfast agents: which agents there are, which can be used here, and why not; safe mode, and the way out of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import reading
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import duration
from holdfast.errors import InvalidInput, NotAWorkspace
from holdfast.model.words import in_a_row

if TYPE_CHECKING:
    from holdfast.engine.roster import Entry
    from holdfast.engine.router import Choice
    from holdfast.engine.safe_mode import SafeMode
    from holdfast.model.configuration import Settings
    from holdfast.store.adapters import Adapter


@verb(name="agents")
@click.option("--why", metavar="TASK", help="Say which agent would get this task, and why.")
@click.option("--again", metavar="NAME", help="This agent failed and is left alone: let it be tried again at once.")
def command(face: Face, why: str | None, again: str | None) -> None:
    """List the agents: installed, usable, healthy; and why not."""
    if why is not None and again is not None:
        raise InvalidInput("--why and --again are two questions")
    if why is not None:
        with reading(face) as hf:
            _explain(face.screen, hf.route(why))
    elif again is not None:
        _try_again(face, again)
    else:
        _list(face)


def _explain(screen: Screen, choice: Choice) -> None:
    screen.answer({"kind": "choice", **choice.document()})
    for place, item in enumerate(choice.ranking):
        screen.say(screen.style(f"{shown(item.agent)}  {item.score:.2f}", "bold" if not place else "dim"))
        for term in item.reasons:
            screen.say(f"  {term.value * term.weight:+7.2f}  {term.name}: {shown(term.because)}")
    for out in choice.rejected:
        screen.say(f"{shown(out.agent)}  cannot: {shown(out.why)}")


def _try_again(face: Face, name: str) -> None:
    from holdfast.agents.registry import agent_named
    from holdfast.engine.breaker import Breakers
    from holdfast.store.adapters import Adapters
    from holdfast.store.resilience import ResilienceLog

    with reading(face) as hf:
        agent_named(name, hf.pipeline.governance.settings())
        ended = Breakers(Adapters(hf.records), ResilienceLog(hf.site.state), time.time_ns).vouch(name)
    status = "MAY_BE_TRIED" if ended else "UNCHANGED"
    face.screen.answer({"kind": "agent", "id": name, "status": status})
    if ended:
        face.screen.say(f"{shown(name)} may be tried again now; if that fails too, it is left alone for longer.")
    else:
        face.screen.say(f"{shown(name)} is not left alone at the moment; nothing to do.")


# ── the list ──


def _list(face: Face) -> None:
    from holdfast.engine.isolation import isolation
    from holdfast.engine.roster import roster, safe_mode_of
    from holdfast.store.own_settings import settings_of

    adapters, place = _adapters(face)
    settings: Settings = settings_of(place)
    now = time.time_ns()
    entries = roster(settings, adapters, now)
    found = safe_mode_of(entries, adapters, now, isolation("", "", settings.limits).why_not)
    _tell(face.screen, entries, found)


def _adapters(face: Face) -> tuple[tuple[Adapter, ...], str]:
    """What this workspace knows of them, and where it is; nothing where there is none."""
    from holdfast.store.adapters import Adapters

    try:
        with reading(face) as hf:
            return Adapters(hf.records).all(), hf.path
    except NotAWorkspace:
        return (), os.getcwd()


def _tell(screen: Screen, entries: tuple[Entry, ...], safe: SafeMode | None) -> None:
    told = None if safe is None else {"reasons": list(safe.sentences), "ways_out": list(safe.ways_out)}
    screen.answer({"kind": "list", "items": [_document(entry) for entry in entries], "safe_mode": told})
    width = max(len(shown(entry.agent.name)) for entry in entries)
    for entry in sorted(entries, key=lambda entry: not entry.health.usable):
        state = _state(entry)
        styled = screen.style(f"{state:<10}", "green" if state == "usable" else "dim")
        screen.say(f"{shown(entry.agent.name):<{width}}  {styled}  {shown(_about(entry))}".rstrip())
    if safe is not None:
        screen.say(screen.style("Safe mode: no agent is started.", "bold"))
        for reason, sentence, way in zip(safe.reasons, safe.sentences, safe.ways_out, strict=True):
            # Why each of them cannot be used stands in its line above.
            said = "no agent but a person can be used" if reason.kind == "none_usable" else sentence
            screen.say(f"  {shown(said[:1].upper() + said[1:])}. {shown(way)}")
        screen.say("  Looking, undoing and recovering work as ever; it ends by itself when its reason does.")


def _state(entry: Entry) -> str:
    if entry.health.usable:
        return "usable" if entry.ready else "left alone"
    return "installed" if entry.health.installed else "not here"


def _about(entry: Entry) -> str:
    health = entry.health
    if not health.usable:
        return f"{health.why_not}. {health.hint}".rstrip()
    model = "a tape answers" if entry.replayed else f"on {entry.provider}" if entry.provider else ""
    over = f"over {health.over}" if health.over else ""
    about = " ".join(filter(None, (health.version, over, model)))
    if entry.ready:
        return about
    if entry.breaker == "HALF_OPEN":
        return "failed before, and is being tried by one attempt right now"
    return (
        f"failed {in_a_row(entry.failures)}, not well for {duration(entry.unwell_ms)}; tried again in "
        f"{duration(entry.waits_ms)}, at once with: holdfast agents --again {entry.agent.name}"
    )


def _document(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.agent.name,
        "installed": entry.health.installed,
        "usable": entry.health.usable,
        "version": entry.health.version,
        "over": entry.health.over,
        "provider": entry.provider,
        "replayed": entry.replayed,
        "capabilities": sorted(entry.agent.capabilities),
        "why_not": entry.health.why_not,
        "hint": entry.health.hint,
        "breaker": entry.breaker,
        "ready": entry.ready,
        "waits_ms": entry.waits_ms,
    }
