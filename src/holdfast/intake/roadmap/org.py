"""Org-mode: the blocks of an outline whose headings say TODO and DONE.

A heading with a keyword is a task, headings and boxes below it are its subtasks; boxes below other headings are tasks.
`#+TODO: A B | C` names other keywords; those after the bar are done. A word that is not named is a part of the title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.intake.roadmap.blocks import Block, Item
from holdfast.intake.roadmap.marks import BOXES, Mark, box_mark
from holdfast.intake.roadmap.scan import item_at

_HEADING = re.compile(r"(\*{1,100})[ \t]++(?:([A-Z][A-Z0-9_-]{1,20})(?![^ \t]))?[ \t]*+([^\n]*+)")
_ITEM = re.compile(r"[ \t]*+(?:[-+]|\d{1,9}[.)]|[ \t]\*)[ \t]")
_SAYS_TODO = re.compile(r"(?m)^\*{1,9} (?:TODO|DONE) ")
_MARKDOWN = re.compile(r"(?m)^#{1,6} ")
_BEGIN = re.compile(r"(?i)[ \t]*+#\+begin_(\w{1,20})")
_END = re.compile(r"(?im)^[ \t]*+#\+end_(\w{1,20})")
_KEYWORDS = re.compile(r"(?i)#\+(?:seq_|typ_)?todo:[ \t]*+([^\n]*+)")
_TITLE = re.compile(r"(?i)#\+title:[ \t]*+([^\n]*+)")
_TAGS = re.compile(r"(?:[ \t]+:[\w@#%:]{1,200}:)?[ \t]*+\Z")
_COOKIE = re.compile(r"[ \t]*\[(?:\d{0,6}/\d{0,6}|\d{0,3}%)\]")
_PRIORITY = re.compile(r"\[#[A-Z0-9]\][ \t]*+")
_OPEN = "TODO NEXT DOING STARTED STRT INPROGRESS IN-PROGRESS PROG PROJ WAITING WAIT HOLD REVIEW FIXME MAYBE SOMEDAY"
_DONE = "DONE COMPLETE COMPLETED FINISHED FIXED CLOSED"
_DROPPED = "CANCELLED CANCELED CANCEL CANX KILL KILLED WONTFIX DONT-DO DONTDO ABANDONED REJECTED OBSOLETE"
_HELD = frozenset(("HOLD", "MAYBE", "SOMEDAY", "DEFERRED"))
# How far a heading of the first level is indented: a task below another one is one of its subtasks.
_MARGIN = -200


def is_org(lines: str) -> bool:
    """Whether a file of another name is one: a heading says TODO or DONE, and none is one of Markdown."""
    return _SAYS_TODO.search(lines) is not None and _MARKDOWN.search(lines) is None


def org_blocks(lines: str) -> Iterator[Block]:
    known = _keywords(lines)
    ends = {found[1].lower(): found.start() for found in _END.finditer(lines)}
    position = number = begun = plain = task = 0
    hidden = ""
    for line in lines.split("\n"):
        start, end = position, position + len(line)
        position, number = end + 1, number + 1
        if hidden:
            if line.strip().lower() == f"#+end_{hidden}":
                yield Block("hidden", number, begun, end)
                hidden = ""
        elif (block := _BEGIN.match(line)) is not None and ends.get(block[1].lower(), 0) > start:
            hidden, begun = block[1].lower(), start
        elif (title := _TITLE.match(line)) is not None and title[1].strip():
            yield Block("heading", number, start, end, level=1, words=title[1].strip(), words_start=start)
        elif (heading := _HEADING.match(line)) is not None:
            level, found = len(heading[1]), _headed(heading, known, number, start, end)
            if found.kind == "item":
                if level <= plain:
                    plain = 0
                    yield Block("heading", number, start, start, level=level + 1)
                if not (task and level > task):
                    task = level
                yield found
            elif not (task and level > task):
                task, plain = 0, level
                yield found
        elif _ITEM.match(line):
            yield Block("item", number, start, end, item=item_at(lines, start, end, _box))


def _box(char: str) -> Mark | None:
    """`[-]` is a box some of whose parts are done."""
    return Mark("open", "X", "-") if char == "-" else box_mark(char) if char in BOXES or not char.isalnum() else None


def _headed(heading: re.Match[str], known: dict[str, Mark], number: int, start: int, end: int) -> Block:
    level, keyword = len(heading[1]), heading[2] or ""
    mark = known.get(keyword)
    at = heading.start(3) if mark is not None or not keyword else heading.start(2)
    words = _COOKIE.sub("", _PRIORITY.sub("", _TAGS.sub("", heading.string[at:]), 1)).strip()
    if mark is None or not words:
        return Block("heading", number, start, end, level=level + 1, words=words, words_start=start + at)
    item = Item(_MARGIN + 2 * level, "", mark, words, start + heading.start(2), start + heading.end(2), "keyword")
    return Block("item", number, start, end, item=item, level=level + 1)


def _keywords(lines: str) -> dict[str, Mark]:
    """What each keyword says, and what to write for the other answer."""
    groups = [(found[1].split("|")[0], "|".join(found[1].split("|")[1:])) for found in _KEYWORDS.finditer(lines)]
    known: dict[str, Mark] = {}
    usual = (_OPEN.split(), [*_DONE.split(), *_DROPPED.split()])
    for still, done in (*((_bare(first), _bare(rest)) for first, rest in groups), usual):
        if len(done) == 0 and len(still) > 1:
            still, done = still[:-1], still[-1:]
        if not still or not done:
            continue
        for word in still:
            known.setdefault(word, Mark("held" if word in _HELD else "open", done[0], word))
        for word in done:
            known.setdefault(word, Mark("dropped" if word in _DROPPED.split() else "done", word, still[0]))
    return known


def _bare(words: str) -> list[str]:
    """Keywords without what stands behind them in brackets: `WAIT(w@/!)`."""
    return [bare for word in words.split()[:40] if (bare := word.partition("(")[0])]
