"""The settings of one workspace: its three files, and the user's section for it.

A section names its workspace by the id in `.holdfast/format`. A file that names an id proves nothing: an archive can
bring one along. So the section is used only where the ledger of that directory ends as the anchor of that id says,
which nobody without the user's key can arrange. A workspace that was moved keeps its ledger, and so its section.
A copy of one is that workspace as long as its ledger is.

A mirror below `.holdfast` belongs to the workspace around it, and has its settings.
"""

from __future__ import annotations

import os

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.disk.homes import state_home
from holdfast.errors import NotAWorkspace, Tampering
from holdfast.model.configuration import Settings
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.settings import Whose, load, places_of
from holdfast.store.anchor import anchor_path
from holdfast.store.keys import key_path, load_key
from holdfast.store.ledger import Ledger
from holdfast.store.state import read_identity


def settings_of(workspace: str) -> Settings:
    """The settings in force for a directory; it need not be a workspace."""
    return load(places_of(workspace), whose(workspace))


def whose(workspace: str) -> Whose:
    around = _around(os.path.abspath(workspace))
    return Whose(lambda: _id_at(around), _known, lambda: _vouch(around))


def _around(path: str) -> str:
    """The workspace itself; of what a run keeps below `.holdfast`, the workspace that the run is of."""
    parts = path.split("/")
    return "/".join(parts[: parts.index(STATE_DIRECTORY)]) if STATE_DIRECTORY in parts else path


def _id_at(workspace: str) -> str:
    try:
        with Root(os.path.join(workspace, STATE_DIRECTORY), CALLS) as state:
            return read_identity(state).id
    except (FileNotFoundError, NotADirectoryError, NotAWorkspace):
        return ""


def _known() -> list[str]:
    """Whoever has a ledger has an anchor, also where the workspace is gone by now."""
    try:
        return os.listdir(os.path.join(state_home(), "anchors"))
    except FileNotFoundError:
        return []


def _vouch(workspace: str) -> None:
    id = _id_at(workspace)
    try:
        head = Ledger(os.path.join(workspace, STATE_DIRECTORY), load_key(key_path()), id, anchor_path(id)).head()
    except Tampering as error:
        raise _not_proven(workspace, id, error.message) from error
    if head is None:
        raise _not_proven(workspace, id, "its ledger is empty")


def _not_proven(workspace: str, id: str, why: str) -> Tampering:
    return Tampering(
        f"{printable(workspace)} says that it is {id}, for which your configuration has settings of its own, "
        f"and its ledger does not prove it: {why}",
        hint="Nothing was changed. If its .holdfast came with an archive or is an old copy, move it away and run: "
        f'holdfast init. If it is yours and broken, take [workspaces."{id}"] out of your configuration while you '
        "look: holdfast audit verify",
    )
