"""Places: which workspace is guarded where, kept outside of it, so that a state that is gone is missed.

    $XDG_STATE_HOME/holdfast/places/<digest of the path>/<workspace id>     holds the path

`git clean -fdx`, or deleting a folder and cloning it again, takes `.holdfast` along: the ledger, and every old file
that undo needs. Nothing in the workspace tells that it was ever there. This does.

Invariants
  P1  A place is recorded when the anchor exists; so a half-made state is never taken for one that was lost.
  P2  A state counts as lost only if its anchor is there and it stands neither here nor at any other recorded place:
      a workspace that was moved, and opened since, is not lost.
"""

from __future__ import annotations

import json
import os
import shlex
from hashlib import sha256

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.disk.homes import state_home
from holdfast.errors import HoldfastError, InvalidInput, NotAWorkspace, StateLost
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.store.anchor import anchor_path
from holdfast.store.ledger import LEDGER_NAME
from holdfast.store.private import create_private
from holdfast.store.state import FORMAT, read_identity

_MOST = 1 << 16  # longer than any path the kernel takes


def find_workspace(start: str) -> str:
    """The nearest directory upwards that has a `.holdfast`; NotAWorkspace, or StateLost where one is missing."""
    here = os.path.abspath(start)
    while True:
        if _has_state(here):
            return here
        require_not_lost(here)
        if os.path.lexists(os.path.join(here, STATE_DIRECTORY)):
            return here  # half-made; who opens it says so
        above = os.path.dirname(here)
        if above == here:
            raise NotAWorkspace(f"{os.path.abspath(start)} is not in a Holdfast workspace")
        here = above


def is_noted(workspace: str, id: str) -> bool:
    return os.path.lexists(os.path.join(_folder(workspace), id))


def note_place(workspace: str, id: str, calls: Calls = CALLS) -> None:
    """Remember that this workspace is guarded here; whatever else was is not any more (P1)."""
    if is_noted(workspace, id) or not os.path.lexists(anchor_path(id)):
        return
    folder = _folder(workspace)
    create_private(os.path.join(folder, id), os.fsencode(os.path.realpath(workspace)), calls)
    for other in _names(folder):
        if other != id:
            calls.unlink(os.path.join(folder, other))


def require_known_or_free(workspace: str, given_up: str) -> None:
    """Before a state is made or completed: the one that is known here stands, or none is missing."""
    here = _identity_at(workspace)
    if not here or not is_noted(workspace, here) or given_up:
        require_not_lost(workspace, given_up)


def lost_at(workspace: str) -> tuple[str, ...]:
    """The workspaces that were guarded here and whose state is nowhere, while their anchors are there (P2)."""
    return tuple(id for id in _names(_folder(workspace)) if _is_lost(workspace, id))


def require_not_lost(workspace: str, given_up: str = "") -> None:
    """StateLost where a state is missing that nobody gave up."""
    lost = lost_at(workspace)
    if given_up and given_up not in lost:
        raise InvalidInput(
            f"{printable(given_up)} is not a workspace that is missing here", hint="Nothing was changed."
        )
    if lost and os.path.lexists(os.path.join(workspace, STATE_DIRECTORY, LEDGER_NAME)):
        raise _without_format(workspace, lost[0])
    if not lost or given_up:
        return
    raise StateLost(
        f"the state of this workspace ({lost[0]}) is gone: {printable(workspace)}/{STATE_DIRECTORY} is missing, "
        "and with it the history and every old file that undo needs",
        hint="Nothing was changed. Put .holdfast back from a backup, and all goes on. Without one, start a new "
        f"history with: holdfast -C {shlex.quote(printable(workspace))} init --forget {lost[0]}\n"
        "If git clean removed it: next time, git clean -fdx -e .holdfast",
    )


def _without_format(workspace: str, id: str) -> StateLost:
    """Only one file is missing, and the ledger stands: nothing may be started over it."""
    path = os.path.join(printable(workspace), STATE_DIRECTORY, "format")
    content = json.dumps({"format": FORMAT, "id": id})
    return StateLost(
        f"{path} is missing; the ledger of this workspace ({id}) is there",
        hint=f"Nothing was changed. Put it back with: echo {shlex.quote(content)} > {shlex.quote(path)}",
    )


def _is_lost(workspace: str, id: str) -> bool:
    if _identity_at(workspace) == id or not os.path.lexists(anchor_path(id)):
        return False
    return not any(_identity_at(place) == id for place in _places_of(id))


def _places_of(id: str) -> list[str]:
    top = os.path.join(state_home(), "places")
    files = (os.path.join(top, name, id) for name in _names(top))
    return [_path_in(file) for file in files if os.path.lexists(file)]


def _path_in(file: str) -> str:
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(fd, _MOST))
    finally:
        os.close(fd)


def _identity_at(workspace: str) -> str:
    """Whose state stands there; nobody's, where there is none that can be read."""
    try:
        with Root(os.path.join(workspace, STATE_DIRECTORY), CALLS) as state:
            return read_identity(state).id
    except (OSError, ValueError, HoldfastError):
        return ""


def _has_state(workspace: str) -> bool:
    return os.path.lexists(os.path.join(workspace, STATE_DIRECTORY, "format"))


def _folder(workspace: str) -> str:
    name = sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:32]
    return os.path.join(state_home(), "places", name)


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(os.fspath(folder)) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
