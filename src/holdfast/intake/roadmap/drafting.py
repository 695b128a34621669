"""Drafting: the blocks of a scan become an outline.

    Block… ──outlined──▶ Outline(phases, sections, drafts)      whatever the file is written in

Invariants
  D1  What has a box or a sign is a task, or a subtask of the task it is indented under; whatever else may be odd.
  D2  A numbered line without a box, and a heading "Task 3: …", are only candidates: their mark is None.
      Whether they count is decided when the whole file was seen.
  D3  The text of a task ends where the next one, a heading, or a paragraph at the margin begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.intake.roadmap.blocks import Block, Field, Item, Text
from holdfast.intake.roadmap.headings import describe, phase_in
from holdfast.intake.roadmap.marks import Mark, box_mark, signed, unsigned
from holdfast.intake.roadmap.outline import Draft, Outline, PhaseDraft, Section, Step
from holdfast.intake.roadmap.scan import fields_in
from holdfast.intake.roadmap.words import plain
from holdfast.model.task import Remark

# The number of a section, as its heading begins.
_SECTION_NUMBER = re.compile(r"(\d{1,6}+(?:\.\d{1,6}+){0,8}+)[.:)]?+[ \t]")
_HEADING_BOX = re.compile(r"\[(.?)\][ \t]+")
_HEADING_TASK = re.compile(r"(?:Task|TASK|Step|STEP)[ ]?#?\d|T\d{2,6}\b")
_LEGEND = re.compile(r"(?i)(?:\W*)(?:legend|key|status (?:icons?|legend|key)|symbols)\b")
# How far a heading is indented: every box below it is one of its subtasks.
OUTSIDE = -2
# By so much a subtask is indented under its task: one blank is enough to say so.
_UNDER = 1


def outlined(text: Text, blocks: Iterable[Block], remarks: list[Remark]) -> Outline:
    writer = _Writer(text, remarks)
    for block in blocks:
        writer.add(block)
    return writer.finished()


class _Writer:
    """The outline so far, and what is open in it."""

    def __init__(self, text: Text, remarks: list[Remark]) -> None:
        self.text = text
        self.remarks = remarks
        self.section = Section(0, "", "", 0, len(text.raw), 1, 0, None, 0)
        self.outline = Outline(sections=[self.section])
        # The draft to which belongs what is indented below it.
        self.open: Draft | None = None
        # The last draft, until it is known where its text ends.
        self.unended: Draft | None = None
        # A heading that may be a task, and its level.
        self.heading: Draft | None = None
        self.heading_level = 0
        # The phase that is open, and its level.
        self.phase: PhaseDraft | None = None
        self.phase_level = 0
        self.legend = False

    def finished(self) -> Outline:
        self.close(len(self.text.raw))
        self.close_heading(0, len(self.text.raw))
        return self.outline

    def add(self, block: Block) -> None:
        if block.odd:
            self.remarks.append(Remark(block.line, block.odd))
        match block.kind:
            case "hidden":
                self.outline.hidden.append((block.start, block.end))
            case "heading":
                self.add_heading(block)
            case "field":
                for said in block.fields:
                    self.add_field(said, block.level)
            case "item":
                assert block.item is not None
                self.add_item(block, block.item)
            case "end":
                self.close(block.start)
            case "odd":
                pass

    # ── what is open ──

    def close(self, end: int) -> None:
        if self.unended is not None:
            self.unended.end = end
        self.open = self.unended = None

    def close_heading(self, level: int, end: int) -> None:
        if self.heading is not None and level <= self.heading_level:
            if self.heading.item.mark is None:
                self.heading.end = end
            self.heading = None

    def begin(self, block: Block, item: Item) -> Draft:
        self.close(block.start)
        draft = Draft(item, self.section, block.line, block.end, block.end)
        self.outline.drafts.append(draft)
        self.open = self.unended = draft
        return draft

    # ── items ──

    def add_item(self, block: Block, item: Item) -> None:
        if item.unknown:
            self.remarks.append(
                Remark(block.line, f"[{item.unknown}] is no known mark: the line is not read as a task")
            )
        if item.mark is None:
            self.add_unmarked(block, item)
        elif not item.text.strip():
            self.remarks.append(Remark(block.line, "this box has no text: it is not read as a task"))
        elif not self.legend:
            self.add_marked(block, item, item.mark)

    def add_marked(self, block: Block, item: Item, mark: Mark) -> None:
        owner = self.open
        if owner is not None and owner.item.mark is not None and item.indent >= owner.item.indent + _UNDER:
            words = self.text.clean(plain(unsigned(item.text.strip())))
            owner.steps.append(Step(words, mark.done, block.line))
            return
        self.drop_heading()
        self.begin(block, item)

    def drop_heading(self) -> None:
        """What a heading asks for is in the boxes below it: they are the tasks, and it is their section.

        No candidate is taken up below such a heading, so it is the last draft.
        """
        if self.heading is not None and self.heading.item.mark is None:
            self.outline.drafts.pop()
            self.heading = None

    def add_unmarked(self, block: Block, item: Item) -> None:
        said = fields_in(item.text)
        if self.open is not None and item.indent >= self.open.item.indent + _UNDER:
            self.open.fields += said
            return
        self.close(block.start)
        for field in said:
            self.add_field(field, item.indent)
        if not said and item.indent < 2 and self.heading is None and item.text.strip():
            self.begin(block, item)

    # ── fields ──

    def add_field(self, said: Field, width: int) -> None:
        if self.open is not None and width > self.open.item.indent:
            self.open.fields.append(said)
        elif self.open is None and self.heading is not None:
            self.heading.fields.append(said)
        elif said.name.startswith("file"):
            self.section.files.append(said.value)
            self.outline.described = True
        elif self.phase is not None:
            self.outline.described = True
            describe(self.phase, said.name, self.text.clean(plain(said.value)))

    # ── headings ──

    def add_heading(self, block: Block) -> None:
        level, start, words = block.level, block.words_start, block.words
        self.close(block.start)
        self.close_heading(level, block.start)
        box = _HEADING_BOX.match(words)
        mark = box_mark(box[1]) if box else None
        sign = signed(words.rstrip("# \t")) if mark is None else None
        words = plain(unsigned(words[box.end() :] if box and mark else words).rstrip("# \t"))
        self.legend = _LEGEND.match(words) is not None
        self.begin_section(block, level, words)
        if sign is not None:
            self.section.sign = (sign.mark, start + sign.start, start + sign.end)
        if (mark is not None or _HEADING_TASK.match(words)) and self.heading is None and words:
            place = start + 1 if box else 0
            item = Item(OUTSIDE, "", mark, words, place, place + (len(box[1]) if box else 0), "heading")
            self.heading, self.heading_level = self.begin(block, item), level
            if mark is None:
                # It has no text of its own before it is known to be a task: nothing is indented under it.
                self.close(block.end)

    def begin_section(self, block: Block, level: int, words: str) -> None:
        outline = self.outline
        if level <= self.phase_level:
            self.phase, self.phase_level = None, 0
        if (found := phase_in(words)) is not None:
            title = found["rest"].strip().lstrip(":.)–—-").strip()
            self.phase = PhaseDraft(
                len(outline.phases), found["number"] or "", self.text.clean(title or words), level, block.line
            )
            self.phase_level = level
            outline.phases.append(self.phase)
            words = ""
        if level == 1 and not outline.title and words:
            outline.title = self.text.clean(words)
            words = ""
        numbered = _SECTION_NUMBER.match(words)
        number = numbered[1] if numbered is not None else ""
        self.section.end = block.start
        place, title, end = len(outline.sections), self.text.clean(words), len(self.text.raw)
        self.section = Section(place, title, number, block.start, end, block.line, level, self.phase, block.end)
        outline.sections.append(self.section)
