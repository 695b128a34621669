"""holdfast simulate: try a plan in a shadow, run its checks there, keep what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from holdfast.cli.asked import is_id, kept_plan_asked, plan_asked
from holdfast.cli.checks_told import brought_along, how_it_went, tell_receipts
from holdfast.cli.documents import change_document, simulated_step_document
from holdfast.cli.opening import changing
from holdfast.cli.patch_asked import Asked
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import left_out, summary
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.engine.difference import PlannedDifference
from holdfast.engine.pipeline import require_passed
from holdfast.errors import Blocked, HoldfastError
from holdfast.simulation.rehearsal import Unrehearsable

if TYPE_CHECKING:
    from holdfast.engine.checking import ShadowKind, Verified
    from holdfast.engine.simulator import Simulated
    from holdfast.model.simulation import Simulation
    from holdfast.wiring import Holdfast


@verb(name="simulate")
@click.argument("plan")
@click.option("--shadow", type=click.Choice(["auto", "overlay", "copy"]), default="auto", help="Kind of shadow.")
def command(face: Face, plan: str, shadow: ShadowKind) -> None:
    """Try PLAN (an id, a change file or words) in a shadow; the workspace stays as it is."""
    with changing(face) as hf:
        wanted = kept_plan_asked(hf, plan) if is_id(plan) else plan_asked(hf, plan, Asked(hf, face.screen).plan)
        hf.keep_plan(wanted)
        with attaching_report(face.screen):
            simulated = hf.simulate(wanted, shadow=shadow)
        verified = hf.verify(simulated)
        simulated = hf.keep(simulated, verified)
        _tell(face.screen, hf, simulated, verified)
        _require_good(face.screen, simulated, verified)
        if face.screen.form != "text":
            face.screen.answer(_document(simulated, verified))
        face.screen.say(f"Decide with: holdfast evaluate {simulated.report.id}")


def _require_good(screen: Screen, simulated: Simulated, verified: Verified) -> None:
    """Raises what stands in the way, with the simulation attached: one document, whatever came of it."""
    report = simulated.report
    try:
        if report.status != "SUCCESS":
            raise Blocked(f"the simulation is {report.status}: {'; '.join(report.dangers)}",
                          hint="Nothing was changed.")  # fmt: skip
        require_passed(verified)
    except HoldfastError:
        if screen.form != "text":
            screen.attach("simulation", _document(simulated, verified))
        raise


@contextmanager
def attaching_report(screen: Screen) -> Iterator[None]:
    """A plan that cannot be done has a report too; it is part of the one document."""
    try:
        yield
    except Unrehearsable as error:
        if screen.form != "text" and error.report is not None:
            screen.attach("simulation", report_document(error.report))
        raise


def report_document(report: Simulation) -> dict[str, object]:
    named = {**report.document(), "steps": [simulated_step_document(step) for step in report.steps]}
    return {"kind": "simulation", "id": report.id, "digest": report.digest, **named}


def _document(simulated: Simulated, verified: Verified) -> dict[str, object]:
    return {
        **report_document(simulated.report),
        "receipts": [receipt._asdict() for receipt in verified.receipts],
        "unverified": verified.unverified,
        "content_files": list(simulated.plan.content_files),
        "notes": list(simulated.plan.notes),
        "changes": [change_document(change) for change in simulated.change_set.changes],
    }


def _tell(screen: Screen, hf: Holdfast, simulated: Simulated, verified: Verified) -> None:
    report, changes = simulated.report, simulated.change_set.changes
    screen.say(screen.style(shown(simulated.plan.intent.strip().partition("\n")[0]), "bold"))
    for line in summary(PlannedDifference(hf.site, changes, simulated.sources, simulated.plan.notes)):
        screen.say(line)
    for line in brought_along(simulated.plan):
        screen.say(line)
    tell_report(screen, report)
    tell_receipts(screen, "Checked", verified.receipts)
    if verified.base_tests is not None:
        tell_receipts(screen, "Checked", verified.base_tests.receipts)
    status = how_it_went(report.status, verified.receipts)
    screen.say(f"{report.id}  {status}: {count(len(report.steps), 'step')}, {count(len(changes), 'change')}; "
               "nothing has changed.")  # fmt: skip


def tell_report(screen: Screen, report: Simulation) -> None:
    """What a person should know besides the files."""
    for step in report.steps if report.shadow else ():
        if step.operation == "agent":
            screen.say(f"  . {shown(step.detail)}")
    for effect in report.unrehearsed:
        screen.say(f"  ! {shown(effect)}  cannot be rehearsed")
    for line in report.dangers:
        screen.say(f"  ✗ {shown(line)}")
    for line in report.suspicious:
        screen.say(f"  ! in the shadow, discarded: {shown(line)}")
    if report.by_products:
        screen.say(f"  . {left_out([item.path for item in report.by_products])}")
