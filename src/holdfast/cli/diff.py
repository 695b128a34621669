"""holdfast diff: what an execution changed, or what a simulation, a plan, a change file or a patch would change."""

from __future__ import annotations

import os

import click

from holdfast.cli.asked import simulation_asked
from holdfast.cli.consent import show_difference
from holdfast.cli.documents import change_document
from holdfast.cli.opening import reading
from holdfast.cli.patch import patch
from holdfast.cli.patch_asked import Asked
from holdfast.cli.screen import Screen
from holdfast.cli.verbs import Face, verb
from holdfast.engine.difference import Difference
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.plan import Plan
from holdfast.wiring import Holdfast


@verb(name="diff")
@click.argument("id_or_file", metavar="ID|FILE")
@click.option("--reverse", is_flag=True, help="FILE is a patch: what taking it back would change.")
def command(face: Face, id_or_file: str, reverse: bool) -> None:
    """Show what an execution changed, line by line, or what a simulation, a plan or FILE would change.

    FILE is a change file or a patch (- is standard input). Nothing is changed, and the patch is not kept.
    """
    with reading(face) as hf:
        try:
            id = hf.resolve(id_or_file)
        except UnknownId:
            if id_or_file != "-" and not os.path.lexists(id_or_file):
                raise
            _show(face.screen, *_planned(hf, Asked(hf, face.screen, reverse=reverse).looked_at(id_or_file)))
        else:
            Asked(hf, face.screen, reverse=reverse).require_none()
            _show(face.screen, *_known(hf, id))


def _known(hf: Holdfast, id: str) -> tuple[str, str, Difference]:
    if id.startswith("p-"):
        return _planned(hf, _kept_plan(hf, id))
    if id.startswith(("s-", "d-", "a-")):
        return _simulated(hf, simulation_asked(hf, id))
    return id, "COMPLETED", _past(hf, id)


def _kept_plan(hf: Holdfast, id: str) -> Plan:
    try:
        return hf.kept_plan(id)
    except UnknownId:
        raise InvalidInput(f"{id} is a plan whose contents are not kept",
                           hint="Give its change file instead.") from None  # fmt: skip


def _planned(hf: Holdfast, plan: Plan) -> tuple[str, str, Difference]:
    from holdfast.engine.difference import PlannedDifference

    if plan.agent:
        raise InvalidInput(f"what {plan.agent} will do is not known before it worked",
                           hint=f"Give it the task first: holdfast simulate {plan.id}")  # fmt: skip
    rehearsal = hf.pipeline.simulator.simulate(plan)  # a look records nothing
    return plan.id, "REHEARSED", PlannedDifference(hf.site, rehearsal.change_set.changes, rehearsal.sources, plan.notes)


def _simulated(hf: Holdfast, id: str) -> tuple[str, str, Difference]:
    """From what was kept; where the workspace moved meanwhile, the old side says so."""
    from holdfast.engine.difference import PlannedDifference
    from holdfast.engine.saving import load_simulation

    kept = load_simulation(hf.site, id)
    return id, kept.report.status, PlannedDifference(hf.site, kept.change_set.changes, kept.sources, kept.plan.notes)


def _past(hf: Holdfast, id: str) -> Difference:
    row = hf.records.row(id)
    if not row.landed and not row.kept:
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
    screen.answer({"kind": "diff", "id": id, "status": status, "notes": list(difference.notes), "changes": items})
