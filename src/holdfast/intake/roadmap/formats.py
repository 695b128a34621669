"""Formats: which reader a file is for. Its content decides; a name that ends in .json says that it must be JSON."""

from __future__ import annotations

from holdfast.intake.roadmap.acceptance import remarks_of
from holdfast.intake.roadmap.blocks import Text, text_of
from holdfast.intake.roadmap.located import Fault, located
from holdfast.intake.roadmap.markdown import outline_reading
from holdfast.intake.roadmap.org import is_org, org_blocks
from holdfast.intake.roadmap.reading import Reading
from holdfast.intake.roadmap.rst import rst_blocks
from holdfast.intake.roadmap.scan import blocks_of
from holdfast.intake.roadmap.taskfile import is_task_file, task_reading
from holdfast.model.task import Remark, Roadmap

NAME = "ROADMAP.md"


def parse(data: bytes, name: str = NAME) -> Roadmap:
    """The tasks of a roadmap. Any bytes give one; what is odd about them is told in its remarks."""
    return _remarked(reading_of(text_of(data), name))


def _remarked(reading: Reading) -> Roadmap:
    """The roadmap, with what is odd about its commands."""
    found = reading.roadmap
    unfit = tuple(remarks_of(reading.commanded))
    return found._replace(remarks=tuple(sorted((*found.remarks, *unfit)))) if unfit else found


def reading_of(text: Text, name: str) -> Reading:
    is_json = name.lower().endswith(".json")
    start = text.raw[:1_000].lstrip()[:1]
    if is_json or start in ("{", "["):
        try:
            top = located(text.raw)
        except Fault as fault:
            if is_json:
                return _unread(text.raw.count("\n", 0, fault.offset) + 1, f"not valid JSON: {fault.message}")
            return _outlined(text, name)
        if is_json or is_task_file(top):
            return task_reading(text.raw, top)
    return _outlined(text, name)


def _outlined(text: Text, name: str) -> Reading:
    ending = name.lower().rpartition(".")[2]
    if ending == "org" or (ending not in ("md", "markdown", "rst") and is_org(text.lines)):
        return outline_reading(text, org_blocks(text.lines), name, "org")
    if ending in ("rst", "rest"):
        return outline_reading(text, rst_blocks(text.lines), name, "rst")
    return outline_reading(text, blocks_of(text.lines), name)


def _unread(line: int, what: str) -> Reading:
    return Reading(Roadmap("prose", "", (), (), (Remark(line, what),)), (), dict)
