"""Scanning: the lines of a Markdown file that mean something to a roadmap, in order, in one pass.

    bytes ──text_of──▶ Text ──LINE──▶ matches ──entry_of──▶ Heading | Item | Field …

Invariants
  S1  Every offset is one into `Text.raw`, which gives the file back byte for byte: what is normalised keeps its length.
  S2  One regular expression finds the next line of interest; nothing in it can come back to a character twice over,
      so time grows with the size of the file whatever stands in it.
  S3  What stands in a closed code fence or in a comment is no item. A fence that is never closed hides nothing:
      a slip of a person must not lose the tasks below it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple, TypeAlias

from holdfast.intake.roadmap.marks import SIGN, Mark, box_mark, sign_mark, signed
from holdfast.model.task import Remark

BOM = b"\xef\xbb\xbf"
# The words before a colon that say something about a phase, a section or a task.
_FIELDS = (
    "[Gg]oals?|[Oo]bjective|[Pp]urpose|[Pp]riority|[Ee]ffort|[Ee]stimated[ ](?:[Ee]ffort|[Tt]ime)|[Ee]stimate"
    "|[Pp]rerequisites?|[Dd]epends[ ][Oo]n|[Dd]ependencies|[Bb]locked[ ][Bb]y"
    "|[Ff]iles?(?:[ ](?:to|affected|changed|involved)[a-z ]{0,24})?"
    "|[Aa]ccept(?:ance)?(?:[ ][Tt]est)?|[Vv]erify|[Tt]est[ ][Cc]ommand"
)
LINE = re.compile(
    rf"""\n([ \t]*+)(?:
      (?:([-*+]|\d{{1,9}}[.)])[ \t]++(?:\[(.?)\](?![^ \t\n])[ \t]*+)?|\[(.?)\](?![^ \t\n])[ \t]*+)([^\n]*+)
    | (\#{{1,6}})[ \t]++([^\n]*+)
    | (`{{3,32}}+(?=[^`\n]*+(?:\n|\Z))|~{{3,32}}+)
    | (?:\*\*|__)?({_FIELDS})(?::(?:\*\*|__)|(?:\*\*|__)?[ \t]?:)[ \t]*+([^\n]*+)
    | ({SIGN})[ \t]*+([^\n]*+)
    | (<!--)
    )""",
    re.VERBOSE,
)
_FIELD = re.compile(rf"(?:\*\*|__)?({_FIELDS})(?::(?:\*\*|__)|(?:\*\*|__)?[ \t]?:)[ \t]*+([^\n]*+)")


class Text(NamedTuple):
    """A file as characters. `raw` has its own line ends; `lines` begins with one more, and knows only newlines."""

    raw: str
    lines: str
    bom: bool
    # Some bytes are no UTF-8: they stand in `raw` as lone surrogates, which must not get into a noun.
    broken: bool
    # It has line ends other than newlines.
    returns: bool
    # It has characters that `clean` replaces.
    dirty: bool

    def clean(self, text: str) -> str:
        """A part of the file as a noun may hold it."""
        if self.broken:
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return text.replace("\0", "\ufffd") if self.dirty else text


class Heading(NamedTuple):
    level: int
    text: str
    start: int
    end: int
    line: int


class Item(NamedTuple):
    """A list item, or a line that begins with a box or a sign. `start` and `end` are those of its line."""

    indent: int
    bullet: str
    mark: Mark | None
    text: str
    start: int
    end: int
    # Where the mark stands in the file.
    mark_start: int
    mark_end: int
    line: int
    boxed: bool
    # The places of its phase and its section in the outline; no phase is -1.
    phase: int = -1
    section: int = 0


class Field(NamedTuple):
    """A line such as `**Files**: a.py`."""

    name: str
    value: str
    indent: int
    start: int
    line: int


Entry: TypeAlias = Heading | Item | Field


def text_of(data: bytes) -> Text:
    bom = data.startswith(BOM)
    body = data[3:] if bom else data
    try:
        raw, broken = body.decode("utf-8"), False
    except UnicodeDecodeError:
        raw, broken = body.decode("utf-8", "surrogateescape"), True
    returns = "\r" in raw
    lines = raw.replace("\r\n", " \n").replace("\r", "\n") if returns else raw
    return Text(raw, "\n" + lines, bom, broken, returns, broken or "\0" in raw)


def bytes_of(text: Text, raw: str) -> bytes:
    return (BOM if text.bom else b"") + raw.encode("utf-8", "surrogateescape")


def entry_of(found: re.Match[str], line: int, remarks: list[Remark]) -> Entry | None:
    """The entry that a match spells; None where a fence or a comment begins."""
    kind = found.lastindex
    if kind == 5:
        return _item(found, line, remarks)
    if kind == 10:
        return Field(found[9].lower(), found[10].strip(), width_of(found[1]), found.start(), line)
    if kind == 7:
        return Heading(len(found[6]), found[7].strip(), found.start(), found.end() - 1, line)
    return _signed_line(found, line) if kind == 12 else None


def width_of(blanks: str) -> int:
    return len(blanks.expandtabs(4)) if "\t" in blanks else len(blanks)


def _item(found: re.Match[str], line: int, remarks: list[Remark]) -> Item:
    blanks, bullet, boxed, bare, text = found.group(1, 2, 3, 4, 5)
    group = 3 if boxed is not None else 4
    char = boxed if boxed is not None else bare
    width = width_of(blanks)
    if char is not None:
        mark = box_mark(char)
        if mark is not None:
            # Offsets in `lines` are one ahead of those in `raw`.
            place = found.start(group) - 1
            return Item(
                width, bullet or "", mark, text, found.start(), found.end() - 1, place, place + len(char), line, True
            )
        if not char.isdigit():
            remarks.append(Remark(line, f"[{char}] is no known mark: the line is not read as a task"))
        return Item(width, bullet or "", None, text, found.start(), found.end() - 1, 0, 0, line, False)
    sign = signed(text.rstrip())
    if sign is None:
        return Item(width, bullet, None, text, found.start(), found.end() - 1, 0, 0, line, False)
    place = found.start(5) - 1
    begin, end = place + sign.start, place + sign.end
    return Item(width, bullet, sign.mark, sign.text, found.start(), found.end() - 1, begin, end, line, False)


def _signed_line(found: re.Match[str], line: int) -> Item:
    """A line that begins with a sign; without a mark where it is a legend or has no words."""
    sign, words = found[11], found[12].rstrip()
    place = found.start(11) - 1
    mark = sign_mark(sign) if signed(f"{sign} {words}".rstrip()) is not None else None
    end = place + len(sign)
    return Item(width_of(found[1]), "", mark, words, found.start(), found.end() - 1, place, end, line, False)


@cache
def _closing(fence: str) -> re.Pattern[str]:
    """The line that closes a fence: as long at least. There are sixty fences, so the cache is small."""
    return re.compile(rf"\n[ \t]*+{re.escape(fence[0])}{{{len(fence)},}}+[ \t]*+(?=\n|\Z)")


def end_of_hidden(found: re.Match[str], lines: str, line: int, unclosed: dict[str, int], remarks: list[Remark]) -> int:
    """Where a comment or a fence that begins here ends; what never ends is told once."""
    fence = found[8]
    if fence is None:
        end = lines.find("-->", found.end())
        if end < 0:
            remarks.append(Remark(line, "this comment is never closed: all below it is hidden"))
        return end if end >= 0 else len(lines)
    if unclosed.get(fence[0], 99) <= len(fence):
        return 0
    closed = _closing(fence).search(lines, found.end())
    if closed is None:
        unclosed[fence[0]] = len(fence)
        remarks.append(Remark(line, "this code fence is never closed: the lines below it are read as text"))
        return 0
    return closed.end()


def field_of(item: Item) -> Field | None:
    """The field that a bullet spells: `- **Files**: a.py`."""
    found = _FIELD.match(item.text)
    return Field(found[1].lower(), found[2].strip(), item.indent, item.start, item.line) if found else None
