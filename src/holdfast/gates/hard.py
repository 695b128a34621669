"""The five hard gates: what must hold, in the same breath, before one byte of the workspace is changed.

    1  The report exists                      else Blocked
    2  The rehearsal succeeded                else Blocked
    3  The change is approved                 else ApprovalNeeded; Denied by policy; Blocked where a person said no
    4  The report is about this plan          else Blocked
    5  Everything is what was simulated       else Conflict when only the base moved; otherwise Blocked

Invariants
  F1  All five are always evaluated, and all failures are listed; none hides behind another.
  F2  Only digests are compared, and they are computed now: names, ids and times prove nothing.
  F3  What cannot be judged has failed.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import ApprovalNeeded, Blocked, Conflict, Denied, HoldfastError
from holdfast.gates.approvals import Standing
from holdfast.model.changeset import ChangeSet, change_set
from holdfast.model.decision import Decision
from holdfast.model.plan import Plan
from holdfast.model.simulation import Simulation


class Current(NamedTuple):
    """What is true now: digests taken from the disk, the records and the policy in force."""

    change_set: str  # of what is staged and would be applied
    base: str
    base_tree: str
    policy: str
    report: str  # as the ledger recorded it when the plan was simulated
    decision: str  # as the ledger recorded it when the gate decided
    strict_base: bool = False


class GateResult(NamedTuple):
    name: str
    passed: bool
    reason: str
    error: type[HoldfastError] | None = None


class Question(NamedTuple):
    """May this plan's change set be applied, on the strength of this report, decision and standing?"""

    report: Simulation | None
    plan: Plan
    change_set: ChangeSet
    decision: Decision | None
    standing: Standing | None
    current: Current


REPORT_EXISTS = "The report exists"
REHEARSAL_SUCCEEDED = "The rehearsal succeeded"
APPROVED = "The change is approved"
SAME_PLAN = "The report is about this plan"
SAME_DIGESTS = "Everything is what was simulated"
HARD_GATES = (REPORT_EXISTS, REHEARSAL_SUCCEEDED, APPROVED, SAME_PLAN, SAME_DIGESTS)
# Which error ends the command when several gates fail: the approval alone is 3, the moved base 8, all else 5.
_GRAVITY: tuple[type[HoldfastError], ...] = (ApprovalNeeded, Conflict, Denied, Blocked)


def hard_gates(question: Question) -> tuple[GateResult, ...]:
    """All five, always (F1)."""
    return (
        _report_exists(question),
        _rehearsal_succeeded(question),
        _approved(question),
        _same_plan(question),
        _same_digests(question),
    )


def refusal(results: tuple[GateResult, ...]) -> HoldfastError | None:
    """The error to raise, with every reason in it; None when all gates are open."""
    failed = [result for result in results if not result.passed]
    if not failed and {result.name for result in results} >= set(HARD_GATES):
        return None
    kinds = [result.error or Blocked for result in failed] or [Blocked]
    message = "; ".join(result.reason for result in failed) or "not every hard gate was evaluated"
    return max(kinds, key=_GRAVITY.index)(message)


def _report_exists(question: Question) -> GateResult:
    if question.report is None:
        return GateResult(REPORT_EXISTS, False, "there is no report of a simulation", Blocked)
    return _passed(REPORT_EXISTS)


def _rehearsal_succeeded(question: Question) -> GateResult:
    report = question.report
    if report is None:
        return GateResult(REHEARSAL_SUCCEEDED, False, "nothing was rehearsed", Blocked)
    if report.status != "SUCCESS" or report.dangers:
        what = report.status if report.status != "SUCCESS" else "SUCCESS, with dangers"
        return GateResult(REHEARSAL_SUCCEEDED, False, f"the rehearsal ended as {what}", Blocked)
    return _passed(REHEARSAL_SUCCEEDED)


def _approved(question: Question) -> GateResult:
    decision, standing = question.decision, question.standing
    if decision is None or standing is None:
        return GateResult(APPROVED, False, "the write gate has not decided", ApprovalNeeded)
    if standing.decision != decision.digest:
        return GateResult(APPROVED, False, "the approvals were counted for another decision", Blocked)
    if standing.rejected:
        return GateResult(APPROVED, False, standing.reason, Blocked)
    if decision.verdict == "DENY":
        return GateResult(APPROVED, False, standing.reason, Denied)
    if not standing.granted:
        return GateResult(APPROVED, False, standing.reason, ApprovalNeeded)
    return _passed(APPROVED)


def _same_plan(question: Question) -> GateResult:
    report, plan = question.report, question.plan
    if report is None:
        return GateResult(SAME_PLAN, False, "there is no report that could be about this plan", Blocked)
    if report.plan_digest != plan.digest or report.plan_id != plan.id:
        return GateResult(SAME_PLAN, False, "the plan is not the one that was simulated", Blocked)
    if question.decision is not None and question.decision.plan_digest != plan.digest:
        return GateResult(SAME_PLAN, False, "the plan is not the one that was decided on", Blocked)
    return _passed(SAME_PLAN)


def _same_digests(question: Question) -> GateResult:
    edited = _edited(question)
    moved = _moved(question)
    if edited:
        return GateResult(SAME_DIGESTS, False, ", ".join([*edited, *moved]), Blocked)
    if moved:
        return GateResult(SAME_DIGESTS, False, ", ".join(moved), Conflict)
    return _passed(SAME_DIGESTS)


def _edited(question: Question) -> list[str]:
    """Everything that somebody must have changed; the world does not change these by itself."""
    report, decision, now = question.report, question.decision, question.current
    if report is None or decision is None:
        return ["there is no report or no decision to compare with"]
    sealed = _sealed(question.change_set)
    checks = (
        ("the report was edited", report.digest == now.report),
        ("the decision was edited", decision.digest == now.decision),
        ("the decision is about another report", decision.simulation_digest == report.digest),
        ("the decision is about another report", decision.simulation == report.id),
        ("the change set was edited", sealed == report.change_set == decision.change_set == now.change_set),
        ("the report and the decision stand on different bases", report.base == decision.base),
        ("the policy changed since the decision", decision.policy == now.policy),
    )
    return list(dict.fromkeys(sentence for sentence, holds in checks if not holds))


def _moved(question: Question) -> list[str]:
    report, now = question.report, question.current
    if report is None:
        return []
    found = []
    if now.base != report.base:
        found.append("the workspace is not what was simulated: a touched or read path changed")
    if now.strict_base and now.base_tree != report.base_tree:
        found.append("the workspace is not what was simulated: something in the tree changed")
    return found


def _sealed(changes: ChangeSet) -> str:
    """The digest computed anew; empty when the changes contradict each other (F3)."""
    try:
        return change_set(changes.changes, changes.reads).digest
    except ValueError:
        return ""


def _passed(name: str) -> GateResult:
    return GateResult(name, True, "")
