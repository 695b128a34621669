"""Needs: what the tasks of a Markdown file say must come before them.

Invariants
  E1  Every "depends on" that names nothing is a remark.
  E2  Code and comments say nothing, and neither does what stands below a task without being part of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.intake.roadmap.blocks import Text
from holdfast.intake.roadmap.order import declared_order
from holdfast.intake.roadmap.outline import Draft, Outline
from holdfast.intake.roadmap.references import (
    CLAUSE,
    MAX_EXPANDED,
    Names,
    Places,
    clauses,
    named,
    sentence,
    spelling,
    unique,
)
from holdfast.model.task import Remark


class Rows(NamedTuple):
    """The tasks of a file in columns: what each is called."""

    ids: Sequence[str]
    titles: Sequence[str]
    numbers: Sequence[str]


def needs_of(rows: Rows, outline: Outline, text: Text, remarks: list[Remark]) -> list[tuple[str, ...]]:
    """For each task the ids of those that must come before."""
    names = Names(rows.ids, rows.titles, rows.numbers, lambda: _places(rows, outline))
    found: list[list[str]] = [[] for _ in rows.ids]
    spent = 0
    for place, draft in enumerate(outline.drafts):
        found[place] = _before(place, rows, draft, outline, names, text, remarks)
        spent += len(found[place])
        if spent >= MAX_EXPANDED:
            remarks.append(Remark(draft.line, "too many dependencies: those below this line are left out"))
            break
    declared = list(declared_order(outline, names, text, remarks))
    place_of = {id: place for place, id in enumerate(rows.ids)} if declared else {}
    for id, earlier in declared:
        found[place_of[id]].append(earlier)
    return [unique(before, id) if before else () for id, before in zip(rows.ids, found, strict=True)]


def _before(
    place: int, rows: Rows, draft: Draft, outline: Outline, names: Names, text: Text, remarks: list[Remark]
) -> list[str]:
    found: list[str] = []
    own, line, position = rows.ids[place], draft.line, draft.head
    near = draft.section.phase.number if draft.section.phase is not None else ""
    stated = [(clause, draft.head) for clause in clauses(rows.titles[place])]
    for clause, at in (*stated, *_said_below(draft, outline, text)):
        ids, lost = named(clause, names, near)
        found += ids
        if not lost and own not in ids:
            continue
        # From the last one on, so that many in one task are not counted over and over.
        line, position = line + text.lines.count("\n", position, at), at
        remarks += [
            Remark(line, f"depends on {text.clean(what)!r}, which is not the name of one task here") for what in lost
        ]
        if ids == [own]:
            remarks.append(Remark(line, "this task depends on itself"))
    return found


def _said_below(draft: Draft, outline: Outline, text: Text) -> Iterator[tuple[str, int]]:
    """What the text below a task says, and where (E2)."""
    for clause in CLAUSE.finditer(text.lines, draft.head, draft.end):
        at = clause.start()
        before = bisect_right(outline.hidden, (at, len(text.lines)))
        if not (before and at <= outline.hidden[before - 1][1]):
            yield sentence(clause[1]), at


def _places(rows: Rows, outline: Outline) -> Places:
    named: dict[str, list[str]] = {}
    in_phase: dict[str, list[str]] = {phase.number: [] for phase in outline.phases}
    for id, number, draft in zip(rows.ids, rows.numbers, outline.drafts, strict=True):
        if (phase := draft.section.phase) is not None:
            in_phase[phase.number].append(id)
            named.setdefault(spelling(phase.title), []).append(id)
            if number.isdigit():
                named.setdefault(f"{phase.number}.{number}", []).append(id)
        if draft.section.number:
            named.setdefault(draft.section.number, []).append(id)
    return Places(named, in_phase)
