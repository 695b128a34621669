"""Scanning: the blocks of a Markdown file that mean something to a roadmap, in order.

    lines ──blocks_of──▶ Block(kind, line, …)      headings, items, fields, rows of tables, what is hidden

The library (markdown-it-py) finds code, quotes, tables and headings. Items are found by a rule of ours, line by line:
a list that nests a thousand deep is read to its last item, a box counts without a bullet, and how far an item is
indented is ours to judge.

Invariants
  S1  Time grows with the size of the file whatever stands in it: a rule looks at a line, or at what is hidden once.
  S2  What stands in a closed code fence, in a comment or in a quote is no item. A fence that is never closed hides
      nothing: a slip of a person must not lose the tasks below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from holdfast.intake.roadmap.blocks import Block, Field, Item, width_of
from holdfast.intake.roadmap.marks import SIGN, Mark, box_mark, sign_mark, signed
from holdfast.intake.roadmap.tables import rows_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock

# The words before a colon that say something about a phase, a section or a task.
_FIELDS = (
    "[Ff]iles?(?:[ ](?:to|affected|changed|involved)[a-z ]{0,24})?"
    "|[Gg]oals?|[Oo]bjective|[Pp]urpose|[Pp]riority|[Ee]ffort|[Ee]stimated[ ](?:[Ee]ffort|[Tt]ime)|[Ee]stimate"
    "|[Pp]rerequisites?|[Dd]epends[ ][Oo]n|[Dd]ependencies|[Bb]locked[ ][Bb]y"
    "|[Aa]ccept(?:ance)?(?:[ ][Tt]est)?|[Vv]erify|[Tt]est[ ][Cc]ommand"
)
_SAID = rf"({_FIELDS})(?::(?:\*\*|__)|(?:\*\*|__|)[ \t]?:)[ \t]*+([^\n]*+)"
_LISTED = re.compile(
    r"([ \t]*+)(?:(?:[-*+]|(\d{1,9}[.)]))[ \t]++(?:\[(.?)\](?![^ \t\n])[ \t]*+)?|\[(.?)\](?![^ \t\n])[ \t]*+)([^\n]*+)"
)
_SIGNED = re.compile(rf"([ \t]*+)({SIGN})[ \t]*+([^\n]*+)")
_FIELD = re.compile(rf"(?:\*\*|__|){_SAID}")
_BLANKS = re.compile(r"[ \t]*+")
# A field may stand in a quote (`> **Goal**: …`, `> - **Goal**: …`); nothing else in a quote is read.
_QUOTED = re.compile(r"[ \t]*+>[ \t]*+(?:[-*+][ \t]++)?+")
_FENCE = re.compile(r"[ \t]*+(`{3,32}(?!`)|~{3,32}(?!~))")
_HEADING = re.compile(r"[ \t]*+(#{1,6}+)[ \t]++([^\n]*+)")
_UNDERLINED = re.compile(r"[ \t]*+([^\n]*+)\n[ \t]*+([=-])")
_UNDERLINE = re.compile(r"(?:={2,}|-{2,})[ \t]*+\Z")
# Between several fields on one line: `**Priority**: high | **Effort**: 2 days`.
_FIELD_END = re.compile(r"[ \t]*+[|·•][ \t]*+(?=\*\*|__)")


# ── blocks ──


def blocks_of(lines: str) -> Iterator[Block]:
    """The blocks of a file that stand in no other, but for the fields in quotes."""
    from markdown_it.rules_block import StateBlock

    library = _library()
    odd: dict[int, str] = {}
    state = StateBlock(lines, library, {"odd": odd}, [])
    state.env["closed"] = _closed_fences(state)
    library.block.tokenize(state, 0, state.lineMax)
    for token in state.tokens:
        if token.level or token.map is None:
            continue
        first, behind = token.map
        where = (first + 1, state.bMarks[first], state.eMarks[behind - 1], odd.get(first, ""))
        if token.type == "item":
            yield Block("item", *where, item=item_at(lines, where[1], where[2]))
        elif token.type == "field":
            yield fields_at(lines, Block("field", *where))
        elif token.type == "heading_open":
            yield from heading_at(lines, Block("heading", *where))
        elif token.type in ("fence", "comment"):
            yield Block("hidden", *where)
        elif token.type == "table_open":
            yield from rows_of(lines, [(line, state.bMarks[line], state.eMarks[line]) for line in range(first, behind)])
            yield Block("end", *where)
        elif token.type == "blockquote_open":
            for line in range(first, behind):
                start, end = state.bMarks[line], state.eMarks[line]
                if (quote := _QUOTED.match(lines, start, end)) and _FIELD.match(lines, quote.end(), end):
                    yield fields_at(lines, Block("field", line + 1, start, end))
        elif token.type == "odd":
            yield Block("odd", *where)


@cache
def _library() -> MarkdownIt:
    """The rules for blocks, ours among them. Nothing in a line is parsed, and nothing is rendered."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import fence, lheading

    def closed_fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return _is_closed(state, start) and fence(state, start, end, silent)

    def underlined(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        """A heading of one line: what stands above it might be a task."""
        return (
            start + 1 < end and bool(_UNDERLINE.match(_line(state, start + 1))) and lheading(state, start, end, silent)
        )

    library = MarkdownIt("zero", {"maxNesting": 20})
    library.enable(["table", "fence", "blockquote", "heading", "lheading"])
    rules = library.block.ruler
    everywhere: RuleOptionsType = {"alt": ["paragraph", "blockquote"]}
    rules.before("table", "comment", _comment, everywhere)
    rules.before("table", "item", _item, everywhere)
    rules.before("table", "field", _field, everywhere)
    rules.at("fence", closed_fence, everywhere)
    rules.at("lheading", underlined)
    rules.at("paragraph", _other)
    return library


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] : state.eMarks[line]]


def _push(state: StateBlock, kind: str, start: int, behind: int) -> None:
    state.push(kind, "", 0).map = [start, behind]
    state.line = behind


def _item(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    line = state.bMarks[start], state.eMarks[start]
    if not _LISTED.match(state.src, *line) and (state.parentType == "table" or not _SIGNED.match(state.src, *line)):
        return False
    if not silent:
        _push(state, "item", start, start + 1)
    return True


def _field(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if not _FIELD.match(state.src, state.bMarks[start] + state.tShift[start], state.eMarks[start]):
        return False
    if not silent:
        _push(state, "field", start, start + 1)
    return True


def _other(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Each line by itself: the library's paragraphs swallow what is indented below them."""
    if start in state.env["odd"]:
        _push(state, "odd", start, start + 1)
    state.line = start + 1
    return True


def _comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """It ends with the line in which it is closed."""
    place = state.bMarks[start] + state.tShift[start]
    if not state.src.startswith("<!--", place, state.eMarks[start]):
        return False
    if silent:
        return True
    closed = state.src.find("-->", place + 4, state.eMarks[end - 1])
    if closed < 0:
        state.env["odd"][start] = "this comment is never closed: all below it is hidden"
    last = start
    while last < end - 1 and (closed < 0 or state.eMarks[last] < closed):
        last += 1
    _push(state, "comment", start, last + 1)
    return True


def _is_closed(state: StateBlock, start: int) -> bool:
    """S2. What is no fence is none of our business here; in a quote the library knows best."""
    closed: bool | None = state.env["closed"].get(start)
    if closed is False and not state.level:
        state.env["odd"][start] = "this code fence is never closed: the lines below it are read as text"
    return bool(state.level or closed)


def _closed_fences(state: StateBlock) -> dict[int, bool]:
    """For each line that begins as a fence does, whether one below it closes it; found from the last one on."""
    closed: dict[int, bool] = {}
    longest = {"`": 0, "~": 0}
    for line in range(state.lineMax - 1, -1, -1):
        words = _line(state, line)
        if (found := _FENCE.match(words)) is not None:
            sign, length, info = found[1][0], len(found[1]), words[found.end() :]
            if sign == "~" or sign not in info:
                closed[line] = length <= longest[sign]
            if not info.strip():
                longest[sign] = max(longest[sign], length)
    return closed


# ── what stands on a line ──


def heading_at(lines: str, block: Block) -> Iterator[Block]:
    """The heading with its level and its words; none where there are only signs."""
    if (found := _HEADING.match(lines, block.start, block.end)) is not None:
        yield block._replace(level=len(found[1]), words=found[2].strip(), words_start=found.start(2))
    elif (found := _UNDERLINED.match(lines, block.start, block.end)) is not None:
        level = 1 if found[2] == "=" else 2
        yield block._replace(level=level, words=found[1].strip(), words_start=found.start(1))


def item_at(lines: str, start: int, end: int, boxes: Callable[[str], Mark | None] = box_mark) -> Item:
    """The item on this line."""
    found = _LISTED.match(lines, start, end)
    if found is None:
        found = _SIGNED.match(lines, start, end)
        assert found is not None  # the rule found it
        # Without a mark where it is a legend or has no words.
        words = found[3].rstrip()
        mark = sign_mark(found[2]) if signed(f"{found[2]} {words}".rstrip()) is not None else None
        return Item(width_of(found[1]), "", mark, words, *found.span(2), "sign")
    blanks, bullet, boxed, bare, text = found.groups()
    width = width_of(blanks)
    char = boxed if boxed is not None else bare
    unmarked = Item(width, bullet or "", None, text, 0, 0, "number" if bullet else "bullet")
    if char is not None:
        mark = boxes(char)
        if mark is None:
            return unmarked._replace(kind="box", unknown="" if char.isdigit() else char)
        return unmarked._replace(
            mark=mark,
            mark_start=found.start(3 if boxed is not None else 4),
            mark_end=found.end(3 if boxed is not None else 4),
            kind="box",
        )
    sign = signed(text.rstrip())
    if sign is None:
        return unmarked
    place = found.start(5)
    return Item(width, bullet or "", sign.mark, sign.text, place + sign.start, place + sign.end, "sign")


def fields_at(lines: str, block: Block) -> Block:
    """The block with what the fields on its line say, and how far they are indented."""
    blanks = _BLANKS.match(lines, block.start, block.end)
    quote = _QUOTED.match(lines, block.start, block.end)
    assert blanks is not None
    said = fields_in(lines[(quote or blanks).end() : block.end])
    return block._replace(level=width_of(blanks[0]), fields=tuple(said))


def fields_in(text: str) -> list[Field]:
    """The field with which a text begins (`**Files**: a.py`), and those that follow it on the same line."""
    found = _FIELD.match(text)
    if found is None:
        return []
    name, value = found[1], found[2]
    first, *others = _FIELD_END.split(value) if "**" in value or "__" in value else (value,)
    return [Field(name.lower(), first.strip()), *(field for other in others for field in fields_in(other)[:1])]
