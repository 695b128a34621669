"""What may start, what is blocked and what is remarked: the roadmaps are data, a new one is a new entry."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.task import Phase, Roadmap, Subtask, Task, TaskState
from holdfast.planning.cycles import circles, shortest_circle, walk
from holdfast.planning.frontier import ready
from holdfast.planning.graph import blocked, graph_of

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "graphs.toml").read_text("utf-8"))["case"]
MANY = 10_000


def roadmap_of(case: dict[str, Any]) -> Roadmap:
    phases = tuple(
        Phase(**{"title": "", **row, "after": tuple(row.get("after", ()))}) for row in case.get("phases", [])
    )
    return Roadmap(case.get("format", "roadmap"), "", phases, tuple(task_of(row) for row in case["tasks"]))


def task_of(row: dict[str, Any]) -> Task:
    lists = {name: tuple(row.get(name, ())) for name in ("after", "files")}
    row = dict(row)
    done = row.pop("subtasks_done", ())
    subtasks = [Subtask(text, False, 0) for text in row.get("subtasks", ())] + [Subtask(text, True, 0) for text in done]
    return Task(**{"title": "Do it", **row, **lists, "subtasks": tuple(subtasks)})


def plain(tasks: list[Task]) -> Roadmap:
    return Roadmap("checklist", "", (), tuple(tasks))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_roadmap_and_its_states_give_these_tasks(case: dict[str, Any]) -> None:
    """What may start, in order; what is blocked, and why; what is remarked, with its line."""
    graph = graph_of(roadmap_of(case))
    states: dict[str, TaskState] = case.get("states", {})
    assert list(ready(graph, states)) == case["ready"]
    found = {item.id: item.because for item in blocked(graph, states)}
    assert found.keys() == case.get("blocked", {}).keys()
    assert [part for id, part in case.get("blocked", {}).items() if part not in found[id]] == []
    said = [f"{remark.line}: {remark.text}" for remark in graph.remarks]
    wanted = case.get("remarks", [])
    assert len(said) == len(wanted) and all(part in text for part, text in zip(wanted, said, strict=True)), said
    if "order" in case:
        assert list(graph.order) == case["order"]


def test_there_are_many_cases() -> None:
    """A file that lost its cases must not pass as well tested."""
    assert len(CASES) >= 50


def test_at_most_so_many_are_asked_for() -> None:
    """`most` gives the first ones only."""
    graph = graph_of(plain([Task(id, "Do it") for id in "abc"]))
    assert ready(graph, {}, most=2) == ("a", "b")
    assert ready(graph, {}, most=0) == ()


def test_what_runs_is_at_work_whatever_its_state_says() -> None:
    """A task that was started and not yet recorded is not started again, and holds its files."""
    graph = graph_of(plain([Task("a", "Fix x.py"), Task("b", "Test x.py"), Task("c", "Think")]))
    assert ready(graph, {}, running=frozenset({"a"})) == ("c",)


def test_a_group_is_one_node() -> None:
    """Tasks done together need what each of them needs, and not each other; they are known by the first."""
    tasks = [Task("a", "x"), Task("b", "x", after=("a",)), Task("c", "x", after=("b", "d")), Task("d", "x")]
    graph = graph_of(plain(tasks), [("b", "c")])
    assert graph.order == ("a", "d", "b")
    assert graph.number["c"] == graph.number["b"]
    assert ready(graph, {"a": "COMPLETED"}) == ("d",)
    assert ready(graph, {"a": "COMPLETED", "d": "COMPLETED"}) == ("b",)
    assert [item.id for item in blocked(graph, {"a": "FAILED"})] == ["b"]


def test_a_long_circle_is_named_shortly() -> None:
    """A circle of thousands is found, and told in one line."""
    tasks = [Task(f"t{n}", "x", after=(f"t{(n + 1) % MANY}",)) for n in range(MANY)]
    graph = graph_of(plain(tasks))
    (remark,) = graph.remarks
    assert "t0 → t1 → " in remark.text and f"… {MANY - 6} more …" in remark.text
    assert len(remark.text) < 300
    assert len(blocked(graph, {})) == MANY


@pytest.mark.parametrize(
    "tasks",
    [
        [Task(f"t{n}", "x", after=(f"t{n - 1}",) if n else ()) for n in range(MANY)],
        [Task(f"t{n}", "x", after=(f"t{n + 1}",) if n < MANY - 1 else ()) for n in range(MANY)],
        [Task(f"t{n}", "x", files=("x.py",)) for n in range(MANY)],
        [Task(f"t{n}", "x", files=("src/" if n % 2 else f"src/{n}.py",)) for n in range(MANY)],
        [Task(f"t{n}", "Create x.py" if n % 100 == 0 else "x", body="see x.py") for n in range(MANY)],
    ],
    ids=["chain", "chain upwards", "one file", "one folder", "one made file"],
)
def test_ten_thousand_tasks_are_drawn_in_linear_time(tasks: list[Task]) -> None:
    """Neither a long chain nor a crowded file needs recursion or more than a moment."""
    began = time.process_time()
    graph = graph_of(plain(tasks))
    assert len(ready(graph, {})) >= 1
    assert blocked(graph, {}) == ()
    assert time.process_time() - began < 10
    # Linear in space too: no pair of tasks is written down.
    assert sum(len(lane.members) for lane in graph.lanes) <= 3 * MANY


def test_many_phases_of_many_tasks_are_not_multiplied() -> None:
    """A phase stands between its tasks and those behind it: as many edges as tasks, not their product."""
    phases = tuple(Phase(f"p{n}", "", after=(f"p{n - 1}",) if n else ()) for n in range(10))
    tasks = tuple(Task(f"t{n}", "x", phase=f"p{n // 1000}") for n in range(MANY))
    graph = graph_of(Roadmap("roadmap", "", phases, tasks))
    assert sum(map(len, graph.needs)) <= 3 * MANY
    assert ready(graph, {}) == tuple(f"t{n}" for n in range(1000))


NEEDS = st.integers(1, 9).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=4, unique=True), min_size=size, max_size=size)
)


@given(NEEDS)
def test_circles_are_what_can_reach_itself(needs: list[list[int]]) -> None:
    """A node is in a circle exactly if a way leads from it back; two share one exactly if ways lead both ways."""
    reach = reached(needs)
    expected = {
        tuple(sorted({node} | {other for other in reach[node] if node in reach[other]}))
        for node in range(len(needs))
        if node in reach[node]
    }
    found = circles(needs)
    assert sorted(expected) == [tuple(circle) for circle in found]
    for circle in found:
        way = shortest_circle(needs, circle)
        assert way[0] == way[-1] == circle[0] and len(set(way[:-1])) == len(way) - 1
        assert all(to in needs[node] for node, to in zip(way, way[1:], strict=False))


@given(NEEDS)
def test_a_walk_passes_every_node_after_its_needs(needs: list[list[int]]) -> None:
    """Without circles, every node comes once, after all it needs; where nothing is needed, in its own order."""
    downhill = [[need for need in own if need < node] for node, own in enumerate(needs)]
    assert walk(downhill) == list(range(len(needs)))
    uphill = [[need for need in own if need > node] for node, own in enumerate(needs)]
    order = walk(uphill)
    assert sorted(order) == list(range(len(needs)))
    assert all(order.index(need) < order.index(node) for node, own in enumerate(uphill) for need in own)


def reached(needs: list[list[int]]) -> list[set[int]]:
    """Slowly and plainly."""
    reach = [set(own) for own in needs]
    for _ in needs:
        reach = [own | {far for near in own for far in reach[near]} for own in reach]
    return reach
