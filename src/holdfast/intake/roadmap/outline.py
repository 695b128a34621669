"""The outline of a file: its phases and sections, and drafts of tasks in columns.

Invariants
  O1  A draft is the match of its line. Only one that is not PLAIN, or stands where more has to be thought of, has an
      item as well: of ten thousand usual lines nothing is made one by one but their matches.
  O2  What is known of every draft stands in columns, each made in one go when the whole file was seen.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from operator import sub
from typing import NamedTuple

from holdfast.intake.roadmap.marks import Mark
from holdfast.intake.roadmap.scan import Field, Item


@dataclass(slots=True)
class PhaseDraft:
    number: str
    title: str
    level: int
    start: int
    line: int = 0
    goal: str = ""
    priority: str = ""
    effort: str = ""
    prerequisite: str = ""


class Section(NamedTuple):
    title: str
    number: str
    start: int
    level: int
    # Its phase, by its place in the outline; none is -1.
    phase: int
    # The place of its first draft, or of the next one behind it.
    first: int
    # What the lines that list files say; more may come.
    files: list[str]


class Step(NamedTuple):
    """A subtask."""

    start: int
    mark: Mark
    text: str


@dataclass(slots=True)
class Outline:
    title: str = ""
    phases: list[PhaseDraft] = field(default_factory=list)
    sections: list[Section] = field(default_factory=lambda: [Section("", "", 0, 0, -1, 0, [])])
    # Tasks, and what may be one: the match of each, and by their places the items of those that are not plain.
    drafts: list[re.Match[str]] = field(default_factory=list)
    items: dict[int, Item] = field(default_factory=dict)
    # For each draft: where its line begins and ends, where the text below it ends, its line, the place of its section.
    starts: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    # By the place of the draft that they belong to.
    steps: dict[int, list[Step]] = field(default_factory=dict)
    fields: dict[int, list[Field]] = field(default_factory=dict)
    hidden: list[tuple[int, int]] = field(default_factory=list)
    # Whether anything but tasks says that this is a roadmap: a goal, an effort, a list of files.
    described: bool = False

    def keep(self, kept: Sequence[int]) -> None:
        """Leave out all drafts but these."""
        self.drafts = [self.drafts[place] for place in kept]
        self.starts = [self.starts[place] for place in kept]
        self.heads = [self.heads[place] for place in kept]
        self.ends = [self.ends[place] for place in kept]
        self.lines = [self.lines[place] for place in kept]
        self.places = [self.places[place] for place in kept]
        self.items = {new: self.items[old] for new, old in enumerate(kept) if old in self.items}
        self.steps = {new: self.steps[old] for new, old in enumerate(kept) if old in self.steps}
        self.fields = {new: self.fields[old] for new, old in enumerate(kept) if old in self.fields}


def measure(outline: Outline, lines: str, closed: Mapping[int, int]) -> None:
    """Columns for all drafts at once, because most of the time goes into steps of the interpreter."""
    starts = outline.starts = [draft.start() for draft in outline.drafts]
    outline.heads = [draft.end() for draft in outline.drafts]
    ends = outline.ends = [*starts[1:], len(lines) - 1][: len(starts)]
    for place, end in closed.items():
        ends[place] = end
    # The newline before the first line was put there by us, and each line begins with one: so lines count from 1.
    newlines = map(lines.count, repeat("\n"), chain((0,), starts), starts)
    outline.lines = list(accumulate(newlines, initial=1))[1:]
    firsts = [section.first for section in outline.sections]
    amounts = map(sub, [*firsts[1:], len(starts)], firsts)
    outline.places = list(chain.from_iterable(map(repeat, range(len(firsts)), amounts)))


class LineNumbers:
    """Line numbers for offsets that grow; each is counted from the nearest draft, or from the one asked for before."""

    def __init__(self, text: str, outline: Outline) -> None:
        self.text, self.starts, self.lines = text, outline.starts, outline.lines
        self.offset, self.line = 0, 1

    def at(self, offset: int) -> int:
        place = bisect_right(self.starts, offset) - 1
        if place >= 0 and self.starts[place] > self.offset:
            self.offset, self.line = self.starts[place], self.lines[place]
        self.line += self.text.count("\n", self.offset, offset)
        self.offset = offset
        return self.line
