"""A home that outlives a run: a directory of the host that is HOME inside, and is to be found nowhere else there.

An agent keeps its settings and sessions in it between two attempts. What one run left there is as hostile as the run
was, so it must not be reached by what the next one trusts: not as part of the workspace, where it would be captured,
and not through a directory that is shown for its programs.
"""

from __future__ import annotations

import os
import stat

from holdfast.errors import SandboxUnavailable
from holdfast.model.path import printable
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.shown import HOME, hidden_in_view, interpreter, rows, within
from holdfast.sandbox.view import View
from holdfast.sandbox.wire import Row

_OF_THE_HOST = ("ro", "rw", "own-ro", "own-rw")


def check(view: View, profile: Profile) -> None:
    """SandboxUnavailable when it cannot be a home of its own."""
    if not profile.home:
        return
    try:
        is_directory = stat.S_ISDIR(os.lstat(profile.home).st_mode)
    except OSError as error:
        raise SandboxUnavailable(f"{printable(profile.home)}: no home for a program: {error.strerror}") from error
    if not is_directory:
        raise SandboxUnavailable(f"{printable(profile.home)}: no home for a program: not a directory")
    real = os.path.realpath(profile.home)
    covered = (*profile.hidden, *(f"{view.path}/{name}" for name in hidden_in_view(view, profile)))
    for _, source, place in _shown(view, profile):
        if within(place, HOME):
            raise SandboxUnavailable(f"{printable(place)} would be shown inside a home")
        if within(source, real) or (
            within(real, source) and not any(within(f"{place}{real[len(source) :]}", path) for path in covered)
        ):
            raise SandboxUnavailable(
                f"{printable(profile.home)} would be both a home and part of what is shown at {printable(place)}"
            )


def _shown(view: View, profile: Profile) -> list[Row]:
    """Everything else of the host that can be seen inside; the sources without links in them."""
    mounts = [row for row in rows(view, profile, interpreter(view.path)) if row[2] != HOME]
    found = [(kind, source, place) for kind, source, place in mounts if kind in _OF_THE_HOST]
    found += [("view", path, view.path) for path in (view.base, *(layer.upper for layer in view.layers))]
    return [(kind, os.path.realpath(source), place) for kind, source, place in found]
