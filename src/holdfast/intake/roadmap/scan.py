"""Scanning: the lines of a Markdown file that mean something to a roadmap, in order, in one pass.

    bytes ──text_of──▶ Text ──usual_of──▶ rest ──LINE──▶ matches, whose `lastindex` is one of ITEM, HEADING, FIELD …

Invariants
  S1  Every offset is one into `Text.raw`, which gives the file back byte for byte: what is normalised keeps its length.
      `Text.lines` is one character ahead: a line in it begins with the newline before it. A match is in the rest of
      these lines, without the usual ones, and its offsets are behind by what was taken out before it.
  S2  One regular expression finds the next line of interest. A match never leaves its line, but for CODE, which ends
      where a line begins as a fence does; nothing in it can come back to a character over and over, so time grows with
      the size of the file whatever stands in it.
  S3  What stands in a closed code fence or in a comment is no item. A fence that is never closed hides nothing:
      a slip of a person must not lose the tasks below it.
  S4  CODE is no other kind of code, only the usual one: nothing in it looks like a fence but its ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from holdfast.intake.roadmap.marks import SIGN, Mark, box_mark, sign_mark, signed

BOM = b"\xef\xbb\xbf"
# The words before a colon that say something about a phase, a section or a task.
_FIELDS = (
    "[Ff]iles?(?:[ ](?:to|affected|changed|involved)[a-z ]{0,24})?"
    "|[Gg]oals?|[Oo]bjective|[Pp]urpose|[Pp]riority|[Ee]ffort|[Ee]stimated[ ](?:[Ee]ffort|[Tt]ime)|[Ee]stimate"
    "|[Pp]rerequisites?|[Dd]epends[ ][Oo]n|[Dd]ependencies|[Bb]locked[ ][Bb]y"
    "|[Aa]ccept(?:ance)?(?:[ ][Tt]est)?|[Vv]erify|[Tt]est[ ][Cc]ommand"
)
# The number of a section, as its heading begins.
SECTION_NUMBER = r"(\d{1,6}+(?:\.\d{1,6}+){0,8}+)[.:)]?+[ \t]"
_SAID = rf"({_FIELDS})(?::(?:\*\*|__)|(?:\*\*|__|)[ \t]?:)[ \t]*+([^\n]*+)"
# What a look ahead rules out at the first characters costs nothing more: most lines are prose, and those that do not
# begin as a field does are left at once. A heading with the number of a section is told apart here, where its number is
# read anyway, if nothing stands in it but ASCII without the signs *, _, ~ and [ and it ends with a letter or a digit.
# A field may stand in a quote (`> **Goal**: …`, `> - **Goal**: …`); nothing else in a quote is read.
LINE = re.compile(
    rf"""\n(?![ ]*+[A-Za-z\n][^*_obursfelic])([ \t]*+)(?:
        (?=[-*+\d\[])(?:(?:[-*+]|(\d{{1,9}}[.)]))[ \t]++(?:\[(.?)\](?![^ \t\n])[ \t]*+)?|\[(.?)\](?![^ \t\n])[ \t]*+)
        ([^\n]*+)
      | \#(\#{{0,5}})[ \t]++(?:({SECTION_NUMBER}[\0-\t\v-)+-Z\\-^`-}}\x7f]*+(?<=[A-Za-z0-9])(?![^\n]))|([^\n]*+))
      | (?:>[ \t]*+(?:[-*+][ \t]++)?+)?+(?=[*_GOPEDBFAVTgopedbfavt][*_obursfelic])(?:\*\*|__|){_SAID}
      | (?=[`~])(?:(`{{3,32}}+)[^`\n]*+(?:\n(?![ \t]*+```)[^\n]*+)*+\n[ \t]*+\12`*+[ \t]*+(?![^\n])
        |(`{{3,32}}+(?=[^`\n]*+(?![^\n]))|~{{3,32}}+))
      | (?=[^\0-9;-\x7f])({SIGN})[ \t]*+([^\n]*+)
      | <!--
    )""",
    re.VERBOSE,
)
ITEM, NUMBERED, HEADING, FIELD, CODE, FENCE, SIGNED = 5, 7, 9, 11, 12, 13, 15
# It has no group but the blanks before it.
COMMENT = 1
_FIELD = re.compile(rf"(?:\*\*|__|){_SAID}")
# Between several fields on one line: `**Priority**: high | **Effort**: 2 days`.
_FIELD_END = re.compile(r"[ \t]*+[|·•][ \t]*+(?=\*\*|__)")


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


class Item(NamedTuple):
    """A list item, or a line that begins with a box or a sign."""

    indent: int
    # Its number, as in `1.`; empty where it has none.
    bullet: str
    mark: Mark | None
    text: str
    # Where the mark stands in the file.
    mark_start: int
    mark_end: int
    boxed: bool


class Field(NamedTuple):
    """A line such as `**Files**: a.py`."""

    name: str
    value: str


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


def width_of(blanks: str) -> int:
    return len(blanks.expandtabs(4)) if "\t" in blanks else len(blanks)


def item_of(found: re.Match[str], ahead: int) -> Item:
    """The item on a line that is an ITEM or SIGNED; in the lines it stands this much further on."""
    # Offsets in the lines are one ahead of those in the file.
    return _listed(found, ahead - 1) if found.lastindex == ITEM else _signed_line(found, ahead - 1)


def unknown_mark(found: re.Match[str]) -> str:
    """The character in a box that is neither a mark nor a footnote; empty where there is none."""
    if found.lastindex != ITEM:
        return ""
    char = found[3] or found[4] or ""
    return char if char and box_mark(char) is None and not char.isdigit() else ""


def _listed(found: re.Match[str], ahead: int) -> Item:
    blanks, bullet, boxed, bare, text = found.group(1, 2, 3, 4, 5)
    width = width_of(blanks) if blanks else 0
    group, char = (3, boxed) if boxed is not None else (4, bare)
    if char is not None:
        mark = box_mark(char)
        if mark is None:
            return Item(width, bullet or "", None, text, 0, 0, False)
        place = found.start(group) + ahead
        return Item(width, bullet or "", mark, text, place, place + len(char), True)
    sign = signed(text.rstrip())
    if sign is None:
        return Item(width, bullet or "", None, text, 0, 0, False)
    place = found.start(5) + ahead
    return Item(width, bullet or "", sign.mark, sign.text, place + sign.start, place + sign.end, False)


def _signed_line(found: re.Match[str], ahead: int) -> Item:
    """A line that begins with a sign; without a mark where it is a legend or has no words."""
    sign, words = found[14], found[15].rstrip()
    place = found.start(14) + ahead
    mark = sign_mark(sign) if signed(f"{sign} {words}".rstrip()) is not None else None
    return Item(width_of(found[1]), "", mark, words, place, place + len(sign), False)


@cache
def _closing(fence: str) -> re.Pattern[str]:
    """The line that closes a fence: as long at least. There are sixty fences, so the cache is small."""
    return re.compile(rf"\n[ \t]*+{re.escape(fence[0])}{{{len(fence)},}}+[ \t]*+(?=\n|\Z)")


def end_of_fence(fence: str, lines: str, position: int) -> int:
    """Where the code ends whose fence ends here; 0 where it never does."""
    closed = _closing(fence).search(lines, position)
    return closed.end() if closed is not None else 0


def fields_in(name: str, value: str) -> Iterator[Field]:
    """The field of a line, and those that follow it on the same line."""
    first, *others = _FIELD_END.split(value) if "**" in value or "__" in value else (value,)
    yield Field(name.lower(), first.strip())
    yield from (field for text in others if (field := field_in(text)) is not None)


def field_in(text: str) -> Field | None:
    """The field that a bullet spells: `- **Files**: a.py`."""
    found = _FIELD.match(text)
    return Field(found[1].lower(), found[2].strip()) if found else None
