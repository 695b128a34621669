"""Trying again: pauses that are bounded, spread and repeatable, and endings that are not worth it."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.backoff import LONGEST_MS, RETRY, pause_ms, worth_a_retry
from holdfast.model.agent import Ending


@given(st.integers(1, 10**6), st.text(), st.integers(0, 10**6), st.integers(0, 10**7))
def test_a_pause_is_bounded(attempt: int, seed: str, first: int, longest: int) -> None:
    """No pause is negative or longer than the bound of its attempt, and none longer than the longest."""
    bound = min(longest, first * 2 ** min(attempt - 1, 62))
    assert 0 <= pause_ms(attempt, seed, first_ms=first, longest_ms=longest) <= bound


def test_the_same_seed_waits_the_same_times() -> None:
    """Pauses are computed, never drawn: these exact numbers stay, on every machine."""
    assert [pause_ms(attempt, "task-1") for attempt in range(1, 9)] == [
        pause_ms(attempt, "task-1") for attempt in range(1, 9)
    ]
    assert [pause_ms(attempt, "task-1") for attempt in (1, 2, 3)] == PINNED


PINNED = [716, 980, 1920]


def test_pauses_of_many_are_spread_over_the_whole_bound() -> None:
    """Full jitter: of a thousand who failed together, about a tenth come back in each tenth of the bound."""
    tenths = [0] * 10
    for number in range(1000):
        tenths[pause_ms(30, f"seed-{number}") * 10 // LONGEST_MS] += 1
    assert min(tenths) > 60 and max(tenths) < 140


def test_bounds_double_until_the_longest() -> None:
    """The longest pause that any of many seeds gets doubles with the attempt, and then stays."""
    most = [max(pause_ms(attempt, f"s{seed}") for seed in range(2000)) for attempt in range(1, 10)]
    bounds = [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    assert all(bound * 0.99 < found <= bound for found, bound in zip(most, bounds, strict=True))


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_one(attempt: int) -> None:
    """There is no pause after an attempt that there was not."""
    with pytest.raises(ValueError):
        pause_ms(attempt, "x")


def test_every_ending_has_a_verdict_and_a_reason() -> None:
    """A new ending cannot be tried again, or given up on, by accident."""
    assert set(RETRY) == set(get_args(Ending))
    assert all(retry.why for retry in RETRY.values())


@pytest.mark.parametrize(
    ("ending", "again"),
    [
        ("finished", False),
        ("failed", True),
        ("unauthorized", False),
        ("model_error", True),
        ("limit", False),
        ("killed", True),
    ],
)
def test_what_is_worth_a_retry(ending: Ending, again: bool) -> None:
    """What would fail the same way again is not tried again."""
    assert worth_a_retry(ending).again is again
