"""holdfast evaluate: what policy says to a kept simulation."""

from __future__ import annotations

import click

from holdfast.cli.asked import simulation_asked
from holdfast.cli.gate_told import decision_document, tell_decision
from holdfast.cli.opening import changing
from holdfast.cli.verbs import Face, verb
from holdfast.engine.refusals import approving, way_to_approve
from holdfast.errors import Denied


@verb(name="evaluate")
@click.argument("simulation")
def command(face: Face, simulation: str) -> None:
    """Decide about SIMULATION: allowed, needs approval, or denied (exit 4); nothing is changed."""
    screen = face.screen
    with changing(face) as hf:
        found, verified = hf.kept(simulation_asked(hf, simulation))
        decision = hf.evaluate(found, verified)
        others = hf.pipeline.governance.others_to_ask(decision)
    tell_decision(screen, decision)
    if decision.verdict == "DENY":
        screen.attach("decision", decision_document(decision))
        raise Denied("policy denies this change", hint="Nothing was changed. Nobody can approve it.")
    screen.answer(decision_document(decision))
    if decision.verdict == "ALLOW":
        screen.say(f"Next: holdfast execute {decision.simulation}")
    elif others:
        screen.say(way_to_approve(decision, found.plan.id, others))
    else:
        screen.say(f"Next: {approving(decision, found.plan.id)}")
