"""Markdown: an outline becomes a roadmap.

Invariants
  M1  Tasks stand in the order of the file, each with the line it is written on.
  M2  A numbered list without boxes counts as tasks only where nothing beside it has a box, and it stands in a phase,
      under a heading that announces work, or is most of the file. It cannot be ticked, and a remark says so.
  M3  Every "depends on" that names nothing is a remark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import repeat

from holdfast.intake.roadmap.drafting import outlined
from holdfast.intake.roadmap.ids import Naming, ids_of, is_id
from holdfast.intake.roadmap.marks import BOXES, HELD, SAID, may_set_aside, set_aside, unsigned
from holdfast.intake.roadmap.needs import Rows, needs_of
from holdfast.intake.roadmap.order import phase_order
from holdfast.intake.roadmap.outline import Outline, Section
from holdfast.intake.roadmap.reading import Reading, Spot
from holdfast.intake.roadmap.references import circles
from holdfast.intake.roadmap.scan import Field, Item, Text
from holdfast.intake.roadmap.usual import MARK, TICKED
from holdfast.intake.roadmap.words import Line, line_of, listed_paths, paths_in, places_that_say_more, plain
from holdfast.model.task import Format, Held, Phase, Remark, Roadmap, Subtask, Task

_WORK = re.compile(r"(?i)\b(?:tasks?|to-?dos?|to do|roadmap|plan|steps?|milestones?|backlog|next|work items?)\b")
_AT_MARGIN = re.compile(r"\n[^ \t\n]")
_MARGIN = re.compile(r"\n[ \t]*\n(?=[^ \t\n])")
_COMMAND = re.compile(r"`([^`\n]{1,2000})`[ \t.]*\Z")
# What `plain` and `unsigned` take off has one of these in it, or is no ASCII.
_DECORATED = "[*_~:"
_MAX_REMARKS = 1_000
# So many texts are searched in one go for what few of them have.
_AT_ONCE = 500


def markdown_reading(text: Text) -> Reading:
    remarks: list[Remark] = []
    outline = outlined(text, remarks)
    _count(outline, text, remarks)
    texts = _texts(outline)
    joined = "\n".join(texts)
    titles, said = _titles(texts, joined, outline, text)
    spoken = joined if titles is texts else "\n".join(titles)
    ids = _ids(outline, titles, spoken, said, remarks)
    phases = _phases(outline)
    retold = range(len(titles)) if text.dirty else said.keys()
    rows = Rows(ids, titles, spoken, _numbers(outline, said), _bodies(outline, text), retold)
    after = needs_of(rows, outline, text, remarks)
    tasks = _tasks(rows, outline, text, said, after, phases)
    phases = phase_order(outline, phases, text, remarks)
    remarks += circles([tasks[place] for place in sorted(after)])
    kind = _format(outline, said, len(tasks), bool(after))
    held = tuple(_held(texts, joined, outline, tasks))
    roadmap = Roadmap(kind, outline.title, phases, tasks, _told(remarks, tasks), held)
    commanded = [task for place in sorted(outline.fields) if (task := tasks[place]).accept]
    return Reading(roadmap, commanded, lambda: _spots(outline, ids))


def _held(texts: Sequence[str], joined: str, outline: Outline, tasks: Sequence[Task]) -> Iterator[Held]:
    """What its mark or its words set aside, in the order of the file; what is ticked is done, whatever it says."""
    marked = {
        place: HELD[item.mark.standing]
        for place, item in outline.items.items()
        if item.mark is not None and item.mark.standing in HELD
    }
    if may_set_aside(joined):
        for place, words in enumerate(texts):
            if not tasks[place].done and (because := set_aside(words)):
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
    amount = len(outline.starts)
    alone = len(candidates) == amount
    whole = alone and _is_mostly_a_list(text, amount)
    places = list(outline.spread(range(len(outline.sections))))
    marked = {at for place, at in enumerate(places) if place not in candidates}
    kept: list[int] = []
    for place, at in enumerate(places):
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


def _texts(outline: Outline) -> Sequence[str]:
    """What the lines of the tasks say behind their boxes."""
    if not outline.items:
        return outline.texts
    texts = list(outline.texts)
    for place, item in outline.items.items():
        texts[place] = item.text
    return texts


def _titles(texts: Sequence[str], joined: str, outline: Outline, text: Text) -> tuple[Sequence[str], dict[int, Line]]:
    """The title of each task, and by their places the lines of those that say more."""
    if text.dirty:
        texts = [text.clean(words) for words in texts]
    said = {place: line_of(texts[place]) for place in outline.items}
    for place in places_that_say_more(joined):
        if place not in said:
            said[place] = line_of(texts[place])
    if not said:
        return texts, said
    titles = list(texts)
    for place, line in said.items():
        titles[place] = line.title
    return titles, said


def _numbers(outline: Outline, said: dict[int, Line]) -> list[str]:
    numbers = [""] * len(outline.starts)
    for place, item in outline.items.items():
        numbers[place] = item.bullet[:-1]
    for place, line in said.items():
        numbers[place] = line.number or numbers[place]
    return numbers


def _bodies(outline: Outline, text: Text) -> list[str]:
    """The texts below the tasks' own lines; what follows at the margin is cut off in the outline as well."""
    tails, outline.tails = outline.tails, []
    for start in range(0, len(tails), _AT_ONCE):
        part = tails[start : start + _AT_ONCE]
        # Few have what is to be cut off, which is seen of many at once.
        if _AT_MARGIN.search("".join(part)) is not None:
            _cut_at_margin(part, start, outline)
        if text.returns or text.dirty:
            part = [_as_written(body, place, outline, text) for place, body in enumerate(part, start)]
        # In their place: the next ones find room where these were.
        tails[start : start + _AT_ONCE] = map(str.lstrip, map(str.rstrip, part), repeat("\n"))
    return tails


def _cut_at_margin(tails: list[str], first: int, outline: Outline) -> None:
    for place, tail in enumerate(tails, first):
        if "\n\n" not in tail and " \n" not in tail:
            continue
        item, body = outline.items.get(place), tail.rstrip()
        if (item is None or item.indent >= 0) and (margin := _MARGIN.search(body)) is not None:
            body = tails[place - first] = body[: margin.start()].rstrip()
            outline.ends[place] = outline.head(place) - 1 + len(body)


def _as_written(body: str, place: int, outline: Outline, text: Text) -> str:
    if not body or body.isspace():
        return body
    raw = text.raw[outline.head(place) - 1 : outline.ends[place]]
    return text.clean(raw.replace("\r\n", "\n").replace("\r", "\n"))


def _ids(
    outline: Outline, titles: Sequence[str], joined: str, said: dict[int, Line], remarks: list[Remark]
) -> list[str]:
    written = {place: line.written for place, line in said.items() if line.written}
    if written:
        _remark_on_written(written, outline, remarks)

    def naming(index: int) -> Naming:
        section = outline.section_of(index)
        phase = outline.phases[section.phase].title if section.phase >= 0 else ""
        return Naming(titles[index], phase, section.title)

    given = [written.get(place, "") for place in range(len(titles))] if written else ()
    return ids_of(titles, given, naming, joined)


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
    # The last is for tasks in no phase, whose place is -1.
    ids = [*(phase.id for phase in phases), ""]
    phase_of = outline.spread([ids[section.phase] for section in outline.sections])
    title_of = outline.spread([section.title for section in outline.sections])
    amount = len(rows.ids)
    before: list[tuple[str, ...]] = [()] * amount
    for place, earlier in after.items():
        before[place] = earlier
    parallel = [False] * amount
    for place, line in said.items():
        parallel[place] = line.parallel
    done = list(map(TICKED.__contains__, outline.boxes))
    for place, item in outline.items.items():
        done[place] = item.mark is not None and item.mark.done
    blank = repeat("")
    tasks = tuple(map(tuple.__new__, repeat(Task), zip(
        rows.ids, rows.titles, rows.numbers, phase_of, title_of,
        rows.bodies, _files(rows, outline), _subtasks(outline, text), before,
        parallel, blank, blank, blank, done, outline.lines, strict=False,
    )))  # fmt: skip
    if not outline.fields:
        return tasks
    made = list(tasks)
    for place, fields in outline.fields.items():
        made[place] = _described(made[place], fields)
    return tuple(made)


def _files(rows: Rows, outline: Outline) -> list[tuple[str, ...]]:
    """Those of the section, behind those that the title names."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    shared: list[tuple[str, ...]] = []
    for section in outline.sections:
        paths = known.get(values := tuple(section.files))
        if paths is None:
            paths = known[values] = tuple(path for value in values for path in listed_paths(value))
        shared.append(paths)
    files = list(outline.spread(shared))
    if "/" in rows.joined or ("." in rows.joined and "`" in rows.joined):
        for place, title in enumerate(rows.titles):
            if "/" in title or ("." in title and "`" in title):
                files[place] = _added(paths_in(title), files[place])
    return files


def _subtasks(outline: Outline, text: Text) -> list[tuple[Subtask, ...]]:
    found: list[tuple[Subtask, ...]] = [()] * len(outline.starts)
    steps = outline.steps
    titles, lines = _plain_steps(steps.texts, text), _step_lines(outline, text)
    made = tuple(map(tuple.__new__, repeat(Subtask), zip(titles, steps.done, lines, strict=False)))
    first = 0
    for place, amount in Counter(steps.owners).items():
        found[place] = made[first : first + amount]
        first += amount
    return found


def _step_lines(outline: Outline, text: Text) -> list[int]:
    """From the last one on, so that many in one task are not counted over and over."""
    lines: list[int] = []
    line, position = 0, -1
    for owner, start in zip(outline.steps.owners, outline.steps.starts, strict=True):
        if (above := outline.starts[owner]) > position:
            line, position = outline.lines[owner], above
        line += text.lines.count("\n", position, start)
        position = start
        lines.append(line)
    return lines


def _plain_steps(texts: Sequence[str], text: Text) -> Sequence[str]:
    """The titles of subtasks; most are nothing else, which is seen of all of them at once."""
    joined = "\n".join(texts)
    if joined.isascii() and not text.dirty and not any(sign in joined for sign in _DECORATED):
        return texts
    return [text.clean(plain(unsigned(words))) for words in texts]


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
    """In the order of the file. Where a line is usual, so is the place of its mark."""
    spots: dict[str, Spot] = {}
    for place, (id, box, start) in enumerate(zip(ids, outline.boxes, outline.starts, strict=True)):
        if (item := outline.items.get(place)) is None:
            mark, start, end = BOXES[box], start + MARK, start + MARK + 1
        elif item.mark is not None:
            mark, start, end = item.mark, item.mark_start, item.mark_end
        else:
            continue
        spots[id] = tuple.__new__(Spot, (start, end, mark.when_done, mark.when_open))
    return spots
