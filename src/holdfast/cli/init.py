"""holdfast init: put a directory under guard."""

from __future__ import annotations

import os

import click

from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.engine.host import probe, require_usable
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.wiring import init


@verb(name="init")
@click.option("--forget", metavar="ID", default="", help="Give up the history of a workspace whose .holdfast is gone.")
def command(face: Face, forget: str) -> None:
    """Put the current directory under guard (-C DIR for another). Safe to repeat."""
    here = os.getcwd()
    known = os.path.lexists(os.path.join(here, STATE_DIRECTORY))
    if not known:
        require_usable(probe(here))
    id = init(here, forget=forget)
    face.screen.answer({"kind": "workspace", "id": id, "status": "known" if known else "ready", "path": here})
    if known:
        face.screen.say(f"{printable(here)} is under guard already ({id}).")
    else:
        face.screen.say(f"{printable(here)} is under guard ({id}).")
        if forget:
            face.screen.say(f"The history of {shown(forget)} is given up; the ledger says so.")
        face.screen.say("Make a change with: holdfast apply change.yaml")
        if os.path.lexists(os.path.join(here, ".git")):
            face.screen.say("git clean -fdx would remove the history in .holdfast: use git clean -fdx -e .holdfast")
