"""Needs: what the tasks of a Markdown file say must come before them.

    the file ──STEMS──▶ where a clause may begin ──_said──▶ Said, by task ──named──▶ by task: ids

Invariants
  E1  Every "depends on" that names nothing is a remark.
  E2  Code and comments say nothing, and neither does what stands below a task without being part of it.
  E3  A clause is sought only where one of the stems stands, so a file without them costs a few searches for words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain, count
from operator import add
from typing import NamedTuple

from holdfast.intake.roadmap.order import declared_order
from holdfast.intake.roadmap.outline import Outline
from holdfast.intake.roadmap.references import (
    CLAUSE,
    MAX_EXPANDED,
    STEMS,
    Names,
    Places,
    clauses,
    named,
    sentences,
    spelling,
    unique,
    wholes,
)
from holdfast.intake.roadmap.scan import Text
from holdfast.model.task import Remark

# A letter is seldom that stands once in so many: to look at each takes a tenth of the time that the word would.
_SELDOM = 4_000


class Rows(NamedTuple):
    """The tasks of a file in columns: what each is called, and the text below it."""

    ids: Sequence[str]
    titles: Sequence[str]
    # The titles again, by newlines.
    joined: str
    numbers: Sequence[str]
    bodies: Sequence[str]
    # The places of those whose title may be written otherwise than it stands here.
    retold: Collection[int]


class Said(NamedTuple):
    """What tasks say must come before them, in columns: by the places of the tasks, in a title before what is below."""

    places: Sequence[int]
    texts: Sequence[str]
    # Where in the file.
    offsets: Sequence[int]


def needs_of(rows: Rows, outline: Outline, text: Text, remarks: list[Remark]) -> dict[int, tuple[str, ...]]:
    """By the place of a task, the ids of those that must come before; only of tasks that need any."""
    mentions = {stem: places for stem in STEMS if (places := _mentions(stem, text.lines))}
    if not mentions:
        return {}
    names = Names(rows.ids, rows.titles, rows.joined, rows.numbers, lambda: _places(rows, outline))
    said = _said(mentions, rows, outline, text.lines)
    ones = wholes(said.texts, names)
    single: dict[int, tuple[str, ...]] = {}
    several: dict[int, list[str]] = {}
    first = spent = 0
    for place, amount in Counter(said.places).items():
        # Most say one thing, and it is a title: `_before` would do the same with them.
        if amount == 1 and (one := ones[first]) is not None and one != rows.ids[place]:
            single[place] = (one,)
            spent += 1
        else:
            stated = zip(said.texts[first : first + amount], said.offsets[first : first + amount], strict=True)
            several[place] = _before(place, stated, rows, outline, names, text, remarks)
            spent += len(several[place])
        if spent >= MAX_EXPANDED:
            line = outline.lines[place]
            remarks.append(Remark(line, "too many dependencies: those below this line are left out"))
            break
        first += amount
    declared = list(declared_order(outline, names, text, remarks))
    place_of = {id: place for place, id in enumerate(rows.ids)} if declared else {}
    for id, earlier in declared:
        place = place_of[id]
        several.setdefault(place, [*single.pop(place, ())]).append(earlier)
    return single | {place: ids for place, before in several.items() if (ids := unique(before, rows.ids[place]))}


def _said(mentions: Mapping[str, list[int]], rows: Rows, outline: Outline, lines: str) -> Said:
    places: list[int] = []
    texts: list[str] = []
    offsets: list[int] = []
    starts, ends, hidden, retold = outline.starts, outline.ends, outline.hidden, rows.retold
    before = position = 0
    for at in sorted(chain.from_iterable(mentions.values())):
        place = bisect_right(starts, at) - 1
        if at < position or place < 0 or at > ends[place] or (place in retold and at < outline.head(place)):
            continue
        clause = CLAUSE.match(lines, at, ends[place] + 1)
        while before < len(hidden) and hidden[before][0] < at:
            before += 1
        # E2: the last code that begins before it may end behind it.
        if clause is not None and not (before and at <= hidden[before - 1][1]):
            places.append(place)
            texts.append(clause[1])
            offsets.append(at)
            # It goes to the end of its line: another one in it is a part of this one.
            position = clause.end()
    return _with_titles(Said(places, sentences(texts), offsets), mentions, rows, outline)


def _with_titles(below: Said, mentions: Collection[str], rows: Rows, outline: Outline) -> Said:
    """What is said below the tasks, and before that what those titles say that may be written otherwise."""
    places: list[int] = []
    texts: list[str] = []
    for place in rows.retold:
        title, body = rows.titles[place], rows.bodies[place]
        if (said := clauses(title)) and any(stem in title or stem in body for stem in mentions):
            places += [place] * len(said)
            texts += said
    if not places:
        return below
    offsets = [*(outline.starts[place] for place in places), *below.offsets]
    places += below.places
    texts += below.texts
    order = sorted(range(len(places)), key=places.__getitem__)
    return Said([places[n] for n in order], [texts[n] for n in order], [offsets[n] for n in order])


def _mentions(stem: str, lines: str) -> list[int]:
    """Where a clause with this stem may begin, in order."""
    if not _may_be_in(stem, lines) or len(parts := lines.split(stem)) == 1:
        return []
    del parts[-1]
    # All but this one begin with the letter before the stem, which may be large or small.
    ahead = stem != "epend"
    return list(map(add, accumulate(map(len, parts)), count(-ahead, len(stem))))


def _may_be_in(stem: str, lines: str) -> bool:
    """A letter that is nowhere, or seldom, is missed much faster than a word."""
    letter, at = STEMS[stem], -1
    before = stem.index(letter)
    for _ in range(1 + len(lines) // _SELDOM):
        if (at := lines.find(letter, at + 1)) < 0:
            return False
        if lines.startswith(stem, max(at - before, 0)):
            return True
    return True


def _before(
    place: int, stated: Iterable[tuple[str, int]], rows: Rows, outline: Outline, names: Names, text: Text,
    remarks: list[Remark],
) -> list[str]:  # fmt: skip
    found: list[str] = []
    own, line, position = rows.ids[place], outline.lines[place], outline.head(place)
    phase = outline.section_of(place).phase
    near = outline.phases[phase].number if phase >= 0 else ""
    for clause, at in stated:
        ids, lost = named(clause, names, near)
        found += ids
        if not lost and own not in ids:
            continue
        # From the last one on, so that many in one task are not counted over and over; those in the title come first.
        line, position = line + text.lines.count("\n", position, at), max(position, at)
        remarks += [
            Remark(line, f"depends on {text.clean(what)!r}, which is not the name of one task here") for what in lost
        ]
        if ids == [own]:
            remarks.append(Remark(line, "this task depends on itself"))
    return found


def _places(rows: Rows, outline: Outline) -> Places:
    named: dict[str, list[str]] = {}
    in_phase: dict[str, list[str]] = {phase.number: [] for phase in outline.phases}
    spelled = [spelling(phase.title) for phase in outline.phases]
    for id, number, section in zip(rows.ids, rows.numbers, outline.spread(outline.sections), strict=True):
        if section.phase >= 0:
            within = outline.phases[section.phase].number
            in_phase[within].append(id)
            named.setdefault(spelled[section.phase], []).append(id)
            if number.isdigit():
                named.setdefault(f"{within}.{number}", []).append(id)
        if section.number:
            named.setdefault(section.number, []).append(id)
    return Places(named, in_phase)
