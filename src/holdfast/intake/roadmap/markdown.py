"""Markdown: an outline becomes a roadmap.

Invariants
  M1  Tasks stand in the order of the file, each with the line it is written on.
  M2  A numbered list without boxes counts as tasks only where nothing beside it has a box, and it stands in a phase,
      under a heading that announces work, or is most of the file. It cannot be ticked, and a remark says so.
  M3  Every "depends on" that names nothing is a remark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import repeat

from holdfast.intake.roadmap.drafting import outlined
from holdfast.intake.roadmap.ids import Naming, ids_of, is_id
from holdfast.intake.roadmap.marks import HELD, SAID, may_set_aside, set_aside, unsigned
from holdfast.intake.roadmap.needs import Rows, needs_of
from holdfast.intake.roadmap.order import phase_order
from holdfast.intake.roadmap.outline import Outline, Section
from holdfast.intake.roadmap.reading import Reading, Spot
from holdfast.intake.roadmap.references import circles
from holdfast.intake.roadmap.scan import PLAIN, Field, Item, Text, item_of
from holdfast.intake.roadmap.words import Line, line_of, listed_paths, paths_in, places_that_say_more, plain
from holdfast.model.task import Format, Held, Phase, Remark, Roadmap, Subtask, Task

_WORK = re.compile(r"(?i)\b(?:tasks?|to-?dos?|to do|roadmap|plan|steps?|milestones?|backlog|next|work items?)\b")
_MARGIN = re.compile(r"\n[ \t]*\n(?=[^ \t\n])")
_COMMAND = re.compile(r"`([^`\n]{1,2000})`[ \t.]*\Z")
_MAX_REMARKS = 1_000


def markdown_reading(text: Text) -> Reading:
    remarks: list[Remark] = []
    outline = outlined(text, remarks)
    _count(outline, text, remarks)
    titles, said = _titles(outline, text)
    ids = _ids(outline, titles, said, remarks)
    phases = _phases(outline)
    retold = range(len(titles)) if text.dirty else said.keys()
    rows = Rows(ids, titles, _numbers(outline, said), _bodies(outline, text), retold)
    after = needs_of(rows, outline, text, remarks)
    tasks = _tasks(rows, outline, text, said, after, phases)
    phases = phase_order(outline, phases, text, remarks)
    remarks += circles([tasks[place] for place in sorted(after)])
    kind = _format(outline, said, len(tasks), bool(after))
    held = tuple(_held(outline, text, tasks))
    roadmap = Roadmap(kind, outline.title, phases, tasks, _told(remarks, tasks), held)
    return Reading(roadmap, lambda: _spots(outline, ids))


def _held(outline: Outline, text: Text, tasks: Sequence[Task]) -> Iterator[Held]:
    """What its mark or its words set aside, in the order of the file; what is ticked is done, whatever it says."""
    marked = {
        place: HELD[item.mark.standing]
        for place, item in outline.items.items()
        if item.mark is not None and item.mark.standing in HELD
    }
    if may_set_aside(text.lines):
        for place, draft in enumerate(outline.drafts):
            item = outline.items.get(place)
            if not tasks[place].done and (because := set_aside(item.text if item is not None else draft[PLAIN])):
                marked.setdefault(place, because)
    yield from (Held(tasks[place].id, marked[place]) for place in sorted(marked))


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
    candidates: set[int] = set()
    for place, item in outline.items.items():
        if item.mark is None:
            candidates.add(place)
        elif item.mark.standing in SAID:
            remarks.append(Remark(outline.lines[place], f"this task {SAID[item.mark.standing]}"))
    if not candidates:
        return
    amount = len(outline.drafts)
    alone = len(candidates) == amount
    whole = alone and _is_mostly_a_list(text, amount)
    marked = {outline.places[place] for place in range(amount) if place not in candidates}
    kept: list[int] = []
    for place, at in enumerate(outline.places):
        if place not in candidates or (
            at not in marked and _counts(outline.items[place], outline.sections[at], outline, whole, alone)
        ):
            kept.append(place)
    if first := next((outline.lines[place] for place in kept if place in candidates), 0):
        remarks.append(Remark(first, "tasks without a box are read, and cannot be ticked in this file"))
    outline.keep(kept)


def _counts(item: Item, section: Section, outline: Outline, whole: bool, alone: bool) -> bool:
    """Whether a candidate in a section without boxes is a task."""
    if not item.bullet:
        return True
    if section.phase >= 0:
        return "depend" not in section.title.lower()
    announced = _WORK.search(section.title or outline.title) is not None
    return alone and (whole or announced)


def _is_mostly_a_list(text: Text, items: int) -> bool:
    at_margin = len(re.findall(r"\n[^ \t\n#]", text.lines))
    return items * 2 >= at_margin


# ── the parts of tasks ──


def _titles(outline: Outline, text: Text) -> tuple[list[str], dict[int, Line]]:
    """What the lines of the tasks say: the title of each, and by their places those that say more."""
    # An item says its own text; all others are plain, and have theirs in the match.
    texts = [draft[PLAIN] for draft in outline.drafts]
    for place, item in outline.items.items():
        texts[place] = item.text
    if text.dirty:
        texts = [text.clean(words) for words in texts]
    said = {place: line_of(texts[place]) for place in outline.items}
    for place in places_that_say_more("\n".join(texts)):
        if place not in said:
            said[place] = line_of(texts[place])
    for place, line in said.items():
        texts[place] = line.title
    return texts, said


def _numbers(outline: Outline, said: dict[int, Line]) -> list[str]:
    numbers = [""] * len(outline.drafts)
    for place, item in outline.items.items():
        numbers[place] = item.bullet[:-1]
    for place, line in said.items():
        numbers[place] = line.number or numbers[place]
    return numbers


def _bodies(outline: Outline, text: Text) -> list[str]:
    """The texts below the tasks' own lines; what follows at the margin is cut off in the outline as well."""
    lines, heads, ends = text.lines, outline.heads, outline.ends
    bodies = [lines[head : end + 1].rstrip() for head, end in zip(heads, ends, strict=True)]
    for place in [place for place, body in enumerate(bodies) if "\n\n" in body or " \n" in body]:
        item = outline.items.get(place)
        if (item is None or item.indent >= 0) and (margin := _MARGIN.search(bodies[place])) is not None:
            bodies[place] = bodies[place][: margin.start()].rstrip()
            ends[place] = heads[place] - 1 + len(bodies[place])
    if text.returns or text.dirty:
        for place in [place for place, body in enumerate(bodies) if body]:
            raw = text.raw[heads[place] - 1 : ends[place]]
            bodies[place] = text.clean(raw.replace("\r\n", "\n").replace("\r", "\n")).rstrip()
    return [body.lstrip("\n") for body in bodies]


def _ids(outline: Outline, titles: Sequence[str], said: dict[int, Line], remarks: list[Remark]) -> list[str]:
    written = {place: line.written for place, line in said.items() if line.written}
    if written:
        _remark_on_written(written, outline, remarks)

    def naming(index: int) -> Naming:
        section = outline.sections[outline.places[index]]
        phase = outline.phases[section.phase].title if section.phase >= 0 else ""
        return Naming(titles[index], phase, section.title)

    return ids_of(titles, [written.get(place, "") for place in range(len(titles))] if written else (), naming)


def _remark_on_written(written: dict[int, str], outline: Outline, remarks: list[Remark]) -> None:
    seen: set[str] = set()
    for place, id in sorted(written.items()):
        if id.lower() in seen:
            remarks.append(Remark(outline.lines[place], f"the id {id} is given twice"))
        elif not is_id(id):
            remarks.append(Remark(outline.lines[place], f"{id} cannot be an id: it is made from the title"))
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
    rows: Rows, outline: Outline, text: Text, said: dict[int, Line], after: dict[int, tuple[str, ...]],
    phases: Sequence[Phase],
) -> tuple[Task, ...]:  # fmt: skip
    sections, places = outline.sections, outline.places
    # The last is for tasks in no phase, whose place is -1.
    ids = [*(phase.id for phase in phases), ""]
    phase_of = [ids[section.phase] for section in sections]
    title_of = [section.title for section in sections]
    before: list[tuple[str, ...]] = [()] * len(places)
    for place, earlier in after.items():
        before[place] = earlier
    parallel = [False] * len(places)
    for place, line in said.items():
        parallel[place] = line.parallel
    done = [draft[1] != " " for draft in outline.drafts]
    for place, item in outline.items.items():
        done[place] = item.mark is not None and item.mark.done
    blank = repeat("")
    made = list(map(tuple.__new__, repeat(Task), zip(
        rows.ids, rows.titles, rows.numbers, [phase_of[at] for at in places], [title_of[at] for at in places],
        rows.bodies, _files(rows.titles, outline), _subtasks(outline, text), before,
        parallel, blank, blank, blank, done, outline.lines, strict=False,
    )))  # fmt: skip
    for place, fields in outline.fields.items():
        made[place] = _described(made[place], fields)
    return tuple(made)


def _files(titles: Sequence[str], outline: Outline) -> list[tuple[str, ...]]:
    """Those of the section, behind those that the title names."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    shared: list[tuple[str, ...]] = []
    for section in outline.sections:
        values = tuple(section.files)
        if values not in known:
            known[values] = tuple(path for value in values for path in listed_paths(value))
        shared.append(known[values])
    files = [shared[at] for at in outline.places]
    joined = "\n".join(titles)
    if "/" in joined or ("." in joined and "`" in joined):
        for place, title in enumerate(titles):
            if "/" in title or ("." in title and "`" in title):
                files[place] = _added(paths_in(title), files[place])
    return files


def _subtasks(outline: Outline, text: Text) -> list[tuple[Subtask, ...]]:
    found: list[tuple[Subtask, ...]] = [()] * len(outline.drafts)
    for place, steps in outline.steps.items():
        line, position = outline.lines[place], outline.starts[place]
        made: list[Subtask] = []
        for start, mark, words in steps:
            line += text.lines.count("\n", position, start)
            position = start
            words = plain(unsigned(words.strip()))
            made.append(tuple.__new__(Subtask, (text.clean(words) if text.dirty else words, mark.done, line)))
        found[place] = tuple(made)
    return found


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


# ── what kind of file it is, and where its marks are ──


def _format(outline: Outline, said: dict[int, Line], amount: int, ordered: bool) -> Format:
    if not amount:
        return "prose"
    numbered = sum(1 for line in said.values() if line.written[:1] == "T" and line.written[1:2].isdigit())
    if numbered * 2 > amount:
        return "spec-kit"
    if outline.phases or outline.described or ordered:
        return "roadmap"
    signs = sum(1 for item in outline.items.values() if item.mark is not None and not item.boxed)
    return "emoji" if signs * 2 > amount else "checklist"


def _spots(outline: Outline, ids: Sequence[str]) -> dict[str, Spot]:
    items = [outline.items.get(place) or item_of(draft) for place, draft in enumerate(outline.drafts)]
    return {
        id: tuple.__new__(Spot, (start, end, mark.when_done, mark.when_open))
        for (_, _, mark, _, start, end, _), id in zip(items, ids, strict=True)
        if mark is not None
    }
