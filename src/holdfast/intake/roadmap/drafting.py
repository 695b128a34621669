"""Drafting: the lines of a scan become an outline.

    matches ──outlined──▶ Outline(phases, sections, drafts)

Invariants
  D1  What has a box or a sign is a task, or a subtask of the task it is indented under; whatever else may be odd.
  D2  A numbered line without a box, and a heading "Task 3: …", are only candidates: their mark is None.
      Whether they count is decided when the whole file was seen.
  D3  The text of a task ends where the next one, a heading, or a paragraph at the margin begins.
"""

from __future__ import annotations

import re

from holdfast.intake.roadmap.marks import BOXES, Mark, box_mark, unsigned
from holdfast.intake.roadmap.outline import LineNumbers, Outline, PhaseDraft, Section, Step, measure
from holdfast.intake.roadmap.scan import (
    COMMENT,
    FENCE,
    FIELD,
    HEADING,
    ITEM,
    LINE,
    PLAIN,
    Field,
    Item,
    Text,
    end_of_fence,
    field_in,
    item_of,
    unknown_mark,
    width_of,
)
from holdfast.intake.roadmap.words import plain
from holdfast.model.task import Remark

_PHASE = re.compile(
    r"(?:\*\*)?(?:Phase|PHASE|phase|Milestone|MILESTONE|Stage|Sprint|Epic|Iteration)[ ]*"
    r"(?P<number>\d{1,6}(?:\.\d{1,6}){0,5}|[IVX]{1,6}\b|[A-Z]\b|N\b)?(?P<rest>[^\n]*)"
)
_BARE_PHASE = re.compile(r"(?:Phases|Milestones|Stages|Sprints|Epics|Iterations)\b")
_SECTION_NUMBER = re.compile(r"(\d{1,6}(?:\.\d{1,6}){0,8})[.:)]?[ \t]")
_HEADING_BOX = re.compile(r"\[(.?)\][ \t]+")
_HEADING_TASK = re.compile(r"(?:Task|TASK|Step|STEP)[ ]?#?\d|T\d{2,6}\b")
_LEGEND = re.compile(r"(?i)(?:\W*)(?:legend|key|status (?:icons?|legend|key)|symbols)\b")
# How far a heading is indented: every box below it is one of its subtasks.
_OUTSIDE = -2
_HIDING = frozenset({FENCE, COMMENT})


def outlined(text: Text, remarks: list[Remark]) -> Outline:
    writer = _Writer(text)
    position, length = 0, len(text.raw)
    while position <= length:
        position = writer.read(position)
    writer.close(length)
    writer.close_heading(0, length)
    outline = writer.outline
    measure(outline, text.lines, writer.closed)
    numbers = LineNumbers(text.lines, outline)
    for phase in outline.phases:
        phase.line = numbers.at(phase.start)
    numbers = LineNumbers(text.lines, outline)
    remarks += [Remark(numbers.at(start), what) for start, what in writer.odd]
    return outline


class _Writer:
    """The outline so far, and what is open in it."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.outline = Outline()
        # What is odd, and where.
        self.odd: list[tuple[int, str]] = []
        # How many drafts there were when the last one was closed: while there are more, the last one is open.
        self.shut = 0
        # Where the texts of those end that do not end with the next one.
        self.closed: dict[int, int] = {}
        # The shortest fence of each kind that is never closed.
        self.unclosed: dict[str, int] = {}
        # A heading that may be a task, its place among the drafts and its level.
        self.heading: Item | None = None
        self.heading_place = 0
        self.heading_level = 0
        self.phase = -1
        self.legend = False

    def read(self, position: int) -> int:
        """All lines from here to the end of the next code or comment; returns where to go on.

        A plain line, which most are, is a draft at once: `add_item` would do the same with it.
        """
        draft = self.outline.drafts.append
        usual = self.heading is None and not self.legend
        for found in LINE.finditer(self.text.lines, position):
            kind = found.lastindex
            if kind == PLAIN and usual:
                draft(found)
            elif kind == FIELD:
                blanks, name, value = found.group(3, 10, 11)
                self.add_field(name.lower(), value.strip(), blanks)
            elif kind in _HIDING:
                if (end := self.end_of_hidden(found)) > 0:
                    self.outline.hidden.append((found.start(), end - 1))
                    return end
            else:
                if kind == HEADING:
                    self.add_heading(found)
                else:
                    self.add_item(found)
                usual = self.heading is None and not self.legend
        return len(self.text.lines)

    def end_of_hidden(self, found: re.Match[str]) -> int:
        """Where the code or the comment that begins here ends; 0 where it hides nothing. What never ends is told."""
        lines = self.text.lines
        if found.lastindex == COMMENT:
            if (end := lines.find("-->", found.end())) < 0:
                self.odd.append((found.start(), "this comment is never closed: all below it is hidden"))
            return end if end >= 0 else len(lines)
        fence = found[FENCE]
        if self.unclosed.get(fence[0], 99) <= len(fence):
            return 0
        if not (end := end_of_fence(fence, lines, found.end())):
            self.unclosed[fence[0]] = len(fence)
            self.odd.append((found.start(), "this code fence is never closed: the lines below it are read as text"))
        return end

    def open_indent(self) -> int | None:
        """How far the open draft is indented; None where none is open."""
        place = len(self.outline.drafts) - 1
        if place < self.shut:
            return None
        item = self.outline.items.get(place)
        return item.indent if item is not None else 0

    def close(self, end: int) -> None:
        amount = len(self.outline.drafts)
        if amount > self.shut:
            self.closed[amount - 1] = end
            self.shut = amount

    def close_heading(self, level: int, end: int) -> None:
        if self.heading is not None and level <= self.heading_level:
            if self.heading.mark is None:
                self.closed[self.heading_place] = end
            self.heading = None

    # ── items ──

    def add_item(self, found: re.Match[str]) -> None:
        # Boxes below a task, of which there are many, take a short way: `add_marked` would do the same with them.
        if found.lastindex == ITEM and not self.legend:
            blanks, char, words = found.group(3, 5, 7)
            mark = BOXES.get(char)
            if mark is not None and self.is_under_a_task(width_of(blanks)) and words.strip():
                self._add_step(found, mark, words)
                return
        item = item_of(found)
        if item.mark is None:
            if char := unknown_mark(found):
                self.odd.append((found.start(), f"[{char}] is no known mark: the line is not read as a task"))
            self.add_unmarked(found, item)
        elif not item.text.strip():
            self.odd.append((found.start(), "this box has no text: it is not read as a task"))
        elif not self.legend:
            self.add_marked(found, item, item.mark)

    def is_under_a_task(self, indent: int) -> bool:
        place = len(self.outline.drafts) - 1
        if place < self.shut:
            return False
        owner = self.outline.items.get(place)
        if owner is None:
            return indent >= 2
        return owner.mark is not None and indent >= owner.indent + 2

    def _add_step(self, found: re.Match[str], mark: Mark, words: str) -> None:
        steps = self.outline.steps.setdefault(len(self.outline.drafts) - 1, [])
        # Made as a tuple, as other nouns of which there are many: the constructor of a named one takes twice as long.
        steps.append(tuple.__new__(Step, (found.start(), mark, words)))

    def add_marked(self, found: re.Match[str], item: Item, mark: Mark) -> None:
        outline = self.outline
        if self.is_under_a_task(item.indent):
            self._add_step(found, mark, item.text)
            return
        if self.heading is not None and self.heading.mark is None:
            # What it asks for is in the boxes below it: they are the tasks, and it is their section.
            # No candidate is taken up below such a heading, so it is the last draft.
            self._drop_heading()
        outline.items[len(outline.drafts)] = item
        outline.drafts.append(found)

    def _drop_heading(self) -> None:
        self.outline.drafts.pop()
        place = self.shut = len(self.outline.drafts)
        del self.outline.items[place]
        del self.closed[place]
        self.heading = None
        # The sections behind it begin one draft earlier.
        sections = self.outline.sections
        index = len(sections) - 1
        while sections[index].first > place:
            sections[index] = sections[index]._replace(first=place)
            index -= 1

    def add_unmarked(self, found: re.Match[str], item: Item) -> None:
        said = field_in(item.text) if ":" in item.text else None
        outline = self.outline
        owner = self.open_indent()
        if owner is not None and item.indent >= owner + 2:
            if said is not None:
                outline.fields.setdefault(len(outline.drafts) - 1, []).append(said)
            return
        self.close(found.start())
        if said is not None:
            self.add_field(said.name, said.value, found[3])
        elif item.bullet and item.indent < 2 and self.heading is None and item.text.strip():
            outline.items[len(outline.drafts)] = item
            outline.drafts.append(found)

    # ── fields ──

    def add_field(self, name: str, value: str, blanks: str) -> None:
        outline = self.outline
        owner = self.open_indent()
        if owner is not None and width_of(blanks) > owner:
            outline.fields.setdefault(len(outline.drafts) - 1, []).append(Field(name, value))
        elif owner is None and self.heading is not None:
            outline.fields.setdefault(self.heading_place, []).append(Field(name, value))
        elif name.startswith("file"):
            outline.sections[-1].files.append(value)
            outline.described = True
        elif self.phase >= 0:
            outline.described = True
            _describe(outline.phases[self.phase], name, self.text.clean(plain(value)))

    # ── headings ──

    def add_heading(self, found: re.Match[str]) -> None:
        start, level, words = found.start(), len(found[8]) + 1, found[9].strip()
        self.close(start)
        if self.heading is not None:
            self.close_heading(level, start)
        box = _HEADING_BOX.match(words) if words[:1] == "[" else None
        mark = box_mark(box[1]) if box else None
        words = plain(unsigned(words[box.end() :] if box and mark else words).rstrip("# \t"))
        # Behind a digit there can only be the title of a section.
        worded = not words[:1].isdecimal()
        self.legend = worded and _LEGEND.match(words) is not None
        self._place(start, level, words, worded)
        if (mark is not None or (worded and _HEADING_TASK.match(words))) and self.heading is None and words:
            self._add_heading_task(found, words, mark, box)

    def _place(self, start: int, level: int, words: str, worded: bool) -> None:
        outline, number = self.outline, ""
        if worded and (found := _phase_in(words)) is not None:
            title = found["rest"].strip().lstrip(":.)–—-").strip()
            outline.phases.append(PhaseDraft(found["number"] or "", self.text.clean(title or words), level, start))
            self.phase = len(outline.phases) - 1
            words = ""
        elif self.phase >= 0 and level <= outline.phases[self.phase].level:
            self.phase = -1
        if level == 1 and not outline.title and words:
            outline.title = self.text.clean(words)
            words = ""
        if not worded and words and (numbered := _SECTION_NUMBER.match(words)) is not None:
            number = numbered[1]
        title = self.text.clean(words) if self.text.dirty else words
        outline.sections.append(
            tuple.__new__(Section, (title, number, start, level, self.phase, len(outline.drafts), []))
        )

    def _add_heading_task(self, found: re.Match[str], words: str, mark: Mark | None, box: re.Match[str] | None) -> None:
        outline = self.outline
        # Sought only where it is: a file of headings without a box would be searched to its end for each.
        place = self.text.raw.find("[", found.start()) + 1 if box else 0
        self.heading = Item(_OUTSIDE, "", mark, words, place, place + (len(box[1]) if box else 0), True)
        self.heading_level, self.heading_place = len(found[8]) + 1, len(outline.drafts)
        outline.items[self.heading_place] = self.heading
        outline.drafts.append(found)
        if mark is None:
            # It has no text of its own before it is known to be a task: nothing is indented under it.
            self.closed[self.heading_place] = found.end() - 1
            self.shut = len(outline.drafts)


def _phase_in(words: str) -> re.Match[str] | None:
    """The phase that a heading names."""
    found = _PHASE.match(words)
    if found is None or _BARE_PHASE.match(words):
        return None
    return found if found["number"] or found["rest"][:1] in (":", " ", "-", "") else None


def _describe(phase: PhaseDraft, name: str, value: str) -> None:
    if name in ("goal", "goals", "objective", "purpose"):
        phase.goal = phase.goal or value
    elif name == "priority":
        phase.priority = phase.priority or value
    elif name.startswith(("effort", "estimate")):
        phase.effort = phase.effort or value
    elif name.startswith(("prerequisite", "depend", "blocked")):
        phase.prerequisite = phase.prerequisite or value
