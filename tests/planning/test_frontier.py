"""The frontier after any moves is what a plain look at the whole graph says; a run over it comes to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.path import folded
from holdfast.model.run import LANDING_ORDERS, LandingOrder
from holdfast.model.task import MOVES, SETTLED, Format, Phase, Roadmap, Task, TaskState
from holdfast.planning.frontier import Frontier, ready
from holdfast.planning.graph import Graph, blocked, graph_of
from holdfast.planning.touched import touched_by

STATES: tuple[TaskState, ...] = tuple(MOVES)
FILES = ("a.py", "b.py", "src/", "src/c.py", "A.py")
AT_WORK = ("IN_PROGRESS", "VALIDATING")


@st.composite
def roadmaps(draw: st.DrawFn) -> Roadmap:
    size = draw(st.integers(1, 9))
    phases = [Phase(f"p{n}", "", after=tuple(draw(st.sets(st.sampled_from(["p0", "p1"]), max_size=1)))) for n in (0, 1)]
    tasks = []
    for n in range(size):
        after = draw(st.sets(st.integers(0, size - 1), max_size=2))
        tasks.append(
            Task(
                f"t{n}",
                draw(st.sampled_from(["Think", "Create a.py", "Fix b.py"])),
                phase=draw(st.sampled_from(["", "p0", "p1"])),
                body=draw(st.sampled_from(["", "see a.py"])),
                files=tuple(draw(st.sets(st.sampled_from(FILES), max_size=2))),
                after=tuple(sorted(f"t{other}" for other in after)),
                parallel=draw(st.booleans()),
            )
        )
    kind: Format = draw(st.sampled_from(["roadmap", "spec-kit"]))
    return Roadmap(kind, "", tuple(phases), tuple(tasks))


def plainly_ready(graph: Graph, states: Mapping[str, TaskState]) -> tuple[str, ...]:
    """The definition, looked at task by task."""
    now = [states[id] for id in graph.order]
    return tuple(id for node, id in enumerate(graph.order) if may_start(graph, now, node))


def may_start(graph: Graph, now: list[TaskState], node: int) -> bool:
    if now[node] != "PENDING" or node in graph.stuck:
        return False
    return all(is_met(graph, now, need, node) for need in graph.needs[node]) and all(
        not holds(now, node, mode, other, others_mode, apart=lane.apart)
        for lane in graph.lanes
        for member, mode in lane.members
        if member == node
        for other, others_mode in lane.members
        if other != node
    )


def is_met(graph: Graph, now: list[TaskState], need: int, by: int) -> bool:
    if need < len(now):
        return now[need] == "COMPLETED" or (by >= len(now) and now[need] == "SKIPPED")
    return all(is_met(graph, now, further, need) for further in graph.needs[need])


def holds(now: list[TaskState], node: int, mode: str, other: int, others_mode: str, *, apart: bool) -> bool:
    if mode == "passing" or (mode == "together" and others_mode != "alone"):
        return False
    before = other < node and now[other] not in SETTLED
    return before or (apart and now[other] in AT_WORK)


@given(roadmaps(), st.lists(st.tuples(st.integers(0, 8), st.sampled_from(STATES)), max_size=25), st.data())
def test_any_moves_lead_where_a_plain_look_leads(
    roadmap: Roadmap, moves: list[tuple[int, TaskState]], data: st.DataObject
) -> None:
    """After each move, also one that nobody should make, exactly those may start that the definition names."""
    graph = graph_of(roadmap)
    states: dict[str, TaskState] = {id: data.draw(st.sampled_from(STATES)) for id in graph.order}
    frontier = Frontier(graph, states)
    assert frontier.ready() == plainly_ready(graph, states)
    for at, state in moves:
        id = graph.order[at % len(graph.order)]
        states[id] = state
        frontier.moved(id, state)
        assert frontier.ready() == plainly_ready(graph, states) == ready(graph, states)
        assert frontier.state(id) == state


@given(roadmaps(), st.integers(0, 2**32), st.sampled_from(LANDING_ORDERS))
def test_a_run_over_any_roadmap_comes_to_its_end(roadmap: Roadmap, seed: int, order: LandingOrder) -> None:
    """With failures and reviews, three at once: two that share a file never meet, and nothing is left to do."""
    chance, graph = Random(seed), graph_of(roadmap)
    run = Run(graph, {task.id: task for task in roadmap.tasks}, order)
    for _ in range(40 * len(graph.order)):
        if not run.turn(chance):
            break
    else:
        raise AssertionError(f"the run does not end: {run.states}")
    open_ones = {id for id, state in run.states.items() if state not in SETTLED}
    assert all(run.states[id] in ("NEEDS_REVIEW", "PENDING") for id in open_ones)
    # Whatever is pending waits for somebody under review, and for nothing else.
    reviewed = {id for id in open_ones if run.states[id] == "NEEDS_REVIEW"}
    assert not open_ones or reviewed


class Run:
    """A driver as small as can be."""

    def __init__(self, graph: Graph, tasks: Mapping[str, Task], order: LandingOrder) -> None:
        self.graph, self.tasks, self.order = graph, tasks, order
        self.states: dict[str, TaskState] = dict.fromkeys(graph.order, "PENDING")
        self.frontier = Frontier(graph, self.states)
        self.worked: list[str] = []
        self.landed: list[str] = []

    def turn(self, chance: Random) -> bool:
        """One move of each kind that is possible; whether there was any."""
        moved = False
        for item in blocked(self.graph, self.states):
            moved = self.move(item.id, "BLOCKED")
        running = [id for id, state in self.states.items() if state == "IN_PROGRESS"]
        for id in self.frontier.ready(3 - len(running)) if len(running) < 3 else ():
            moved = self.move(id, "IN_PROGRESS")
            self.require_apart()
        if landings := self.frontier.landings(self.worked, self.order):
            self.worked.remove(landings[0])
            self.landed.append(landings[0])
            moved = self.move(landings[0], "COMPLETED")
        if running:
            moved = self.end(chance.choice(running), chance)
        return moved or self.begin_later()

    def begin_later(self) -> bool:
        """What was put off comes when nothing else moves."""
        deferred = [id for id, state in self.states.items() if state == "DEFERRED"]
        for id in deferred:
            self.move(id, "PENDING")
        return bool(deferred)

    def end(self, id: str, chance: Random) -> bool:
        ending = chance.choice(["work"] * 6 + ["FAILED", "SKIPPED", "NEEDS_REVIEW", "PENDING", "DEFERRED"])
        if ending == "work":
            self.worked.append(id)
            return self.move(id, "VALIDATING")
        return self.move(id, next(state for state in STATES if state == ending))

    def move(self, id: str, state: TaskState) -> bool:
        assert state in MOVES[self.states[id]] or state == self.states[id]
        self.states[id] = state
        self.frontier.moved(id, state)
        return True

    def require_apart(self) -> None:
        named = [
            {folded(path) for path in touched_by(self.tasks[id]).names}
            for id, state in self.states.items()
            if state in AT_WORK
        ]
        everything = [path for own in named for path in own]
        assert len(everything) == len(set(everything)), self.states


X = ("x.py",)
# Tasks, and then moves, each with what may start after it. The first one is where the run begins.
STEPS: dict[str, tuple[list[Task], list[tuple[str, TaskState, str]]]] = {
    "who left a lane no longer stands in the way": (
        [Task(id, "x", files=X) for id in "abc"],
        [("a", "IN_PROGRESS", ""), ("b", "SKIPPED", ""), ("a", "COMPLETED", "c")],
    ),
    "who comes back stands in the way again": (
        [Task(id, "x", files=X) for id in "abc"],
        [("a", "COMPLETED", "b"), ("a", "PENDING", "a"), ("a", "COMPLETED", "b")],
    ),
    "an undone task waits for the one at work behind it, and goes first then": (
        [Task(id, "x", files=X) for id in "ab"],
        [("a", "COMPLETED", "b"), ("b", "IN_PROGRESS", ""), ("a", "PENDING", ""), ("b", "PENDING", "a")],
    ),
    "all that only mention a file go at once when it is made": (
        [Task("a", "Create x.py"), *(Task(id, "x", body="see x.py") for id in "bcd")],
        [("a", "IN_PROGRESS", ""), ("c", "SKIPPED", ""), ("a", "COMPLETED", "bd"), ("b", "IN_PROGRESS", "d")],
    ),
    "a maker that was undone waits for those at work who mention its file": (
        [Task("a", "Create x.py"), *(Task(id, "x", body="see x.py") for id in "bc")],
        [("a", "COMPLETED", "bc"), ("b", "IN_PROGRESS", "c"), ("a", "PENDING", ""), ("b", "COMPLETED", "a")],
    ),
    "who is held in two lanes goes when both are free": (
        [Task("a", "x", files=X), Task("b", "x", files=("y.py",)), Task("c", "x", files=("x.py", "y.py"))],
        [("a", "IN_PROGRESS", "b"), ("b", "IN_PROGRESS", ""), ("a", "COMPLETED", ""), ("b", "FAILED", "c")],
    ),
    "a need that was undone takes back who may start": (
        [Task("a", "x"), Task("b", "x", after=("a",)), Task("c", "x", after=("b",))],
        [("a", "COMPLETED", "b"), ("a", "PENDING", "a"), ("a", "COMPLETED", "b"), ("b", "COMPLETED", "c")],
    ),
    "a phase that is through can be opened again": (
        [Task("a", "x", phase="p0"), Task("b", "x", phase="p0"), Task("c", "x", phase="p1")],
        [("a", "COMPLETED", "b"), ("b", "SKIPPED", "c"), ("a", "PENDING", "a"), ("a", "COMPLETED", "c")],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_move_by_move_these_may_start(name: str) -> None:
    """The name says what is seen; each move is asked about at once."""
    tasks, moves = STEPS[name]
    phases = (Phase("p0", ""), Phase("p1", "", after=("p0",)))
    frontier = Frontier(graph_of(Roadmap("roadmap", "", phases, tuple(tasks))), {})
    for id, state, expected in moves:
        frontier.moved(id, state)
        assert "".join(frontier.ready()) == expected, (id, state)


def at_work(graph: Graph, *ids: str, **states: TaskState) -> Frontier:
    return Frontier(graph, {**dict.fromkeys(ids, "VALIDATING"), **states})


FOUR = graph_of(Roadmap("checklist", "", (), tuple(Task(id, "Think") for id in "abcd")))


def test_as_finished_each_lands_when_its_work_is_done() -> None:
    """The order in which they were finished is kept."""
    assert at_work(FOUR, "b", "d").landings(("d", "b"), "finished") == ("d", "b")


def test_in_the_order_of_the_roadmap_the_earlier_one_is_waited_for() -> None:
    """One lands when all before it are settled; nobody overtakes a task that is pending or at work."""
    assert at_work(FOUR, "b", "d").landings(("d", "b"), "roadmap") == ()
    assert at_work(FOUR, "b", "d", a="IN_PROGRESS", c="COMPLETED").landings(("d", "b"), "roadmap") == ()
    assert at_work(FOUR, "b", "d", a="FAILED").landings(("d", "b"), "roadmap") == ("b",)
    assert at_work(FOUR, "a", "b").landings(("a", "b"), "roadmap") == ("a",)


def test_landing_in_order_does_not_wait_for_a_person_nor_for_later() -> None:
    """A task under review is overtaken, for a person may take weeks; so is one that was put off."""
    assert at_work(FOUR, "b", a="NEEDS_REVIEW").landings(("b",), "roadmap") == ("b",)
    assert at_work(FOUR, "b", a="DEFERRED").landings(("b",), "roadmap") == ("b",)


def test_landing_in_order_does_not_wait_for_who_waits_for_a_person() -> None:
    """What cannot start because of a review is overtaken too, once nothing else moves."""
    tasks = (Task("a", "Fix x.py"), Task("b", "Test x.py"), Task("c", "Think"), Task("d", "Think"))
    graph = graph_of(Roadmap("checklist", "", (), tasks))
    assert at_work(graph, "d", a="NEEDS_REVIEW").landings(("d",), "roadmap") == ()
    assert at_work(graph, "d", a="NEEDS_REVIEW", c="IN_PROGRESS").landings(("d",), "roadmap") == ()
    assert at_work(graph, "d", a="NEEDS_REVIEW", c="COMPLETED").landings(("d",), "roadmap") == ("d",)


def test_landing_in_order_does_not_wait_for_what_is_not_started_any_more() -> None:
    """When a run stops, or has had all the tasks it may have, only those at work are waited for."""
    assert at_work(FOUR, "b", "d").landings(("d", "b"), "roadmap", starting=False) == ("b",)
    assert at_work(FOUR, "b", "d", a="IN_PROGRESS").landings(("d", "b"), "roadmap", starting=False) == ()


def test_tasks_left_alone_stand_in_nobodys_way_and_serve_nobody() -> None:
    """They are not started, hold no file and no turn; who needs one waits."""
    tasks = (Task("a", "Fix x.py"), Task("b", "Test x.py"), Task("c", "Think", after=("a",)), Task("d", "Think"))
    graph = graph_of(Roadmap("checklist", "", (), tasks))
    assert Frontier(graph, {}, left_alone=("a", "d")).ready() == ("b",)
    frontier = Frontier(graph, {"b": "VALIDATING"}, left_alone=("a", "d"))
    assert frontier.landings(("b",), "roadmap") == ("b",)
    assert Frontier(graph, {"a": "COMPLETED"}, left_alone=("a", "d")).ready() == ("b", "c")


@pytest.mark.parametrize("order", LANDING_ORDERS)
def test_work_whose_need_was_undone_does_not_land(order: LandingOrder) -> None:
    """Landing asks again for what was there when the work began."""
    graph = graph_of(Roadmap("checklist", "", (), (Task("a", "x"), Task("b", "x", after=("a",)))))
    assert at_work(graph, "b", a="COMPLETED").landings(("b",), order) == ("b",)
    assert at_work(graph, "b", a="IN_PROGRESS").landings(("b",), order) == ()


THREE_LEVELS = [
    Task(f"t{n}", "x", after=() if n < 333 else (f"t{n - 333}", f"t{(n * 7) % 333 + (n // 333 - 1) * 333}"))
    for n in range(999)
]


@pytest.mark.parametrize(
    "tasks",
    [
        THREE_LEVELS,
        [Task(f"t{n}", "x", after=(f"t{n - 1}",) if n else ()) for n in range(10_000)],
        [Task(f"t{n}", "x", files=("x.py",)) for n in range(10_000)],
        [Task(f"t{n}", "Create x.py" if n == 0 else "x", body="see x.py") for n in range(10_000)],
    ],
    ids=["three levels", "chain", "one file", "one made file"],
)
def test_a_move_costs_what_it_changes(tasks: list[Task]) -> None:
    """Asked after every change, a whole run is linear: no look at all tasks for each of them."""
    graph = graph_of(Roadmap("checklist", "", (), tuple(tasks)))
    frontier = Frontier(graph, {})
    began = time.process_time()
    landed = 0
    while chosen := frontier.ready(4):
        for id in chosen:
            frontier.moved(id, "IN_PROGRESS")
        for id in chosen:
            frontier.moved(id, "COMPLETED")
            landed += 1
    spent = time.process_time() - began
    assert landed == len(tasks)
    # Ten times of what was measured: only the wrong order of growth reaches that.
    assert spent / (2 * landed) < 500e-6
