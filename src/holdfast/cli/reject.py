"""holdfast reject: this user's signed no; with it the simulation cannot land any more."""

from __future__ import annotations

import click

from holdfast.cli.approve import tell_answer
from holdfast.cli.asked import simulation_asked
from holdfast.cli.opening import changing
from holdfast.cli.verbs import Face, verb
from holdfast.engine.resuming import rejectable


@verb(name="reject")
@click.argument("simulation")
@click.option("--reason", default="", help="Why; it is signed with the rest.")
def command(face: Face, simulation: str, reason: str) -> None:
    """Reject SIMULATION: whatever others say, it does not land."""
    with changing(face) as hf:
        # A no is always taken: neither a workspace that moved nor what policy says by now stands in its way.
        answer = hf.reject(rejectable(hf.site, simulation_asked(hf, simulation)), reason=reason)
    tell_answer(face.screen, answer)
    face.screen.say("Nothing was changed.")
