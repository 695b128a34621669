"""Markdown: an outline becomes a roadmap.

Invariants
  M1  Tasks stand in the order of the file, each with the line it is written on.
  M2  A numbered list without boxes counts as tasks only where nothing beside it has a box, and it stands in a phase,
      under a heading that announces work, or is most of the file. It cannot be ticked, and a remark says so.
  M3  Every "depends on" that names nothing is a remark.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from holdfast.intake.roadmap.ids import Naming, ids_of, is_id
from holdfast.intake.roadmap.marks import SAID
from holdfast.intake.roadmap.order import declared_order, phase_order
from holdfast.intake.roadmap.outline import Outline, outlined
from holdfast.intake.roadmap.reading import Reading, Spot
from holdfast.intake.roadmap.references import (
    MAX_EXPANDED,
    STEMS,
    Names,
    Places,
    circles,
    clauses,
    named,
    spelling,
    unique,
)
from holdfast.intake.roadmap.scan import Field, Item, Text
from holdfast.intake.roadmap.words import Line, lines_of, listed_paths, paths_in
from holdfast.model.task import Format, Phase, Remark, Roadmap, Task

_WORK = re.compile(r"(?i)\b(?:tasks?|to-?dos?|to do|roadmap|plan|steps?|milestones?|backlog|next|work items?)\b")
_MARGIN = re.compile(r"\n[ \t]*\n(?=[^ \t\n])")
_COMMAND = re.compile(r"`([^`\n]{1,2000})`[ \t.]*\Z")
_MAX_REMARKS = 1_000


def markdown_reading(text: Text) -> Reading:
    remarks: list[Remark] = []
    outline = outlined(text, remarks)
    _count(outline, text, remarks)
    lines = lines_of([text.clean(item.text) if text.dirty else item.text for item in outline.drafts])
    bodies = _bodies(outline, text)
    ids = _ids(outline, lines, remarks)
    phases = _phases(outline)
    tasks = _tasks(outline, lines, bodies, ids, phases)
    tasks = _ordered(tasks, outline, text, remarks)
    phases = phase_order(outline, phases, text, remarks)
    remarks += circles(tasks)
    roadmap = Roadmap(_format(outline, lines, tasks), outline.title, phases, tasks, _told(remarks, tasks))
    return Reading(roadmap, lambda: _spots(outline.drafts, ids))


def _told(remarks: list[Remark], tasks: Sequence[Task]) -> tuple[Remark, ...]:
    if not tasks:
        remarks.append(Remark(1, "no task is found in this file"))
    remarks.sort()
    if len(remarks) > _MAX_REMARKS:
        rest = len(remarks) - _MAX_REMARKS
        remarks[_MAX_REMARKS:] = [Remark(remarks[_MAX_REMARKS].line, f"{rest} more remarks are left out")]
    return tuple(remarks)


# ── which drafts are tasks ──


def _count(outline: Outline, text: Text, remarks: list[Remark]) -> None:
    """Take the candidates that are no tasks out of the outline."""
    drafts = outline.drafts
    candidates = 0
    for item in drafts:
        mark = item.mark
        if mark is None:
            candidates += 1
        elif mark.standing in SAID:
            remarks.append(Remark(item.line, f"this task {SAID[mark.standing]}"))
    if not candidates:
        return
    alone = candidates == len(drafts)
    whole = alone and _is_mostly_a_list(text, candidates)
    kept = [n for n, item in enumerate(drafts) if item.mark is not None or _counts(item, outline, whole, alone)]
    if first := next((drafts[n] for n in kept if drafts[n].mark is None), None):
        remarks.append(Remark(first.line, "tasks without a box are read, and cannot be ticked in this file"))
    outline.keep(kept)


def _counts(item: Item, outline: Outline, whole: bool, alone: bool) -> bool:
    """Whether a candidate is a task."""
    section = outline.sections[item.section]
    if section.marked or not item.bullet:
        return not section.marked
    if item.phase >= 0:
        return "depend" not in section.title.lower()
    announced = _WORK.search(section.title or outline.title) is not None
    return alone and (whole or announced)


def _is_mostly_a_list(text: Text, items: int) -> bool:
    at_margin = len(re.findall(r"\n[^ \t\n#]", text.lines))
    return items * 2 >= at_margin


# ── the parts of tasks ──


def _bodies(outline: Outline, text: Text) -> list[str]:
    """The texts below the tasks' own lines; what follows at the margin is cut off in the outline as well."""
    bodies: list[str] = []
    lines, ends, plain = text.lines, outline.ends, not (text.returns or text.dirty)
    for place, item in enumerate(outline.drafts):
        body = lines[item.end + 1 : ends[place] + 1].rstrip()
        if not body:
            bodies.append("")
            continue
        if ("\n\n" in body or " \n" in body) and item.indent >= 0 and (margin := _MARGIN.search(body)) is not None:
            body = body[: margin.start()].rstrip()
            ends[place] = item.end + len(body)
        if not plain:
            raw = text.raw[item.end : ends[place]]
            body = text.clean(raw.replace("\r\n", "\n").replace("\r", "\n")).rstrip()
        bodies.append(body.lstrip("\n"))
    return bodies


def _ids(outline: Outline, lines: Sequence[Line], remarks: list[Remark]) -> list[str]:
    drafts = outline.drafts
    written = [line.written for line in lines]
    if any(written):
        _remark_on_written(written, drafts, remarks)

    def naming(index: int) -> Naming:
        item = drafts[index]
        phase = outline.phases[item.phase].title if item.phase >= 0 else ""
        return Naming(lines[index].title, phase, outline.sections[item.section].title)

    return ids_of([line.title for line in lines], written, naming)


def _remark_on_written(written: Sequence[str], drafts: Sequence[Item], remarks: list[Remark]) -> None:
    seen: set[str] = set()
    for id, item in zip(written, drafts, strict=True):
        if id and id.lower() in seen:
            remarks.append(Remark(item.line, f"the id {id} is given twice"))
        elif id and not is_id(id):
            remarks.append(Remark(item.line, f"{id} cannot be an id: it is made from the title"))
        seen.add(id.lower())


def _phases(outline: Outline) -> tuple[Phase, ...]:
    drafts = outline.phases
    ids = ids_of(
        [phase.title for phase in drafts],
        [""] * len(drafts),
        lambda index: Naming(drafts[index].title, drafts[index].number, ""),
    )
    return tuple(
        Phase(id, phase.title, phase.goal, phase.priority, phase.effort, phase.prerequisite, (), phase.line)
        for phase, id in zip(drafts, ids, strict=True)
    )


def _tasks(
    outline: Outline, lines: Sequence[Line], bodies: Sequence[str], ids: Sequence[str], phases: Sequence[Phase]
) -> tuple[Task, ...]:
    shared = [tuple(path for value in section.files for path in listed_paths(value)) for section in outline.sections]
    sections = [section.title for section in outline.sections]
    # The last is for tasks in no phase, whose index is -1.
    in_phase = [*(phase.id for phase in phases), ""]
    made: list[Task] = []
    for item, (title, number, _, parallel), body, id in zip(outline.drafts, lines, bodies, ids, strict=True):
        section = item.section
        files = shared[section]
        if "/" in title or ("." in title and "`" in title):
            files = _added(paths_in(title), files)
        mark, bullet = item.mark, item.bullet or ""
        # Made as tuples: the constructor of a named tuple takes three times as long.
        made.append(tuple.__new__(Task, (
            id, title, number or ("" if bullet in "-*+" else bullet[:-1]), in_phase[item.phase], sections[section],
            body, files, (), (), parallel, "", "", "", mark is not None and mark.done, item.line,
        )))  # fmt: skip
    for place, subtasks in outline.subtasks.items():
        made[place] = made[place]._replace(subtasks=tuple(subtasks))
    for place, fields in outline.fields.items():
        made[place] = _described(made[place], fields)
    return tuple(made)


def _added(own: tuple[str, ...], shared: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*own, *shared))) if own and shared else own or shared


def _described(task: Task, fields: Sequence[Field]) -> Task:
    """A task with what the fields in its body say."""
    for said in fields:
        if said.name.startswith("file"):
            task = task._replace(files=tuple(dict.fromkeys((*task.files, *listed_paths(said.value)))))
        elif said.name == "priority":
            task = task._replace(priority=said.value)
        elif said.name.startswith(("effort", "estimate")):
            task = task._replace(effort=said.value)
        elif said.name.startswith(("accept", "verify", "test")) and (command := _COMMAND.match(said.value)):
            task = task._replace(accept=command[1])
    return task


# ── what comes before what ──


def _ordered(tasks: tuple[Task, ...], outline: Outline, text: Text, remarks: list[Remark]) -> tuple[Task, ...]:
    stems = tuple(stem for stem in STEMS if stem in text.raw)
    if not stems:
        return tasks
    after: dict[str, list[str]] = {}
    names = Names(tasks, lambda: _places(tasks, outline))
    spent = 0
    for place in _places_that_say(tasks, stems):
        found = _before(place, tasks[place], outline, names, text, remarks)
        spent += len(found)
        if found:
            after[tasks[place].id] = found
        if spent >= MAX_EXPANDED:
            remarks.append(Remark(tasks[place].line, "too many dependencies: those below this line are left out"))
            break
    for id, before in declared_order(outline, names, text, remarks):
        after.setdefault(id, []).append(before)
    if not after:
        return tasks
    ordered = list(tasks)
    for place, task in enumerate(tasks):
        if task.id in after:
            ordered[place] = task._replace(after=unique(after[task.id], task.id))
    return tuple(ordered)


def _places_that_say(tasks: Sequence[Task], stems: Sequence[str]) -> list[int]:
    """The places of tasks in which one of the stems stands."""
    first, rest = stems[0], stems[1:]
    return [
        place
        for place, task in enumerate(tasks)
        if first in task.body or first in task.title or any(stem in task.body or stem in task.title for stem in rest)
    ]


def _before(place: int, task: Task, outline: Outline, names: Names, text: Text, remarks: list[Remark]) -> list[str]:
    found: list[str] = []
    phase = outline.drafts[place].phase
    near = outline.phases[phase].number if phase >= 0 else ""
    for words in (task.title, _uncovered(place, outline, text)):
        for clause in clauses(words) if any(stem in words for stem in STEMS) else ():
            ids, lost = named(clause.text, names, near)
            found += ids
            at = task.line + words.count("\n", 0, clause.offset)
            remarks += [
                Remark(at, f"depends on {text.clean(what)!r}, which is not the name of one task here") for what in lost
            ]
            if ids == [task.id]:
                remarks.append(Remark(at, "this task depends on itself"))
    return found


def _uncovered(place: int, outline: Outline, text: Text) -> str:
    """The text below a task, in which code and comments are blank."""
    lines, hidden, end = text.lines, outline.hidden, outline.ends[place]
    position = outline.drafts[place].end + 1
    parts: list[str] = []
    for index in range(bisect_left(hidden, (position - 1, 0)), len(hidden)):
        start, until = hidden[index]
        if start >= end:
            break
        parts += (lines[position : start + 1], "\n" * lines.count("\n", start + 1, until + 1))
        position = until + 1
    return "".join(parts) + lines[position : end + 1]


def _places(tasks: Sequence[Task], outline: Outline) -> Places:
    named: dict[str, list[str]] = {}
    in_phase: dict[str, list[str]] = {phase.number: [] for phase in outline.phases}
    spelled = [spelling(phase.title) for phase in outline.phases]
    for task, item in zip(tasks, outline.drafts, strict=True):
        if item.phase >= 0:
            number = outline.phases[item.phase].number
            in_phase[number].append(task.id)
            named.setdefault(spelled[item.phase], []).append(task.id)
            if task.number.isdigit():
                named.setdefault(f"{number}.{task.number}", []).append(task.id)
        if at := outline.sections[item.section].number:
            named.setdefault(at, []).append(task.id)
    return Places(named, in_phase)


# ── what kind of file it is, and where its marks are ──


def _format(outline: Outline, lines: Sequence[Line], tasks: Sequence[Task]) -> Format:
    if not tasks:
        return "prose"
    numbered = sum(1 for line in lines if line.written[:1] == "T" and line.written[1:2].isdigit())
    if numbered * 2 > len(tasks):
        return "spec-kit"
    if outline.phases or outline.described or any(task.after for task in tasks):
        return "roadmap"
    signs = sum(1 for item in outline.drafts if item.mark is not None and not item.boxed)
    return "emoji" if signs * 2 > len(tasks) else "checklist"


def _spots(drafts: Sequence[Item], ids: Sequence[str]) -> dict[str, Spot]:
    return {
        id: Spot(item.mark_start, item.mark_end, item.mark.when_done, item.mark.when_open)
        for item, id in zip(drafts, ids, strict=True)
        if item.mark is not None
    }
