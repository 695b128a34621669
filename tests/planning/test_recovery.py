"""What an attempt came to, and what is done next: both tables are data, a new case is a new entry."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.errors import AgentFailed, Conflict, HoldfastError
from holdfast.model.fix import CATEGORIES, Failure
from holdfast.model.run import ADAPTIVES, RECOVERY_APPROVALS, OnTaskFailure
from holdfast.model.task import MOVES, STRATEGIES, Strategy, Task, Tried
from holdfast.planning.recovery import (
    CODES,
    LADDERS,
    Choice,
    Diagnosis,
    Means,
    RecoveryPolicy,
    Seen,
    diagnosis_of,
    means_of,
    misplaced,
    seen_in,
    strategy_for,
)

TABLES: dict[str, list[dict[str, Any]]] = tomllib.loads((Path(__file__).parent / "recoveries.toml").read_text("utf-8"))
TEST = Diagnosis("test", "it failed", "1 failed")


def seen_of(case: dict[str, Any]) -> Seen:
    fields = {name: case[name] for name in Seen._fields if name in case}
    failures = tuple(Failure(category, "") for category in case.get("failures", ()))
    lists = {name: tuple(case.get(name, ())) for name in ("missing", "changed")}
    return Seen(**{**fields, **lists, "failures": failures})


@pytest.mark.parametrize("case", TABLES["seen"], ids=lambda case: f"{case['code']}-{case['category']}")
def test_an_attempt_is_diagnosed_as_its_case_says(case: dict[str, Any]) -> None:
    """The category, whether another attempt is an answer, and why, in words."""
    diagnosis = diagnosis_of(seen_of(case))
    assert (diagnosis.category, diagnosis.final) == (case["category"], case.get("final", False))
    assert case.get("because", "") in diagnosis.because and diagnosis.because
    assert diagnosis_of(seen_of(case)).category == case["category"]


def all_errors(base: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from all_errors(kind)


def test_every_error_has_its_row_and_its_case() -> None:
    """A new kind of error cannot be retried by accident."""
    assert {kind.code for kind in all_errors()} == set(CODES)
    assert {case["code"] for case in TABLES["seen"]} >= set(CODES)


def test_every_category_is_found_and_has_a_ladder() -> None:
    """No class of failure is a word only."""
    assert {case["category"] for case in TABLES["seen"]} == set(CATEGORIES)
    assert set(LADDERS) == set(CATEGORIES)


def test_an_error_is_seen_with_what_it_says() -> None:
    """Code, message, and whether the agent ails or the workspace was changed come from the error itself."""
    assert seen_in(AgentFailed("no key", ill=True)) == Seen("agent_failed", "no key", ill=True, evidence="no key")
    assert not seen_in(AgentFailed("no tests")).ill
    assert diagnosis_of(seen_in(Conflict("moved", changed=True))).final


def test_what_was_made_elsewhere_is_told() -> None:
    """The evidence names both places; where the words say so already, nothing is said twice."""
    missing = Seen("agent_failed", missing=("shop/a/slug.py",), changed=("shop/slug.py",), evidence="not there")
    assert diagnosis_of(missing).evidence == "not there\nshop/a/slug.py was asked for, and shop/slug.py was made."
    told = diagnosis_of(missing).evidence
    assert diagnosis_of(missing._replace(evidence=told)).evidence == told


def choices(row: dict[str, Any]) -> Iterator[Choice]:
    """One failure after the other, each followed by what was decided; the agent changes when the choice says so."""
    policy = RecoveryPolicy(row.get("mode", "auto"), attempts=row.get("attempts", 10))
    means = Means(row.get("parts", 0), tuple(row.get("agents", ())), row.get("optional", False))
    tried: list[Tried] = []
    agent = next(iter(means.agents), "one")
    for number, category in enumerate(row["failures"], start=1):
        evidence = "always so" if row.get("same") else "x" * number
        choice = strategy_for(Diagnosis(category, evidence, evidence, agent=agent), tried, policy, means)
        tried.append(Tried(number, category, evidence, choice.strategy, agent))
        agent = choice.agent or agent
        yield choice


@pytest.mark.parametrize("row", TABLES["row"], ids=[row["name"] for row in TABLES["row"]])
def test_failures_in_a_row_are_answered_so(row: dict[str, Any]) -> None:
    """The strategies, one after the other, which agent takes it, and where the task stands at the end."""
    made = list(choices(row))
    assert [choice.strategy for choice in made] == row["strategies"]
    assert [choice.agent for choice in made] == row.get("takes", [""] * len(made))
    assert made[-1].state == row.get("ends", made[-1].state)
    assert all(category in choice.reason for category, choice in zip(row["failures"], made, strict=True))


def test_every_strategy_is_reached_from_somewhere() -> None:
    """No strategy is a word only; nor is there a category without a row."""
    assert {choice.strategy for row in TABLES["row"] for choice in choices(row)} == set(STRATEGIES)
    assert {category for row in TABLES["row"] for category in row["failures"]} == set(CATEGORIES)


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_gate_is_never_tried_around(category: Any) -> None:
    """What is final goes to a person at once, with all attempts and agents left, also when the task is optional."""
    means = Means(5, ("one", "two"), optional=True)
    choice = strategy_for(Diagnosis(category, "denied", final=True), (), RecoveryPolicy(attempts=99), means)
    assert (choice.strategy, choice.state, choice.wait_ms) == ("escalate", "NEEDS_REVIEW", 0)


# mode, approval, what is chosen, whether a person is asked
ASKING: list[tuple[Any, Any, Strategy, bool]] = [
    ("auto", "auto", "retry with context", False),
    ("auto", "log", "retry with context", False),
    ("auto", "ask", "retry with context", True),
    ("auto", "ask for decompose", "retry with context", False),
    ("auto", "ask for decompose", "decompose", True),
    ("auto", "auto", "decompose", False),
    ("suggest", "auto", "retry with context", True),
    ("suggest", "log", "decompose", True),
    ("auto", "ask", "skip", True),
    ("auto", "auto", "skip", False),
    ("suggest", "auto", "skip", True),
    ("suggest", "ask", "escalate", False),
]


@pytest.mark.parametrize(("mode", "approval", "strategy", "asks"), ASKING)
def test_a_person_is_asked_as_mode_and_approval_say(mode: Any, approval: Any, strategy: Strategy, asks: bool) -> None:
    """Suggested is always asked; to escalate is to ask already; who is asked about, waits in review."""
    used: dict[Strategy, int] = {"decompose": 1, "skip": 2, "escalate": 2}
    tried = [
        Tried(n + 1, "time-out", f"{'x' * n}", step)
        for n, step in enumerate(("retry with context", "decompose")[: used.get(strategy, 0)])
    ]
    policy, means = RecoveryPolicy(mode, approval, attempts=9), Means(parts=2, optional=strategy == "skip")
    choice = strategy_for(Diagnosis("time-out", "late", "late"), tried, policy, means)
    assert (choice.strategy, choice.ask) == (strategy, asks)
    assert (choice.state == "NEEDS_REVIEW") == asks


def test_every_mode_and_approval_is_exercised() -> None:
    """A new one cannot be left without a case; `off` has a row of its own."""
    assert {mode for mode, *_ in ASKING} | {row.get("mode") for row in TABLES["row"]} >= set(ADAPTIVES)
    assert {approval for _, approval, *_ in ASKING} == set(RECOVERY_APPROVALS)


@pytest.mark.parametrize("on_failure", get_args(OnTaskFailure))
def test_a_run_stops_at_a_failure_only_if_it_shall(on_failure: OnTaskFailure) -> None:
    """A task that is given up stops the run or not; a recovery never does, nor does a skip."""
    policy = RecoveryPolicy(attempts=2, on_failure=on_failure)
    tried = [Tried(1, "test", "x", "retry with context")]
    assert strategy_for(TEST, (), policy).stop is False
    assert strategy_for(TEST, tried, policy).stop is (on_failure == "stop")
    assert strategy_for(TEST, tried, policy, Means(optional=True)).stop is False


def test_pauses_grow_and_are_bounded() -> None:
    """A retry waits seconds, a deferred task minutes, each longer than before; told what failed, nobody waits."""
    ill = [Tried(n, "agent error", "y" * n, "retry") for n in range(1, 2)]
    policy = RecoveryPolicy(attempts=99)
    assert strategy_for(Diagnosis("agent error", "", ""), (), policy).wait_ms == 1_000
    assert strategy_for(Diagnosis("agent error", "", ""), ill, policy).wait_ms == 2_000
    assert strategy_for(Diagnosis("environment", "", ""), (), policy).wait_ms == 60_000
    late = [Tried(n, "conflict", "y" * n, "defer") for n in range(1, 40)]
    assert strategy_for(Diagnosis("environment", "", ""), late, policy).wait_ms == 3_600_000
    assert strategy_for(TEST, (), policy).wait_ms == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1 failed in 0.12s", "1 failed in 3.40s", True),
        ("at 0x7f00aa line 3", "at 0x7f11bb line 9", True),
        ("/tmp/x1/a.py: no", "/tmp/y2/a.py: no", True),
        ("assert a", "assert b", False),
    ],
)
def test_the_same_failure_is_known_again(one: str, other: str, same: bool) -> None:
    """Times, addresses and temporary folders make no new failure; other words do."""
    tried = [Tried(1, "missing file", one, "retry with context")]
    choice = strategy_for(Diagnosis("missing file", "", other), tried, RecoveryPolicy(attempts=9))
    assert choice.strategy == ("rewrite" if same else "retry with context")


@pytest.mark.parametrize(
    ("task", "optional"),
    [
        (Task("a", "Polish (optional)"), True),
        (Task("a", "Polish", priority="Optional"), True),
        (Task("a", "Polish", priority="P3, nice to have"), True),
        (Task("a", "Make optional arguments work"), False),
        (Task("a", "Polish", priority="low"), False),
    ],
)
def test_optional_is_what_the_file_calls_so(task: Task, optional: bool) -> None:
    """A low priority is not yet leave to skip; nor is a title that only speaks of something optional."""
    assert means_of(task).optional is optional
    assert means_of(task, 3, ["one"]) == Means(3, ("one",), optional)


def test_a_file_at_another_place_is_paired_with_what_was_asked() -> None:
    """By its name anywhere, else by its stem in the same folder; what was asked for and is there is no stand-in."""
    assert misplaced(["src/a.py"], ["lib/A.py", "b.py"]) == (("src/a.py", "lib/A.py"),)
    assert misplaced(["src/a.yaml"], ["src/a.yml"]) == (("src/a.yaml", "src/a.yml"),)
    assert misplaced(["src/a.py"], ["src/b.py", "a/b.py"]) == ()
    assert misplaced(["x/__init__.py", "y/__init__.py"], ["x/__init__.py"]) == ()


TRIED = st.builds(
    Tried,
    st.integers(1, 9),
    st.sampled_from(CATEGORIES),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(STRATEGIES),
    st.sampled_from(["", "one", "two"]),
)


@given(
    st.builds(Diagnosis, st.sampled_from(CATEGORIES), st.just("why"), st.sampled_from(["", "a", "b"]), st.booleans()),
    st.lists(TRIED, max_size=8),
    st.builds(RecoveryPolicy, st.sampled_from(ADAPTIVES), st.sampled_from(RECOVERY_APPROVALS), st.integers(0, 9)),
    st.builds(Means, st.integers(0, 3), st.sampled_from([(), ("one", "two")]), st.booleans()),
)
def test_whatever_happened_there_is_a_sound_choice(
    diagnosis: Diagnosis, tried: list[Tried], policy: RecoveryPolicy, means: Means
) -> None:
    """Never beyond the attempts, never around a gate, always into a state that a task at work may move to."""
    choice = strategy_for(diagnosis, tried, policy, means)
    assert choice.reason and choice.state in MOVES["IN_PROGRESS"]
    going_on = choice.strategy not in ("escalate", "skip")
    if diagnosis.final or policy.mode == "off" or len(tried) + 1 >= policy.attempts:
        assert not going_on
    if going_on and not choice.agent:
        again = [item for item in tried if item.strategy == choice.strategy]
        assert not any((item.category, item.evidence) == (diagnosis.category, diagnosis.evidence) for item in again)


@pytest.mark.parametrize(("attempts", "words"), [(3, "3 of 3 attempts are used"), (2, "; 3 attempts are used")])
def test_the_attempts_that_are_used_are_counted_in_words(attempts: int, words: str) -> None:
    """Whoever had one more by `retry` is not told of more attempts than there are."""
    tried = [Tried(number, "test", f"{number} failed", "retry with context") for number in (1, 2)]
    assert words in strategy_for(TEST, tried, RecoveryPolicy(attempts=attempts)).reason
