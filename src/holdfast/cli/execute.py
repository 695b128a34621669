"""holdfast execute: carry out a kept simulation, if every gate is open."""

from __future__ import annotations

import click

from holdfast.cli.asked import simulation_asked
from holdfast.cli.gate_told import tell_answers, tell_decision
from holdfast.cli.landing import land
from holdfast.cli.opening import changing
from holdfast.cli.verbs import Face, verb
from holdfast.errors import Blocked, Conflict, Tampering


@verb(name="execute")
@click.argument("simulation")
def command(face: Face, simulation: str) -> None:
    """Apply exactly what SIMULATION found, or nothing: the five hard gates are asked first."""
    with changing(face) as hf:
        id = simulation_asked(hf, simulation)
        try:
            found, verified = hf.kept(id, gated=True)
            decision = hf.evaluate(found, verified)
        except (Blocked, Conflict, Tampering) as error:
            hf.note_refusal(id, error)
            raise
        tell_decision(face.screen, decision)
        if decision.verdict == "NEED_APPROVAL":
            custody = hf.pipeline.governance.custody_of(id)
            tell_answers(face.screen, hf.pipeline.governance.standing(decision, custody), custody.approvals)
        land(face.screen, hf, found, verified, decision)
