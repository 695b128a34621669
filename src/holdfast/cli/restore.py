"""holdfast restore: bring back how things stood at a moment, in one transaction.

    files back ─▶ boxes unticked ─▶ committed, where the landings were ─▶ the tasks are to do again

Killed anywhere in between, the same call does what is left.
"""

from __future__ import annotations

import time

import click

from holdfast.cli.moments import for_people, moment_of
from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen
from holdfast.cli.verbs import Face, verb
from holdfast.cli.way_back import follow, go_back, has_runs
from holdfast.errors import InvalidInput, UnknownId
from holdfast.wiring import Holdfast


@verb(name="restore")
@click.option(
    "--at", required=True, metavar="TIME", help='ISO 8601, "2 hours ago", or an execution\'s id: just before it.'
)
@click.option("--yes", is_flag=True, help="Give consent to this call.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
def command(face: Face, at: str, yes: bool, preview: bool) -> None:
    """Bring back everything that Holdfast changed after TIME, keeping later edits of others.

    Tasks that landed after TIME are to do again.
    """
    with changing(face) as hf:
        at_ns = _moment(hf, at)
        later = [row for row in hf.log(limit=-1) if row.at_ns > at_ns and row.landed]
        if not any(row.changes or row.summary.get("services") for row in later):
            _nothing_to_do(face.screen, at_ns)
            return
        way = hf.preview_restore(at_ns)
        face.screen.say(f"As it stood on {for_people(at_ns)}:")
        went = go_back(face.screen, hf, way, "Restore exactly this?", yes=yes, preview=preview)
        if not went and not preview and has_runs(hf):
            for undo in hf.runs.unfollowed():
                follow(face.screen, hf, undo)


def _moment(hf: Holdfast, text: str) -> int:
    """An id means the moment just before that execution."""
    try:
        return moment_of(text, time.time_ns())
    except InvalidInput as not_a_time:
        if not text.startswith("e-"):
            raise
        try:
            return hf.show(text)[0].at_ns - 1
        except UnknownId as unknown:
            raise unknown from not_a_time


def _nothing_to_do(screen: Screen, at_ns: int) -> None:
    screen.answer({"kind": "simulation", "id": "", "status": "UNCHANGED", "changes": []})
    screen.say(f"Nothing was changed by Holdfast after {for_people(at_ns)}; nothing to do.")
