"""Formats: which reader a file is for. Its content decides; a name that ends in .json says that it must be JSON."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

from holdfast.intake.roadmap.acceptance import remarks_of
from holdfast.intake.roadmap.located import Fault, located
from holdfast.intake.roadmap.markdown import markdown_reading
from holdfast.intake.roadmap.reading import Reading
from holdfast.intake.roadmap.scan import Text, text_of
from holdfast.intake.roadmap.taskfile import is_task_file, task_reading
from holdfast.model.task import Remark, Roadmap

NAME = "ROADMAP.md"
_Read = TypeVar("_Read")


def parse(data: bytes, name: str = NAME) -> Roadmap:
    """The tasks of a roadmap. Any bytes give one; what is odd about them is told in its remarks."""
    return _undisturbed(lambda: _remarked(_read(text_of(data), name)))


def _remarked(reading: Reading) -> Roadmap:
    """The roadmap, with what is odd about its commands."""
    found = reading.roadmap
    unfit = tuple(remarks_of(reading.commanded))
    return found._replace(remarks=tuple(sorted((*found.remarks, *unfit)))) if unfit else found


def reading_of(text: Text, name: str) -> Reading:
    return _undisturbed(lambda: _read(text, name))


def _undisturbed(read: Callable[[], _Read]) -> _Read:
    """Python's garbage collector rests meanwhile: a reading is tuples of tuples without cycles, and it would walk all
    of them again each time that their number has grown by a quarter. What only the reading needed is gone when it is on
    again, so that it sees what is kept.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return read()
    finally:
        # Also where somebody else turned it off for a while beside us: then that one turns it on again as well.
        if was_on:
            gc.enable()


def _read(text: Text, name: str) -> Reading:
    is_json = name.lower().endswith(".json")
    start = text.raw[:1_000].lstrip()[:1]
    if is_json or start in ("{", "["):
        try:
            top = located(text.raw)
        except Fault as fault:
            if is_json:
                return _unread(text.raw.count("\n", 0, fault.offset) + 1, f"not valid JSON: {fault.message}")
            return markdown_reading(text)
        if is_json or is_task_file(top):
            return task_reading(text.raw, top)
    return markdown_reading(text)


def _unread(line: int, what: str) -> Reading:
    return Reading(Roadmap("prose", "", (), (), (Remark(line, what),)), (), dict)
