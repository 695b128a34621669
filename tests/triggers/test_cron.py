"""Schedules: which moment comes next, also where clocks jump; and what became due while nobody looked."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.cron import Passed, Schedule
from holdfast.errors import InvalidInput

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases/cron.yaml").read_text())
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Africa/Cairo", "Pacific/Apia")
EXPRESSIONS = ("*/7 * * * *", "30 2 * * *", "*/20 1-3 * * *", "0 */5 * * *", "0 0 * * sun", "59 23 28-31 * *")


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_next_moments(case: dict[str, Any]) -> None:
    """The moments after a moment are those the case names."""
    schedule, moment = Schedule(case["cron"], case["zone"]), datetime.fromisoformat(case["after"])
    found = []
    for _ in case["due"]:
        coming = schedule.after(moment)
        assert coming is not None
        found.append(coming)
        moment = coming
    assert found == [datetime.fromisoformat(due) for due in case["due"]]


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2011, 12, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)
def test_moments_only_grow(expression: str, zone: str, moment: datetime) -> None:
    """Wherever one begins, each next moment is later than the one before it."""
    schedule = Schedule(expression, zone)
    for _ in range(5):
        coming = schedule.after(moment)
        assert coming is not None and coming > moment
        moment = coming


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    st.integers(0, 60 * 24 * 10),
)
def test_what_passed_is_the_first_and_the_last(expression: str, zone: str, after: datetime, minutes: int) -> None:
    """What became due in a span is what one finds by going from moment to moment."""
    schedule, now = Schedule(expression, zone), after + timedelta(minutes=minutes)
    found, moment = [], schedule.after(after)
    while moment is not None and moment <= now:
        found.append(moment)
        moment = schedule.after(moment)
    assert schedule.passed(after, now) == (Passed(found[0], found[-1]) if found else None)


def test_a_year_asleep_costs_no_year_of_minutes() -> None:
    """The last of half a million missed minutes is found without counting them."""
    schedule, began = Schedule("* * * * *", "Europe/Berlin"), time.process_time()
    asleep, awake = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC), datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC)
    passed = schedule.passed(asleep, awake)
    assert passed == Passed(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_schedule_that_never_comes_is_refused(expression: str) -> None:
    """A day that no month has is an error of the configuration, not a trigger that waits for ever."""
    with pytest.raises(InvalidInput, match="never comes"):
        Schedule(expression, "UTC", "never")
