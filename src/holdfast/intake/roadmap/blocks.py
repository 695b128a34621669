"""Blocks: what the readers of Markdown, org-mode and reStructuredText find, and the text that they find it in.

Every offset is one into `Text.raw`, which gives the file back byte for byte: what is normalised keeps its length.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.intake.roadmap.marks import Mark

BOM = b"\xef\xbb\xbf"
Kind = Literal["item", "field", "heading", "end", "hidden", "odd"]
# By what an item is found: its box, its sign, its cell in a table, its keyword; the others have no mark.
ItemKind = Literal["box", "sign", "cell", "keyword", "number", "bullet", "heading"]


class Text(NamedTuple):
    """A file as characters. `raw` has its own line ends; `lines` knows only newlines, in the same places."""

    raw: str
    lines: str
    bom: bool
    # Some bytes are no UTF-8: they stand in `raw` as lone surrogates, which must not get into a noun.
    broken: bool

    def clean(self, text: str) -> str:
        """A part of the file as a noun may hold it."""
        if self.broken:
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return text.replace("\0", "\ufffd")


class Block(NamedTuple):
    """A line of interest, or several that belong together: from where to where, the last newline not among them."""

    kind: Kind
    # Its first line; they count from 1.
    line: int
    start: int
    end: int
    # What is odd about it.
    odd: str = ""
    item: Item | None = None
    # Of fields: what they say. Of fields and headings: how far they are indented, how deep they are.
    fields: tuple[Field, ...] = ()
    level: int = 0
    # The words of a heading, and where they begin.
    words: str = ""
    words_start: int = 0


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
    kind: ItemKind
    # The character in its box that is neither a mark nor a footnote.
    unknown: str = ""
    # A row of a table that tells how far whole phases are.
    summary: bool = False


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
    return Text(raw, raw.replace("\r\n", " \n").replace("\r", "\n"), bom, broken)


def bytes_of(text: Text, raw: str) -> bytes:
    return (BOM if text.bom else b"") + raw.encode("utf-8", "surrogateescape")


def width_of(blanks: str) -> int:
    return len(blanks.expandtabs(4))
