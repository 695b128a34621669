"""holdfast simulate: try a plan in a shadow, run its checks there, keep what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.asked import is_id, plan_asked
from holdfast.cli.checks_told import tell_receipts
from holdfast.cli.documents import change_document
from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import summary
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.engine.difference import PlannedDifference
from holdfast.engine.pipeline import require_passed
from holdfast.errors import Blocked

if TYPE_CHECKING:
    from holdfast.engine.simulator import ShadowKind, Simulated, Verified
    from holdfast.model.simulation import Simulation
    from holdfast.wiring import Holdfast


@verb(name="simulate")
@click.argument("plan")
@click.option("--shadow", type=click.Choice(["auto", "overlay", "copy"]), default="auto", help="Kind of shadow.")
def command(face: Face, plan: str, shadow: ShadowKind) -> None:
    """Try PLAN (an id, a change file or words) in a shadow; the workspace stays as it is."""
    with changing(face) as hf:
        wanted = hf.kept_plan(plan) if is_id(plan) else plan_asked(hf, plan)
        hf.keep_plan(wanted)
        simulated = hf.simulate(wanted, shadow=shadow)
        verified = hf.verify(simulated)
        simulated = hf.keep(simulated, verified)
        _tell(face.screen, hf, simulated, verified)
        if simulated.report.status != "SUCCESS":
            raise Blocked(f"the simulation is {simulated.report.status}: {'; '.join(simulated.report.dangers)}",
                          hint="Nothing was changed.")  # fmt: skip
        require_passed(verified)


def report_document(report: Simulation) -> dict[str, object]:
    return {"kind": "simulation", "id": report.id, "digest": report.digest, **report.document()}


def _tell(screen: Screen, hf: Holdfast, simulated: Simulated, verified: Verified) -> None:
    report, changes = simulated.report, simulated.change_set.changes
    if screen.form != "text":
        screen.answer(
            {
                **report_document(report),
                "receipts": [receipt._asdict() for receipt in verified.receipts],
                "unverified": verified.unverified,
                "changes": [change_document(change) for change in changes],
            }
        )
    screen.say(screen.style(shown(simulated.plan.intent.strip().partition("\n")[0]), "bold"))
    for line in summary(PlannedDifference(hf.site, changes, simulated.sources)):
        screen.say(line)
    tell_report(screen, report)
    tell_receipts(screen, "Checked", verified.receipts)
    screen.say(f"{report.id}  {report.status}: {count(len(report.steps), 'step')}, {count(len(changes), 'change')}; "
               "nothing has changed.")  # fmt: skip
    screen.say(f"Decide with: holdfast evaluate {report.id}")


def tell_report(screen: Screen, report: Simulation) -> None:
    """What a person should know besides the files."""
    for effect in report.unrehearsed:
        screen.say(f"  ! {shown(effect)}  cannot be rehearsed")
    for line in report.dangers:
        screen.say(f"  ✗ {shown(line)}")
    for line in report.suspicious:
        screen.say(f"  ! in the shadow, discarded: {shown(line)}")
    if report.by_products:
        screen.say(f"  . {count(len(report.by_products), 'by-product')} ignored by the repository's rules, not landed")
