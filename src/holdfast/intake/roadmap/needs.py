"""Needs: what the tasks of a Markdown file say must come before them.

    the file ──STEMS──▶ where a clause may begin ──_said──▶ by task: clauses ──named──▶ by task: ids

Invariants
  E1  Every "depends on" that names nothing is a remark.
  E2  Code and comments say nothing, and neither does what stands below a task without being part of it.
  E3  A clause is sought only where one of the stems stands, so a file without them costs a few searches for words.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, chain, count
from operator import add
from typing import NamedTuple

from holdfast.intake.roadmap.order import declared_order
from holdfast.intake.roadmap.outline import Outline
from holdfast.intake.roadmap.references import (
    MAX_EXPANDED,
    STEMS,
    Clause,
    Names,
    Places,
    clause_at,
    clauses,
    named,
    spelling,
    unique,
    wholes,
)
from holdfast.intake.roadmap.scan import Text
from holdfast.model.task import Remark


class Rows(NamedTuple):
    """The tasks of a file in columns: what each is called, and the text below it."""

    ids: Sequence[str]
    titles: Sequence[str]
    numbers: Sequence[str]
    bodies: Sequence[str]
    # The places of those whose title may be written otherwise than it stands here.
    retold: Collection[int]


def needs_of(rows: Rows, outline: Outline, text: Text, remarks: list[Remark]) -> dict[int, tuple[str, ...]]:
    """By the place of a task, the ids of those that must come before; only of tasks that need any."""
    mentions = {stem: places for stem in STEMS if (places := _mentions(stem, text.lines))}
    if not mentions:
        return {}
    found: dict[int, list[str]] = {}
    names = Names(rows.ids, rows.titles, rows.numbers, lambda: _places(rows, outline))
    said = sorted(_said(mentions, rows, outline, text.lines).items())
    spent = 0
    for (place, stated), whole in zip(said, wholes([stated[0].text for _, stated in said], names), strict=True):
        # Most say one thing, and it is a title: `_before` would do the same with them.
        if len(stated) == 1 and whole is not None and whole != rows.ids[place]:
            before = [whole]
        else:
            before = _before(place, stated, rows, outline, names, text, remarks)
        spent += len(before)
        if before:
            found[place] = before
        if spent >= MAX_EXPANDED:
            line = outline.lines[place]
            remarks.append(Remark(line, "too many dependencies: those below this line are left out"))
            break
    declared = list(declared_order(outline, names, text, remarks))
    place_of = {id: place for place, id in enumerate(rows.ids)} if declared else {}
    for id, earlier in declared:
        found.setdefault(place_of[id], []).append(earlier)
    others = {place: unique(before, rows.ids[place]) for place, before in found.items()}
    return others if all(others.values()) else {place: before for place, before in others.items() if before}


def _said(mentions: Mapping[str, list[int]], rows: Rows, outline: Outline, lines: str) -> dict[int, list[Clause]]:
    """By the place of a task, what it says must come before: in its title, then below it."""
    found: dict[int, list[Clause]] = {}
    for place in rows.retold:
        title, body = rows.titles[place], rows.bodies[place]
        if (said := clauses(title)) and any(stem in title or stem in body for stem in mentions):
            found[place] = [Clause(words, outline.starts[place]) for words in said]
    starts, heads, ends, retold = outline.starts, outline.heads, outline.ends, rows.retold
    hidden = [start for start, _ in outline.hidden]
    position = 0
    for at in sorted(chain.from_iterable(mentions.values())):
        place = bisect_right(starts, at) - 1
        if at < position or place < 0 or at > ends[place] or (at < heads[place] and place in retold):
            continue
        clause = clause_at(lines, at, ends[place] + 1)
        # E2: the last code that begins before it may end behind it.
        if clause is not None and not ((before := bisect_left(hidden, at)) and at <= outline.hidden[before - 1][1]):
            # It goes to the end of its line: another one in it is a part of this one.
            words, position = clause
            found.setdefault(place, []).append(tuple.__new__(Clause, (words, at)))
    return found


def _mentions(stem: str, lines: str) -> list[int]:
    """Where a clause with this stem may begin, in order."""
    # A letter that is nowhere is missed much faster than a word.
    if STEMS[stem] not in lines or len(parts := lines.split(stem)) == 1:
        return []
    del parts[-1]
    # All but this one begin with the letter before the stem, which may be large or small.
    ahead = stem != "epend"
    return list(map(add, accumulate(map(len, parts)), count(-ahead, len(stem))))


def _before(
    place: int, said: Sequence[Clause], rows: Rows, outline: Outline, names: Names, text: Text, remarks: list[Remark]
) -> list[str]:
    found: list[str] = []
    own, line, position = rows.ids[place], outline.lines[place], outline.heads[place]
    phase = outline.section_of(place).phase
    near = outline.phases[phase].number if phase >= 0 else ""
    for clause, at in said:
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
