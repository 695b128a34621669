"""Listeners: told in order, one at a time, and none of them can stop a run."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.engine.listeners import Listeners
from holdfast.errors import InvalidInput
from holdfast.model.run import EVENTS, RunEvent, RunStarted, TaskMoved, TaskStarted

START = RunStarted("u-1", "ROADMAP.md", 1, 1)
TASK = TaskStarted("u-1", "t", 1, "claude")


class Room:
    """Listeners, what was warned of, and who heard what."""

    def __init__(self) -> None:
        self.warned: list[str] = []
        self.heard: list[tuple[str, RunEvent]] = []
        self.listeners = Listeners(self.warned.append)

    def ear(self, name: str) -> Callable[[RunEvent], None]:
        return lambda event: self.heard.append((name, event))


@pytest.fixture
def room() -> Room:
    return Room()


def moved(n: int) -> TaskMoved:
    return TaskMoved("u-1", "t", "PENDING", str(n))


def test_a_listener_hears_what_it_asked_for(room: Room) -> None:
    """One name brings that event alone, the star brings all; in the order in which they were added."""
    room.listeners.on("*", room.ear("all"))
    room.listeners.on("TASK_STARTED", room.ear("task"))
    room.listeners.on("*", room.ear("last"))
    room.listeners(START)
    room.listeners(TASK)
    assert room.heard == [("all", START), ("last", START), ("all", TASK), ("task", TASK), ("last", TASK)]


@pytest.mark.parametrize("name", EVENTS)
def test_every_name_can_be_listened_to(name: str, room: Room) -> None:
    """Each event that there is has a name to listen to."""
    room.listeners.on(name, room.ear("x"))


@pytest.mark.parametrize("name", ["", "task_started", "TASK_DONE", "**"])
def test_an_unknown_name_is_refused(name: str, room: Room) -> None:
    """A name that no event has is an error at once, and not silence for ever; the hint lists the names."""
    with pytest.raises(InvalidInput) as refused:
        room.listeners.on(name, print)
    assert all(event in refused.value.hint for event in EVENTS)


def test_twice_is_once_and_off_is_off(room: Room) -> None:
    """Adding the same again changes nothing, removing it ends it, and removing what is not there is no error."""
    ear = room.ear("x")
    room.listeners.on("*", ear)
    room.listeners.on("*", ear)
    room.listeners(START)
    assert len(room.heard) == 1
    room.listeners.off("*", ear)
    room.listeners.off("TASK_STARTED", ear)
    room.listeners(START)
    assert len(room.heard) == 1


def test_a_listener_that_raises_stops_nothing(room: Room) -> None:
    """The others hear the event, the person hears of it once, and it is called again the next time."""

    def broken(event: RunEvent) -> None:
        room.heard.append(("broken", event))
        raise RuntimeError("no\nway\x1b[2J https://me:hunter2@example.invalid/ " + "x" * 10_000)

    room.listeners.on("*", broken)
    room.listeners.on("*", room.ear("other"))
    room.listeners(START)
    room.listeners(TASK)
    assert room.heard == [("broken", START), ("other", START), ("broken", TASK), ("other", TASK)]
    (text,) = room.warned
    assert "broken" in text and "EXECUTION_STARTED" in text and "RuntimeError: no" in text
    assert "hunter2" not in text and text.isprintable() and len(text) < 500
    assert room.listeners.failures == 2


def test_two_that_raise_are_told_one_by_one(room: Room) -> None:
    """The first failure of each is told, also of callables that have no name and no hash."""

    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, event: RunEvent) -> None:
            raise ValueError

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    def mute(event: RunEvent) -> None:
        raise Unspeakable

    room.listeners.on("*", Odd())
    room.listeners.on("*", mute)
    room.listeners(START)
    room.listeners(START)
    assert ["Odd" in room.warned[0], "mute" in room.warned[1], len(room.warned)] == [True, True, 2]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_wish_to_end_is_no_error(kind: type[BaseException], room: Room) -> None:
    """Ctrl-C and sys.exit pass through, and the next event is told as ever."""

    def leave(event: RunEvent) -> None:
        if event == START:
            raise kind

    room.listeners.on("*", leave)
    room.listeners.on("*", room.ear("x"))
    with pytest.raises(kind):
        room.listeners(START)
    room.listeners(TASK)
    assert room.heard == [("x", TASK)]
    assert room.warned == []


def test_an_event_out_of_an_event_comes_after_it(room: Room) -> None:
    """When a listener causes another event, everybody hears the first one first."""

    def causing(event: RunEvent) -> None:
        room.heard.append(("causing", event))
        if event == START:
            room.listeners(TASK)

    room.listeners.on("*", causing)
    room.listeners.on("*", room.ear("x"))
    room.listeners(START)
    assert room.heard == [("causing", START), ("x", START), ("causing", TASK), ("x", TASK)]


def test_listeners_may_come_and_go_while_one_is_told(room: Room) -> None:
    """One that is removed by another is not told any more; one that is added hears from the next event on."""
    late, gone = room.ear("late"), room.ear("gone")

    def changing(event: RunEvent) -> None:
        room.listeners.off("*", gone)
        room.listeners.off("*", changing)
        room.listeners.on("*", late)

    room.listeners.on("*", changing)
    room.listeners.on("*", gone)
    room.listeners(START)
    assert room.heard == []
    room.listeners(TASK)
    assert room.heard == [("late", TASK)]


def test_threads_are_told_one_at_a_time(room: Room) -> None:
    """Events from several threads all arrive, never two at once, and in the same order for everybody."""
    inside, most = 0, 0

    def count(event: RunEvent) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        room.heard.append(("count", event))
        inside -= 1

    room.listeners.on("*", count)
    room.listeners.on("*", room.ear("x"))

    def cause(first: int) -> None:
        for n in range(200):
            room.listeners(moved(first + n))

    threads = [threading.Thread(target=cause, args=(first,)) for first in (0, 1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heard = {name: [event for who, event in room.heard if who == name] for name in ("count", "x")}
    assert most == 1
    assert heard["count"] == heard["x"] and len(heard["x"]) == 800
