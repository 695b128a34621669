"""holdfast apply: read, simulate, show, check, decide, ask, carry out, say what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

import click

from holdfast.checks.words import health_of
from holdfast.cli.agent_asked import AskedOfAgent, agent_options, delegated, task_of
from holdfast.cli.asked import is_words, plan_asked
from holdfast.cli.checks_told import checks_ahead, tell_receipts
from holdfast.cli.documents import change_document, execution_document
from holdfast.cli.gate_told import require_approval, tell_decision
from holdfast.cli.landing import land
from holdfast.cli.opening import changing
from holdfast.cli.patch_asked import Asked, AskedOfPatch, patch_options
from holdfast.cli.screen import Screen, shown
from holdfast.cli.simulate import attaching_report, tell_report
from holdfast.cli.summary import summary
from holdfast.cli.verbs import Face, verb
from holdfast.cli.watching import Watching, person_at
from holdfast.cli.words import count
from holdfast.engine.difference import PlannedDifference
from holdfast.engine.refusals import way_to_approve
from holdfast.errors import ApprovalNeeded
from holdfast.model.plan import Plan, ProgramStep, Run, Service
from holdfast.simulation.rehearsal import Unrehearsable
from holdfast.store.database import Row
from holdfast.wiring import Holdfast

if TYPE_CHECKING:
    from holdfast.engine.checking import ShadowKind
    from holdfast.engine.simulator import Simulated
    from holdfast.model.decision import Decision


class _Asked(AskedOfAgent, AskedOfPatch):
    """What click hands over."""


@verb(name="apply")
@click.argument("file")
@click.option("--yes", is_flag=True, help="Give this user's approval to this call, where policy lets one person.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
@click.option("--shadow", type=click.Choice(["auto", "overlay", "copy"]), default="auto", help="Kind of shadow.")
@patch_options
@agent_options
def command(face: Face, file: str, yes: bool, preview: bool, shadow: ShadowKind, **asked: Unpack[_Asked]) -> None:
    """Make the changes of FILE (- is standard input), or of plain words in quotes: all of them, or none.

    The change is simulated, its checks run in a shadow, policy decides, and you are asked where it wants that.
    Health checks come after the change; when one fails, everything is rolled back.
    With --agent the words are a task for that agent, which works in the shadow.
    FILE is a change file or a patch, which its content tells; every check that is found is run over a patch.
    """
    with changing(face) as hf, Asked.of(hf, face.screen, asked, wanted=not preview) as road:
        task = task_of(asked)
        if task is not None or is_words(file):
            road.require_none()
        if task is not None:
            plan, simulated = delegated(face.screen, hf, file, task, shadow)
        else:
            found = plan_asked(hf, file, road.plan_or_done)
            done = hf.already_done(found) if isinstance(found, Plan) else found
            if done is not None:
                _already(face.screen, hf, done)
                return
            assert isinstance(found, Plan)
            plan = found
            with attaching_report(face.screen), _telling_what_stands(hf, plan):
                watcher, person = Watching(face.screen), person_at(face.screen)
                simulated = hf.simulate(plan, shadow=shadow, watcher=watcher, person=person)
        difference = PlannedDifference(hf.site, simulated.change_set.changes, simulated.sources, plan.notes)
        tell_plan(face.screen, plan, simulated, difference)
        if _asks_for_nothing(plan, simulated):
            _nothing_to_do(face.screen, plan)
        elif preview:
            _previewed(face.screen, plan, simulated)
        else:
            carry_out(face.screen, hf, simulated, difference, yes=yes)


@contextmanager
def _telling_what_stands(hf: Holdfast, plan: Plan) -> Iterator[None]:
    """A plan with commands, service steps or health checks is never done already; but its files may stand so.

    Its steps may then not fit a second time, and to correct the plan would be the wrong advice.
    """
    try:
        yield
    except Unrehearsable as error:
        row = hf.already_done(plan, files_alone=True) if _is_about_files(plan, error) else None
        if row is not None:
            error.message = f"Already applied as {row.id}; its steps do not fit a second time:\n{error.message}"
            parts = {
                "commands": plan.runs_programs,
                "service steps": _has_services(plan),
                "health": bool(health_of(plan)),
            }
            again = " and ".join(name for name, has in parts.items() if has)
            error.hint = (
                f"Nothing was changed: its files stand as it left them. Of its {again} nothing was done again.\n"
                f"To do that, apply a change file with the same {again} and a read step in place of the others."
            )
        raise


def _is_about_files(plan: Plan, error: Unrehearsable) -> bool:
    """A command that fails this time, or a right that is missing, has nothing to do with how the files stand."""
    unmet = [plan.steps[report.number] for report in error.steps if not report.precondition_met]
    return bool(unmet) and not any(isinstance(step, ProgramStep | Service) for step in unmet)


def _asks_for_nothing(plan: Plan, simulated: Simulated) -> bool:
    """What must not land is no change either, and is refused like any other that must not."""
    if simulated.change_set or simulated.report.status != "SUCCESS":
        return False
    return not plan.verify and not health_of(plan) and not _has_services(plan)


def _has_services(plan: Plan) -> bool:
    return any(isinstance(step, Service) for step in plan.steps)


def carry_out(screen: Screen, hf: Holdfast, simulated: Simulated, difference: PlannedDifference, *, yes: bool) -> None:
    """Checks, decision, consent, landing; whatever stops it is raised, and nothing was changed."""
    verified = hf.verify(simulated)
    tell_receipts(screen, "Checked", verified.receipts)
    if verified.base_tests is not None:
        tell_receipts(screen, "Checked", verified.base_tests.receipts)
    if verified.unverified:
        screen.say(f"Unverified by tests: {shown(verified.unverified.removeprefix('unverified by tests: '))}")
    decision = None
    if all(receipt.passed for receipt in verified.receipts):
        decision = hf.evaluate(simulated, verified)
        tell_decision(screen, decision)
        if decision.verdict == "NEED_APPROVAL" and _is_for_others(screen, decision, yes=yes):
            # Kept for them first: its report then holds the receipts, and every answer is to that.
            simulated = hf.keep(simulated, verified)
            decision = hf.evaluate(simulated, verified)
        if decision.verdict == "NEED_APPROVAL":
            _approved(screen, hf, simulated.plan.id, decision, difference, yes=yes)
    land(screen, hf, simulated, verified, decision, yes=yes)


def _is_for_others(screen: Screen, decision: Decision, *, yes: bool) -> bool:
    """More than one person is needed, or there is nobody here to ask."""
    return decision.approvals_needed > 1 or (not screen.can_ask() and (decision.typed_consent or not yes))


def _approved(
    screen: Screen, hf: Holdfast, plan_id: str, decision: Decision, difference: PlannedDifference, *, yes: bool
) -> None:
    """This user's answer; ApprovalNeeded, with the way on, where it is missing or not enough."""
    id = decision.simulation
    try:
        require_approval(screen, decision, plan_id, "Apply exactly this?", difference, yes=yes)
        hf.approve(decision)
        if decision.approvals_needed > 1:
            raise ApprovalNeeded(f"approved by you; {decision.approvals_needed} people must approve this")
    except ApprovalNeeded as error:
        if _is_for_others(screen, decision, yes=yes):
            one = not decision.typed_consent and decision.approvals_needed == 1
            others = hf.pipeline.governance.others_to_ask(decision)
            way = way_to_approve(decision, plan_id, others)
            if one and not others:
                way = f"Give it in this call with --yes, or a{way[1:]}"
            error.hint = f"Nothing was changed. {way}, then: holdfast execute {id}"
        raise


def tell_plan(screen: Screen, plan: Plan, simulated: Simulated, difference: PlannedDifference) -> None:
    screen.event(
        "simulation",
        plan_id=plan.id,
        intent=plan.intent,
        changes=len(simulated.change_set.changes),
        change_set_digest=simulated.change_set.digest,
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
    tell_report(screen, simulated.report)
    steps = count(len(simulated.steps), "step")
    where = f" in a shadow ({simulated.report.shadow})" if simulated.report.shadow else ""
    changes = count(len(simulated.change_set.changes), "change")
    screen.say(f"Rehearsed{where}: {steps}, {changes}; nothing has changed yet.")


def _already(screen: Screen, hf: Holdfast, row: Row) -> None:
    screen.answer({**execution_document(*hf.show(row.id)), "already_applied": True})
    screen.say(f"Already applied as {row.id}; nothing to do.")


def _nothing_to_do(screen: Screen, plan: Plan) -> None:
    commands = [shlex.join(step.argv) for step in plan.steps if isinstance(step, Run)]
    # What it was to do, only the command knows: that nothing changed does not say that all is as it should be.
    why = "The command changed nothing" if commands else "The workspace is already as the plan wants it"
    screen.answer({"kind": "simulation", "id": plan.id, "status": "UNCHANGED", "because": why, "changes": []})
    if commands:
        screen.say(f"{why}, so there is nothing to apply: {shown('; '.join(commands))}")
    else:
        screen.say(f"{why}; nothing to do.")


def _previewed(screen: Screen, plan: Plan, simulated: Simulated) -> None:
    changes = [change_document(change) for change in simulated.change_set.changes if screen.form != "text"]
    report = simulated.report
    status = "REHEARSED" if report.status == "SUCCESS" else report.status
    document = {"intent": plan.intent, "plan_digest": plan.digest, "change_set_digest": simulated.change_set.digest,
                "notes": list(plan.notes), "dangers": list(report.dangers)}  # fmt: skip
    screen.answer({"kind": "simulation", "id": plan.id, "status": status, **document, "changes": changes})
    if plan.agent:
        screen.say("Preview only: nothing was changed. What the agent did was checked; before it lands it is again.")
    else:
        screen.say("Preview only: nothing was changed, and no check was run.")
