"""holdfast diff: what an execution changed, or what a change file would change."""

from __future__ import annotations

import os

import click

from holdfast.cli.consent import show_difference
from holdfast.cli.documents import change_document
from holdfast.cli.opening import reading
from holdfast.cli.patch import patch
from holdfast.cli.screen import Screen
from holdfast.cli.verbs import Face, verb
from holdfast.engine.difference import Difference
from holdfast.errors import InvalidInput, UnknownId
from holdfast.wiring import Holdfast


@verb(name="diff")
@click.argument("id_or_file", metavar="ID|FILE")
def command(face: Face, id_or_file: str) -> None:
    """Show what an execution (its ID) changed, line by line, or what a change FILE would change."""
    with reading(face) as hf:
        try:
            id = hf.resolve(id_or_file)
        except UnknownId:
            if id_or_file != "-" and not os.path.lexists(id_or_file):
                raise
            _show(face.screen, *_planned(hf, id_or_file))
        else:
            _show(face.screen, id, "", _past(hf, id))


def _planned(hf: Holdfast, file: str) -> tuple[str, str, Difference]:
    from holdfast.engine.difference import PlannedDifference

    plan = hf.plan(file)
    rehearsal = hf.simulate(plan)
    return plan.id, "REHEARSED", PlannedDifference(hf.site, rehearsal.change_set.changes, rehearsal.sources)


def _past(hf: Holdfast, id: str) -> Difference:
    if id.startswith("p-"):
        raise InvalidInput(f"{id} is a plan, and plans keep no contents", hint="Give its change file instead.")
    row = hf.records.row(id)
    if row.status not in ("COMPLETED", "PARTIAL"):
        raise InvalidInput(f"{id} ended as {row.status} and left nothing to compare", hint=f"See: holdfast show {id}")
    return hf.difference(id)


def _show(screen: Screen, id: str, status: str, difference: Difference) -> None:
    if screen.form == "text":
        show_difference(screen, difference)
        if not difference.changes:
            screen.say("Nothing differs.")
        return
    items = []
    for compared in difference.compared(difference.changes):
        reasons = {side.why_not for side in (compared.old, compared.new)} - {""}
        items.append(
            {
                **change_document(compared.change),
                "diff": None if reasons else "\n".join(patch(compared)),
                "note": ", ".join(sorted(reasons)),
            }
        )
    screen.answer({"kind": "diff", "id": id, "status": status or "COMPLETED", "changes": items})
