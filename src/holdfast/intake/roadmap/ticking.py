"""Ticking: the marks of a roadmap file, and nothing else in it.

Invariants
  K1  Outside of the marks of the named tasks the result is the file, byte for byte; also where it is not UTF-8.
  K2  The file that comes out reads as asked: `parse(ticked(…))` has the wanted answers, and twice changes nothing more.
  K3  A mark that says the same already is left as it is, however it is spelled.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import InvalidInput
from holdfast.intake.roadmap.blocks import bytes_of, text_of
from holdfast.intake.roadmap.formats import NAME, reading_of


def tickable(data: bytes, name: str = NAME) -> frozenset[str]:
    """The ids of the tasks that have a mark in the file. `ticked` leaves the others as they are."""
    return frozenset(reading_of(text_of(data), name).spots())


def boxes(data: bytes, name: str = NAME) -> dict[str, bool]:
    """What the marks of the file say, by the ids of their tasks."""
    reading = reading_of(text_of(data), name)
    spots = reading.spots()
    return {task.id: task.done for task in reading.roadmap.tasks if task.id in spots}


def ticked(data: bytes, name: str, done: Mapping[str, bool]) -> bytes:
    """The file with the marks of these tasks set; InvalidInput where an id is of no task in it."""
    text = text_of(data)
    reading = reading_of(text, name)
    now = {task.id: task.done for task in reading.roadmap.tasks}
    if unknown := sorted(id for id in done if id not in now):
        raise InvalidInput(
            f"{name} has no task {', '.join(unknown[:5])}", hint="See what there is with: holdfast tasks"
        )
    spots = reading.spots()
    changes = sorted((spots[id], wanted) for id, wanted in done.items() if id in spots and now[id] != wanted)
    parts: list[str] = []
    position = 0
    for spot, wanted in changes:
        parts += (text.raw[position : spot.start], spot.when_done if wanted else spot.when_open)
        position = spot.end
    return bytes_of(text, "".join(parts) + text.raw[position:]) if changes else data
