"""The outline of a file: its phases and sections, and drafts of tasks in columns.

Invariants
  O1  A draft has an item unless its line is usual: of ten thousand usual lines nothing is made one by one.
  O2  What is known of every draft stands in columns, each made in one go when the whole file was seen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from operator import sub
from typing import NamedTuple, TypeAlias, TypeVar

from holdfast.intake.roadmap.scan import Field, Item
from holdfast.intake.roadmap.usual import FRONT, Usual

_Cell = TypeVar("_Cell", int, str)
_Value = TypeVar("_Value")
# So many tails stay in the memory of the processor itself while one step follows the other.
_AT_ONCE = 500
# All bytes but newlines and what stands between tails.
_TEXT = bytes(n for n in range(256) if n not in b"\n\0")


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


@dataclass(slots=True)
class Steps:
    """The subtasks of a file in columns, in its order."""

    # The places of the drafts that they belong to; each of these has a mark.
    owners: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)


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
    # Empty once the bodies are made of it.
    tails: list[str] = field(default_factory=list)
    # By their places: where the lines of those drafts end that are not usual.
    heads: dict[int, int] = field(default_factory=dict)
    # For each draft: where its line begins, where the text below it ends, its line.
    starts: Sequence[int] = ()
    ends: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    # For each section: the place of its first draft, or of the next one behind it.
    firsts: list[int] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    # By the place of the draft that they belong to.
    fields: dict[int, list[Field]] = field(default_factory=dict)
    hidden: list[tuple[int, int]] = field(default_factory=list)
    # Whether anything but tasks says that this is a roadmap: a goal, an effort, a list of files.
    described: bool = False

    def keep(self, kept: Sequence[int]) -> None:
        """Leave out all drafts but these, among which are all that have a mark."""
        self.boxes = [self.boxes[place] for place in kept]
        self.texts = [self.texts[place] for place in kept]
        self.tails = [self.tails[place] for place in kept]
        self.starts = [self.starts[place] for place in kept]
        self.ends = [self.ends[place] for place in kept]
        self.lines = [self.lines[place] for place in kept]
        self.firsts = [bisect_left(kept, first) for first in self.firsts]
        self.heads = {new: self.heads[old] for new, old in enumerate(kept) if old in self.heads}
        self.items = {new: self.items[old] for new, old in enumerate(kept) if old in self.items}
        self.steps.owners = [bisect_left(kept, owner) for owner in self.steps.owners]
        self.fields = {new: self.fields[old] for new, old in enumerate(kept) if old in self.fields}

    def head(self, place: int) -> int:
        """Where the line of a draft ends."""
        return self.heads.get(place) or self.starts[place] + FRONT + len(self.texts[place])

    def section_of(self, place: int) -> Section:
        """The section in which a draft stands."""
        return self.sections[bisect_right(self.firsts, place) - 1]

    def spread(self, cells: Iterable[_Value]) -> Iterator[_Value]:
        """For each draft what belongs to its section, of which there is one for each section."""
        amounts = map(sub, [*self.firsts[1:], len(self.starts)], self.firsts)
        return chain.from_iterable(map(repeat, cells, amounts))


def measure(outline: Outline, lines: str, usual: Usual, pieces: Sequence[Piece], closed: Mapping[int, int]) -> None:
    """Columns for all drafts at once, because most of the time goes into steps of the interpreter."""
    # Mostly every usual line is a draft, and nothing else is.
    if pieces == [range(len(usual.boxes))]:
        outline.boxes, outline.texts, outline.tails, starts = usual.boxes, usual.titles, usual.tails, usual.starts
    else:
        starts = _put_together(outline, lines, usual, pieces)
    outline.ends = starts[1:]
    outline.ends[-1:] = [len(lines) - 1] if outline.ends else []
    del starts[-1]
    outline.starts = starts
    outline.lines = _line_numbers(starts, outline.tails, lines)
    tails, ends = outline.tails, outline.ends
    for place, end in closed.items():
        ends[place] = end
        tails[place] = lines[outline.head(place) : end + 1].rstrip()
    outline.firsts = [section.first for section in outline.sections]


def _put_together(outline: Outline, lines: str, usual: Usual, pieces: Sequence[Piece]) -> list[int]:
    """The columns where some drafts are no usual lines, or the reverse; returns where they begin, and the end."""
    single = [piece for piece in pieces if isinstance(piece, Apart)]
    outline.boxes = _column(usual.boxes, pieces, repeat(""))
    outline.texts = _column(usual.titles, pieces, repeat(""))
    outline.tails = _column(usual.tails, pieces, repeat(""))
    starts = outline.starts = _column(usual.starts, pieces, (draft.start for draft in single))
    starts.append(len(lines))
    place = -1
    for piece in pieces:
        place += len(piece) if isinstance(piece, range) else 1
        if isinstance(piece, Apart):
            outline.heads[place] = piece.head
        # What comes behind a piece is no usual line, or no draft.
        outline.tails[place] = lines[outline.head(place) : starts[place + 1]]
    return starts


def _line_numbers(starts: Sequence[int], tails: Sequence[str], lines: str) -> list[int]:
    """What is left of the tails is newlines, those before the drafts among them, and how many they are is their length.

    The newline before the first line was put there by us, and each line begins with one: so lines count from 1.
    """
    if not starts:
        return []
    first = lines.count("\n", 0, starts[0]) + 1
    if "\0" in lines:
        return list(accumulate(map(lines.count, repeat("\n"), starts, starts[1:]), initial=first))
    newlines: list[int] = []
    for start in range(0, len(tails), _AT_ONCE):
        joined = "\n\0".join(tails[start : start + _AT_ONCE]) + "\n"
        newlines += map(len, joined.encode("utf-8", "replace").translate(None, _TEXT).split(b"\0"))
    # Behind the last one is only the end.
    del newlines[-1]
    return list(accumulate(newlines, initial=first))


def _column(usual: Sequence[_Cell], pieces: Sequence[Piece], others: Iterable[_Cell]) -> list[_Cell]:
    """The cells of the drafts: those of usual lines, and between them those of the others in order."""
    cells: list[_Cell] = []
    other = iter(others)
    for piece in pieces:
        if isinstance(piece, range):
            cells += usual[piece.start : piece.stop]
        else:
            cells.append(next(other))
    return cells


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
