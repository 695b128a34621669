"""A kept simulation taken up again, by another command or another person.

Everything is computed anew from what stands: digests of plan, report and change set; the base, path by path.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.engine.checking import Verified
from holdfast.engine.saving import load_simulation, require_together, save_simulation, seen_now
from holdfast.engine.simulator import Simulated
from holdfast.errors import Blocked, Conflict, UnknownId
from holdfast.model.simulation import Simulation
from holdfast.simulation.reports import StepReports
from holdfast.store.dossier import Dossiers
from holdfast.workspace.site import Site


def resumed(site: Site, id: str, *, gated: bool = False) -> tuple[Simulated, Verified]:
    """The simulation with everything that landing it needs, and the receipts it had.

    With `gated` a report that is gone is a hard gate that fails: Blocked.
    """
    try:
        kept = load_simulation(site, id, gated=gated)
    except UnknownId as error:
        if not gated:
            raise
        raise Blocked(f"there is no report of this simulation: {error.message}", hint=error.hint) from error
    try:
        seen = seen_now(site, kept.change_set)
    except Conflict:
        # A change set that somebody edited says of the workspace what nobody simulated: that is told, and no conflict.
        require_together(kept)
        raise
    steps = StepReports(kept.report.steps, (), kept.report.at_ns)
    simulated = Simulated(kept.plan, kept.change_set, seen, kept.sources, steps, kept.report)
    report = kept.report
    return simulated, found_in(report)._replace(change_set=kept.change_set.digest)


def found_in(report: Simulation) -> Verified:
    """What the checks of a kept simulation came to."""
    return Verified(
        report.receipts,
        report.checked_on,
        report.change_set,
        checks=report.checks,
        base_tests=report.base_tests,
        checked_in=report.checked_in,
    )


def rejectable(site: Site, id: str) -> Simulation:
    """The report of a kept simulation, whatever the workspace looks like by now; Tampering when it was edited.

    A no to what somebody edited would be about something that nobody simulated.
    """
    return load_simulation(site, id).report


def is_kept(site: Site, id: str) -> bool:
    """Can another command take it up?"""
    return id in Dossiers(site.state, "simulations").ids()


def kept_with(site: Site, simulated: Simulated, verified: Verified) -> Simulated:
    """The simulation with its receipts in the report, so that one digest covers both, kept under its new id."""
    report = replace(
        simulated.report,
        receipts=verified.receipts,
        checked_on=verified.base_tree,
        checks=verified.checks,
        base_tests=verified.base_tests,
        checked_in=verified.checked_in,
    )
    sources = save_simulation(site, simulated.plan, report, simulated.change_set, simulated.sources)
    if report.id != simulated.report.id:
        Dossiers(site.state, "simulations").remove(simulated.report.id)
    return simulated._replace(report=report, sources=sources)
