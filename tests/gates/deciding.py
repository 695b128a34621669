"""Decisions and approvals for the cases about them; what a case does not mention is sound."""

from __future__ import annotations

from gates.building import Case
from holdfast.gates.approvals import Office, Standing, standing
from holdfast.model.approval import Approval
from holdfast.model.decision import Decision
from holdfast.model.simulation import Simulation

NOW = 100
KEYS = {"alice": "aa", "bob": "bb"}


def decision_of(case: Case, report: Simulation, policy: str = "9" * 64) -> Decision:
    return Decision(
        simulation=report.id,
        simulation_digest=report.digest,
        plan_digest=report.plan_digest,
        change_set=report.change_set,
        base=report.base,
        policy=policy,
        gate_version=1,
        author=case.get("author", "person"),
        risk_proposed="low",
        risk_effective=case.get("risk", "medium"),
        verdict=case.get("verdict", "NEED_APPROVAL"),
        reasons=(),
        approvals_needed=case.get("needed", 1),
        typed_consent=False,
    )


def approvals_of(case: Case, decision: Decision) -> list[Approval]:
    return [_approval(row, decision, number) for number, row in enumerate(case.get("approvals", [{}]), 1)]


def _approval(row: Case, decision: Decision, number: int) -> Approval:
    name = row.get("by", "alice")
    return Approval(
        id=f"a-{number}",
        answer=row.get("answer", "approve"),
        by=name,
        key=row.get("key", KEYS.get(name, "ff")),
        simulation=row.get("simulation", decision.simulation),
        simulation_digest=row.get("simulation_digest", decision.simulation_digest),
        plan=row.get("plan", decision.plan_digest),
        change_set=row.get("change_set", decision.change_set),
        base=row.get("base", decision.base),
        policy=row.get("policy", decision.policy),
        issued_ns=row.get("issued", 10),
        expires_ns=row.get("expires", 200),
        reason=row.get("reason", ""),
        signature=row.get("signature", "good"),
    )


def office_of(case: Case) -> Office:
    return Office(
        approvers=case.get("approvers", KEYS),
        now_ns=NOW,
        used=frozenset(case.get("used", [])),
        agents=frozenset(case.get("agents", [])),
        made_by=case.get("made_by", ""),
        longest_ns=case.get("longest", 0),
        people=case.get("wanted", 1),
    )


def is_genuine(approval: Approval) -> bool:
    """Stands for the store's verifier, which is the caller's business."""
    return approval.signature == "good"


def standing_of(case: Case, decision: Decision) -> Standing:
    return standing(decision, approvals_of(case, decision), office_of(case), is_genuine)
