"""holdfast approve and reject: this user's signed answer to exactly what was simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.asked import simulation_asked
from holdfast.cli.gate_told import after_approval, require_approval, tell_decision
from holdfast.cli.moments import for_people, for_programs
from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import summary
from holdfast.cli.verbs import Face, verb
from holdfast.engine.difference import PlannedDifference
from holdfast.errors import ApprovalNeeded

if TYPE_CHECKING:
    from holdfast.model.approval import Approval


@verb(name="approve")
@click.argument("simulation")
@click.option("--reason", default="", help="Why; it is signed with the rest.")
@click.option("--plan", "typed", default="", metavar="ID", help="The plan's id, typed: needed from risk high on.")
def command(face: Face, simulation: str, reason: str, typed: str) -> None:
    """Approve SIMULATION: plan, change set, base and policy by their digests, for one use and a limited time."""
    screen = face.screen
    with changing(face) as hf:
        found, verified = hf.kept(simulation_asked(hf, simulation))
        decision = hf.evaluate(found, verified)
        governance = hf.pipeline.governance
        difference = PlannedDifference(hf.site, found.change_set.changes, found.sources, found.plan.notes)
        if screen.form == "text":
            screen.say(screen.style(shown(found.plan.intent.strip().partition("\n")[0]), "bold"))
            for line in summary(difference):
                screen.say(line)
            tell_decision(screen, decision)
        if typed and typed != found.plan.id:
            raise ApprovalNeeded(
                f"{shown(typed)} is not this plan's id",
                hint=f"Nothing was changed. Look at it: holdfast diff {decision.simulation}",
            )
        if decision.typed_consent and not typed:
            others = governance.others_to_ask(decision)
            require_approval(screen, decision, found.plan.id, "", difference, yes=False, others=others)
        approval = hf.approve(decision, reason=reason)
        stands = governance.standing(decision, governance.custody_of(decision.simulation))
        others = governance.others_to_ask(decision)
    tell_answer(screen, approval, granted=stands.granted, people=stands.people, people_needed=stands.needed)
    screen.say(after_approval(decision, stands, found.plan.id, others))


def tell_answer(screen: Screen, approval: Approval, **worth: object) -> None:
    """`worth` is what all the answers together come to, for programs."""
    word = {"approve": "Approved", "reject": "Rejected"}[approval.answer]
    status = word.upper()
    times = {"issued": for_programs(approval.issued_ns), "expires": for_programs(approval.expires_ns)}
    screen.answer(
        {"kind": "approval", "status": status, **approval.claims(), "signature": approval.signature, **times, **worth}
    )
    until = f", until {for_people(approval.expires_ns)}, once" if approval.answer == "approve" else ""
    screen.say(f"{word} as {shown(approval.by)}{until}: {approval.id} for {approval.simulation}")
