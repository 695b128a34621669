"""Approvals, case by case. A new case is a few lines in `cases/approvals/`."""

from __future__ import annotations

from itertools import permutations

import pytest

from gates.building import cases_in, evidence_of
from gates.deciding import approvals_of, decision_of, is_genuine, office_of, standing_of
from holdfast.gates.approvals import APPROVAL_RULES, SIGNATURE_RULE, standing

CASES = dict(cases_in("approvals"))
REPORT = evidence_of({}).simulation
GIVEN = {"approvals", "approvers", "used", "agents", "made_by", "longest", "author", "risk", "verdict", "needed",
         "wanted"}  # fmt: skip
EXPECTED = {"case", "granted", "rejected", "people", "broken"}


@pytest.mark.parametrize("name", CASES)
def test_approvals_are_worth(name: str) -> None:
    """Granted or rejected, by how many people, and which rules each answer breaks: all is as the case says."""
    case = CASES[name]
    assert set(case) - GIVEN - EXPECTED == set()
    found = standing_of(case, decision_of(case, REPORT))
    assert found.granted == case["granted"]
    assert found.rejected == case.get("rejected", False)
    assert found.people == case.get("people", found.people)
    assert found.reason
    broken = {judged.id: list(judged.broken) for judged in found.judged}
    assert {key: broken[key] for key in case.get("broken", {})} == case.get("broken", {})


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_answers_does_not_matter(name: str) -> None:
    """Answers in any order are worth the same."""
    case = CASES[name]
    decision = decision_of(case, REPORT)
    results = {
        standing(decision, answers, office_of(case), is_genuine)
        for answers in permutations(approvals_of(case, decision))
    }
    assert len(results) == 1


def test_every_approval_rule_is_seen_to_hold_and_to_break() -> None:
    """Each rule, and the signature, has a case in which an approval breaks it and one in which an approval counts."""
    names = {rule.name for rule in APPROVAL_RULES} | {SIGNATURE_RULE}
    broken = {rule for case in CASES.values() for rules in case.get("broken", {}).values() for rule in rules}
    assert names - broken == set()
    assert any(case["granted"] for case in CASES.values())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.get("broken")])
def test_a_rule_that_does_not_hold_is_not_told_as_if_it_did(name: str) -> None:
    """Rules are named by what must hold; a reason that names one says that it is broken."""
    reason = standing_of(CASES[name], decision_of(CASES[name], REPORT)).reason
    names = [rule for rule in (SIGNATURE_RULE, *(rule.name for rule in APPROVAL_RULES)) if rule in reason]
    assert all(f'since it breaks the rule "{rule}"' in reason for rule in names)


def test_a_stale_approval_is_told_as_stale() -> None:
    """The person reads which rule it breaks."""
    decision = decision_of({}, REPORT)
    answers = approvals_of({"approvals": [{}]}, decision)
    reason = standing(decision, answers, office_of({}), lambda approval: False).reason
    assert reason.endswith(f'does not count, since it breaks the rule "{SIGNATURE_RULE}"')


def test_a_verifier_that_fails_counts_nothing() -> None:
    """Where no signature verifies, nothing is granted and nothing is rejected."""
    decision = decision_of({}, REPORT)
    answers = approvals_of({"approvals": [{}, {"answer": "reject"}]}, decision)
    found = standing(decision, answers, office_of({}), lambda approval: False)
    assert (found.granted, found.rejected, found.people) == (False, False, 0)


def test_one_name_in_two_spellings_is_one_person() -> None:
    """Who approves twice, with another key and a name that only looks the same, is counted once."""
    twin = " ali\u3164ce"
    case = {"approvers": {"alice": "aa", twin: "cc"}, "approvals": [{"by": "alice"}, {"by": twin, "key": "cc"}],
            "needed": 2, "wanted": 2}  # fmt: skip
    assert standing_of(case, decision_of(case, REPORT)).people == 1
