"""A provider that serves nothing is waited for: longer each time, not without end, and told."""

from __future__ import annotations

import pytest

from holdfast.engine.outage import FIRST_MS, Away, Outage
from holdfast.errors import Interrupted


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def outage(clock: Clock, told: list[str], longest_ms: int = 300_000) -> Outage:
    return Outage("local", longest_ms, "seed", told.append, lambda: None, clock, clock.sleep)


def test_pauses_grow_and_end_at_the_deadline() -> None:
    """Never past it; then nobody waits, and the reason stays."""
    clock, told = Clock(), list[str]()
    found = outage(clock, told)
    pauses, before = [], clock.now
    while found.waited(Away("it answers 503"), answered=False):
        pauses.append(clock.now - before)
        before = clock.now
    assert clock.now == pytest.approx(1300.0)
    assert pauses[0] <= FIRST_MS / 1000
    assert max(pauses) <= 60.0
    assert len(pauses) < 40
    assert found.over == "the provider local cannot be used (it answers 503), for 5 minutes"
    assert all("No attempt is used up" in text for text in told)


def test_what_the_provider_asks_for_is_heeded() -> None:
    """Retry-After is the least pause; a day of it is not."""
    clock, told = Clock(), list[str]()
    outage(clock, told).waited(Away("it answers 429", 20_000), answered=False)
    assert clock.now >= 1020.0
    clock = Clock()
    outage(clock, told, 3_600_000).waited(Away("it answers 429", 86_400_000), answered=False)
    assert clock.now <= 1300.1


def test_an_answer_in_between_begins_the_deadline_anew() -> None:
    """An outage that is over is over; the next one is waited for as long."""
    clock, told = Clock(), list[str]()
    found = outage(clock, told, 10_000)
    while found.waited(Away("away"), answered=False):
        pass
    assert found.waited(Away("away"), answered=True)


def test_answers_in_between_do_not_move_the_deadline_for_ever() -> None:
    """An agent can have the provider refuse it after every answer; that ends too."""
    clock, told = Clock(), list[str]()
    found, rounds = outage(clock, told, 10_000), 0
    while rounds < 1000 and found.waited(Away("it answers 429"), answered=True):
        rounds += 1
    assert rounds < 100 and found.over


def test_its_end_is_told_once() -> None:
    """And nothing where there was none."""
    clock, told = Clock(), list[str]()
    found = outage(clock, told)
    found.back()
    assert told == []
    found.waited(Away("away"), answered=False)
    found.back()
    found.back()
    assert len(told) == 2
    assert "answers again" in told[1]


def test_nobody_waits_without_a_deadline() -> None:
    """As where somebody gives one task to an agent and looks on."""
    clock, told = Clock(), list[str]()
    found = outage(clock, told, 0)
    assert not found.waited(Away("away"), answered=False)
    assert (told, found.over, clock.now) == ([], "", 1000.0)


def test_whoever_stops_the_work_is_heard_at_once() -> None:
    """In the midst of a pause."""
    clock = Clock()

    def stopped() -> None:
        raise Interrupted("the work was stopped")

    with pytest.raises(Interrupted):
        Outage("local", 300_000, "seed", lambda _: None, stopped, clock, clock.sleep).waited(
            Away("away", 60_000), answered=False
        )
    assert clock.now < 1001.0
