"""What the write gate said, for people and as JSON, and the consent that it asks for.

ALLOW ............ nothing is asked
NEED_APPROVAL .... y at the prompt or --yes; from high on the plan's id, typed; two people where policy wants two
DENY ............. exit 4; nobody can approve that
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli.consent import require_consent
from holdfast.cli.screen import Screen, shown
from holdfast.cli.words import count
from holdfast.engine.refusals import approving, either, way_to_approve
from holdfast.errors import ApprovalNeeded
from holdfast.model.path import printable

if TYPE_CHECKING:
    from holdfast.engine.difference import Difference
    from holdfast.gates.approvals import Standing
    from holdfast.model.approval import Approval
    from holdfast.model.decision import Decision, Reason

_VERDICTS = {"ALLOW": "allowed", "NEED_APPROVAL": "needs approval", "DENY": "denied"}
_MOST_REASONS = 6
_MOST_PATHS = 3


def decision_document(decision: Decision) -> dict[str, object]:
    return {"kind": "decision", "id": decision.id, "status": decision.verdict, "digest": decision.digest,
            **decision.document()}  # fmt: skip


def tell_decision(screen: Screen, decision: Decision) -> None:
    screen.event("decision", id=decision.id, verdict=decision.verdict, risk=decision.risk_effective)
    reasons = [reason for reason in decision.reasons if reason.verdict != "ALLOW"]
    people = f", by {count(decision.approvals_needed, 'person', 'people')}" if decision.approvals_needed > 1 else ""
    screen.say(f"Gate: {_VERDICTS[decision.verdict]}{people}; risk {decision.risk_effective}")
    for reason in reasons[:_MOST_REASONS]:
        screen.say(f"  {'✗' if reason.verdict == 'DENY' else '?'} {_sentence(reason)}")
    if len(reasons) > _MOST_REASONS:
        screen.say(f"  and {len(reasons) - _MOST_REASONS} more reasons: holdfast show {decision.id}")


def require_approval(
    screen: Screen,
    decision: Decision,
    plan_id: str,
    question: str,
    difference: Difference,
    *,
    yes: bool,
    others: Sequence[str] = (),
) -> None:
    """Return when this user said yes to exactly this; ApprovalNeeded otherwise."""
    if not decision.typed_consent:
        require_consent(screen, question, difference, yes=yes)
        return
    if not screen.can_ask():
        raise ApprovalNeeded(
            f"risk {decision.risk_effective} needs explicit consent: the plan's id, typed out",
            hint=f"Nothing was changed. Look at it: holdfast diff {decision.simulation}\n"
            f"{way_to_approve(decision, plan_id, others)}",
        )
    reply = screen.ask(f"Risk {decision.risk_effective}. Type {plan_id} to approve exactly this, anything else stops:")
    if reply != plan_id:
        raise ApprovalNeeded("That was not the plan's id.", hint="Nothing was changed.")


def tell_answers(screen: Screen, stands: Standing, answers: Sequence[Approval]) -> None:
    """Who said what to it so far, oldest first, and what counts of it; whether that is enough is for the hard gates."""
    judged = {each.id: each for each in stands.judged}
    for answer in reversed(answers):
        mark, word = ("✓", "approved") if answer.answer == "approve" else ("✗", "rejected")
        broken = judged[answer.id].broken
        void = f', does not count, since it breaks the rule "{broken[0]}"' if broken else ""
        screen.say(f"  {'.' if broken else mark} {word} by {shown(answer.by)}: {answer.id}{void}")


def after_approval(decision: Decision, stands: Standing, plan_id: str, others: Sequence[str]) -> str:
    """What an approval came to, for whoever gave it: it can be carried out, or who is still missing."""
    if stands.granted:
        return f"Carry it out with: holdfast execute {decision.simulation}"
    if stands.rejected:
        return f"It does not land all the same: {shown(stands.reason)}"
    more = count(stands.needed - stands.people, "more person has", "more people have")
    who = f" ({either(others)})" if others else ""
    return (
        f"Approved by {stands.people} of {count(stands.needed, 'person', 'people')}: {more} to approve it{who}, "
        f"with: {approving(decision, plan_id)}"
    )


def _sentence(reason: Reason) -> str:
    names = ", ".join(printable(path) for path in reason.paths[:_MOST_PATHS])
    more = f" and {len(reason.paths) - _MOST_PATHS} more" if len(reason.paths) > _MOST_PATHS else ""
    about = f": {names}{more}" if names else ""
    why = f" — {shown(reason.detail)}" if reason.detail else ""
    layer = "" if reason.layer == "built-in" else f" (policy: {reason.layer})"
    return f"{reason.rule}{about}{why}{layer}"
