"""While the shared database does not answer, the driver says so, hears a wish to stop, and does not wait for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy.exc import OperationalError

from holdfast.engine.patience import Patience, stopped_for_database
from holdfast.errors import DatabaseAway
from holdfast.model.run import DatabaseBack, DatabaseGone, RunEvent, RunRecord


@pytest.fixture
def frozen() -> Iterator[threading.Event]:
    """What a call to a database that stands still waits for."""
    found = threading.Event()
    yield found
    found.set()


def away() -> OperationalError:
    return OperationalError("SELECT 1", {}, Exception("connection refused"))


def test_a_frozen_database_is_left_as_soon_as_somebody_says_stop(frozen: threading.Event) -> None:
    """Whoever asked is named, and the call that never returns holds nobody up."""
    told: list[RunEvent] = []
    patience = Patience("u-1", told.append, lambda: "SIGTERM")
    began = time.monotonic()
    with pytest.raises(DatabaseAway, match="SIGTERM"):
        patience.reached(frozen.wait)
    assert time.monotonic() - began < 10
    assert [event.event for event in told] == ["DATABASE_AWAY"]


def test_what_is_away_is_not_waited_for_without_end() -> None:
    """It is told once, until when; then the run stops because of it, which is nobody's wish."""
    told: list[RunEvent] = []
    ticks: list[float] = []

    def tick() -> str:
        ticks.append(time.monotonic())
        return ""

    patience = Patience("u-1", told.append, tick, longest_s=1.5)

    def refuse() -> None:
        raise away()

    with pytest.raises(DatabaseAway) as found:
        patience.again(refuse)
    (gone,) = told
    assert isinstance(gone, DatabaseGone) and gone.until_ns - gone.since_ns == 1_500_000_000
    assert len(ticks) >= 2
    assert stopped_for_database(RunRecord("u-1", "ROADMAP.md", state="STOPPED", because=found.value.message))


def test_what_comes_back_is_told_and_done() -> None:
    """The answer is given, and how long it took is told; what is no outage is raised at once."""
    told: list[RunEvent] = []
    patience = Patience("u-1", told.append, lambda: "")
    answers = iter([away(), away()])

    def work() -> str:
        for error in answers:
            raise error
        return patience.reached(lambda: "done")

    assert patience.again(work) == "done"
    assert isinstance(told[0], DatabaseGone) and isinstance(told[-1], DatabaseBack) and len(told) == 2
    with pytest.raises(ZeroDivisionError):
        patience.again(lambda: 1 // 0)


def test_an_engine_that_gives_up_earlier_is_asked_again() -> None:
    """What waits below for less long than was said does not end the run: only its own time does."""
    told: list[RunEvent] = []
    patience = Patience("u-1", told.append, lambda: "")
    answers = iter([DatabaseAway("nobody there"), DatabaseAway("nobody there")])

    def work() -> str:
        for error in answers:
            raise error
        return "done"

    assert patience.reached(work) == "done"
    assert [event.event for event in told] == ["DATABASE_AWAY", "DATABASE_BACK"]

    def never() -> None:
        raise DatabaseAway("nobody there")

    with pytest.raises(DatabaseAway) as found:
        Patience("u-1", told.append, lambda: "", longest_s=1.0).reached(never)
    assert stopped_for_database(RunRecord("u-1", "ROADMAP.md", state="STOPPED", because=found.value.message))


def test_a_landing_that_waits_for_the_database_holds_up_no_end(frozen: threading.Event) -> None:
    """Nothing of it has begun: the run ends at once, and the landing does not go on when the database is back."""
    patience = Patience("u-1", lambda event: None, lambda: "")
    inside, ended = threading.Event(), list[str]()

    def land() -> None:
        try:
            with patience.fetching():
                inside.set()
                frozen.wait()
            ended.append("landed")
        except DatabaseAway:
            ended.append("left")

    thread = threading.Thread(target=land)
    thread.start()
    assert inside.wait(10)
    assert patience.leave()
    frozen.set()
    thread.join(10)
    assert ended == ["left"] and not patience.leave()


def test_what_was_fetched_lands() -> None:
    """Nobody left, so that the landing goes on."""
    patience = Patience("u-1", lambda event: None, lambda: "")
    with patience.fetching():
        fetched = True
    assert fetched
