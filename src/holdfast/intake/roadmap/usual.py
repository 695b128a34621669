"""Usual lines: a box at the margin with a plain title, taken out of a file all at once.

    lines ──usual_of──▶ Usual(boxes, titles, …, rest)      of ten thousand such lines nothing is made one by one

Invariants
  U1  A usual line is no other kind of line, only the most frequent one: with one more blank in it, it is read by the
      long way, and means the same. Behind its box is a text at whose ends nothing stands but a title.
  U2  Whether a line is usual does not depend on other lines. What that means does: it may be code, or a legend.
  U3  `rest` is the file without these lines, and each line in it is whole. A usual line closes no code, so what stands
      in `rest` is what would be found in the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add
from typing import NamedTuple

_USUAL = re.compile(
    r"\n[-*+][ ]\[([ xX])\][ ](?![TtSs](?:ask|tep)[ ]\d++(?![ ][a-z]))([A-Za-z][a-z][^\n]*+)(?<=[\x21-\x39\x3b-\x7e])"
)
# From the newline before the line to its title; the mark stands here in the file itself, which is one character behind.
FRONT = len("\n- [ ] ")
MARK = len("- [")
# What stands in the box of a line that is done.
TICKED = frozenset("xX")


class Usual(NamedTuple):
    """The usual lines of a file in columns, and all else."""

    boxes: Sequence[str]
    titles: Sequence[str]
    # What stands below each, up to the next one; the outline makes it over into its own.
    tails: list[str]
    # Where each begins, with the newline before it; the last is the end of the lines.
    starts: list[int]
    rest: str
    # Where in the rest each was taken out; the last is the end of the rest.
    gaps: Sequence[int]

    def ahead(self, seen: int) -> int:
        """By how much an offset in the rest is behind one in the lines, with so many of them before it."""
        return self.starts[seen] - self.gaps[seen]


def usual_of(lines: str) -> Usual:
    """Splitting at them is the fastest way to have their parts: no object is made for a match."""
    parts = _USUAL.split(lines)
    between, boxes, titles = parts[0::3], parts[1::3], parts[2::3]
    gaps = list(accumulate(map(len, between)))
    ahead = accumulate(map(add, map(len, titles), repeat(FRONT)), initial=0)
    starts = list(map(add, gaps, ahead))
    rest = "".join(between)
    # No list is copied where that can be helped: it takes a look at each of ten thousand objects.
    del between[0]
    return Usual(boxes, titles, between, starts, rest, gaps)
