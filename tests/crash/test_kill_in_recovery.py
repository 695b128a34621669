"""SIGKILL inside recovery, and inside the recovery of that recovery: it can always be run again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import pytest

from crash.driver import Arena, Outcome, discard, judge, judge_life_goes_on, kill_in, kill_in_recovery, start
from crash.scenarios import BY_NAME, SCENARIOS, Scenario
from holdfast.testing import Fault, Kill, KillAt

Counted = Callable[[int], None]
Sampled = Callable[[Sequence[Any]], list[Any]]
# Places of the first kill that leave very different work: staged, prepared, flipped, committed, being settled.
POINTS = ("staged", "prepared", "flipped", "applied", "commit", "committed", "rolled-back", "aborted", "in-ledger")


class Nested:
    """Kills at some first place, then at every place of the recovery, with a sample of third kills."""

    def __init__(self, arena: Arena, scenario: Scenario, third_every: int) -> None:
        self._arena = arena
        self._scenario = scenario
        self._outcome = arena.outcome(scenario)
        self._third_every = third_every
        self.kills = 0

    @property
    def outcome(self) -> Outcome:
        return self._outcome

    def verdicts(self, firsts: Iterable[Fault], every: int = 1) -> Iterator[str]:
        for first in firsts:
            second, ended = 0, False
            while not ended:
                second += every
                ended = yield from self._once(first, second)

    def _once(self, first: Fault, second: int) -> Generator[str, None, bool]:
        begun = start(self._arena, self._scenario)
        acknowledged = kill_in(begun, self._scenario, first)
        ended = kill_in_recovery(begun.place, Kill(second))
        third = 0
        if not ended and self.kills % self._third_every == 0:
            third = 1 + second % 7
            kill_in_recovery(begun.place, Kill(third))
        self.kills += 2 + bool(third)
        verdict = judge(begun, self._outcome, self._scenario, acknowledged)
        if not verdict and (ended or second % 4 == 0):
            verdict = judge_life_goes_on(begun)
        discard(begun.place)
        yield from (f"{self._scenario.name}, {first}, then {second}, then {third}: {what}" for what in verdict)
        return ended


@pytest.mark.crash
@pytest.mark.parametrize(
    "name", ["few", *(pytest.param(name, marks=pytest.mark.long) for name in ("types-undo", "few-unhealthy"))]
)
def test_killed_in_recovery(name: str, arena: Arena, kill_points: Counted) -> None:
    """Recovery killed before any change of the disk is finished by the next recovery, after a kill at a named point."""
    nested = Nested(arena, BY_NAME[name], third_every=3)
    points = [KillAt(point) for point in POINTS if point in nested.outcome.points]
    assert list(nested.verdicts(points, every=3)) == []
    kill_points(nested.kills)


@pytest.mark.crash_full
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_killed_anywhere_in_any_recovery(name: str, arena: Arena, sampled: Sampled, kill_points: Counted) -> None:
    """Killed at any change of the disk, then at any of the recovery, and now and then a third time: old tree or new."""
    nested = Nested(arena, BY_NAME[name], third_every=2)
    # Every first place of two that have it all; every sixth of the others, which repeat the same operations.
    stride = 1 if name in ("few", "types") else 6
    firsts = [Kill(number) for number in range(1, len(nested.outcome.trace) + 1, stride)]
    chosen = sampled(firsts)
    assert list(nested.verdicts(chosen, every=1 if chosen == firsts else 10)) == []
    kill_points(nested.kills)
