"""Who gets a task: rejected by what it cannot do, ranked by what is known, explained to the last point."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegated import configured
from guarded import Ground, guard
from holdfast.agents.protocol import Health
from holdfast.engine.breaker import TUNING, Breakers, Granted, pause_ns
from holdfast.engine.candidates import candidate_of
from holdfast.engine.hiring import routed
from holdfast.engine.needs import TaskNeeds, needs_of
from holdfast.engine.past import HALF_LIFE_NS, Outcome, Past, past_of, with_attempt
from holdfast.engine.router import WEIGHTS, Candidate, Choice, choose
from holdfast.engine.routing_file import RoutingDecision, decision_for, decisions_in
from holdfast.errors import Blocked, InvalidInput
from holdfast.model.agent import CAPABILITIES, Capability
from holdfast.store.adapters import BREAKER_STATES, Adapter, Adapters
from holdfast.store.resilience import ResilienceLog

EDITS: frozenset[Capability] = frozenset({"edit", "shell"})
TASK = needs_of("Add a parser for dates")


def _candidate(name: str, **fields: object) -> Candidate:
    return Candidate(name, EDITS)._replace(**fields)  # type: ignore[arg-type]


def _chosen(*candidates: Candidate, needs: TaskNeeds = TASK) -> Choice:
    return choose("1.1", needs, candidates)


# ── the score ──


def test_nothing_known_gives_the_score_of_the_formula() -> None:
    """A fresh agent scores 50·½ + 20·½ + 10·½ + 10·1 + 10·1, and a tie goes to the first name."""
    choice = _chosen(_candidate("b"), _candidate("a"))
    assert (choice.agent, choice.score) == ("a", 60.0)
    assert [item.agent for item in choice.ranking] == ["a", "b"]


def test_each_term_is_as_written_down() -> None:
    """Success, cost, speed, fit and steadiness have the values that the formula gives for known numbers."""
    past = Past(attempts=8.0, good=5.0, mean_micro_usd=1_500_000, mean_duration_ms=100_000)
    choice = _chosen(_candidate("a", past=past, failures=1), needs=needs_of("Debug it and continue"))
    assert {term.name: term.value for term in choice.reasons} == {
        "success": 0.6,
        "cost": 0.25,
        "speed": 0.75,
        "fit": 0.5,
        "steady": 0.5,
    }
    assert choice.score == 50 * 0.6 + 20 * 0.25 + 10 * 0.75 + 10 * 0.5 + 10 * 0.5


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Past(10, 9, 10**6, 60_000), Past(10, 3, 10**6, 60_000)),
        (Past(10, 5, 10**5, 60_000), Past(10, 5, 10**6, 60_000)),
        (Past(10, 5, 10**6, 60_000), Past(10, 5, 10**6, 600_000)),
    ],
)
def test_better_in_one_thing_wins(better: Past, worse: Past) -> None:
    """With all else alike, more success, less cost and less time win, whatever the names."""
    for good, bad in (("a", "b"), ("b", "a")):
        assert _chosen(_candidate(good, past=better), _candidate(bad, past=worse)).agent == good


def test_one_lucky_attempt_is_not_a_record() -> None:
    """One success out of one does not beat nine out of ten: the prior speaks as long as little is known."""
    assert _chosen(_candidate("lucky", past=Past(1, 1)), _candidate("proven", past=Past(10, 9))).agent == "proven"


PASTS = st.builds(
    lambda attempts, share, cost, time: Past(attempts, attempts * share, cost, time),
    st.floats(0, 1e6),
    st.floats(0, 1),
    st.none() | st.integers(0, 10**12),
    st.none() | st.integers(0, 10**10),
)
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.text("abcdef", min_size=1, max_size=4),
        st.frozensets(st.sampled_from(CAPABILITIES)),
        st.sampled_from(["", "", "", "not installed"]),
        st.sampled_from(BREAKER_STATES),
        st.booleans(),
        st.integers(0, 50),
        PASTS,
    ),
    max_size=6,
    unique_by=lambda candidate: candidate.name,
)


@given(CANDIDATES, st.sampled_from(["Add x", "Run it", "Do it by hand", "continue the tests"]), st.randoms())
def test_everybody_is_ranked_or_rejected_whatever_the_order(
    candidates: list[Candidate], task: str, chance: random.Random
) -> None:
    """The choice does not depend on the order; the score is the sum of what is shown; nobody is left out."""
    needs = needs_of(task)
    shuffled = chance.sample(candidates, len(candidates))
    try:
        choice = choose("t", needs, candidates)
    except Blocked:
        with pytest.raises(Blocked):
            choose("t", needs, shuffled)
        return
    assert choose("t", needs, shuffled) == choice
    named = [item.agent for item in choice.ranking] + [item.agent for item in choice.rejected]
    assert sorted(named) == sorted(candidate.name for candidate in candidates)
    assert all(item.why for item in choice.rejected)
    for item in choice.ranking:
        assert all(0 <= term.value <= 1 and term.weight == WEIGHTS[term.name] for term in item.reasons)
        assert item.score == pytest.approx(sum(term.value * term.weight for term in item.reasons), abs=1e-5)
    assert [item.score for item in choice.ranking] == sorted((item.score for item in choice.ranking), reverse=True)
    json.dumps(choice.document())


# ── who is rejected ──


@pytest.mark.parametrize(
    ("candidate", "task", "why"),
    [
        (_candidate("a", why_not="not installed"), "Add x", "not installed"),
        (
            _candidate("a", capabilities=frozenset({"edit"})),
            "Install the tool",
            "cannot run commands (needed: Install)",
        ),
        (_candidate("a", capabilities=frozenset({"shell"})), "Add x", "cannot edit files"),
        (_candidate("a", capabilities=frozenset({"edit", "person"})), "Add x", "is a person"),
        (_candidate("a"), "Do this by hand", "cannot be asked like a person"),
        (_candidate("a", breaker="OPEN", failures=3), "Add x", "failed 3 times in a row"),
        (_candidate("a", breaker="OPEN", failures=1), "Add x", "failed once and is left alone"),
        (_candidate("a", breaker="HALF_OPEN", failures=3), "Add x", "is being tried by one attempt"),
    ],
)
def test_who_cannot_have_it_is_rejected_with_the_reason(candidate: Candidate, task: str, why: str) -> None:
    """Whoever lacks something is not chosen; alone, it is an error with exit status 5 that names the reason."""
    with pytest.raises(Blocked) as caught:
        choose("1.1", needs_of(task), [candidate])
    assert why in caught.value.message
    assert caught.value.exit_status == 5


def test_another_is_taken_when_a_breaker_is_open() -> None:
    """The best agent with an open breaker is passed over for the next one, and the choice says why."""
    best = _candidate("best", past=Past(10, 10), breaker="OPEN", failures=3)
    choice = _chosen(best, _candidate("other"))
    assert choice.agent == "other"
    assert [(item.agent, "left alone" in item.why) for item in choice.rejected] == [("best", True)]


def test_a_person_is_asked_only_for_a_task_that_needs_one() -> None:
    """A task for a person goes to the person, and to nobody else."""
    person = _candidate("manual", capabilities=frozenset({"edit", "person"}))
    assert _chosen(_candidate("claude"), person).agent == "claude"
    assert _chosen(_candidate("claude"), person, needs=needs_of("Ask me which licence to use")).agent == "manual"


def test_nobody_at_all_is_an_error() -> None:
    """Without any agent there is no choice and no guess."""
    with pytest.raises(Blocked, match="there is no agent"):
        _chosen()


def test_a_candidate_is_its_health_and_its_row() -> None:
    """Health and breaker become a rejection; an open breaker whose pause is over can be chosen, after the others."""
    row = Adapter("a", state="OPEN", failures=3, openings=1, opened_ns=1000, unwell_ns=1000)
    usable = Health(True, True)
    over = 1000 + pause_ns(1, TUNING)
    states = [candidate_of("a", EDITS, usable, row, now).ready for now in (999, 1000, over - 1, over)]
    assert states == [True, False, False, True]
    ready = candidate_of("a", EDITS, usable, row, over)
    assert _chosen(ready).agent == "a"
    assert _chosen(ready, _candidate("b")).agent == "b"
    broken = candidate_of("a", EDITS, Health(False, False, why_not="not installed"), Adapter("a"), 0)
    assert broken.why_not == "not installed"


# ── the past ──


def test_an_attempt_fades_by_half_in_a_half_life() -> None:
    """Counts halve with time, totals stay, and a clock set back fades nothing."""
    row = with_attempt(Adapter("a"), Outcome("t", "finished", True, micro_usd=40, duration_ms=10), 1000)
    assert past_of(row, 1000 + HALF_LIFE_NS) == Past(0.5, 0.5, 40, 10)
    assert past_of(row, 0) == Past(1.0, 1.0, 40, 10)
    later = with_attempt(row, Outcome("t", "failed", False, duration_ms=30), 1000 + HALF_LIFE_NS)
    assert (later.attempts, later.successes, later.recent_attempts, later.recent_successes) == (2, 1, 1.5, 0.5)
    assert past_of(later, later.at_ns) == Past(1.5, 0.5, 40, 20)


def test_an_unknown_price_is_not_free() -> None:
    """The mean price is over attempts with a price; without one there is no mean."""
    row = with_attempt(Adapter("a"), Outcome("t", "finished", True), 1)
    assert past_of(row, 1).mean_micro_usd is None


# ── what a task needs ──


@pytest.mark.parametrize(
    ("text", "needed", "preferred"),
    [
        ("Add a parser", {"edit"}, set()),
        ("Install the linter", {"edit", "shell"}, set()),
        ("Show it at run time", {"edit"}, set()),
        ("Fix the overrun of the buffer", {"edit"}, set()),
        ("Rename `run` to `start`", {"edit"}, set()),
        ("Make the failing tests pass", {"edit"}, {"shell"}),
        ("Must work offline, run the benchmark", {"edit", "offline", "shell"}, set()),
        ("Translate it manually", {"edit", "person"}, set()),
        ("Continue, within the budget", {"edit"}, {"resume", "usage"}),
    ],
)
def test_needs_come_from_words(text: str, needed: set[str], preferred: set[str]) -> None:
    """Each need comes from a word that stands in the task as a whole word, and says which."""
    found = needs_of(text)
    assert {need.capability for need in found.needed} == needed
    assert {need.capability for need in found.preferred} == preferred
    assert all(need.because in text for need in (*found.needed[1:], *found.preferred))


# ── decisions of a person ──


def test_a_decision_stands_above_the_score() -> None:
    """The agent that a person named gets the task, with the person's reason; the ranking stays visible."""
    good, bad = _candidate("good", past=Past(10, 10)), _candidate("bad", past=Past(10, 0))
    choice = choose("1.1", TASK, [good, bad], [RoutingDecision("1.1", "bad", "to learn")])
    assert (choice.agent, choice.decided, choice.ranking[0].agent) == ("bad", "to learn", "good")
    assert choose("1.2", TASK, [good, bad], [RoutingDecision("1.1", "bad")]).agent == "good"


def test_a_decision_for_an_unusable_agent_is_an_error() -> None:
    """Nobody else is taken silently: the error names task, agent and reason."""
    out = _candidate("out", why_not="not installed")
    with pytest.raises(Blocked, match=r"routing decision for 1\.1 names out, which cannot have it: not installed"):
        choose("1.1", TASK, [out, _candidate("in")], [RoutingDecision("1.1", "out")])


def test_a_decision_for_an_unknown_agent_is_an_error() -> None:
    """A name that there is not is refused, and the names that there are are told."""
    with pytest.raises(InvalidInput, match="there is no such agent") as caught:
        choose("1.1", TASK, [_candidate("in")], [RoutingDecision("1.*", "typo")])
    assert "in" in caught.value.hint


@pytest.mark.parametrize(
    ("task", "agent"),
    [("docs-1", "exact"), ("docs-2", "first"), ("a?c", "literal"), ("abc", "literal"), ("ac", None), ("x" * 500, None)],
)
def test_an_exact_id_stands_above_a_pattern(task: str, agent: str | None) -> None:
    """Exact first, then the first pattern that fits the whole id."""
    decisions = [
        RoutingDecision("docs-*", "first"),
        RoutingDecision("doc*", "second"),
        RoutingDecision("docs-1", "exact"),
        RoutingDecision("a?c", "literal"),
    ]
    found = decision_for(task, decisions)
    assert (found.agent if found is not None else None) == agent


@given(st.text("ab*?", max_size=4), st.text("ab", max_size=4))
def test_patterns_mean_what_they_mean_everywhere(pattern: str, task: str) -> None:
    """A pattern fits exactly the ids that replacing its stars and question marks can spell."""
    texts = ["".join(text) for size in range(len(task) + 1) for text in itertools.product("ab", repeat=size)]
    meanings = {"*": texts, "?": ["a", "b"], "a": ["a"], "b": ["b"]}
    spelled = {"".join(parts) for parts in itertools.product(*(meanings[char] for char in pattern))}
    found = decision_for(task, [RoutingDecision(pattern, "x")])
    assert (found is not None) == (task in spelled)


def test_a_hostile_pattern_is_not_slow() -> None:
    """Two hundred characters of stars against a long id are answered at once."""
    assert decision_for("a" * 10_000, [RoutingDecision("*a" * 99 + "*b", "x")]) is None


CASES = sorted((Path(__file__).parent / "routing").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_routing_file_is_read_or_refused_as_its_case_says(path: Path) -> None:
    """Each case holds the text of a file, and either its decisions or parts of the refusal, with exit status 2."""
    case = json.loads(path.read_text())
    data = case["text"].encode("utf-8") if "text" in case else json.dumps(case["value"]).encode()
    if "message" not in case:
        assert [list(decision) for decision in decisions_in(data)] == case["decisions"]
        return
    with pytest.raises(InvalidInput) as caught:
        decisions_in(data)
    assert caught.value.exit_status == 2
    assert case["message"] in caught.value.message
    assert case.get("hint", "") in caught.value.hint


def test_there_are_cases_of_routing_files() -> None:
    """The folder of cases is not empty."""
    assert len(CASES) >= 12


# ── in a run, which can wait ──


def _ill(ground: Ground, name: str) -> None:
    breakers = Breakers(Adapters(ground.hf.records), ResilienceLog(ground.hf.site.state), time.time_ns)
    ticket = breakers.admit(name)
    assert isinstance(ticket, Granted)
    breakers.report(ticket.ticket, Outcome("p-1", "unauthorized", good=False))


def test_a_task_that_can_wait_goes_to_the_best_of_those_left_alone(tmp_path: Path) -> None:
    """Nobody is well: that is no reason to ask a person. Who can never do it is not waited for."""
    ground = guard(tmp_path / "workspace", {"a.py": b""})
    command = 'command = ["/usr/bin/true", "{task_file}"]\nnetwork = "none"\n'
    configured("".join(f"[agents.{name}]\n{command}" for name in ("aa", "zz")))
    _ill(ground, "aa")
    assert routed(ground.hf.pipeline, "Add a parser", patient=True).agent == "zz"
    _ill(ground, "zz")
    with pytest.raises(Blocked, match="left alone"):
        routed(ground.hf.pipeline, "Add a parser")
    assert routed(ground.hf.pipeline, "Add a parser", patient=True).agent == "aa"
    configured("")
    with pytest.raises(Blocked, match="no agent can have"):
        routed(ground.hf.pipeline, "Add a parser", patient=True)
    ground.hf.close()
