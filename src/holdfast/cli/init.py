"""holdfast init: put a directory under guard."""

from __future__ import annotations

import os

from holdfast.cli.verbs import Face, verb
from holdfast.engine.host import probe, require_usable
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.wiring import init


@verb(name="init")
def command(face: Face) -> None:
    """Put the current directory under guard (-C DIR for another). Safe to repeat."""
    here = os.getcwd()
    known = os.path.lexists(os.path.join(here, STATE_DIRECTORY))
    if not known:
        require_usable(probe(here))
    id = init(here)
    face.screen.answer({"kind": "workspace", "id": id, "status": "known" if known else "ready", "path": here})
    if known:
        face.screen.say(f"{printable(here)} is under guard already ({id}).")
    else:
        face.screen.say(f"{printable(here)} is under guard ({id}).")
        face.screen.say("Make a change with: holdfast apply change.yaml")
