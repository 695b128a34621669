"""The outline: entries of a scan become phases, sections and drafts of tasks.

    Heading, Item, Field … ──outlined──▶ Outline(phases, sections, drafts)

Invariants
  O1  What has a box or a sign is a task, or a subtask of the task it is indented under; whatever else may be odd.
  O2  A numbered line without a box, and a heading "Task 3: …", are only candidates: their mark is None.
      Whether they count is decided when the whole file was seen.
  O3  The text of a task ends where the next one, a heading, or a paragraph at the margin begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.intake.roadmap.marks import BOXES, Mark, box_mark, unsigned
from holdfast.intake.roadmap.scan import LINE, Entry, Field, Heading, Item, Text, end_of_hidden, entry_of, field_of
from holdfast.intake.roadmap.words import plain
from holdfast.model.task import Remark, Subtask

_PHASE = re.compile(
    r"(?:\*\*)?(?:Phase|PHASE|phase|Milestone|MILESTONE|Stage|Sprint|Epic|Iteration)[ ]*"
    r"(?P<number>\d{1,6}(?:\.\d{1,6}){0,5}|[IVX]{1,6}\b|[A-Z]\b|N\b)?(?P<rest>[^\n]*)"
)
_BARE_PHASE = re.compile(r"(?:Phases|Milestones|Stages|Sprints|Epics|Iterations)\b")
_SECTION_NUMBER = re.compile(r"(\d{1,6}(?:\.\d{1,6}){0,8})[.:)]?[ \t]")
_HEADING_BOX = re.compile(r"\[(.?)\][ \t]+")
_HEADING_TASK = re.compile(r"(?:Task|TASK|Step|STEP)[ ]?#?\d|T\d{2,6}\b")
_LEGEND = re.compile(r"(?i)(?:\W*)(?:legend|key|status (?:icons?|legend|key)|symbols)\b")
_OUTSIDE = -2


@dataclass(slots=True)
class PhaseDraft:
    number: str
    title: str
    level: int
    line: int
    goal: str = ""
    priority: str = ""
    effort: str = ""
    prerequisite: str = ""


@dataclass(slots=True)
class Section:
    title: str
    number: str
    start: int
    level: int
    files: list[str] = field(default_factory=list)
    # Whether anything in it has a box or a sign.
    marked: bool = False


@dataclass(slots=True)
class Outline:
    title: str = ""
    phases: list[PhaseDraft] = field(default_factory=list)
    sections: list[Section] = field(default_factory=lambda: [Section("", "", 0, 0)])
    # Tasks, and what may be one.
    drafts: list[Item] = field(default_factory=list)
    # Where the text behind the line of each draft ends.
    ends: list[int] = field(default_factory=list)
    # By the place of the draft that they belong to.
    subtasks: dict[int, list[Subtask]] = field(default_factory=dict)
    fields: dict[int, list[Field]] = field(default_factory=dict)
    hidden: list[tuple[int, int]] = field(default_factory=list)
    # Whether anything but tasks says that this is a roadmap: a goal, an effort, a list of files.
    described: bool = False

    def keep(self, places: list[int]) -> None:
        """Leave out all drafts but these."""
        self.drafts = [self.drafts[place] for place in places]
        self.ends = [self.ends[place] for place in places]
        self.subtasks = {new: self.subtasks[old] for new, old in enumerate(places) if old in self.subtasks}
        self.fields = {new: self.fields[old] for new, old in enumerate(places) if old in self.fields}


def outlined(text: Text, remarks: list[Remark]) -> Outline:
    writer = _Writer(text, remarks)
    writer.write()
    writer.close(len(text.raw))
    writer.close_heading(0, len(text.raw))
    return writer.outline


class _Writer:
    """The outline so far, and what is open in it."""

    def __init__(self, text: Text, remarks: list[Remark]) -> None:
        self.text = text
        self.remarks = remarks
        self.outline = Outline()
        # The draft that is open is the last one.
        self.open: Item | None = None
        # A heading that may be a task, its place among the drafts and its level.
        self.heading: Item | None = None
        self.heading_place = 0
        self.heading_level = 0
        self.phase = -1
        self.legend = False

    def write(self) -> None:
        """All lines of interest. Those with a box, which are most, take a short way: `add` would do the same."""
        lines, outline = self.text.lines, self.outline
        drafts, ends, sections = outline.drafts, outline.ends, outline.sections
        hidden, counted, line = 0, 0, 0
        unclosed: dict[str, int] = {}
        for found in LINE.finditer(lines):
            start = found.start()
            if start < hidden:
                continue
            # The newline before the first line was put there by us: so the count is that of lines, from 1.
            line += lines.count("\n", counted, start + 1)
            counted = start + 1
            blanks, bullet, char, words = found.group(1, 2, 3, 5)
            mark = BOXES.get(char) if char is not None and words else None
            if mark is not None and self.heading is None and not self.legend and "\t" not in blanks:
                place, end = found.start(3) - 1, found.end() - 1
                item = tuple.__new__(Item, (
                    len(blanks), bullet, mark, words, start, end, place, place + len(char), line, True, self.phase,
                    len(sections) - 1,
                ))  # fmt: skip
                owner = self.open
                if owner is not None:
                    if item[0] >= owner[0] + 2:
                        self.add_marked(item)
                        continue
                    ends[-1] = start
                self.open = item
                drafts.append(item)
                ends.append(end)
                sections[-1].marked = True
            elif (entry := entry_of(found, line, self.remarks)) is not None:
                self.add(entry)
            elif (hidden := end_of_hidden(found, lines, line, unclosed, self.remarks)) > 0:
                outline.hidden.append((start, hidden - 1))

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Heading):
            self.add_heading(entry)
        elif isinstance(entry, Field):
            self.add_field(entry)
        elif entry.mark is None:
            self.add_unmarked(entry)
        elif not entry.text.strip():
            self.remarks.append(Remark(entry.line, "this box has no text: it is not read as a task"))
        elif not self.legend:
            self.add_marked(entry._replace(phase=self.phase, section=len(self.outline.sections) - 1))

    def close(self, end: int) -> None:
        if self.open is not None:
            self.outline.ends[-1] = end
            self.open = None

    def close_heading(self, level: int, end: int) -> None:
        if self.heading is not None and level <= self.heading_level:
            if self.heading.mark is None:
                self.outline.ends[self.heading_place] = end
            self.heading = None

    # ── items ──

    def add_marked(self, item: Item) -> None:
        owner, outline = self.open, self.outline
        if owner is not None:
            if item[0] >= owner[0] + 2 and owner[2] is not None:
                self._add_subtask(item)
                return
            outline.ends[-1] = item[4]
        if self.heading is not None and self.heading.mark is None:
            # What it asks for is in the boxes below it: they are the tasks, and it is their section.
            # No candidate is taken up below such a heading, so it is the last draft.
            del outline.drafts[-1], outline.ends[-1]
            self.heading = None
        self.open = item
        outline.drafts.append(item)
        outline.ends.append(item[5])
        outline.sections[-1].marked = True

    def _add_subtask(self, item: Item) -> None:
        words = self.text.clean(plain(unsigned(item.text.strip())))
        done = item.mark is not None and item.mark.done
        self.outline.subtasks.setdefault(len(self.outline.drafts) - 1, []).append(Subtask(words, done, item.line))

    def add_unmarked(self, item: Item) -> None:
        said = field_of(item) if ":" in item.text else None
        if self.open is not None and item.indent >= self.open.indent + 2:
            if said is not None:
                self.outline.fields.setdefault(len(self.outline.drafts) - 1, []).append(said)
            return
        self.close(item.start)
        if said is not None:
            self.add_field(said)
        elif item.bullet[:1].isdigit() and item.indent < 2 and self.heading is None and item.text.strip():
            self.open = item._replace(phase=self.phase, section=len(self.outline.sections) - 1)
            self.outline.drafts.append(self.open)
            self.outline.ends.append(item.end)

    # ── fields ──

    def add_field(self, said: Field) -> None:
        outline = self.outline
        owner = self.open or self.heading
        if owner is not None and (owner is self.heading or said.indent > owner.indent):
            place = self.heading_place if owner is self.heading else len(outline.drafts) - 1
            outline.fields.setdefault(place, []).append(said)
            return
        name = said.name
        if name.startswith("file"):
            outline.sections[-1].files.append(said.value)
            outline.described = True
        elif self.phase >= 0:
            self._describe(outline.phases[self.phase], name, said.value)

    def _describe(self, phase: PhaseDraft, name: str, value: str) -> None:
        value = self.text.clean(plain(value))
        self.outline.described = True
        if name in ("goal", "goals", "objective", "purpose"):
            phase.goal = phase.goal or value
        elif name == "priority":
            phase.priority = phase.priority or value
        elif name.startswith(("effort", "estimate")):
            phase.effort = phase.effort or value
        elif name.startswith(("prerequisite", "depend", "blocked")):
            phase.prerequisite = phase.prerequisite or value

    # ── headings ──

    def add_heading(self, heading: Heading) -> None:
        self.close(heading.start)
        self.close_heading(heading.level, heading.start)
        box = _HEADING_BOX.match(heading.text)
        mark = box_mark(box[1]) if box else None
        words = plain(unsigned(heading.text[box.end() :] if box and mark else heading.text).rstrip("# \t"))
        self.legend = _LEGEND.match(words) is not None
        self._place(heading, words)
        if (mark is not None or _HEADING_TASK.match(words)) and self.heading is None and words:
            self._add_heading_task(heading, words, mark, box)

    def _place(self, heading: Heading, words: str) -> None:
        outline = self.outline
        found = _PHASE.match(words)
        if found and not _BARE_PHASE.match(words) and (found["number"] or found["rest"][:1] in (":", " ", "-", "")):
            title = found["rest"].strip().lstrip(":.)–—-").strip()
            outline.phases.append(
                PhaseDraft(found["number"] or "", self.text.clean(title or words), heading.level, heading.line)
            )
            self.phase = len(outline.phases) - 1
            words = ""
        elif self.phase >= 0 and heading.level <= outline.phases[self.phase].level:
            self.phase = -1
        if heading.level == 1 and not outline.title and words:
            outline.title = self.text.clean(words)
            words = ""
        number = _SECTION_NUMBER.match(words)
        outline.sections.append(
            Section(self.text.clean(words), number[1] if number else "", heading.start, heading.level)
        )

    def _add_heading_task(self, heading: Heading, words: str, mark: Mark | None, box: re.Match[str] | None) -> None:
        place = self.text.raw.find("[", heading.start) + 1
        outline = self.outline
        self.heading = Item(
            _OUTSIDE, "", mark, words, heading.start, heading.end, place, place + (len(box[1]) if box else 0),
            heading.line, True, self.phase, len(outline.sections) - 1,
        )  # fmt: skip
        self.heading_level, self.heading_place = heading.level, len(outline.drafts)
        outline.drafts.append(self.heading)
        outline.ends.append(heading.end)
        if mark is not None:
            outline.sections[-1].marked = True
            self.open = self.heading
