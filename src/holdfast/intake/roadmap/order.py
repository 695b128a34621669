"""Order: what a file says about the order of its phases and tasks outside of the tasks themselves.

**Prerequisites**: Phase 1 and 2                   a line of a phase; bare numbers (1, 2) name phases as well
## Dependencies                                    a section, as spec-kit writes it
- T004-T007 before T008-T014
- T016 blocks T018
- **Foundational (Phase 2)**: Depends on Setup completion
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.intake.roadmap.blocks import Text
from holdfast.intake.roadmap.outline import Outline, Section
from holdfast.intake.roadmap.references import (
    MAX_EXPANDED,
    Names,
    numbers_in,
    spelling,
    tokens_in,
    without_elsewhere,
)
from holdfast.model.task import Phase, Remark

_RELATION = re.compile(
    r"(?i)\b(?P<later>depends? on|requires?|needs?|after)\b"
    r"|\b(?P<earlier>must (?:come|be (?:done|complete)) before|before|blocks?)\b|(?P<arrow>→|->|-->)"
)
_BETWEEN = r"(?:[ ]?[-–—][ ]?|[ ]?[,;/][ ]?(?:and[ ]|&[ ]?)?|[ ]and[ ]|[ ]?[&+][ ]?)"
_PHASE_NUMBER = re.compile(rf"[Pp]hases?[ ]((?:\d+(?:\.\d+)*)(?:{_BETWEEN}\d+(?:\.\d+)*){{0,50}})")
_BARE_NUMBERS = re.compile(
    rf"#?\d+(?:\.\d+)*(?:{_BETWEEN}#?\d+(?:\.\d+)*){{0,50}}"
    r"(?:[ ]\(?(?:(?:is|are|must[ ]be)[ ])?(?:done|finished|completed?)\)?)?[ .]*\Z"
)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_LONGEST_NAME = 6


class Relation(NamedTuple):
    earlier: str
    later: str
    line: int


def declared_order(outline: Outline, names: Names, text: Text, remarks: list[Remark]) -> Iterator[tuple[str, str]]:
    """Pairs (task, what must come before it) from the sections about dependencies."""
    spent = 0
    for relation in _relations(outline, text):
        earlier = _known(relation.earlier, names, relation.line, remarks)
        later = _known(relation.later, names, relation.line, remarks)
        spent += len(earlier) * len(later)
        if spent > MAX_EXPANDED:
            remarks.append(Remark(relation.line, "too many dependencies: this line and those below it are left out"))
            return
        yield from ((task, before) for task in later for before in earlier)


def _known(words: str, names: Names, line: int, remarks: list[Remark]) -> list[str]:
    found: list[str] = []
    for token in tokens_in(_PHASE_NUMBER.sub(" ", words)):
        if token.isdigit():
            continue  # "the 3 tests": in a sentence a bare number names nothing
        ids = names.number(token)
        if not ids and token[0].isalpha():
            remarks.append(Remark(line, f"{token} names no task here"))
        found += ids
    return found


def _relations(outline: Outline, text: Text) -> Iterator[Relation]:
    """One for each line that has a relation; in a chain (A → B → C) one for each step."""
    for section in _sections_about_order(outline):
        for offset, words in enumerate(text.lines[section.start : section.end].split("\n")):
            found = list(_RELATION.finditer(words[:2_000]))
            edges = [0, *(at for relation in found for at in relation.span()), len(words)]
            for index, relation in enumerate(found):
                left, right = (
                    words[edges[2 * index] : edges[2 * index + 1]],
                    words[edges[2 * index + 2] : edges[2 * index + 3]],
                )
                if relation["later"]:
                    left, right = right, left
                yield Relation(left, right, section.line + offset)


def _sections_about_order(outline: Outline) -> Iterator[Section]:
    inside = 0
    for section in outline.sections:
        if inside and section.level <= inside:
            inside = 0
        if not inside and "dependenc" in section.title.lower():
            inside = section.level
        if inside and section.level:
            yield section


def phase_order(outline: Outline, phases: tuple[Phase, ...], text: Text, remarks: list[Remark]) -> tuple[Phase, ...]:
    """The phases, each with those that must be done before it."""
    relations = list(_relations(outline, text))
    if not relations and not any(phase.prerequisite for phase in phases):
        return phases
    by_number = {draft.number: phase.id for draft, phase in zip(outline.phases, phases, strict=True) if draft.number}
    by_name = {_name(phase.title): phase.id for phase in phases}
    after: dict[str, list[str]] = {phase.id: [] for phase in phases}
    for phase in phases:
        words = without_elsewhere(phase.prerequisite.replace("`", ""))
        if _BARE_NUMBERS.match(words):
            words = f"phases {words.replace('#', '')}"
        found, lost = _phases_in(words, by_number, by_name)
        after[phase.id] += found
        remarks += (Remark(phase.line, f"the prerequisite {what!r} names no phase here") for what in lost)
    for relation in relations:
        earlier, _ = _phases_in(relation.earlier, by_number, by_name)
        later, _ = _phases_in(relation.later, by_number, by_name)
        # A line that names tasks is about these, whatever phase it mentions.
        if not any(token[0].isalpha() for token in tokens_in(f"{relation.earlier} {relation.later}")):
            for id in later:
                after[id] += earlier
    return tuple(
        phase._replace(after=tuple(dict.fromkeys(id for id in after[phase.id] if id != phase.id))) for phase in phases
    )


def _name(title: str) -> str:
    return " ".join(_WORD.findall(spelling(title).partition("(")[0].partition(" - ")[0]))


def _phases_in(
    words: str, by_number: Mapping[str, str], by_name: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The phases that a sentence names, by number or by name; and the numbers that name none."""
    found: list[str] = []
    lost: list[str] = []
    for numbers in _PHASE_NUMBER.finditer(words):
        for number in numbers_in(numbers[1]):
            found += [by_number[number]] if number in by_number else []
            lost += [] if number in by_number else [f"phase {number}"]
    if found or lost:
        return found, lost
    spoken = _WORD.findall(spelling(words))
    for start in range(len(spoken)):
        for length in range(_LONGEST_NAME, 0, -1):
            if (id := by_name.get(" ".join(spoken[start : start + length]))) is not None:
                found.append(id)
                break
    return found, []
