"""Every kind of failure and every answer to one, on the whole road: real runs, real checks, real landings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.measuring import MOST_EVIDENCE
from holdfast.model.fix import CATEGORIES
from holdfast.model.run import ADAPTIVES, RECOVERY_APPROVALS, TaskFailed, TaskMoved, TaskStarted
from holdfast.model.task import STRATEGIES
from holdfast.planning.recovery import LADDERS, Rung
from holdfast.planning.task_words import CONTEXT_BYTES, WORDS_BYTES
from scenarios.recovering import NAMES, PLAYER, Asked, Failed, Place, Recovery, recovery

_LONGEST_PAUSE_NS = 60 * 10**9
# Besides words and context: the rules that every agent is told, and the lists of files.
_RULES_BYTES = 8_000


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_failure_is_told_apart_answered_and_overcome(name: str, tmp_path: Path) -> None:
    """The class, the strategy, what the agent was told and how it ended are those that the scenario says."""
    played = recovery(name)
    place = Place(played, tmp_path / "workspace")
    run = place.go()
    assert _failures(place) == list(played.failed)
    assert run.state == played.run, run.because
    _were_told(place)
    _waited(place)
    _ended(place)
    assert place.commits() == list(played.commits)
    assert place.files() == played.stands()
    assert place.git("status", "--short") == ""


def _failures(place: Place) -> list[Failed]:
    """What the events say, once the ledger is found to say the same."""
    records = place.records()
    numbers = {record.task: number for number, record in records.items()}
    found: list[Failed] = []
    for _, event in place.events:
        if not isinstance(event, TaskFailed):
            continue
        tried = next(each for each in records[numbers[event.task]].tried if each.attempt == event.attempt)
        assert (tried.category, tried.strategy) == (event.category, event.strategy)
        assert 0 < len(tried.evidence) <= MOST_EVIDENCE
        expected = place.played.failed[len(found)].because if len(found) < len(place.played.failed) else ""
        because = expected if expected and expected in event.because else event.because
        waits = event.not_before_ns != 0
        found.append(Failed(numbers[event.task], event.category, event.strategy, because, tried.agent, waits))
    assert sum(len(record.tried) for record in records.values()) == len(found)
    return found


def _were_told(place: Place) -> None:
    """Each asking had what it must know, and nothing that it must not, in a text of bounded length (C1)."""
    rows, askings = _by_asking(place.played), place.askings()
    assert {key: len(found) for key, found in askings.items()} == {key: len(own) for key, own in rows.items()}
    for key, own in rows.items():
        for row, asking in zip(own, askings[key], strict=True):
            for words in row.told:
                assert words in asking.text, f"{key} was not told {words!r}:\n{asking.text}"
            for words in row.untold:
                assert words not in asking.text, f"{key} was told {words!r}:\n{asking.text}"
            assert len(asking.text.encode()) <= WORDS_BYTES + CONTEXT_BYTES + _RULES_BYTES


def _by_asking(played: Recovery) -> dict[tuple[str, str], list[Asked]]:
    found: dict[tuple[str, str], list[Asked]] = {}
    for row in played.asked:
        found.setdefault((row.agent, row.task), []).append(row)
    return found


def _waited(place: Place) -> None:
    """Nobody was asked again before the time that was told, which is bounded; what was deferred was called so."""
    for at, (then, event) in enumerate(place.events):
        if not isinstance(event, TaskFailed):
            continue
        later = [(when, each) for when, each in place.events[at:] if getattr(each, "task", "") == event.task]
        moved = [each.state for _, each in place.events if isinstance(each, TaskMoved) and each.task == event.task]
        assert event.strategy != "defer" or "DEFERRED" in moved
        assert event.not_before_ns <= then + _LONGEST_PAUSE_NS
        begun = next((when for when, each in later if isinstance(each, TaskStarted)), None)
        assert begun is None or begun >= event.not_before_ns


def _ended(place: Place) -> None:
    records, done = place.records(), {row.task for row in place.played.ends if row.state == "COMPLETED"}
    for row in place.played.ends:
        record = records[row.task]
        assert (record.state, record.parts) == (row.state, row.parts), f"{row.task}: {record.because}"
        assert row.because in record.because
        assert bool(record.commit and record.execution) == (row.state == "COMPLETED")
    assert place.ticked() == done
    assert len(records) == len(place.played.ends)


# ── nothing is left out ──


def test_every_class_of_failure_has_a_scenario() -> None:
    """A class that the tables know and no scenario meets would be one that nobody has seen happen."""
    assert {row.category for row in _all_failed()} == set(CATEGORIES) == set(LADDERS)


def test_every_strategy_has_a_scenario() -> None:
    """So would a strategy that no scenario chooses."""
    assert {row.strategy for row in _all_failed()} == set(STRATEGIES)


def test_every_first_answer_to_a_class_has_a_scenario() -> None:
    """Against each class, what is tried first was seen to be tried."""
    chosen = {(row.category, row.strategy) for row in _all_failed()}
    assert {(category, ladder[0].strategy) for category, ladder in LADDERS.items()} <= chosen


@pytest.mark.parametrize("ladder", sorted(set(LADDERS.values())), ids=lambda rungs: " ".join(each[0] for each in rungs))
def test_every_rung_of_a_ladder_has_a_scenario(ladder: tuple[Rung, ...]) -> None:
    """Classes that share a ladder are answered alike: each of its rungs was reached by one of them."""
    classes = {category for category, own in LADDERS.items() if own == ladder}
    chosen = {row.strategy for row in _all_failed() if row.category in classes}
    assert {rung.strategy for rung in ladder} <= chosen


def test_another_agent_has_a_scenario() -> None:
    """One rung is the same strategy by somebody else: there a second agent lands what the first could not."""
    others = [row for played in map(recovery, NAMES) for row in played.asked if row.agent != PLAYER]
    assert others and all(row.lands and row.told for row in others)


def test_every_mode_has_a_scenario() -> None:
    """Whether recovery is off, proposed or done; who approves it; and whether the run goes on without the task."""
    options = [played.options for played in map(recovery, NAMES)]
    assert {chosen.adaptive for chosen in options} == set(ADAPTIVES)
    assert {chosen.recovery for chosen in options} == set(RECOVERY_APPROVALS)
    assert {chosen.on_failure for chosen in options} == {"continue", "stop"}


def test_every_scenario_shows_somebody_who_was_told() -> None:
    """Each tells its story; and where an agent is asked again for a task, the file says what it must have been told."""
    for played in map(recovery, NAMES):
        assert played.story.endswith(".") and played.failed and played.ends, played.name
        for key, own in _by_asking(played).items():
            assert all(row.told for row in own[1:]), f"{played.name}: {key}"


def _all_failed() -> Iterator[Failed]:
    for played in map(recovery, NAMES):
        yield from played.failed
