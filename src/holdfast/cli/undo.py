"""holdfast undo: take back one execution."""

from __future__ import annotations

import click

from holdfast.cli.opening import changing
from holdfast.cli.verbs import Face, verb
from holdfast.cli.way_back import go_back


@verb(name="undo")
@click.argument("id")
@click.option("--yes", is_flag=True, help="Give consent to this call.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
def command(face: Face, id: str, yes: bool, preview: bool) -> None:
    """Take back the execution ID, newest or not, keeping later edits. An undo can itself be undone."""
    with changing(face) as hf:
        go_back(face.screen, hf, hf.preview_undo(id), "Undo exactly this?", yes=yes, preview=preview)
