"""The graph of a roadmap: which task needs which, and which must not meet.

    Roadmap ──graph_of──▶ Graph ──frontier.Frontier──▶ what may start, what may land
                            └────blocked──▶ what cannot be done any more, and why

Two relations, and they differ in what a failure means:
  needs   a task needs what its file declares, and the phases before its own where a phase names a prerequisite.
          It starts when all of that is done. What it needs failed: it is blocked.
  lanes   tasks about the same files pass one after the other (see `lanes`). The first failed: the next one goes.

What orders, decided once
  * Declared dependencies and prerequisites of phases, in every format. A phase is through when each of its tasks is
    COMPLETED or SKIPPED: who skipped a task has said that the rest goes on without it. A task that names a skipped task
    itself has lost what it needs.
  * Phases of spec-kit are steps by definition: where one names no prerequisite, it comes after the one before it, and
    inside it tasks pass in the order of the file, except for those marked [P].
  * In all other formats the place in the file orders nothing: what is independent may run at once.
  * What its file defers is as if it was skipped: no phase waits for it. What names it has not lost what it needs, and
    waits: the file may say something else tomorrow. What its file drops is as if it was done.
  * [P] frees a task from its place in a phase, never from what it needs, nor from the files it shares.

Invariants
  A1  `order` has every task once, after everything it needs, otherwise as in the file. Lanes follow `order`, so needs
      and lanes together have no circle and nothing waits for ever.
  A2  Circles among declared dependencies are named and left alone: there is no right order, and one that we chose
      would be work on the wrong ground. Their tasks, and what needs them, are blocked; all others go on.
      A prerequisite of a phase gives way to what tasks declare themselves: it is dropped inside the circle, and told.
  A3  A dependency on something that is not in the roadmap blocks the task: what must come first cannot be known.
  A4  Linear in tasks, dependencies and file names; no recursion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.model.path import printable
from holdfast.model.task import Remark, Roadmap, Task, TaskState
from holdfast.planning.cycles import circles, shortest_circle, walk
from holdfast.planning.lanes import Lane, Mode, file_lanes, phase_lane, steps
from holdfast.planning.touched import touched_by

_MOST_NAMED = 8
_MOST_LABEL = 80
_LOST: dict[TaskState, str] = {
    "FAILED": "failed",
    "TIMEOUT": "ran out of time",
    "SKIPPED": "was skipped",
    "BLOCKED": "is blocked",
}


class BlockedTask(NamedTuple):
    id: str
    because: str


class Graph(NamedTuple):
    """Nodes are numbers: tasks as in `order`, then the phases."""

    order: tuple[str, ...]
    # Every task's number, by its id; the tasks of a group have one number.
    number: Mapping[str, int]
    labels: tuple[str, ...]
    needs: tuple[tuple[int, ...], ...]
    wanted: tuple[tuple[int, ...], ...]
    lanes: tuple[Lane, ...]
    # For each task, its lanes and how it goes there.
    lanes_of: tuple[tuple[tuple[int, Mode], ...], ...]
    # All nodes, each after what it needs.
    walk: tuple[int, ...]
    # Tasks that can never start, with the reason.
    stuck: Mapping[int, str]
    # Where a task stands of which nobody said anything yet.
    at_first: tuple[TaskState, ...]
    remarks: tuple[Remark, ...] = ()


def graph_of(roadmap: Roadmap, groups: Sequence[Sequence[str]] = ()) -> Graph:
    """`groups`: tasks done together, by their ids; each is one node, known by the first id (see `grouping`)."""
    return _Drawing(roadmap, groups).graph()


def blocked(graph: Graph, states: Mapping[str, TaskState]) -> tuple[BlockedTask, ...]:
    """Pending tasks that cannot be done any more, in order; also those behind them."""
    now = current(graph, states)
    lost: dict[int, str] = {}
    found: list[BlockedTask] = []
    for node in graph.walk:
        if node >= len(graph.order):
            _note_phase(graph, node, now, lost)
            continue
        if now[node] == "PENDING" and (because := _because(graph, node, lost)):
            lost[node] = _LOST["BLOCKED"]
            found.append(BlockedTask(graph.order[node], because))
        elif now[node] in _LOST and states.get(graph.order[node], "PENDING") != "PENDING":
            lost[node] = _LOST[now[node]]
    return tuple(sorted(found, key=lambda item: graph.number[item.id]))


def current(graph: Graph, states: Mapping[str, TaskState]) -> list[TaskState]:
    return [standing(states.get(id, first), first) for id, first in zip(graph.order, graph.at_first, strict=True)]


def standing(state: TaskState, at_first: TaskState) -> TaskState:
    """What is held back is not begun again either, whatever became of it before."""
    return at_first if state == "PENDING" and at_first == "SKIPPED" else state


def _because(graph: Graph, node: int, lost: Mapping[int, str]) -> str:
    if node in graph.stuck:
        return graph.stuck[node]
    need = next((need for need in graph.needs[node] if need in lost), None)
    if need is None:
        return ""
    where = "where" if need >= len(graph.order) else "which"
    return f"it needs {graph.labels[need]}, {where} {lost[need]}"


def _note_phase(graph: Graph, node: int, now: Sequence[TaskState], lost: dict[int, str]) -> None:
    """A phase is lost with one of its tasks that is, unless that was skipped, or with a phase before it."""
    for need in graph.needs[node]:
        if need in lost and (need >= len(graph.order) or now[need] != "SKIPPED"):
            lost[node] = lost[need] if need >= len(graph.order) else f"{graph.labels[need]} {lost[need]}"
            return


def _at_first(unit: _Unit, held: Collection[str]) -> TaskState:
    if all(task.done for task in unit.tasks):
        return "COMPLETED"
    return "SKIPPED" if all(task.done or task.id in held for task in unit.tasks) else "PENDING"


# ── drawing ──


class _Unit(NamedTuple):
    """A task, or a group of them."""

    tasks: tuple[Task, ...]

    @property
    def id(self) -> str:
        return self.tasks[0].id

    @property
    def line(self) -> int:
        return self.tasks[0].line


class _Drawing:
    """While it is drawn, a unit has the number of its place in the file; phases follow."""

    def __init__(self, roadmap: Roadmap, groups: Sequence[Sequence[str]]) -> None:
        self._roadmap = roadmap
        # Of two phases with one id, the first.
        self._phases = tuple({phase.id: phase for phase in reversed(roadmap.phases)}.values())[::-1]
        self._remarks: list[Remark] = []
        self._stuck: dict[int, str] = {}
        self._units = self._gathered(groups)
        self._number = {task.id: number for number, unit in enumerate(self._units) for task in unit.tasks}
        self._phase = {phase.id: len(self._units) + at for at, phase in enumerate(self._phases)}
        self._labels = [label_of(unit.tasks[0]) for unit in self._units]
        self._labels += [f'phase "{_short(phase.title or phase.id)}"' for phase in self._phases]

    def graph(self) -> Graph:
        needs = self._without_circles()
        road = walk(self._with_lanes(needs))
        places = [node for node in road if node < len(self._units)]
        new = {node: at for at, node in enumerate(places)} | {node: node for node in self._phase.values()}
        drawn = [tuple(sorted(new[need] for need in needs[node])) for node in (*places, *self._phase.values())]
        units = [self._units[node] for node in places]
        lanes = tuple(self._lanes(units))
        held = {row.task for row in self._roadmap.held}
        return Graph(
            tuple(unit.id for unit in units),
            {id: new[node] for id, node in self._number.items()},
            tuple(self._labels[node] for node in (*places, *self._phase.values())),
            tuple(drawn),
            _turned_round(drawn),
            lanes,
            _lanes_of(lanes, len(units)),
            tuple(new[node] for node in road),
            {new[node]: why for node, why in self._stuck.items()},
            tuple(_at_first(unit, held) for unit in units),
            tuple(self._remarks),
        )

    def _gathered(self, groups: Sequence[Sequence[str]]) -> list[_Unit]:
        first = {id: group[0] for group in groups for id in group}
        tasks: dict[str, list[Task]] = {}
        seen: set[str] = set()
        for task in self._roadmap.tasks:
            if task.id in seen:
                self._remarks.append(Remark(task.line, f"{label_of(task)}: its id is taken; this one is left out"))
                continue
            seen.add(task.id)
            tasks.setdefault(first.get(task.id, task.id), []).append(task)
        return [_Unit(tuple(sorted(own, key=lambda task: task.id != id))) for id, own in tasks.items()]

    # ── needs ──

    def _without_circles(self) -> list[list[int]]:
        """A2."""
        hard, soft = self._declared(), self._by_phase()
        needs = [list(dict.fromkeys((*own, *more))) for own, more in zip(hard, soft, strict=True)]
        for circle in circles(needs):
            inside = set(circle)
            if any(need in inside for node in circle for need in soft[node]):
                self._remark(needs, circle, "the order of the phases is set aside there")
            for node in circle:
                needs[node] = [need for need in needs[node] if need not in inside or need < len(self._units)]
        for circle in circles(needs):
            named = self._remark(needs, circle, "none of them can be first, so they are left alone")
            inside = set(circle)
            for node in circle:
                self._stuck[node] = f"it needs itself in the end: {named}"
                needs[node] = [need for need in needs[node] if need not in inside]
        return needs

    def _with_lanes(self, needs: list[list[int]]) -> list[list[int]]:
        """For groups: a group stands where the lanes of its tasks lead, as they were without groups."""
        if len(self._units) == len(self._number):
            return needs
        whole = graph_of(self._roadmap)
        unit = [self._number[id] for id in whole.order]
        both = [list(own) for own in needs]
        for task, other in (step for lane in whole.lanes for step in steps(lane)):
            if unit[task] != unit[other]:
                both[unit[task]].append(unit[other])
        # Groups that are not of `groups_of` may cross each other; what they need is enough for an order.
        return needs if circles(both) else both

    def _declared(self) -> list[list[int]]:
        """What tasks name; and a phase needs its tasks."""
        needs: list[list[int]] = [[] for _ in self._labels]
        for node, unit in enumerate(self._units):
            own = {task.id for task in unit.tasks}
            for task in unit.tasks:
                for id in task.after:
                    if id not in self._number:
                        self._lost(node, task, f"it needs {_short(id)}, which is not in the roadmap")
                    elif id not in own or len(own) == 1:
                        needs[node].append(self._number[id])
                if task.phase in self._phase:
                    needs[self._phase[task.phase]].append(node)
                elif task.phase:
                    self._remarks.append(Remark(task.line, f"{label_of(task)}: there is no phase {_short(task.phase)}"))
        return needs

    def _by_phase(self) -> list[list[int]]:
        """The phases before a phase, for itself and for its tasks."""
        soft: list[list[int]] = [[] for _ in self._labels]
        before: dict[str, list[int]] = {}
        missing: dict[str, str] = {}
        for at, phase in enumerate(self._phases):
            named = phase.after
            if not named and at and self._roadmap.format == "spec-kit":
                named = (self._phases[at - 1].id,)
            before[phase.id] = soft[self._phase[phase.id]] = [self._phase[id] for id in named if id in self._phase]
            missing.update((phase.id, id) for id in named if id not in self._phase)
        for node, unit in enumerate(self._units):
            for task in unit.tasks:
                soft[node] += before.get(task.phase, ())
                if task.phase in missing:
                    self._lost(
                        node, task, f"its phase needs {_short(missing[task.phase])}, which is not in the roadmap"
                    )
        return soft

    def _lost(self, node: int, task: Task, why: str) -> None:
        """A3."""
        self._stuck.setdefault(node, why)
        self._remarks.append(Remark(task.line, f"{label_of(task)}: {why}"))

    def _remark(self, needs: list[list[int]], circle: list[int], what: str) -> str:
        way = shortest_circle(needs, circle)
        names = [self._labels[node] for node in way]
        if len(names) > _MOST_NAMED:
            names = [*names[: _MOST_NAMED - 2], f"… {len(way) - _MOST_NAMED + 1} more …", names[-1]]
        named = " → ".join(names)
        first = next((node for node in circle if node < len(self._units)), None)
        line = self._units[first].line if first is not None else self._phases[circle[0] - len(self._units)].line
        self._remarks.append(Remark(line, f"these need each other: {named}; {what}"))
        return named

    # ── lanes ──

    def _lanes(self, units: Sequence[_Unit]) -> Iterator[Lane]:
        yield from file_lanes([[touched_by(task) for task in unit.tasks] for unit in units])
        if self._roadmap.format != "spec-kit":
            return
        rows: dict[str, dict[int, bool]] = {phase.id: {} for phase in self._phases}
        for number, unit in enumerate(units):
            for task in unit.tasks:
                if task.phase in rows:
                    row = rows[task.phase]
                    row[number] = row.get(number, True) and task.parallel
        for phase in self._phases:
            yield from phase_lane(phase.title or phase.id, rows[phase.id].items())


def label_of(task: Task) -> str:
    """What people call it."""
    return _short(task.number or task.id)


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _MOST_LABEL else shown[:_MOST_LABEL] + "…"


def _turned_round(needs: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    wanted: list[list[int]] = [[] for _ in needs]
    for node, own in enumerate(needs):
        for need in own:
            wanted[need].append(node)
    return tuple(map(tuple, wanted))


def _lanes_of(lanes: Sequence[Lane], tasks: int) -> tuple[tuple[tuple[int, Mode], ...], ...]:
    found: list[list[tuple[int, Mode]]] = [[] for _ in range(tasks)]
    for number, lane in enumerate(lanes):
        for task, mode in lane.members:
            found[task].append((number, mode))
    return tuple(map(tuple, found))
