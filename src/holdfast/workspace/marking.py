"""Where two edits of one text meet, shown as lines with marks around them, for whoever has to bring them together.

    @@ line 12 @@
    <<<<<<< now
    what stands there now
    ||||||| before
    what stood there when the work began
    =======
    what the work makes of it
    >>>>>>> proposed

Invariant K1: bounded. A text that cannot be compared in good time, and what is beyond the limit, is left out in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from holdfast.workspace.merge import MAX_COMPARISONS

_LEFT_OUT = "… (more is left out)\n"


class _Meeting(NamedTuple):
    """One stretch where both sides differ from the text before, and from each other."""

    line: int
    now: list[str]
    before: list[str]
    proposed: list[str]

    def __str__(self) -> str:
        now, before, proposed = map(_text, (self.now, self.before, self.proposed))
        return (
            f"@@ line {self.line} @@\n<<<<<<< now\n{now}||||||| before\n{before}=======\n{proposed}>>>>>>> proposed\n"
        )


def marked_hunks(before: bytes, now: bytes, proposed: bytes, most: int, said: Callable[[str], str] = str) -> str:
    """All meetings in the order of the text, as long as they fit into `most` characters.

    `said` gives each its last form, before it is cut: half a secret has no shape that could be masked.
    """
    b, n, p = (text.decode("utf-8", "replace").splitlines(keepends=True) for text in (before, now, proposed))
    if len(b) * max(len(n), len(p)) > MAX_COMPARISONS:
        return "the texts are too long to be compared line by line\n"
    shown = ""
    for meeting in _meetings(b, n, p):
        text = said(str(meeting))
        if len(shown) + len(text) > most:
            return (shown + text)[: max(0, most - len(_LEFT_OUT))] + _LEFT_OUT
        shown += text
    return shown


def _meetings(before: list[str], now: list[str], proposed: list[str]) -> Iterator[_Meeting]:
    """Cut where a line of the text before stands on both sides; between two cuts all three may differ."""
    ours, theirs = _kept(before, now), _kept(before, proposed)
    at, at_now, at_proposed = 0, 0, 0
    for place in [*(line for line in range(len(before)) if line in ours and line in theirs), len(before)]:
        end_now, end_proposed = ours.get(place, len(now)), theirs.get(place, len(proposed))
        old, mine, other = before[at:place], now[at_now:end_now], proposed[at_proposed:end_proposed]
        if mine != old and other != old and mine != other:
            yield _Meeting(at + 1, mine, old, other)
        at, at_now, at_proposed = place + 1, end_now + 1, end_proposed + 1


def _kept(before: list[str], after: list[str]) -> dict[int, int]:
    """Which line of the text after each line before became, for those that are still there."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {block.a + n: block.b + n for block in blocks for n in range(block.size)}


def _text(lines: list[str]) -> str:
    text = "".join(lines)
    return text if not text or text.endswith("\n") else text + "\n"
