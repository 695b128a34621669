"""The write gate, case by case. A new case is a few lines in `cases/write_gate/`."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gates.building import Case, cases_in, evidence_of, policy_of
from holdfast.gates.case import case_of
from holdfast.gates.default_policy import BUILT_IN
from holdfast.gates.layers import layered
from holdfast.gates.write_gate import FACT_RULES, GATE_VERSION, decide
from holdfast.model.changeset import change_set
from holdfast.model.decision import Decision

CASES = dict(cases_in("write_gate"))
EXPECTATIONS = {"case", "verdict", "risk", "needed", "typed", "says", "silent"}
GIVEN = {"changes", "reads", "plan", "report", "receipts", "author", "policy", "approvers", "others", "root", "forged",
         "links", "tree_files", "base_tests", "unmet"}  # fmt: skip
BUILT_IN_RULES = [rule.name for rule in layered().rules]


def decided(case: Case) -> Decision:
    return decide(evidence_of(case), policy_of(case), case.get("approvers", 2), case.get("others"))


@pytest.mark.parametrize("name", CASES)
def test_a_plain_edit_is_nothing_to_a_rule_about_objects(name: str) -> None:
    """Whatever the case, the rules say the same when they are asked about every deed, and not about odd ones alone."""
    case = case_of(evidence_of(CASES[name]), policy_of(CASES[name]))
    every = case._replace(odd=case.deeds)
    for rule in FACT_RULES:
        assert list(rule.judge(case)) == list(rule.judge(every)), rule.name


@pytest.mark.parametrize("name", CASES)
def test_the_gate_decides(name: str) -> None:
    """The verdict, the effective risk, the number of people and the rules that speak are those the case names."""
    case = CASES[name]
    decision = decided(case)
    rules = {reason.rule for reason in decision.reasons}
    seen = {
        "verdict": decision.verdict,
        "risk": decision.risk_effective,
        "needed": decision.approvals_needed,
        "typed": decision.typed_consent,
    }
    assert {key: seen[key] for key in seen if key in case} == {key: case[key] for key in seen if key in case}
    assert set(case.get("says", [])) - rules == set()
    assert set(case.get("silent", [])) & rules == set()


@pytest.mark.parametrize("name", CASES)
def test_no_case_holds_a_word_that_nobody_reads(name: str) -> None:
    """A misspelt word in a case would make it pass without testing anything."""
    assert set(CASES[name]) - EXPECTATIONS - GIVEN == set()
    assert "verdict" in CASES[name]


def test_every_rule_is_seen_to_speak_and_to_keep_quiet() -> None:
    """Each rule of the gate, built in or about facts, has a case in which it objects and one in which it does not."""
    names = {rule.name for rule in FACT_RULES} | set(BUILT_IN_RULES)
    spoke = {rule for case in CASES.values() if case["verdict"] != "ALLOW" for rule in case.get("says", [])}
    kept_quiet = {rule for case in CASES.values() for rule in case.get("silent", [])}
    assert names - spoke == set()
    assert names - kept_quiet == set()


def test_there_are_enough_cases() -> None:
    """The case files were found and read."""
    assert len(CASES) > 120


def test_a_decision_names_what_it_rests_on() -> None:
    """A decision carries the digests of report, plan, change set, base and policy, the author and the version."""
    case: Case = {"author": "claude", "instructions": [["b/AGENTS.md", "2"], ["CLAUDE.md", "1"]]}
    evidence, policy = evidence_of(case), policy_of(case)
    decision = decide(evidence, policy, 2)
    assert decision.simulation == evidence.simulation.id
    assert decision.simulation_digest == evidence.simulation.digest
    assert decision.plan_digest == evidence.plan.digest
    assert (decision.change_set, decision.base) == (evidence.change_set.digest, evidence.change_set.base)
    assert (decision.policy, decision.gate_version, decision.author) == (policy.digest, GATE_VERSION, "claude")
    assert decision.instructions == (("CLAUDE.md", "1"), ("b/AGENTS.md", "2"))


@pytest.mark.parametrize("name", CASES)
def test_the_same_inputs_give_the_same_decision(name: str) -> None:
    """Deciding again, from nouns built anew, gives an equal decision with the same digest."""
    first, second = decided(CASES[name]), decided(CASES[name])
    assert first == second
    assert first.digest == second.digest


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_things_does_not_matter(name: str) -> None:
    """Changes, texts and receipts in any order give the same decision."""
    evidence, policy = evidence_of(CASES[name]), policy_of(CASES[name])
    shuffle = random.Random(name).sample
    changes = evidence.change_set.changes
    other = replace(
        evidence,
        change_set=evidence.change_set._replace(changes=tuple(shuffle(changes, len(changes)))),
        texts=tuple(shuffle(evidence.texts, len(evidence.texts))),
    )
    assert decide(other, policy, 2) == decide(evidence, policy, 2)


def test_the_gravest_reason_comes_first() -> None:
    """Reasons are ordered by verdict, then by risk, then by the order of the rules."""
    case: Case = {"changes": [{"delete": "a"}, {"create": ".bashrc"}, {"edit": ".holdfast/x"}], "receipts": []}
    rules = [reason.rule for reason in decided(case).reasons]
    assert rules == [
        "Forbids Holdfast's and git's own state",
        "Reviews start-up files of shells and tools",
        "Reviews deletions",
        "Asks where nothing was verified",
    ]


def test_a_reason_with_many_paths_is_bounded() -> None:
    """A reason about 500 paths shows twenty and says how many there are."""
    decision = decided({"changes": [{"delete": "old/#", "many": 500}]})
    reason = next(reason for reason in decision.reasons if reason.rule == "Reviews deletions")
    assert len(reason.paths) == 20
    assert "500 paths" in reason.detail


def test_twenty_thousand_files_are_admitted() -> None:
    """The built-in limits let a change of 20,000 files pass, and not one more."""
    rows = [{"edit": "src/#.py", "many": 20_000}]
    assert decided({"changes": rows}).verdict == "ALLOW"
    assert decided({"changes": [*rows, {"edit": "one/more"}]}).verdict == "DENY"


def test_the_built_in_policy_states_everything() -> None:
    """No scalar of the built-in policy is left to chance: each key of the grammar stands in it."""
    assert set(BUILT_IN) >= {"low_risk", "without_verification", "without_health", "secrets", "people_from", "people"}
    assert set(BUILT_IN) >= {"strict_base", "approval_lifetime", "limits", "rules"}
    scalars = layered().scalars
    assert (scalars.low_risk, scalars.without_verification, scalars.without_health) == ("allow", "ask", "ask")
    assert (scalars.people_from, scalars.people, scalars.limits.files) == ("high", 2, 20_000)


def test_a_secret_never_reaches_the_decision() -> None:
    """The reason names the kind and the file of a secret; its value stands nowhere in the decision."""
    value = "R2d8sK1mQ9vX4tZ7bN3cW6yL0pJ5hG8fUaEo"
    decision = decided({"changes": [{"edit": "src/a.py", "secret": ["ghp_", value]}]})
    assert "GitHub token in src/a.py" in str(decision.document())
    assert value[4:] not in str(decision.document())


def test_a_change_set_that_contradicts_itself_is_denied() -> None:
    """Two changes for one path, sealed by hand, are no change set; the gate denies instead of stumbling."""
    evidence = evidence_of({})
    twice = evidence.change_set.changes * 2
    assert (
        decide(replace(evidence, change_set=evidence.change_set._replace(changes=twice)), layered(), 1).verdict
        == "DENY"
    )
    assert change_set(evidence.change_set.changes) == evidence.change_set
