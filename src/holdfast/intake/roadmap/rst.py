"""reStructuredText: the blocks of a file whose titles are underlined.

A title is a line with a line of one sign below it that is as long at least; the order in which the signs come up says
how deep. Directives and comments (`..`) hide what is indented below them, but for `.. todo::`, which is a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.intake.roadmap.blocks import Block, Item
from holdfast.intake.roadmap.scan import item_at

_RULE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*\Z")
_ITEM = re.compile(r"([ \t]*+)(?:[-*+•]|#\.|\d{1,9}[.)]|\(\d{1,9}\))[ \t]")
_DIRECTIVE = re.compile(r"([ \t]*+)\.\.(?:[ \t]|\Z)(?:([\w-]{1,40})::[ \t]*+([^\n]*+))?")


def rst_blocks(lines: str) -> Iterator[Block]:
    rows = lines.split("\n")
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row) + 1)
    levels: dict[str, int] = {}
    place = 0
    while place < len(rows):
        behind = place + 1
        row, start, end = rows[place], starts[place], starts[place + 1] - 1
        below = rows[behind] if behind < len(rows) else ""
        over, under = _RULE.match(row), _RULE.match(below)
        third = rows[place + 2] if place + 2 < len(rows) else ""
        if over and below.strip() and not under and _RULE.match(third):
            behind = place + 3
            yield _title(below, over[1] * 2, levels, place + 2, starts[place + 1], starts[behind] - 1)
        elif row.strip() and not over and not row[0].isspace() and under and len(below.strip()) >= len(row.strip()):
            behind = place + 2
            yield _title(row, under[1], levels, place + 1, start, starts[behind] - 1)
        elif (directive := _DIRECTIVE.match(row)) is not None:
            while behind < len(rows) and (not rows[behind].strip() or _indent(rows[behind]) > len(directive[1])):
                behind += 1
            yield from _directed(directive, rows, starts, place, behind)
        elif _ITEM.match(row):
            yield Block("item", place + 1, start, end, item=_item(lines, row, start, end))
        place = behind


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _title(row: str, sign: str, levels: dict[str, int], line: int, start: int, end: int) -> Block:
    level = levels.setdefault(sign, len(levels) + 1)
    at = start + _indent(row)
    return Block("heading", line, start, end, level=level, words=row.strip(), words_start=at)


def _item(lines: str, row: str, start: int, end: int) -> Item:
    """`#.` numbers by itself, and `(1)` is a number as well."""
    found = _ITEM.match(row)
    assert found is not None
    bullet = row[found.end(1) : found.end() - 1]
    if bullet[0] in "-*+" or bullet[0].isdigit():
        return item_at(lines, start, end)
    text = row[found.end() :]
    number = "1." if bullet != "•" else ""
    return Item(found.end(1), number, None, text.strip(), 0, 0, "number" if number else "bullet")


def _directed(found: re.Match[str], rows: list[str], starts: list[int], place: int, behind: int) -> Iterator[Block]:
    end = starts[behind] - 1
    if found[2] != "todo":
        yield Block("hidden", place + 1, starts[place], end)
        return
    words = found[3].strip() or next((row.strip() for row in rows[place + 1 : behind] if row.strip(" \t:")), "")
    if words:
        item = Item(len(found[1]), "", None, words, 0, 0, "bullet")
        yield Block("item", place + 1, starts[place], starts[place + 1] - 1, item=item)
