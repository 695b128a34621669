"""A database that was away for longer than a moment: what ended meanwhile, and how the engine is closed afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.durable.child_words import ids
from engine.durable.children import child, says, until
from engine.durable.cluster import Cluster
from holdfast.engine.durable import Database
from holdfast.engine.durable_pauses import Pauses

Effects = Callable[[], list[str]]
pytestmark = [pytest.mark.long, pytest.mark.serial]

# By then the library would sleep for four to twelve seconds at once.
_AWAY_SECONDS = 9.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One for each test, to be stopped."""
    found = Cluster()
    yield found
    found.remove()


def _pass_an_outage(cluster: Cluster, effects: Effects, file: Path, *, leave: bool = False) -> None:
    """Four items are under way, and end during it; with `leave` their engine is closed as soon as it is over."""
    until(lambda: len(effects()) == 4)
    cluster.stop()
    file.touch()
    time.sleep(_AWAY_SECONDS)
    if leave:
        file.with_suffix(".leave").touch()
    cluster.start()


def _once(effects: Effects) -> bool:
    return sorted(line.split()[0] for line in effects()) == ids(4)


def test_nothing_is_left_in_the_background(cluster: Cluster, effects: Effects, tmp_path: Path, state: Path) -> None:
    """No thread waits to record what is recorded: the process that closed its engine ends, and complains of nothing."""
    shared = Database(str(state), cluster.url("shared"))
    with child("ends", shared, tmp_path / "effects", tmp_path / "end") as process:
        _pass_an_outage(cluster, effects, tmp_path / "end")
        says(process, "closed")
        closed = time.monotonic()
        assert process.communicate(timeout=60) == ("", "")
        assert time.monotonic() - closed < 30
    assert _once(effects)


def test_who_leaves_when_the_database_is_back_takes_the_ends_along(
    cluster: Cluster, effects: Effects, tmp_path: Path, state: Path
) -> None:
    """An engine that is closed in that moment has recorded what ended during the outage: nothing is done again."""
    shared = Database(str(state), cluster.url("shared"))
    with child("ends", shared, tmp_path / "effects", tmp_path / "end") as process:
        _pass_an_outage(cluster, effects, tmp_path / "end", leave=True)
        says(process, "closed")
        process.wait(60)
    (tmp_path / "end.leave").unlink()
    with child("ends", shared, tmp_path / "effects", tmp_path / "end") as process:
        says(process, "closed")
    assert _once(effects)


def test_pauses_are_short_and_end_with_the_engine() -> None:
    """Also of a thread that works for nobody; everything else about time is as it was."""
    pauses, over, left = Pauses(), threading.Event(), threading.Event()

    def sleep() -> None:
        pauses.end_with(over)
        try:
            while True:
                pauses.sleep(3600)
        finally:
            left.set()

    thread = threading.Thread(target=sleep)
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        thread.start()
        began = time.monotonic()
        pauses.sleep(3600)
        assert time.monotonic() - began < 5 and not left.is_set()
        over.set()
        assert left.wait(5)
        thread.join()
    finally:
        threading.excepthook = hook
    assert pauses.monotonic is time.monotonic
