"""Tables: the rows of a table that says how far things are become items.

    | # | Task   | Status |
    | 1 | Parser | ✅ Done |     ──rows_of──▶ Item("Parser", number "1", done, where "✅ Done" stands)

Invariants
  B1  A table counts only where a column is headed as a state, or all its cells are signs, and another one names things.
      A legend is none, and neither is a table without states: comparisons, options, costs.
  B2  What is written into a row is its state, in the spelling of the other rows of its column where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.intake.roadmap.blocks import Block, Item
from holdfast.intake.roadmap.marks import Mark
from holdfast.intake.roadmap.states import State, state_in

_STATE = re.compile(
    r"(?i)(?:(?:[\w/-]{1,20} )?(?:status|state|progress|done\??|completed?|completion|implemented\??|%|✓|✅)"
    r"(?: \(?%\)?)?"
    r"|状态|状態|進捗|进度|statut|estado|stand|fortschritt|progreso|progrès|статус|состояние)\Z"
)
_NUMBER = re.compile(r"(?i)(?:#|no\.?|nr\.?|id|number|task id|ref|key)\Z")
_LEGEND = re.compile(r"(?i)(?:icon|symbol|emoji|meaning|legend|sign|badge|marker)s?\Z")
_TITLES = tuple(
    re.compile(rf"(?i)(?:{words})(?:s|\(s\))?(?: name| title)?\Z")
    for words in (
        "task|todo|to-do|action(?: item)?|work item|work|subtask",
        "feature|item|deliverable|story|user story|requirement|issue|title|name|capability|goal|step|what|improvement",
        "任务|任務|事项|建议|タスク|機能|功能|項目|项目|tâche|tache|tarea|tarefa|aufgabe|задача|funcionalidad|fonctionnalité",
        "component|module|milestone|phase|stage|sprint|epic|version|release|area|category|topic|project|section",
        "description|details?|summary|scope|objective",
    )
)
_WHOLE = re.compile(
    r"(?i)(?:phase|milestone|stage|sprint|epic|iteration|version|release|area|category|component|metric|module)s?\Z"
)
_BARE = re.compile(r"(?i)(?:(?:phase|milestone|stage|sprint|step|task)[ ]?)?#?\d[\d.]*[a-z]?\Z")
_PIPE = re.compile(r"(?:[^|\\]|\\.)*+")
_DECORATION = "*_~` \t"
_LONGEST_SPELLING = 30


class Cell(NamedTuple):
    text: str
    # Where it stands in the file.
    start: int

    @property
    def plain(self) -> str:
        return self.text.strip(_DECORATION)


class _Columns(NamedTuple):
    title: int
    state: int
    number: int
    summary: bool


def rows_of(lines: str, where: Sequence[tuple[int, int, int]]) -> Iterator[Block]:
    """The items of a table whose lines stand here: (number, start, end), the heads and the ruler first."""
    heads = _cells(lines, *where[0][1:])
    rows = [_cells(lines, start, end) for _, start, end in where[2:]]
    columns = _columns([head.plain for head in heads], rows)
    if columns is None:
        return
    states = [state_in(cells[columns.state].text) if columns.state < len(cells) else None for cells in rows]
    spelled = _done_here(rows, states, columns.state)
    for (line, start, end), cells, state in zip(where[2:], rows, states, strict=True):
        title = cells[columns.title].text.strip() if columns.title < len(cells) else ""
        if not title.strip(_DECORATION + "-–—"):
            continue
        if state is None:
            said = cells[columns.state].plain[:40] if columns.state < len(cells) else ""
            odd = f"{said!r} is no known state: this row is not read as a task"
            yield Block("end", line + 1, start, end, odd)
            continue
        number = f"{cells[columns.number].plain}." if 0 <= columns.number < len(cells) else ""
        mark = Mark(state.standing, spelled or state.spelled(done=True), state.spelled(done=False))
        place = cells[columns.state].start
        words = title.replace("\\|", "|")
        item = Item(0, number, mark, words, place + state.start, place + state.end, "cell", summary=columns.summary)
        yield Block("item", line + 1, start, end, item=item)


def _done_here(rows: Sequence[Sequence[Cell]], states: Sequence[State | None], column: int) -> str:
    """B2. How the first row that is done and says nothing else spells it; empty where none is."""
    for cells, state in zip(rows, states, strict=True):
        if state is not None and state.alone and state.standing == "done":
            spelled = cells[column].text[state.start : state.end]
            if len(spelled) <= _LONGEST_SPELLING:
                return spelled
    return ""


def _columns(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> _Columns | None:
    """B1."""
    if not rows or any(_LEGEND.match(head) for head in heads):
        return None
    state = next((place for place, head in enumerate(heads) if _STATE.match(head)), -1)
    if state < 0:
        # Several columns of signs compare things.
        signs = [place for place in range(len(heads)) if _is_all_signs(rows, place)]
        state = signs[0] if len(signs) == 1 else -1
    if state < 0:
        return None
    known = [state_in(cells[state].text) for cells in rows if state < len(cells) and cells[state].plain]
    if not any(known) or 2 * sum(found is not None for found in known) < len(known):
        return None
    number = next((place for place, head in enumerate(heads) if place != state and _NUMBER.match(head)), -1)
    named = [place for place in range(len(heads)) if place not in (state, number)]
    wanted = (place for title in _TITLES for place in named if title.match(heads[place]))
    title = next(wanted, next((place for place in named if _names_things(rows, place)), number))
    if title < 0:
        return None
    summary = _WHOLE.match(heads[title]) is not None
    if summary and all(_BARE.match(cells[title].plain) for cells in rows if title < len(cells)):
        # The column only counts the phases: what they are about stands in another one.
        number, title = title, next((place for place in named if place != title), title)
    return _Columns(title, state, number, summary)


def _names_things(rows: Sequence[Sequence[Cell]], place: int) -> bool:
    """Whether its cells are all different, as names are."""
    words = [cells[place].plain for cells in rows if place < len(cells)]
    return len(set(words)) == len(words) and any(len(word) > 1 for word in words)


def _is_all_signs(rows: Sequence[Sequence[Cell]], place: int) -> bool:
    found = [state_in(cells[place].text) for cells in rows if place < len(cells)]
    return len(found) == len(rows) and all(
        state is not None and state.alone and (state.has_sign or state.has_box) for state in found
    )


def _cells(lines: str, start: int, end: int) -> list[Cell]:
    cells: list[Cell] = []
    position = start
    while position <= end:
        found = _PIPE.match(lines, position, end)
        assert found is not None  # it matches nothing as well
        cells.append(Cell(found[0], found.start()))
        position = max(found.end(), position) + 1
    if cells and not cells[0].text.strip():
        del cells[0]
    if cells and not cells[-1].text.strip():
        del cells[-1]
    return cells
