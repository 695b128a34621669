"""Reading a change file for a workspace: what it may bring along is everything beside it but what is private.

A plan that restarts a service and names no health check gets the one that the user's configuration has for it, or
the question to systemd whether it is active.

Invariant C1: a file that is hidden from programs becomes no step's content; a plan is seen by every program it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from holdfast.checks.words import understood_as_health
from holdfast.engine.actions import services_of, systemctl
from holdfast.errors import InvalidInput
from holdfast.intake.changefile import parse_change_file, read_change_file
from holdfast.intake.contents import Private
from holdfast.model.configuration import Settings
from holdfast.model.plan import Plan
from holdfast.planning.shape import with_health
from holdfast.workspace.hidden import Roots, masked_paths, matches
from holdfast.workspace.site import Site


def read_plan(site: Site, settings: Callable[[], Settings], path: str) -> Plan:
    """The plan of a change file; the configuration is looked at only when it names other files."""
    return _with_health(read_change_file(path, _private(site, settings)), settings)


def plan_of_input(site: Site, settings: Callable[[], Settings], data: bytes) -> Plan:
    """The plan of what was read from standard input already."""
    plan = parse_change_file(data, source="stdin", directory=os.curdir, private=_private(site, settings))
    return _with_health(plan, settings)


def _with_health(plan: Plan, settings: Callable[[], Settings]) -> Plan:
    if not services_of(plan):
        return plan
    known = {service.name: service.health for service in settings().services}
    found = with_health(plan, known, has_units=bool(systemctl()))
    for text in found.health_words if found is not plan else ():
        for clause in understood_as_health((text,)).not_understood:
            name = next(name for name, words in known.items() if words == text)
            raise InvalidInput(
                f"[services.{name}] health: {clause.text!r} is not understood: {clause.why}",
                hint="Nothing was changed. In your config.toml say, for example: "
                'health = "http://127.0.0.1:8080/health answers 200 within 10s"',
            )
    return found


def _private(site: Site, settings: Callable[[], Settings]) -> Private:
    root = os.path.realpath(site.path)

    @cache
    def patterns() -> tuple[str, ...]:
        return settings().hidden

    @cache
    def hidden() -> Roots:
        return Roots(masked_paths(site.workspace, patterns()))

    def private(place: str) -> str:
        if not place.startswith(f"{root}/"):
            return ""
        inner = place[len(root) + 1 :]
        if hidden().cover(inner) or matches(inner, patterns()):
            return "it is hidden from programs, and a plan shows them its contents"
        return ""

    return private
