"""The outline of a file: its phases and sections, and drafts of tasks in columns.

Invariants
  O1  A draft has an item unless its line is usual: of ten thousand usual lines nothing is made one by one.
  O2  What is known of every draft stands in columns, each made in one go when the whole file was seen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, repeat
from operator import sub
from typing import NamedTuple, TypeAlias, TypeVar

from holdfast.intake.roadmap.marks import Mark
from holdfast.intake.roadmap.scan import Field, Item
from holdfast.intake.roadmap.usual import Usual

_Cell = TypeVar("_Cell", int, str)
_Value = TypeVar("_Value")


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


class Apart(NamedTuple):
    """A draft on a line that is not usual: where its line begins and ends."""

    start: int
    head: int


# Drafts in order: usual lines, by their places among these, and single others.
Piece: TypeAlias = range | Apart


@dataclass(slots=True)
class Outline:
    title: str = ""
    phases: list[PhaseDraft] = field(default_factory=list)
    sections: list[Section] = field(default_factory=lambda: [Section("", "", 0, 0, -1, 0, [])])
    # Tasks, and what may be one: by their places the items of those that are not usual.
    items: dict[int, Item] = field(default_factory=dict)
    # For each draft: the box and the text of its line where that is usual.
    boxes: Sequence[str] = ()
    texts: Sequence[str] = ()
    # For each draft: what stands below its line, from the newline on; there may be blanks at its end.
    tails: list[str] = field(default_factory=list)
    # For each draft: where its line begins and ends, where the text below it ends, its line.
    starts: Sequence[int] = ()
    heads: Sequence[int] = ()
    ends: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    # For each section: the place of its first draft, or of the next one behind it.
    firsts: list[int] = field(default_factory=list)
    # By the place of the draft that they belong to.
    steps: dict[int, list[Step]] = field(default_factory=dict)
    fields: dict[int, list[Field]] = field(default_factory=dict)
    hidden: list[tuple[int, int]] = field(default_factory=list)
    # Whether anything but tasks says that this is a roadmap: a goal, an effort, a list of files.
    described: bool = False

    def keep(self, kept: Sequence[int]) -> None:
        """Leave out all drafts but these."""
        self.boxes = [self.boxes[place] for place in kept]
        self.texts = [self.texts[place] for place in kept]
        self.tails = [self.tails[place] for place in kept]
        self.starts = [self.starts[place] for place in kept]
        self.heads = [self.heads[place] for place in kept]
        self.ends = [self.ends[place] for place in kept]
        self.lines = [self.lines[place] for place in kept]
        self.firsts = [bisect_left(kept, first) for first in self.firsts]
        self.items = {new: self.items[old] for new, old in enumerate(kept) if old in self.items}
        self.steps = {new: self.steps[old] for new, old in enumerate(kept) if old in self.steps}
        self.fields = {new: self.fields[old] for new, old in enumerate(kept) if old in self.fields}

    def section_of(self, place: int) -> Section:
        """The section in which a draft stands."""
        return self.sections[bisect_right(self.firsts, place) - 1]

    def spread(self, cells: Iterable[_Value]) -> Iterator[_Value]:
        """For each draft what belongs to its section, of which there is one for each section."""
        amounts = map(sub, [*self.firsts[1:], len(self.starts)], self.firsts)
        return chain.from_iterable(map(repeat, cells, amounts))


def measure(outline: Outline, lines: str, usual: Usual, pieces: Sequence[Piece], closed: Mapping[int, int]) -> None:
    """Columns for all drafts at once, because most of the time goes into steps of the interpreter."""
    single = [piece for piece in pieces if isinstance(piece, Apart)]
    outline.boxes = _column(usual.boxes, pieces, repeat(""))
    outline.texts = _column(usual.titles, pieces, repeat(""))
    starts = outline.starts = _column(usual.starts, pieces, (draft.start for draft in single))
    outline.heads = _column(usual.heads, pieces, (draft.head for draft in single))
    outline.ends = list(islice(starts, 1, None))
    outline.ends += [len(lines) - 1] if starts else []
    outline.tails = _tails(outline, lines, usual, pieces)
    for place, end in closed.items():
        outline.ends[place] = end
        outline.tails[place] = lines[outline.heads[place] : end + 1].rstrip()
    # The newline before the first line was put there by us, and each line begins with one: so lines count from 1.
    newlines = map(lines.count, repeat("\n"), chain((0,), starts), starts)
    outline.lines = list(accumulate(newlines, initial=1))
    del outline.lines[0]
    outline.firsts = [section.first for section in outline.sections]


def _column(usual: Sequence[_Cell], pieces: Sequence[Piece], others: Iterable[_Cell]) -> Sequence[_Cell]:
    """The cells of the drafts: those of usual lines, and between them those of the others in order."""
    if _are_all(usual, pieces):
        return usual
    cells: list[_Cell] = []
    other = iter(others)
    for piece in pieces:
        if isinstance(piece, range):
            cells += usual[piece.start : piece.stop]
        else:
            cells.append(next(other))
    return cells


def _tails(outline: Outline, lines: str, usual: Usual, pieces: Sequence[Piece]) -> list[str]:
    if _are_all(usual.tails, pieces):
        return usual.tails
    ends = chain(islice(outline.starts, 1, None), (len(lines),))
    return [lines[head:end] for head, end in zip(outline.heads, ends, strict=False)]


def _are_all(usual: Sequence[str] | Sequence[int], pieces: Sequence[Piece]) -> bool:
    """Whether every usual line is a draft, and nothing else is."""
    return pieces == [range(len(usual))]


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
