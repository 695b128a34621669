"""The write gate: one verdict on one change set, from an ordered list of rules. It judges and never executes.

    evidence + policy ─▶ path rules ─┐
                      ─▶ fact rules ─┴▶ reasons ─▶ the strictest verdict, the highest risk

Invariants
  Z1  The same evidence and policy give the same decision, in the same words and order, whatever order things came in.
  Z2  The verdict is the strictest of all reasons, the risk the highest. No reason lowers anything.
  Z3  From medium on a reason asks, unless rules of the root layer allow all that happens to that very path;
      such a rule silences built-in path rules that ask, for that path: no denial, no fact rule, no other layer's rule.
  Z4  The proposed risk raises and never lowers.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.gates.approvals import Electorate, people_needed
from holdfast.gates.case import MOST_PATHS, Case, Said, at_least, case_of, path_bytes
from holdfast.gates.change_rules import CHANGE_RULES
from holdfast.gates.evidence import Evidence
from holdfast.gates.policy import Policy, Rule
from holdfast.gates.report_rules import REPORT_RULES
from holdfast.model.decision import VERDICTS, Decision, Reason, Verdict
from holdfast.model.path import printable
from holdfast.model.plan import RISKS, Risk
from holdfast.model.words import counted

GATE_VERSION = 3
FACT_RULES = (*REPORT_RULES, *CHANGE_RULES)


def decide(evidence: Evidence, policy: Policy, approvers: int, others: int | None = None) -> Decision:
    """The decision; `approvers` is how many people are configured who could approve.

    `others` are those of them who did not make the change; all, unless told.
    """
    case = case_of(evidence, policy)
    reasons = tuple(sorted([*_of_facts(case), *_of_paths(case)], key=_weight))
    verdict: Verdict = max((reason.verdict for reason in reasons), key=VERDICTS.index, default="ALLOW")
    risk: Risk = max((reason.risk for reason in reasons), key=RISKS.index, default="low")
    asks = verdict == "NEED_APPROVAL"
    report = evidence.simulation
    people = policy.scalars.people, policy.scalars.people_from
    electorate = Electorate(approvers, approvers if others is None else others)
    return Decision(
        simulation=report.id,
        simulation_digest=report.digest,
        plan_digest=evidence.plan.digest,
        change_set=evidence.change_set.digest,
        base=evidence.change_set.base,
        policy=policy.digest,
        gate_version=GATE_VERSION,
        author=evidence.author,
        risk_proposed=evidence.plan.risk,
        risk_effective=risk,
        verdict=verdict,
        reasons=reasons,
        approvals_needed=people_needed(*people, risk, electorate) if asks else 0,
        typed_consent=asks and at_least(risk, "high"),
        instructions=tuple(sorted(evidence.instructions)),
    )


def _weight(reason: Reason) -> tuple[int, int]:
    """The gravest first; the sort is stable, so equal ones stay in the order of the rules."""
    return -VERDICTS.index(reason.verdict), -RISKS.index(reason.risk)


def _of_facts(case: Case) -> Iterator[Reason]:
    for rule in FACT_RULES:
        for said in rule.judge(case):
            yield _reason(rule.name, said)


def _of_paths(case: Case) -> Iterator[Reason]:
    paths: dict[int, list[str]] = {}
    for deed in case.deeds:
        for number in deed.rules:
            if not (deed.excused and _is_silenced(case.policy.rules[number])):
                paths.setdefault(number, []).append(deed.change.path)
        for number, name in deed.by_link:
            if name not in paths.setdefault(number, []):
                paths[number].append(name)
    for number in sorted(paths):
        rule = case.policy.rules[number]
        verdict = rule.verdict or _by_risk(rule.risk)
        if rule.verdict is not None or verdict != "ALLOW":
            yield _reason(rule.name, Said(verdict, rule.risk, rule.why, tuple(paths[number]), rule.layer))


def _is_silenced(rule: Rule) -> bool:
    return rule.layer == "built-in" and rule.verdict != "DENY"


def _by_risk(risk: Risk) -> Verdict:
    return "NEED_APPROVAL" if at_least(risk, "medium") else "ALLOW"


def _reason(name: str, said: Said) -> Reason:
    """Paths sorted and bounded; what is cut is counted in the sentence (Z1)."""
    paths = sorted(said.paths, key=path_bytes)
    about = ""
    if len(paths) > MOST_PATHS:
        about = f"{counted(len(paths), 'path')}, {MOST_PATHS} shown"
    detail = "; ".join(part for part in (printable(said.detail), about) if part)
    return Reason(name, said.layer, said.verdict, said.risk, tuple(paths[:MOST_PATHS]), detail)
