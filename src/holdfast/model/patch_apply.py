"""Applying one file's patch to its bytes: exactly, else elsewhere, else with less context; and always told.

    tried                                            accepted when
    ────────────────────────────────────────────────────────────────────────────────────────────────────
    at the line that the hunk names                  every old line is there, no earlier hunk had to move, and where
                                                     one end has less context, the file ends there
    anywhere after the hunk before                   there is exactly one such place
    the same with 1, then 2 outer context lines less there is exactly one such place

Invariants
  A1  Removed lines and the context that counts are equal byte for byte; blanks and line ends are never ignored.
  A2  Two places where a hunk would fit are none: the answer is NotApplying, never the nearest.
  A3  Hunks keep their order and do not overlap.
  A4  A hunk without a single old line is placed by its number or not at all.
  A5  Nothing is joined to a line that has no end, and no line without an end gets into the middle.
  A6  Cost is linear in the file for each hunk and each amount of fuzz: texts are searched, not lines compared.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple, TypeAlias

from holdfast.model.patch import FilePatch, Hunk, Line, Patch, reverse

MOST_FUZZ = 2


class Placed(NamedTuple):
    """Where a hunk went: the old line its first old line is, how far that is from where it said, context ignored."""

    line: int
    offset: int
    fuzz: int


class Applied(NamedTuple):
    data: bytes
    hunks: tuple[Placed, ...]

    @property
    def exact(self) -> bool:
        return all(not placed.offset and not placed.fuzz for placed in self.hunks)


class NotApplying(NamedTuple):
    """`hunk` counts from 1, 0 for the file as a whole; `line` is the line of the patch's text."""

    reason: str
    hunk: int = 0
    line: int = 0


Outcome: TypeAlias = Applied | NotApplying


class _Found(NamedTuple):
    """The line (from 0) at which a trimmed hunk fits, and how many leading lines were trimmed."""

    line: int
    trimmed: int
    lines: tuple[Line, ...]
    fuzz: int


class _File:
    """Bytes, and where each of their lines begins; the last entry is the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.starts = [0]
        at = data.find(b"\n")
        while at >= 0:
            self.starts.append(at + 1)
            at = data.find(b"\n", at + 1)
        if self.starts[-1] != len(data):
            self.starts.append(len(data))

    @property
    def lines(self) -> int:
        return len(self.starts) - 1

    def fits(self, text: bytes, line: int) -> bool:
        """Do exactly these lines stand there?"""
        if not 0 <= line <= self.lines:
            return False
        end = self.starts[line] + len(text)
        whole = text.endswith(b"\n") or not text or end == len(self.data)
        return whole and self.data.startswith(text, self.starts[line])

    def places(self, text: bytes, first: int) -> list[int]:
        """The first two lines, from `first` on, where these lines stand: two are as bad as many."""
        found = [first] if self.fits(text, first) else []
        start = max(self.starts[min(first, self.lines)] - 1, 0)
        # A line begins after a newline; so only whole lines are found, and a long file is searched by the C library.
        at = self.data.find(b"\n" + text, start)
        while at >= 0 and len(found) < 2:
            line = bisect_left(self.starts, at + 1)
            if line not in found and line >= first and self.fits(text, line):
                found.append(line)
            at = self.data.find(b"\n" + text, at + 1)
        return found


def apply(data: bytes, file: FilePatch, *, fuzz: int = MOST_FUZZ) -> Outcome:
    """The new bytes, or why not. A created file starts from nothing; what a deletion leaves over is a reason."""
    text = _File(data)
    if file.old_path is None and data:
        return NotApplying("the file is new in the patch, and exists already", line=file.at)
    pieces: list[bytes] = []
    placed: list[Placed] = []
    done, drift = 0, 0
    for number, hunk in enumerate(file.hunks, 1):
        found = _find(text, hunk, done, drift, fuzz)
        if isinstance(found, str):
            return NotApplying(_explained(found, data, file), number, hunk.at)
        old = b"".join(line.text for line in found.lines if line.sign != "+")
        begin = text.starts[found.line]
        pieces += (data[text.starts[done] : begin], b"".join(line.text for line in found.lines if line.sign != "-"))
        done = bisect_left(text.starts, begin + len(old))
        if hunk.place >= 0:
            drift = found.line - found.trimmed - hunk.place
        placed.append(Placed(found.line - found.trimmed + 1, drift if hunk.place >= 0 else 0, found.fuzz))
    pieces.append(data[text.starts[done] :])
    return _joined(pieces, tuple(placed), file)


def _joined(pieces: list[bytes], placed: tuple[Placed, ...], file: FilePatch) -> Outcome:
    whole = [piece for piece in pieces if piece]
    if not all(piece.endswith(b"\n") for piece in whole[:-1]):  # A5
        return NotApplying("it would join lines, since one of them has no newline at its end", line=file.at)
    if file.new_path is None and whole:
        return NotApplying("it deletes the file, and leaves some of its content", line=file.at)
    return Applied(b"".join(whole), placed)


def _find(text: _File, hunk: Hunk, first: int, drift: int, most_fuzz: int) -> _Found | str:
    """Where the hunk belongs, or why that cannot be said."""
    old = b"".join(hunk.old)
    if not old:
        return _insertion(text, hunk, first, drift)
    if not drift and hunk.place >= first and text.fits(old, hunk.place) and _is_at_its_border(text, hunk):
        return _Found(hunk.place, 0, hunk.lines, 0)
    for fuzz in range(most_fuzz + 1):
        lines, trimmed = _trimmed(hunk, fuzz)
        rest = b"".join(line.text for line in lines if line.sign != "+")
        if fuzz and (len(lines) == len(hunk.lines) or not rest):
            break
        places = text.places(rest, first)
        if len(places) > 1:
            return "it fits in more than one place" + (f" when {fuzz} context lines are ignored" if fuzz else "")
        if places:
            return _Found(places[0], trimmed, lines, fuzz)
    return "its old lines are not there"


def _insertion(text: _File, hunk: Hunk, first: int, drift: int) -> _Found | str:
    """A4."""
    if hunk.place < 0 or drift:
        return "it only adds lines, and nothing says where"
    if not first <= hunk.place <= text.lines:
        return f"it adds lines after line {hunk.place}, which is not there"
    return _Found(hunk.place, 0, hunk.lines, 0)


def _is_at_its_border(text: _File, hunk: Hunk) -> bool:
    """Less context at one end means that the file ended there; if it does not any more, the number proves nothing."""
    lead, trail = _contexts(hunk)
    if lead == trail:
        return True
    return hunk.place == 0 if lead < trail else hunk.place + len(hunk.old) == text.lines


def _contexts(hunk: Hunk) -> tuple[int, int]:
    """How many lines of context stand before the first change, and after the last."""
    changed = [n for n, line in enumerate(hunk.lines) if line.sign != " "]
    return (changed[0], len(hunk.lines) - 1 - changed[-1]) if changed else (0, 0)


def _trimmed(hunk: Hunk, fuzz: int) -> tuple[tuple[Line, ...], int]:
    """With that much less context; the longer end is trimmed first, since the shorter one met the file's border."""
    lead, trail = _contexts(hunk)
    most = max(lead, trail)
    before, after = max(0, fuzz - (most - lead)), max(0, fuzz - (most - trail))
    before, after = min(before, lead), min(after, trail)
    return hunk.lines[before : len(hunk.lines) - after], before


def _explained(reason: str, data: bytes, file: FilePatch) -> str:
    """The reason, and what a person would find out next."""
    if not file.copied and file.kind == "change" and _is_applied(data, file):
        return f"{reason}; the file looks as if the patch had been applied already"
    texts = [line.text for hunk in file.hunks for line in hunk.lines if line.sign != "+"]
    carriage = sum(text.endswith(b"\r\n") for text in texts)
    if texts and data and (b"\r\n" in data) != bool(carriage):
        has, lacks = ("the file's", "the patch's") if b"\r\n" in data else ("the patch's", "the file's")
        return f"{reason}; {has} lines end in CR LF, {lacks} do not"
    return reason


def _is_applied(data: bytes, file: FilePatch) -> bool:
    back = reverse(Patch((file,))).files[0]
    text, done = _File(data), 0
    for hunk in back.hunks:
        found = _find(text, hunk, done, 0, 0)
        if isinstance(found, str):
            return False
        done = bisect_left(text.starts, text.starts[found.line] + len(b"".join(hunk.old)))
    return True
