"""The last part of every road: the gates, the landing, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.checks_told import tell_receipts
from holdfast.cli.documents import execution_document
from holdfast.cli.ending import MOST_TOLD, elsewhere, telling_failure
from holdfast.cli.screen import shown
from holdfast.cli.words import count, duration
from holdfast.errors import PartlyDone

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.engine.checking import Verified
    from holdfast.engine.simulator import Simulated
    from holdfast.model.decision import Decision
    from holdfast.model.execution import Execution
    from holdfast.wiring import Holdfast


def land(
    screen: Screen,
    hf: Holdfast,
    simulated: Simulated,
    verified: Verified,
    decision: Decision | None,
    *,
    yes: bool = False,
) -> None:
    """Everything is said and signed; what stops it now is raised with the execution attached.

    `yes` is a yes to what policy asks nobody about; where it asks, that yes was signed before.
    """
    unasked = yes and decision is not None and decision.verdict == "ALLOW"
    with telling_failure(screen, hf, moved="Simulate again."):
        execution = hf.execute(simulated, verified=verified, decision=decision, approved_by=hf.me() if unasked else "")
    # The document of a large change is large.
    document = execution_document(*hf.show(execution.id)) if screen.form != "text" else {}
    tell_receipts(screen, "Healthy", execution.receipts[len(verified.receipts) :])
    screen.say(f"Applied {_what_landed(execution)} in {duration(_without_health(execution))}.")
    for line in elsewhere(execution):
        screen.say(line)
    if execution.status == "PARTIAL":
        screen.attach("execution", document)
        raise PartlyDone(
            "The files landed, but not every step was done:\n" + "\n".join(f"  {text}" for text in execution.errors),
            hint=f"Undo with: holdfast undo {execution.id}",
            changed=True,
        )
    screen.answer(document)
    screen.say(screen.way(f"Undo with: holdfast undo {execution.id}"))


def _what_landed(execution: Execution) -> str:
    """The changes of files, and what was done to services."""
    done = [shown(step.target) for step in execution.steps if step.action_type == "SERVICE" and step.success]
    if not done:
        return count(execution.changes, "change")
    more = [f"{len(done) - MOST_TOLD:,} more"] if len(done) > MOST_TOLD else []
    services = f"{count(len(done), 'service action')} ({', '.join([*done[:MOST_TOLD], *more])})"
    return f"{count(execution.changes, 'change')} and {services}" if execution.changes else services


def _without_health(execution: Execution) -> int:
    waited = sum(receipt.duration_ms for receipt in execution.receipts if receipt.tree_digest == execution.after_digest)
    return max(0, execution.duration_ms - waited)
