"""Task files: JSON that other tools write.

    task-master   {"master": {"tasks": […]}, "other-tag": {"tasks": […]}}, or {"tasks": […]} with details or subtasks
    task queue    [{…}, …] or {"tasks": [{…}, …]}: id, title or description, files, dependencies, status, priority

Invariants
  F1  A number or name that the file gives a task is its id: tools keep them. `task-7`, in another tag `tag-7`.
  F2  A task is ticked in its own `status` text or `done` flag, in the words that the file uses; a task without is not.
  F3  A dependency on a subtask ("3.1") is one on its task: a task is done as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.intake.roadmap.ids import Naming, ids_of, is_id
from holdfast.intake.roadmap.located import Node
from holdfast.intake.roadmap.marks import HELD, SAID, Standing
from holdfast.intake.roadmap.reading import Reading, Spot
from holdfast.intake.roadmap.references import circles, unique
from holdfast.model.task import Format, Held, Remark, Roadmap, Subtask, Task

_MARKED_BY: tuple[str, ...] = ("details", "testStrategy", "subtasks")
_FLAGS = ("done", "completed", "complete")
_WORDS: dict[Standing, tuple[str, ...]] = {
    "done": ("done", "completed", "complete", "finished", "closed", "merged", "success", "succeeded", "verified"),
    "open": ("pending", "todo", "open", "in-progress", "in_progress", "in progress", "started", "review", "blocked",
             "failed", "queued", "ready", "new", "not-started", "not_started", "running", "timeout", "validating"),
    "dropped": ("cancelled", "canceled", "dropped", "wontfix", "skipped", "obsolete"),
    "held": ("deferred", "on-hold", "on_hold", "paused"),
}  # fmt: skip
_STANDINGS: dict[str, Standing] = {word: standing for standing, words in _WORDS.items() for word in words}


class Row(NamedTuple):
    """A task of a file before it has an id."""

    node: Node
    tag: str
    number: str
    line: int


class Lines:
    """Line numbers for offsets that grow."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset, self.line = 0, 1

    def at(self, offset: int) -> int:
        if offset < self.offset:
            return self.text.count("\n", 0, offset) + 1
        self.line += self.text.count("\n", self.offset, offset)
        self.offset = offset
        return self.line


def is_task_file(top: Node) -> bool:
    """Whether a JSON value has the shape of a list of tasks."""
    if top.items is not None:
        return all(item.members is not None for item in top.items) and bool(top.items)
    return any(True for _ in _tags(top))


def task_reading(text: str, top: Node) -> Reading:
    remarks: list[Remark] = []
    rows = list(_rows(top, Lines(text), remarks))
    kind = _format(top, rows)
    ids = _ids(rows, remarks)
    known = {(row.tag, row.number): id for row, id in zip(rows, ids, strict=True)}
    places = Lines(text)
    tasks = tuple(_task(row, id, known, places, remarks, kind) for row, id in zip(rows, ids, strict=True))
    remarks += circles(tasks)
    if not tasks:
        remarks.append(Remark(1, "no task is found in this file"))
    title = top.text("title") or top.text("name") or top.text("project")
    standings = [(id, _standing(row.node, row.line, [])) for row, id in zip(rows, ids, strict=True)]
    held = tuple(Held(id, HELD[standing]) for id, standing in standings if standing in HELD)
    roadmap = Roadmap(kind, title, (), tasks, tuple(sorted(remarks)), held)
    return Reading(roadmap, tasks, lambda: _spots(rows, ids, kind))


def _tags(top: Node) -> Iterator[tuple[str, Node]]:
    """The lists of tasks in a file, each with its tag."""
    if top.items is not None:
        yield "", top
        return
    for key, value in (top.members or {}).items():
        if key == "tasks" and value.items is not None:
            yield "", value
        elif (inner := value.get("tasks")) is not None and inner.items is not None:
            yield "" if key == "master" else key, inner


def _rows(top: Node, lines: Lines, remarks: list[Remark]) -> Iterator[Row]:
    for tag, tasks in _tags(top):
        for node in tasks.items or ():
            line = lines.at(node.start)
            if node.members is None:
                remarks.append(Remark(line, "this is no task: a mapping with a title is expected"))
            elif not _title(node):
                remarks.append(Remark(line, "this task has neither title nor description: it is left out"))
            else:
                yield Row(node, tag, node.text("id"), line)


def _title(node: Node) -> str:
    words = next((node.text(key) for key in ("title", "description", "name", "task") if node.text(key).strip()), "")
    return " ".join(words.split())


def _format(top: Node, rows: Sequence[Row]) -> Format:
    tagged = top.members is not None and any(key != "tasks" for key, _ in _named_tags(top))
    marked = any(row.node.get(key) is not None for row in rows for key in _MARKED_BY)
    return "task-master" if tagged or (top.members is not None and marked) else "queue"


def _named_tags(top: Node) -> Iterator[tuple[str, Node]]:
    for key, value in (top.members or {}).items():
        if key != "tasks" and (inner := value.get("tasks")) is not None and inner.items is not None:
            yield key, inner


def _ids(rows: Sequence[Row], remarks: list[Remark]) -> list[str]:
    given: list[str] = []
    seen: set[tuple[str, str]] = set()
    for row in rows:
        written = row.number
        if written.isdigit() or row.tag:
            written = f"{row.tag or 'task'}-{written}" if written else ""
        if row.number and (row.tag, row.number) in seen:
            remarks.append(Remark(row.line, f"the id {row.number} is given twice"))
        elif written and not is_id(written):
            remarks.append(Remark(row.line, f"{written[:60]} cannot be an id: it is made from the title"))
        seen.add((row.tag, row.number))
        given.append(written)
    titles = [_title(row.node) for row in rows]
    return ids_of(titles, given, lambda n: Naming(titles[n], rows[n].tag, ""))


# ── one task ──


def _task(
    row: Row, id: str, known: dict[tuple[str, str], str], lines: Lines, remarks: list[Remark], kind: Format
) -> Task:
    node = row.node
    standing = _standing(node, row.line, remarks)
    if standing in SAID:
        remarks.append(Remark(row.line, f"this task {SAID[standing]}"))
    return Task(
        id,
        _title(node),
        number=row.number,
        section=row.tag,
        body=_body(node),
        files=_texts(node.get("files") or node.get("file")),
        subtasks=tuple(_subtasks(node, lines)),
        after=_after(row, id, known, remarks),
        parallel=node.get("parallel") is not None and node.text("parallel") == "true",
        priority=node.text("priority"),
        effort=node.text("effort") or node.text("estimate"),
        accept=_command(node),
        done=standing in ("done", "dropped"),
        line=row.line,
    )


def _body(node: Node) -> str:
    titled = bool(node.text("title").strip())
    parts = [node.text("description").strip() if titled else "", node.text("details").strip()]
    if strategy := node.text("testStrategy").strip():
        parts.append(f"Test strategy: {strategy}")
    return "\n\n".join(part for part in parts if part)


def _command(node: Node) -> str:
    """What is no text stays JSON, which is no command either (Q2 of `acceptance`)."""
    for found in filter(None, map(node.get, ("accept", "acceptance_test", "verify"))):
        if found.items or found.members:
            return json.dumps([item.scalar for item in found.items or (found.members or {}).values()])
        if found.scalar is not None and not isinstance(found.scalar, str):
            return json.dumps([found.scalar])
        if found.scalar and found.scalar.strip():
            return found.scalar
    return ""


def _texts(node: Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    items = [node] if node.items is None else node.items
    return tuple(dict.fromkeys(item.scalar for item in items if isinstance(item.scalar, str) and item.scalar))


def _status(node: Node) -> tuple[Node, str] | None:
    """The value that says how far a task is, if it is a word."""
    for key in ("status", "state"):
        found = node.get(key)
        if found is not None and isinstance(found.scalar, str) and found.scalar.strip():
            return found, found.scalar
    return None


def _standing(node: Node, line: int, remarks: list[Remark]) -> Standing:
    if (status := _status(node)) is not None:
        if (known := _STANDINGS.get(status[1].strip().lower())) is not None:
            return known
        remarks.append(Remark(line, f"the status {status[1][:60]!r} is not known: it is read as open"))
        return "open"
    flag = _flag(node)
    return "done" if flag is not None and flag.scalar is True else "open"


def _flag(node: Node) -> Node | None:
    return next((found for key in _FLAGS if (found := node.get(key)) and isinstance(found.scalar, bool)), None)


def _subtasks(node: Node, lines: Lines) -> Iterator[Subtask]:
    inner = node.get("subtasks")
    for item in (inner.items if inner is not None else None) or ():
        if title := _title(item):
            yield Subtask(title, _standing(item, 0, []) in ("done", "dropped"), lines.at(item.start))


def _after(row: Row, id: str, known: dict[tuple[str, str], str], remarks: list[Remark]) -> tuple[str, ...]:
    declared = row.node.get("dependencies") or row.node.get("depends_on") or row.node.get("after")
    found: list[str] = []
    for item in (
        declared.items if declared is not None and declared.items is not None else [declared] if declared else ()
    ):
        name = item.scalar if isinstance(item.scalar, str) else json.dumps(item.scalar)
        other = known.get((row.tag, name)) or known.get((row.tag, name.partition(".")[0]))
        if other is None:
            remarks.append(Remark(row.line, f"depends on {name[:60]}, which is not the name of one task here"))
        elif other == id and "." not in name:
            remarks.append(Remark(row.line, "this task depends on itself"))
        else:
            found.append(other)
    return unique(found, id)


# ── where it is ticked ──


def _spots(rows: Sequence[Row], ids: Sequence[str], kind: Format) -> dict[str, Spot]:
    word = _done_word(rows, kind)
    spots: dict[str, Spot] = {}
    for row, id in zip(rows, ids, strict=True):
        if (status := _status(row.node)) is not None:
            place, said = status
            done, still = (word.upper(), "PENDING") if said.isupper() else (word, "pending")
            spots[id] = Spot(place.start, place.end, f'"{done}"', f'"{still}"')
        elif (flag := _flag(row.node)) is not None:
            spots[id] = Spot(flag.start, flag.end, "true", "false")
    return spots


def _done_word(rows: Sequence[Row], kind: Format) -> str:
    """The word that this file has for done; else the one that the tool writes."""
    for row in rows:
        status = _status(row.node)
        if status is not None and _STANDINGS.get(said := status[1].strip().lower()) == "done":
            return said
    return "done" if kind == "task-master" else "completed"
