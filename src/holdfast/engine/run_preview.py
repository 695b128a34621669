"""What a run would do, without doing any of it: which tasks, in which order, together with which others, by whom.

The order is played through with the rules that the driver uses: everything that may start is taken to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.model.run import RunOptions
from holdfast.model.task import Roadmap, Task
from holdfast.planning.frontier import Frontier
from holdfast.planning.graph import Graph, blocked, graph_of
from holdfast.planning.grouping import Group, groups_of


class Turn(NamedTuple):
    """A task at its turn. `wave`: those with the same number could be worked on at once."""

    task: Task
    wave: int
    agent: str
    together: tuple[Task, ...] = ()
    # The rule of the group, and why these.
    because: str = ""


class Preview(NamedTuple):
    path: str
    roadmap: Roadmap
    turns: tuple[Turn, ...]
    # Tasks that can never start, with the reason.
    stuck: tuple[tuple[Task, str], ...]
    # Tasks that this run leaves alone: --only, --max-tasks.
    left: tuple[Task, ...]
    remarks: tuple[str, ...]
    # Tasks that their file defers or drops, and nobody named, with the reason.
    held: tuple[tuple[Task, str], ...] = ()


def preview_of(path: str, roadmap: Roadmap, options: RunOptions, route: Callable[[Task], str]) -> Preview:
    roadmap = roadmap.asked_for(options.only)
    alone = graph_of(roadmap)
    groups = groups_of(roadmap, alone, options.group)
    graph = graph_of(roadmap, [group.ids for group in groups]) if groups else alone
    tasks = {task.id: task for task in reversed(roadmap.tasks)}
    heads = {group.ids[0]: group for group in groups}
    turns = tuple(_turn(tasks, heads.get(id), id, wave, route) for id, wave in _played(graph, options))
    stuck = tuple((tasks[row.id], row.because) for row in blocked(graph, {}))
    begun = {task.id for turn in turns for task in (turn.task, *turn.together)} | {task.id for task, _ in stuck}
    held = roadmap.reasons
    left = tuple(task for task in roadmap.tasks if not (task.done or task.id in held) and task.id not in begun)
    rows = (*roadmap.remarks, *graph.remarks)
    remarks = tuple(f"line {row.line}: {row.text}" if row.line else row.text for row in rows)
    alone_ones = tuple((task, held[task.id]) for task in roadmap.tasks if task.id in held)
    return Preview(path, roadmap, turns, stuck, left, remarks, alone_ones)


def _played(graph: Graph, options: RunOptions) -> Iterator[tuple[str, int]]:
    frontier, wave, begun = Frontier(graph, {}), 0, 0
    while ready := [id for id in frontier.ready() if not options.only or id in options.only]:
        wave += 1
        for id in ready:
            if options.most_tasks and begun == options.most_tasks:
                return
            begun += 1
            yield id, wave
            frontier.moved(id, "IN_PROGRESS")
        for id in ready:
            frontier.moved(id, "COMPLETED")


def _turn(tasks: dict[str, Task], group: Group | None, id: str, wave: int, route: Callable[[Task], str]) -> Turn:
    if group is None:
        return Turn(tasks[id], wave, route(tasks[id]))
    together = tuple(tasks[other] for other in group.ids[1:])
    return Turn(tasks[id], wave, route(tasks[id]), together, f"{group.rule}: {group.because}")
