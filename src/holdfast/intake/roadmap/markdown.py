"""An outline becomes a roadmap, whatever its file is written in.

Invariants
  M1  Tasks stand in the order of the file, each with the line it is written on.
  M2  Every "depends on" that names nothing is a remark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from holdfast.intake.roadmap.blocks import Block, Field, Text
from holdfast.intake.roadmap.choosing import choose
from holdfast.intake.roadmap.drafting import OUTSIDE, outlined
from holdfast.intake.roadmap.ids import Naming, ids_of, is_id
from holdfast.intake.roadmap.marks import HELD, set_aside
from holdfast.intake.roadmap.needs import Rows, needs_of
from holdfast.intake.roadmap.order import phase_order
from holdfast.intake.roadmap.outline import Draft, Outline
from holdfast.intake.roadmap.reading import Reading, Spot
from holdfast.intake.roadmap.references import circles
from holdfast.intake.roadmap.words import Line, line_of, listed_paths, paths_in
from holdfast.model.task import Confidence, Format, Held, Phase, Remark, Roadmap, Subtask, Task

_MARGIN = re.compile(r"\n[ \t]*\n(?=[^ \t\n])")
_COMMAND = re.compile(r"`([^`\n]{1,2000})`[ \t.]*\Z")
_MAX_REMARKS = 1_000

_DONE_ABOVE = "this is to do and stands below a task that is done, so it is not begun: move it out, or reopen that task"


def outline_reading(text: Text, blocks: Iterable[Block], name: str, written: Format | None = None) -> Reading:
    """`written` is what the file is written in, where that is not Markdown."""
    remarks: list[Remark] = []
    outline = outlined(text, blocks, remarks)
    choose(outline, text, name, remarks, of_headings=written == "org")
    drafts = outline.drafts
    said = [line_of(text.clean(draft.item.text)) for draft in drafts]
    ids = _ids(drafts, said, remarks)
    bodies = [_body(draft, text) for draft in drafts]
    numbers = [line.number or draft.item.bullet[:-1] for line, draft in zip(said, drafts, strict=True)]
    after = needs_of(Rows(ids, [line.title for line in said], numbers), outline, text, remarks)
    phases = _phases(outline)
    shared = _files_of_sections(outline)
    tasks = tuple(
        _described(
            Task(
                id=ids[place],
                title=line.title,
                number=numbers[place],
                phase=phases[draft.section.phase.place].id if draft.section.phase is not None else "",
                section=draft.section.title,
                body=bodies[place],
                files=_added(paths_in(line.title), shared[draft.section.place]),
                subtasks=tuple(Subtask(step.text, step.done, step.line) for step in draft.steps),
                after=after[place],
                parallel=line.parallel,
                done=draft.item.mark.done if draft.item.mark is not None else draft.done,
                line=draft.line,
            ),
            draft.fields,
        )
        for place, (draft, line) in enumerate(zip(drafts, said, strict=True))
    )
    phases = phase_order(outline, phases, text, remarks)
    remarks += circles(tasks)
    kind = (written if drafts else None) or _format(outline, said, any(after))
    remarks += _below_done(drafts)
    held = tuple(_held(drafts, tasks))
    guessed = any(
        not task.done and (draft.item.mark is None or outline.told_in_prose)
        for draft, task in zip(drafts, tasks, strict=True)
    )
    confidence: Confidence = "guessed" if guessed else "marked"
    roadmap = Roadmap(kind, outline.title, phases, tasks, _told(remarks, tasks), held, confidence)
    return Reading(roadmap, [task for task in tasks if task.accept], lambda: _spots(drafts, ids))


def _below_done(drafts: Sequence[Draft]) -> Iterator[Remark]:
    """Headings that say TODO below one that says DONE: they are its subtasks, and nobody begins what is done."""
    for draft in drafts:
        if draft.item.kind == "keyword" and draft.item.mark is not None and draft.item.mark.done:
            yield from (Remark(step.line, _DONE_ABOVE) for step in draft.steps if not step.done)


def _held(drafts: Sequence[Draft], tasks: Sequence[Task]) -> Iterator[Held]:
    """What its mark or its words set aside, in the order of the file; what is ticked is done, whatever it says."""
    for draft, task in zip(drafts, tasks, strict=True):
        mark = draft.item.mark
        because = HELD.get(mark.standing, "") if mark is not None else ""
        if not because and not task.done:
            because = set_aside(draft.item.text)
        if because:
            yield Held(task.id, because)


def _told(remarks: list[Remark], tasks: Sequence[Task]) -> tuple[Remark, ...]:
    if not tasks:
        remarks.append(Remark(1, "no task is found in this file"))
    remarks.sort()
    if len(remarks) > _MAX_REMARKS:
        rest = len(remarks) - _MAX_REMARKS
        remarks[_MAX_REMARKS:] = [Remark(remarks[_MAX_REMARKS].line, f"{rest} more remarks are left out")]
    return tuple(remarks)


# ── the parts of tasks ──


def _body(draft: Draft, text: Text) -> str:
    """The text below the task's own line; what follows at the margin is no part of it (D3), nor of what it says."""
    tail = text.lines[draft.head : draft.end].rstrip()
    if draft.item.indent > OUTSIDE and (margin := _MARGIN.search(tail)) is not None:
        tail = tail[: margin.start()].rstrip()
    draft.end = draft.head + len(tail)
    raw = text.raw[draft.head : draft.end]
    return text.clean(raw.replace("\r\n", "\n").replace("\r", "\n")).rstrip().lstrip("\n")


def _ids(drafts: Sequence[Draft], said: Sequence[Line], remarks: list[Remark]) -> list[str]:
    seen: set[str] = set()
    for draft, line in zip(drafts, said, strict=True):
        if line.written and line.written.lower() in seen:
            remarks.append(Remark(draft.line, f"the id {line.written} is given twice"))
        elif line.written and not is_id(line.written):
            remarks.append(Remark(draft.line, f"{line.written} cannot be an id: it is made from the title"))
        seen.add(line.written.lower())

    def naming(index: int) -> Naming:
        section = drafts[index].section
        return Naming(said[index].title, section.phase.title if section.phase is not None else "", section.title)

    return ids_of([line.title for line in said], [line.written for line in said], naming)


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


def _files_of_sections(outline: Outline) -> list[tuple[str, ...]]:
    return [
        tuple(dict.fromkeys(path for value in section.files for path in listed_paths(value)))
        for section in outline.sections
    ]


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


def _format(outline: Outline, said: Sequence[Line], ordered: bool) -> Format:
    drafts = outline.drafts
    if not drafts:
        return "prose"
    kinds = Counter(draft.item.kind for draft in drafts)
    if 2 * kinds["cell"] > len(drafts):
        return "table"
    if 2 * kinds["bullet"] > len(drafts):
        return "list"
    if 2 * sum(draft.item.kind == "heading" and draft.section.number != "" for draft in drafts) > len(drafts):
        return "roadmap"
    numbered = sum(1 for line in said if line.written[:1] == "T" and line.written[1:2].isdigit())
    if numbered * 2 > len(drafts):
        return "spec-kit"
    if outline.phases or outline.described or ordered:
        return "roadmap"
    return "emoji" if 2 * kinds["sign"] > len(drafts) else "checklist"


def _spots(drafts: Sequence[Draft], ids: Sequence[str]) -> dict[str, Spot]:
    """In the order of the file."""
    return {
        id: Spot(draft.item.mark_start, draft.item.mark_end, draft.item.mark.when_done, draft.item.mark.when_open)
        for draft, id in zip(drafts, ids, strict=True)
        if draft.item.mark is not None
    }
