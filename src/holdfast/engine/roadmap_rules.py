"""The rules of a run over one reading of its roadmap: what may start, what may land, what a failure leads to.

Everything here follows from the roadmap, the book and the options: `planning` holds the rules, this hands them facts.

Invariants
  G1  A group is made of tasks that nobody has begun; what is under way stays what its order says, whatever the roadmap
      says by now. A task that somebody was asked for together with another is not begun while that one is under way.
  G2  A group is tried twice, and never with the last attempt. Then the task that it was named by goes on alone, and the
      others, which may not be at fault, without it: nobody is held back by what another one of a group lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from holdfast.engine.backoff import pause_ms
from holdfast.engine.driving import Verdict
from holdfast.engine.orders import Unlanded, Unworked
from holdfast.engine.taskbook import TaskBook
from holdfast.model.run import RunOptions
from holdfast.model.task import Roadmap, Task, TaskRecord, TaskState, Tried
from holdfast.planning.frontier import Frontier
from holdfast.planning.graph import blocked, graph_of
from holdfast.planning.grouping import Group, groups_of
from holdfast.planning.recovery import Diagnosis, RecoveryPolicy, means_of, strategy_for, wants_another
from holdfast.planning.task_words import parts_of

_MS = 1_000_000
_FEW = 32
# How often a group is tried.
_TOGETHER = 2
# What is worked on, lands, or waits to land.
UNDER_WAY: tuple[TaskState, ...] = ("IN_PROGRESS", "VALIDATING", "NEEDS_REVIEW")
_NONE_YET: Mapping[str, str] = MappingProxyType({})


class RoadmapRules:
    """`others`: who else could take a task, the best first. `stop` is why nothing new should start.

    `with_others`: tasks that are done together with another one that is under way, with that one."""

    def __init__(
        self,
        roadmap: Roadmap,
        book: TaskBook,
        options: RunOptions,
        others: Callable[[Task], Sequence[str]],
        with_others: Mapping[str, str] = _NONE_YET,
    ) -> None:
        self.roadmap, self._with_others = roadmap, with_others
        self.stop = ""
        self._book, self._options, self._others = book, options, others
        self._tasks = {task.id: task for task in reversed(roadmap.tasks)}
        self.groups = self._grouped()
        self._graph = graph_of(roadmap, [group.ids for group in self.groups])
        self._group = {group.ids[0]: group for group in self.groups}
        self._ended_groups: list[str] = []
        self._frontier = Frontier(self._graph, {id: record.state for id, record in book.records.items()})
        self._policy = RecoveryPolicy(options.adaptive, options.recovery, options.attempts, options.on_failure)

    @property
    def remarks(self) -> tuple[str, ...]:
        rows = (*self.roadmap.remarks, *self._graph.remarks)
        return tuple(f"line {row.line}: {row.text}" if row.line else row.text for row in rows)

    def moved(self, record: TaskRecord) -> None:
        if record.task in self._graph.number and self._graph.order[self._graph.number[record.task]] == record.task:
            self._frontier.moved(record.task, record.state)
        if (record.settled or self._goes_alone(record)) and record.task in self._group:
            self._ended_groups.append(record.task)

    @property
    def outdated(self) -> bool:
        """Did a group land without some of its tasks, or not land? They have no node of their own here, and are still
        to do."""
        return any(self.together(leader) for leader in self._ended_groups)

    def has(self, task: str) -> bool:
        return task in self._tasks

    def ready(self) -> Iterator[Task]:
        """The first few at first: mostly nobody asks for more, and there may be thousands."""
        few = self._frontier.ready(_FEW)
        yield from self._wanted(few)
        if len(few) == _FEW:
            yield from self._wanted(self._frontier.ready()[_FEW:])

    def _wanted(self, ids: Iterable[str]) -> Iterator[Task]:
        for id in ids:
            leader = self._with_others.get(id)
            if leader is not None and self._book.of(leader).state in UNDER_WAY:
                continue  # G1
            if not self._options.only or id in self._options.only:
                yield self._tasks[id]

    def _grouped(self) -> tuple[Group, ...]:
        """G1, G2."""
        if self._options.group == "off":
            return ()
        records = self._book.records
        over = {id for id, record in records.items() if record.state != "PENDING" or self._goes_alone(record)}
        begun = over | set(self._with_others)
        free = self.roadmap._replace(
            tasks=tuple(task._replace(done=task.done or task.id in begun) for task in self.roadmap.tasks)
        )
        return groups_of(free, graph_of(free), self._options.group)

    def _goes_alone(self, record: TaskRecord) -> bool:
        """G2."""
        return len(record.tried) >= max(1, min(_TOGETHER, self._options.attempts - 1))

    def landing(self, worked: Sequence[str], *, in_turn: bool = True) -> str:
        known = [id for id in worked if id in self._graph.number]
        return next(iter(self._frontier.landings(known, self._options.landing, starting=in_turn)), "")

    def blocked(self) -> Iterable[tuple[str, str]]:
        states = {id: record.state for id, record in self._book.records.items()}
        return [(row.id, row.because) for row in blocked(self._graph, states)]

    def together(self, task: str) -> tuple[str, ...]:
        """The other tasks of its group that nobody has begun: done with it, landed with it."""
        group = self._group.get(task)
        rest = group.ids[1:] if group is not None else ()
        return tuple(id for id in rest if self._book.of(id).state == "PENDING")

    def task(self, id: str) -> Task:
        return self._tasks[id]

    def after(self, record: TaskRecord, failed: Unworked | Unlanded) -> Verdict:
        task = self._tasks.get(record.task)
        agent = failed.agent if isinstance(failed, Unworked) else record.agent
        found = Diagnosis(failed.category, failed.because, failed.evidence, failed.final, agent)
        parts = len(parts_of(task)) if task is not None and not record.parts and not self.together(record.task) else 0
        others = self._others(task) if task is not None and wants_another(found.category) else ()
        means = means_of(task, parts, others) if task is not None else _NONE
        choice = strategy_for(found, record.tried, self._policy, means)
        took = failed.duration_ms if isinstance(failed, Unworked) else 0
        usage = failed.usage if isinstance(failed, Unworked) else Tried._field_defaults["usage"]
        tried = Tried(record.attempt, failed.category, failed.evidence, choice.strategy, agent, took, usage)
        if choice.stop:
            self.stop = f"{record.task} failed: {failed.because}"
        pause = pause_ms(1, f"{record.task}{record.attempt}", first_ms=choice.wait_ms, longest_ms=choice.wait_ms)
        after = record._replace(
            state=choice.state,
            agent=choice.agent or record.agent,
            because=choice.reason,
            wait_until_ns=time.time_ns() + pause * _MS if pause else 0,
            landing=False,
        )
        if choice.strategy == "decompose":
            after = after._replace(part=0, parts=parts)
        return Verdict(after, tried)


_NONE = means_of(Task("", ""))
