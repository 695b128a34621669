"""The five hard gates, case by case: every way to cheat between simulation and execution, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gates.building import Case, cases_in, evidence_of, image
from gates.deciding import decision_of, standing_of
from holdfast.gates.hard import HARD_GATES, Current, Question, hard_gates, refusal
from holdfast.model.changeset import change_set

CASES = dict(cases_in("hard"))
Tamper = Callable[[Question], Question]


def question_of(case: Case) -> Question:
    """A sound question, and then everything the case does to it."""
    evidence = evidence_of({"changes": [{"edit": "a"}, {"link": "b", "to": "a"}], "reads": ["c"]})
    report, changes = evidence.simulation, evidence.change_set
    decision = decision_of(case, report)
    question = Question(
        report=report,
        plan=evidence.plan,
        change_set=changes,
        decision=decision,
        standing=standing_of(case, decision),
        current=Current(
            change_set=changes.digest,
            base=changes.base,
            base_tree=report.base_tree,
            policy=decision.policy,
            report=report.digest,
            decision=decision.digest,
        ),
    )
    for word in case.get("tamper", []):
        question = TAMPERING[word](question)
    return question


def _now(**fields: object) -> Tamper:
    return lambda question: question._replace(current=question.current._replace(**fields))


def _report(**fields: object) -> Tamper:
    """Another report, with a record and a decision that fit it: what is left is the report's own content."""

    def tamper(question: Question) -> Question:
        assert question.report is not None
        assert question.decision is not None
        assert question.standing is not None
        report = replace(question.report, **fields)
        decision = replace(question.decision, simulation=report.id, simulation_digest=report.digest)
        return question._replace(
            report=report,
            decision=decision,
            standing=question.standing._replace(decision=decision.digest),
            current=question.current._replace(report=report.digest, decision=decision.digest),
        )

    return tamper


def _edited_report(question: Question) -> Question:
    assert question.report is not None
    return question._replace(report=replace(question.report, enforced=("network",)))


def _edited_record(question: Question) -> Question:
    assert question.report is not None
    return _now(report=question.report.digest)(question)


def _later_report(question: Question) -> Question:
    assert question.report is not None
    return question._replace(report=replace(question.report, at_ns=2))


def _edited_plan(question: Question) -> Question:
    return question._replace(plan=replace(question.plan, intent="something else"))


def _swapped_plan(question: Question) -> Question:
    """The report's plan id is edited to the new plan's, as if ids were proof."""
    other = replace(question.plan, intent="something else")
    return _report(plan_id=other.id)(question)._replace(plan=other)


def _report_of_another_plan(question: Question) -> Question:
    other = replace(question.plan, intent="something else")
    assert question.report is not None
    return question._replace(report=replace(question.report, plan_id=other.id, plan_digest=other.digest))


def _edited_change_set(question: Question) -> Question:
    first, *rest = question.change_set.changes
    changes = (first._replace(post=image("evil")), *rest)
    return question._replace(change_set=question.change_set._replace(changes=changes))


def _resealed_change_set(question: Question) -> Question:
    return question._replace(change_set=change_set(_edited_change_set(question).change_set.changes))


def _contradictory(question: Question) -> Question:
    return question._replace(change_set=question.change_set._replace(changes=question.change_set.changes * 2))


def _edited_verdict(question: Question) -> Question:
    """DENY becomes ALLOW in the stored decision; the standing was counted for the true one."""
    assert question.decision is not None
    return question._replace(decision=replace(question.decision, verdict="ALLOW"))


def _swapped_symlink(question: Question) -> Question:
    """What stands on the disk now, where a file stood: a link to somewhere else."""
    link = image(kind="symlink", mode=0o777, target="/etc/shadow")
    now = [change._replace(pre=link) if change.path == "a" else change for change in question.change_set.changes]
    return _now(base=change_set(now, question.change_set.reads).base)(question)


def _other_standing(question: Question) -> Question:
    assert question.standing is not None
    return question._replace(standing=question.standing._replace(decision="0" * 64))


TAMPERING: dict[str, Tamper] = {
    "no report": lambda question: question._replace(report=None),
    "no decision": lambda question: question._replace(decision=None, standing=None),
    "blocked": _report(status="BLOCKED"),
    "unsafe": _report(status="UNSAFE"),
    "dangers": _report(dangers=("a device was made",)),
    "standing of another decision": _other_standing,
    "edit plan": _edited_plan,
    "swap plan under its id": _swapped_plan,
    "report of another plan": _report_of_another_plan,
    "edit change set": _edited_change_set,
    "edit and seal change set": _resealed_change_set,
    "other staged bytes": _now(change_set="0" * 64),
    "contradictory change set": _contradictory,
    "edit report": _edited_report,
    "edit record of report": _edited_record,
    "report from another time": _later_report,
    "edit verdict": _edited_verdict,
    "edit policy": _now(policy="0" * 64),
    "move base": _now(base="0" * 64),
    "swap symlink": _swapped_symlink,
    "move tree": _now(base_tree="0" * 64),
    "strict": _now(strict_base=True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_hard_gates_hold(name: str) -> None:
    """Exactly the gates that the case names fail, each with a reason, and the command ends as design says."""
    case = CASES[name]
    results = hard_gates(question_of(case))
    assert [result.name for result in results] == list(HARD_GATES)
    failed = [result for result in results if not result.passed]
    assert [result.name for result in failed] == case.get("failed", [])
    assert all(result.reason and result.error for result in failed)
    error = refusal(results)
    assert (type(error).__name__ if error is not None else None) == case["error"]
    if error is not None:
        assert all(result.reason in error.message for result in failed)
        assert error.changed is False


def test_every_gate_is_seen_to_open_and_to_close() -> None:
    """Each hard gate has a case in which it alone is shut or shut with others, and one in which all are open."""
    shut = {gate for case in CASES.values() for gate in case.get("failed", [])}
    assert shut == set(HARD_GATES)
    assert any(not case.get("failed") for case in CASES.values())


def test_every_way_of_tampering_is_used() -> None:
    """No way of tampering is written down and never tried."""
    assert {word for case in CASES.values() for word in case.get("tamper", [])} == set(TAMPERING)


def test_gates_that_were_not_evaluated_are_shut() -> None:
    """A list of results with a gate missing is refused, though all that is in it has passed."""
    results = hard_gates(question_of({}))
    assert refusal(results) is None
    assert [refusal(results[:n]) is not None for n in range(5)] == [True] * 5
