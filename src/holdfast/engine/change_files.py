"""Reading a change file for a workspace: what it may bring along is everything beside it but what is private.

Invariant C1: a file that is hidden from programs becomes no step's content; a plan is seen by every program it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from holdfast.intake.changefile import parse_change_file, read_change_file
from holdfast.intake.contents import Private
from holdfast.model.configuration import Settings
from holdfast.model.plan import Plan
from holdfast.workspace.hidden import Roots, masked_paths, matches
from holdfast.workspace.site import Site


def read_plan(site: Site, settings: Callable[[], Settings], path: str) -> Plan:
    """The plan of a change file; the configuration is looked at only when it names other files."""
    return read_change_file(path, _private(site, settings))


def plan_of_input(site: Site, settings: Callable[[], Settings], data: bytes) -> Plan:
    """The plan of what was read from standard input already."""
    return parse_change_file(data, source="stdin", directory=os.curdir, private=_private(site, settings))


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
