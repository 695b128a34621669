"""Drafting: the lines of a scan become an outline.

    Usual, matches ──outlined──▶ Outline(phases, sections, drafts)

Invariants
  D1  What has a box or a sign is a task, or a subtask of the task it is indented under; whatever else may be odd.
  D2  A numbered line without a box, and a heading "Task 3: …", are only candidates: their mark is None.
      Whether they count is decided when the whole file was seen.
  D3  The text of a task ends where the next one, a heading, or a paragraph at the margin begins.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from holdfast.intake.roadmap.headings import describe, phase_in
from holdfast.intake.roadmap.marks import BOXES, Mark, box_mark, unsigned
from holdfast.intake.roadmap.outline import Apart, LineNumbers, Outline, PhaseDraft, Piece, Section, measure
from holdfast.intake.roadmap.scan import (
    CODE,
    COMMENT,
    FENCE,
    FIELD,
    HEADING,
    ITEM,
    LINE,
    NUMBERED,
    SECTION_NUMBER,
    SIGNED,
    Field,
    Item,
    Text,
    end_of_fence,
    field_in,
    fields_in,
    item_of,
    unknown_mark,
    width_of,
)
from holdfast.intake.roadmap.usual import Usual, usual_of
from holdfast.intake.roadmap.words import plain
from holdfast.model.task import Remark

_SECTION_NUMBER = re.compile(SECTION_NUMBER)
_HEADING_BOX = re.compile(r"\[(.?)\][ \t]+")
_HEADING_TASK = re.compile(r"(?:Task|TASK|Step|STEP)[ ]?#?\d|T\d{2,6}\b")
_LEGEND = re.compile(r"(?i)(?:\W*)(?:legend|key|status (?:icons?|legend|key)|symbols)\b")
# How far a heading is indented: every box below it is one of its subtasks.
_OUTSIDE = -2
_DONE = frozenset(char for char, mark in BOXES.items() if mark.done)


def outlined(text: Text, remarks: list[Remark]) -> Outline:
    writer = _Writer(text, usual_of(text.lines))
    writer.read()
    outline = writer.outline
    measure(outline, text.lines, writer.usual, writer.pieces, writer.closed)
    numbers = LineNumbers(text.lines, outline)
    for phase in outline.phases:
        phase.line = numbers.at(phase.start)
    numbers = LineNumbers(text.lines, outline)
    remarks += [Remark(numbers.at(start), what) for start, what in writer.odd]
    return outline


class _Writer:
    """The outline so far, and what is open in it."""

    def __init__(self, text: Text, usual: Usual) -> None:
        self.text = text
        self.usual = usual
        self.outline = Outline()
        # The drafts so far, but for the last usual lines, from `taken` on to `seen`; and how many that are in all.
        self.pieces: list[Piece] = []
        self.taken = self.seen = self.count = 0
        # How many drafts there are more than usual lines.
        self.more = 0
        # By how much the lines are ahead of the rest here.
        self.ahead = 0
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
        # The phase that is open, by its place, and its level; none is -1 and 0.
        self.phase = -1
        self.phase_level = 0
        self.legend = False

    def read(self) -> None:
        position, length = 0, len(self.usual.rest)
        while position < length:
            position = self.read_on(position)
        self.go_below_heading(amount := len(self.usual.boxes))
        self.seen, self.count = amount, amount + self.more
        end = len(self.text.raw)
        self.close(end)
        self.close_heading(0, end)
        self.split_off()

    def read_on(self, position: int) -> int:
        """All lines from here to the end of the next comment or odd code; returns where to go on."""
        rest, gaps, starts = self.usual.rest, self.usual.gaps, self.usual.starts
        hidden = self.outline.hidden
        for found in LINE.finditer(rest, position):
            start, kind, seen = found.start(), found.lastindex, self.seen
            if gaps[seen] <= start:
                while gaps[seen] <= start:
                    seen += 1
                if self.heading is not None or self.legend:
                    self.go_below_heading(seen)
                self.seen, self.count, self.ahead = seen, seen + self.more, starts[seen] - gaps[seen]
            if kind == ITEM:
                self.add_item(found)
            elif kind == FIELD:
                for said in fields_in(found[10], found[11]):
                    self.add_field(said, found[1])
            elif kind == NUMBERED:
                self.add_numbered(found, start + self.ahead)
            elif kind == HEADING:
                self.add_heading(found, found[HEADING])
            elif kind == CODE:
                # Mostly no usual line stands in it: `hide` would do the same.
                if (end := found.end()) <= gaps[seen]:
                    hidden.append((start + self.ahead, end + self.ahead - 1))
                else:
                    self.hide(start, end)
            elif kind == SIGNED:
                self.add_item(found)
            elif (end := self.end_of_hidden(found)) > 0:
                return end
        return len(rest)

    def go_below_heading(self, seen: int) -> None:
        """Look at the usual lines before this one. Each is a draft by itself, but below some headings."""
        while (place := self.seen) < seen and (self.heading is not None or self.legend):
            self.add_below_heading(place)
            self.seen = place + 1

    # ── drafts ──

    def split_off(self) -> None:
        """What is seen so far is a piece of its own."""
        if self.seen > self.taken:
            self.pieces.append(range(self.taken, self.seen))
        self.taken = self.seen

    def skip(self, seen: int) -> None:
        """The usual lines from here to that one are no drafts."""
        self.split_off()
        self.more -= seen - self.seen
        self.taken = self.seen = seen
        self.ahead = self.usual.ahead(seen)

    def add_draft(self, found: re.Match[str], item: Item) -> None:
        self.split_off()
        self.pieces.append(Apart(found.start() + self.ahead, found.end() + self.ahead))
        self.outline.items[self.count] = item
        self.more += 1
        self.count += 1

    # ── what is hidden ──

    def hide(self, start: int, end: int) -> None:
        """Code, from here to there in the rest."""
        usual = self.usual
        start += self.ahead
        # Those that stand at the end come behind it.
        if usual.gaps[self.seen] < end:
            self.skip(bisect_left(usual.gaps, end, self.seen))
        self.outline.hidden.append((start, end + self.ahead - 1))

    def end_of_hidden(self, found: re.Match[str]) -> int:
        """Where the code or the comment that begins here ends; 0 where it hides nothing. What never ends is told."""
        if found.lastindex == COMMENT:
            return self.end_of_comment(found)
        fence, rest = found[FENCE], self.usual.rest
        if self.unclosed.get(fence[0], 99) <= len(fence):
            return 0
        if end := end_of_fence(fence, rest, found.end()):
            self.hide(found.start(), end)
        else:
            self.unclosed[fence[0]] = len(fence)
            what = "this code fence is never closed: the lines below it are read as text"
            self.odd.append((found.start() + self.ahead, what))
        return end

    def end_of_comment(self, found: re.Match[str]) -> int:
        """It may end in a usual line, so that is sought in all lines."""
        usual, lines, start = self.usual, self.text.lines, found.start() + self.ahead
        if (end := lines.find("-->", found.end() + self.ahead)) < 0:
            self.odd.append((start, "this comment is never closed: all below it is hidden"))
            end = len(lines)
        self.outline.hidden.append((start, end - 1))
        if (seen := bisect_left(usual.starts, end, self.seen)) > self.seen:
            self.skip(seen)
            return max(usual.gaps[seen - 1], end - self.ahead)
        return end - self.ahead

    # ── what is open ──

    def open_indent(self) -> int | None:
        """How far the open draft is indented; None where none is open."""
        place = self.count - 1
        if place < self.shut:
            return None
        item = self.outline.items.get(place)
        return item.indent if item is not None else 0

    def is_under_a_task(self, blanks: str) -> bool:
        """Whether what is indented by these belongs to the open draft."""
        place = self.count - 1
        if place < self.shut:
            return False
        owner = self.outline.items.get(place)
        if owner is None:
            return len(blanks) >= 2 or blanks == "\t"
        return owner.mark is not None and width_of(blanks) >= owner.indent + 2

    def close(self, end: int) -> None:
        if self.count > self.shut:
            self.closed[self.count - 1] = end
            self.shut = self.count

    def close_heading(self, level: int, end: int) -> None:
        if self.heading is not None and level <= self.heading_level:
            if self.heading.mark is None:
                self.closed[self.heading_place] = end
            self.heading = None

    # ── items ──

    def add_item(self, found: re.Match[str]) -> None:
        # Boxes below a task, of which there are many, take a short way: `add_marked` would do the same with them.
        char = found[3]
        is_step = char in BOXES and not self.legend and self.is_under_a_task(found[1])
        if is_step and (words := found[5].strip()):
            self.add_step(found.start() + self.ahead, words, char in _DONE)
            return
        item = item_of(found, self.ahead)
        if item.mark is None:
            if char := unknown_mark(found):
                what = f"[{char}] is no known mark: the line is not read as a task"
                self.odd.append((found.start() + self.ahead, what))
            self.add_unmarked(found, item)
        elif not item.text.strip():
            what = "this box has no text: it is not read as a task"
            self.odd.append((found.start() + self.ahead, what))
        elif not self.legend:
            self.add_marked(found, item, item.mark)

    def add_step(self, start: int, words: str, done: bool) -> None:
        steps = self.outline.steps
        steps.owners.append(self.count - 1)
        steps.starts.append(start)
        steps.texts.append(words)
        steps.done.append(done)

    def add_marked(self, found: re.Match[str], item: Item, mark: Mark) -> None:
        if self.is_under_a_task(found[1]):
            self.add_step(found.start() + self.ahead, item.text.strip(), mark.done)
            return
        self._drop_heading()
        self.add_draft(found, item)

    def add_below_heading(self, place: int) -> None:
        """A usual line in a legend, or below a heading that may be a task: `add_item` would do the same with it."""
        self.count = place + self.more
        if not self.legend and not self.is_under_a_task(""):
            self._drop_heading()
            return
        if not self.legend:
            self.add_step(self.usual.starts[place], self.usual.titles[place], self.usual.boxes[place] in _DONE)
        self.skip(place + 1)

    def _drop_heading(self) -> None:
        """What a heading asks for is in the boxes below it: they are the tasks, and it is their section.

        No candidate is taken up below such a heading, so it is the last draft.
        """
        if self.heading is None or self.heading.mark is not None:
            return
        self.pieces.pop()
        self.more -= 1
        self.count -= 1
        place = self.shut = self.count
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
                outline.fields.setdefault(self.count - 1, []).extend(fields_in(said.name, said.value))
            return
        self.close(found.start() + self.ahead)
        if said is not None:
            for each in fields_in(said.name, said.value):
                self.add_field(each, found[1])
        elif item.bullet and item.indent < 2 and self.heading is None and item.text.strip():
            self.add_draft(found, item)

    # ── fields ──

    def add_field(self, said: Field, blanks: str) -> None:
        owner = self.open_indent() if self.count > self.shut else None
        if owner is not None and width_of(blanks) > owner:
            self.outline.fields.setdefault(self.count - 1, []).append(said)
        elif owner is None and self.heading is not None:
            self.outline.fields.setdefault(self.heading_place, []).append(said)
        elif said.name[0] == "f":
            # Only files begin with this letter.
            self.outline.sections[-1].files.append(said.value)
            self.outline.described = True
        elif self.phase >= 0:
            self.outline.described = True
            describe(self.outline.phases[self.phase], said.name, self.text.clean(plain(said.value)))

    # ── headings ──

    def add_numbered(self, found: re.Match[str], start: int) -> None:
        """The heading of a numbered section, of which there are many: `add_heading` would do the same with it."""
        level, words = len(found[6]) + 1, found[NUMBERED]
        if level == 1 or self.text.dirty:
            self.add_heading(found, words)
            return
        if self.count > self.shut:
            self.closed[self.count - 1] = start
            self.shut = self.count
        if self.heading is not None:
            self.close_heading(level, start)
        self.legend = False
        if level <= self.phase_level:
            self.phase, self.phase_level = -1, 0
        files: list[str] = []
        section = (words, found[8], start, level, self.phase, self.count, files)
        # Made as a tuple, as other nouns of which there are many: the constructor of a named one takes twice as long.
        self.outline.sections.append(tuple.__new__(Section, section))

    def add_heading(self, found: re.Match[str], words: str) -> None:
        start, level, words = found.start() + self.ahead, len(found[6]) + 1, words.strip()
        self.close(start)
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
        if worded and (found := phase_in(words)) is not None:
            title = found["rest"].strip().lstrip(":.)–—-").strip()
            outline.phases.append(PhaseDraft(found["number"] or "", self.text.clean(title or words), level, start))
            self.phase, self.phase_level = len(outline.phases) - 1, level
            words = ""
        elif level <= self.phase_level:
            self.phase, self.phase_level = -1, 0
        if level == 1 and not outline.title and words:
            outline.title = self.text.clean(words)
            words = ""
        if not worded and words and (numbered := _SECTION_NUMBER.match(words)) is not None:
            number = numbered[1]
        title = self.text.clean(words) if self.text.dirty else words
        outline.sections.append(Section(title, number, start, level, self.phase, self.count, []))

    def _add_heading_task(self, found: re.Match[str], words: str, mark: Mark | None, box: re.Match[str] | None) -> None:
        # Sought only where it is: a file of headings without a box would be searched to its end for each.
        place = self.text.raw.find("[", found.start() + self.ahead) + 1 if box else 0
        self.heading = Item(_OUTSIDE, "", mark, words, place, place + (len(box[1]) if box else 0), True)
        self.heading_level, self.heading_place = len(found[6]) + 1, self.count
        self.add_draft(found, self.heading)
        if mark is None:
            # It has no text of its own before it is known to be a task: nothing is indented under it.
            self.closed[self.heading_place] = found.end() + self.ahead - 1
            self.shut = self.count
