"""holdfast apply: read, rehearse, show, ask, check, carry out, say what came of it."""

from __future__ import annotations

import click

from holdfast.cli.checks_told import checks_ahead, tell_receipts
from holdfast.cli.consent import require_consent
from holdfast.cli.documents import change_document, execution_document
from holdfast.cli.ending import telling_failure
from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import summary
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, duration
from holdfast.engine.difference import PlannedDifference
from holdfast.model.execution import Execution
from holdfast.model.plan import Plan
from holdfast.simulation.rehearsal import Rehearsal
from holdfast.store.database import Row
from holdfast.wiring import Holdfast, user


@verb(name="apply")
@click.argument("file")
@click.option("--yes", is_flag=True, help="Give consent to this call.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
def command(face: Face, file: str, yes: bool, preview: bool) -> None:
    """Make the changes of FILE (- is standard input): all of them, or none.

    The change is rehearsed and shown first. Its checks run on a scratch copy before anything is applied,
    its health checks after; when one fails, everything is rolled back.
    """
    with changing(face) as hf:
        plan = hf.plan(file)
        done = hf.already_done(plan)
        if done is not None:
            _already(face.screen, hf, done)
            return
        rehearsal = hf.simulate(plan)
        difference = PlannedDifference(hf.site, rehearsal.change_set.changes, rehearsal.sources)
        _tell_plan(face.screen, plan, rehearsal, difference)
        if not rehearsal.change_set and not plan.verify and not plan.health:
            _nothing_to_do(face.screen, plan)
        elif preview:
            _previewed(face.screen, plan, rehearsal)
        else:
            require_consent(face.screen, "Apply exactly this?", difference, yes=yes)
            _carry_out(face.screen, hf, rehearsal)


def _carry_out(screen: Screen, hf: Holdfast, rehearsal: Rehearsal) -> None:
    verified = hf.verify(rehearsal)
    tell_receipts(screen, "Checked", verified.receipts)
    with telling_failure(screen, hf):
        execution = hf.execute(rehearsal, approved_by=user(), verified=verified)
    if screen.form != "text":  # the document of a large change is large
        screen.answer(execution_document(*hf.show(execution.id)))
    health = execution.receipts[len(verified.receipts) :]
    tell_receipts(screen, "Healthy", health)
    screen.say(f"Applied {count(execution.changes, 'change')} in {duration(_without_health(execution))}.")
    screen.say(f"Undo with: holdfast undo {execution.id}")


def _without_health(execution: Execution) -> int:
    waited = sum(receipt.duration_ms for receipt in execution.receipts if receipt.tree_digest == execution.after_digest)
    return max(0, execution.duration_ms - waited)


def _tell_plan(screen: Screen, plan: Plan, rehearsal: Rehearsal, difference: PlannedDifference) -> None:
    screen.event(
        "simulation",
        plan_id=plan.id,
        intent=plan.intent,
        changes=len(rehearsal.change_set.changes),
        change_set_digest=rehearsal.change_set.digest,
    )
    if screen.form != "text":
        return
    right = f"plan {plan.id}  risk {plan.risk}"
    title = shown(plan.intent.strip().partition("\n")[0])
    gap = max(2, screen.columns() - len(title) - len(right) - 1)
    screen.say(screen.style(title, "bold") + " " * gap + screen.style(right, "dim"))
    for line in summary(difference):
        screen.say(line)
    for line in checks_ahead(plan):
        screen.say(line)
    steps = count(len(rehearsal.steps), "step")
    screen.say(f"Rehearsed: {steps}, {count(len(rehearsal.change_set.changes), 'change')}; nothing has changed yet.")


def _already(screen: Screen, hf: Holdfast, row: Row) -> None:
    screen.answer({**execution_document(*hf.show(row.id)), "already_applied": True})
    screen.say(f"Already applied as {row.id}; nothing to do.")


def _nothing_to_do(screen: Screen, plan: Plan) -> None:
    screen.answer({"kind": "simulation", "id": plan.id, "status": "UNCHANGED", "changes": []})
    screen.say("The workspace is already as the plan wants it; nothing to do.")


def _previewed(screen: Screen, plan: Plan, rehearsal: Rehearsal) -> None:
    changes = [change_document(change) for change in rehearsal.change_set.changes if screen.form != "text"]
    document = {"intent": plan.intent, "plan_digest": plan.digest, "change_set_digest": rehearsal.change_set.digest}
    screen.answer({"kind": "simulation", "id": plan.id, "status": "REHEARSED", **document, "changes": changes})
    screen.say("Preview only: nothing was changed, and no check was run.")
