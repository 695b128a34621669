"""The frontier of a run: which tasks may start now, and whose turn it is to land.

    states of the tasks ──Frontier──▶ ready()      in the order of the graph
            ▲                    └──▶ landings()   of those whose work is done
            └────── moved(id, state), after each change

A task may start when it is PENDING, everything it needs is done, and no lane holds it. In a lane it is held by every
task before it that may still do something (whatever is not settled: also one that is deferred or waits for a person,
because it will want the same files when it goes on).

A move costs what it changes: tasks that wait in a lane are kept there, and only the first of them is looked at when the
lane moves; if that one cannot go, nobody behind it can.

Invariants
  N1  `ready` is a function of the graph and the states: the same after any moves as from a fresh start.
  N2  No two tasks of a lane that keeps its tasks apart are ready or at work at the same time, unless both go together.
      Held again when asked, not only when noted.
  N3  While anything is not settled, something is ready, at work, deferred, waits for a person, or is blocked.
  N4  Landing in the order of the roadmap never waits for what cannot move by itself: for a person, for what was put off
      until the others are done, nor for anybody behind these.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush

from holdfast.model.run import LandingOrder
from holdfast.model.task import SETTLED, TaskState
from holdfast.planning.graph import Graph, current, standing
from holdfast.planning.lanes import Lane, Mode

_AT_WORK: tuple[TaskState, ...] = ("IN_PROGRESS", "VALIDATING")
_COMING: tuple[TaskState, ...] = ("PENDING", *_AT_WORK)
# Where a task is kept: in the list of those that may start, nowhere, or in the lane of that number.
_READY, _NOWHERE = -1, -2


def ready(
    graph: Graph, states: Mapping[str, TaskState], running: Collection[str] = (), most: int | None = None
) -> tuple[str, ...]:
    """For one look. Who looks after each change keeps a Frontier."""
    return Frontier(graph, states, running).ready(most)


def held_back(graph: Graph, states: Mapping[str, TaskState]) -> dict[str, tuple[str, str]]:
    """For people: of each task that a lane holds, whom it waits for, and what both are about. Only where that one was
    begun: what is only to do comes in its turn."""
    now = current(graph, states)
    found: dict[str, tuple[str, str]] = {}
    for lane in graph.lanes:
        alone = first = -1
        for node, mode in lane.members:
            before = alone if mode == "together" else first if mode == "alone" else -1
            if before >= 0 and now[node] == "PENDING" and now[before] != "PENDING":
                found.setdefault(graph.order[node], (graph.order[before], lane.what))
            if now[node] not in SETTLED:
                first = node if first < 0 else first
                alone = node if alone < 0 and mode == "alone" else alone
    return found


class Frontier:
    """Where a run stands. `running`: tasks at work, whatever their state says.

    `left_alone`: tasks that this run does not start. They stand in nobody's way, and serve nobody who needs them.
    """

    def __init__(
        self,
        graph: Graph,
        states: Mapping[str, TaskState],
        running: Collection[str] = (),
        left_alone: Collection[str] = (),
    ) -> None:
        self._graph = graph
        self._now = current(graph, states)
        for id in running:
            if (node := graph.number.get(id)) is not None:
                self._now[node] = "IN_PROGRESS"
        for id in left_alone:
            if (node := graph.number.get(id)) is not None and self._now[node] == "PENDING":
                self._now[node] = "BLOCKED"
        self._unmet = [0] * len(graph.needs)
        self._where = [_NOWHERE] * len(graph.order)
        self._ready: list[int] = []
        self._lanes = [_Traffic(lane, self._now) for lane in graph.lanes]
        self._at_work = sum(state in _AT_WORK for state in self._now)
        self._count()
        # Who may still come before others, by number; entries that no longer count are dropped when met.
        self._ahead = [node for node in range(len(graph.order)) if self._comes(node)]
        for node in range(len(graph.order)):
            self._consider(node)

    def state(self, id: str) -> TaskState:
        return self._now[self._graph.number[id]]

    def ready(self, most: int | None = None) -> tuple[str, ...]:
        found: list[int] = []
        doubtful: list[int] = []
        for node in self._ready:
            if most is not None and len(found) >= most:
                break
            (found if self._held_in(node) is None else doubtful).append(node)
        # N2: somebody was started who was not ready.
        for node in doubtful:
            self._leave(node)
            self._consider(node)
        return tuple([self._graph.order[node] for node in found])

    def landings(
        self, worked: Sequence[str], order: LandingOrder = "finished", *, starting: bool = True
    ) -> tuple[str, ...]:
        """Which of those whose work is done may land now, the first one first; `worked` is in the order they ended.

        Without `starting` nothing new is begun any more, so that only those at work are waited for.
        """
        nodes = [node for id in worked if not self._unmet[node := self._graph.number[id]]]
        if order == "finished" or not nodes:
            return tuple([self._graph.order[node] for node in nodes])
        while self._ahead and not self._comes(self._ahead[0]):
            heappop(self._ahead)
        first = self._ahead[0] if self._ahead else min(nodes)
        if starting and first in nodes:
            return (self._graph.order[first],)
        # N4: what stands before them waits for a person, or for one who does.
        elsewhere = self._at_work - sum(self._now[node] in _AT_WORK for node in set(nodes))
        return () if elsewhere or (starting and self._ready) else (self._graph.order[min(nodes)],)

    def moved(self, id: str, state: TaskState) -> None:
        node = self._graph.number[id]
        state = standing(state, self._graph.at_first[node])
        before, self._now[node] = self._now[node], state
        if before == state:
            return
        self._at_work += (state in _AT_WORK) - (before in _AT_WORK)
        self._leave(node)
        for lane, mode in self._graph.lanes_of[node]:
            self._lanes[lane].moved(node, mode, before)
        self._settle(node, before)
        self._come(node)
        for lane, _ in self._graph.lanes_of[node]:
            self._wake(lane)

    # ── needs ──

    def _count(self) -> None:
        """From nothing: what each node still needs."""
        graph = self._graph
        for node in graph.walk:
            self._unmet[node] = sum(not self._met(need, node) for need in graph.needs[node])

    def _met(self, need: int, by: int) -> bool:
        if need >= len(self._now):
            return not self._unmet[need]
        return _serves(self._now[need], phase=by >= len(self._now))

    def _settle(self, node: int, before: TaskState) -> None:
        """Tell all that need it, and through phases those behind them."""
        waiting = []
        for by in self._graph.wanted[node]:
            phase = by >= len(self._now)
            change = _serves(before, phase=phase) - _serves(self._now[node], phase=phase)
            waiting.append((by, change))
        while waiting:
            by, change = waiting.pop()
            had, self._unmet[by] = self._unmet[by], self._unmet[by] + change
            # Only the first need that is missing, and the last that is met, change anything behind it.
            if not change or (had and self._unmet[by]):
                continue
            if by >= len(self._now):
                waiting += [(behind, 1 if had == 0 else -1) for behind in self._graph.wanted[by]]
            else:
                self._leave(by)
                self._come(by)

    # ── who may start ──

    def _come(self, node: int) -> None:
        if self._comes(node):
            heappush(self._ahead, node)
        self._consider(node)

    def _comes(self, node: int) -> bool:
        """It has its turn in landing: nothing it needs is missing, and it waits neither for a person nor for later."""
        return self._now[node] in _COMING and not self._unmet[node] and node not in self._graph.stuck

    def _consider(self, node: int) -> None:
        """Put it where it belongs: among those that may start, or into the lane that holds it."""
        if self._now[node] != "PENDING" or self._unmet[node] or node in self._graph.stuck:
            return
        lane = self._held_in(node)
        if lane is None:
            self._where[node] = _READY
            insort(self._ready, node)
        else:
            self._where[node] = lane
            heappush(self._lanes[lane].waiting, node)

    def _held_in(self, node: int) -> int | None:
        for lane, mode in self._graph.lanes_of[node]:
            if not self._lanes[lane].free(node, mode):
                return lane
        return None

    def _leave(self, node: int) -> None:
        if self._where[node] == _READY:
            del self._ready[bisect_left(self._ready, node)]
        # In a lane it stays as an entry that no longer counts.
        self._where[node] = _NOWHERE

    def _wake(self, lane: int) -> None:
        """Whoever can go now: the first in waiting, and those behind it as long as they go together."""
        traffic = self._lanes[lane]
        while traffic.waiting:
            node = traffic.waiting[0]
            if self._where[node] != lane:
                heappop(traffic.waiting)
                continue
            mode = traffic.modes[node]
            if not traffic.free(node, mode):
                return
            heappop(traffic.waiting)
            self._where[node] = _NOWHERE
            self._consider(node)
            if mode == "alone":
                return


class _Traffic:
    """One lane as it is now. The lists hold numbers of tasks; those that no longer count are dropped when met."""

    def __init__(self, lane: Lane, now: list[TaskState]) -> None:
        self.modes = dict(lane.members)
        self.waiting: list[int] = []
        self._now, self._apart = now, lane.apart
        open_ = [(node, mode) for node, mode in lane.members if now[node] not in SETTLED]
        self._alone = [node for node, mode in open_ if mode == "alone"]
        self._others = [node for node, mode in open_ if mode != "alone"]
        heapify(self._alone)
        heapify(self._others)
        self._at_work = {True: 0, False: 0}
        for node, mode in open_:
            self._at_work[mode == "alone"] += now[node] in _AT_WORK

    def moved(self, node: int, mode: Mode, before: TaskState) -> None:
        alone = mode == "alone"
        if before in SETTLED and self._now[node] not in SETTLED:
            heappush(self._alone if alone else self._others, node)
        self._at_work[alone] += (self._now[node] in _AT_WORK) - (before in _AT_WORK)

    def free(self, node: int, mode: Mode) -> bool:
        """For a task that is not at work itself."""
        if mode == "passing":
            return True
        if self._first(self._alone, node) < node or (self._apart and self._at_work[True]):
            return False
        if mode == "together":
            return True
        return self._first(self._others, node) >= node and not (self._apart and self._at_work[False])

    def _first(self, heap: list[int], otherwise: int) -> int:
        while heap and self._now[heap[0]] in SETTLED:
            heappop(heap)
        return heap[0] if heap else otherwise


def _serves(state: TaskState, *, phase: bool) -> bool:
    return state == "COMPLETED" or (phase and state == "SKIPPED")
