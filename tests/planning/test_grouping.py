"""Which tasks are done together, and why: the roadmaps are data, a new one is a new entry."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.run import GROUPINGS, GroupBy
from holdfast.model.task import Phase, Roadmap, Task, TaskState
from holdfast.planning.frontier import Frontier
from holdfast.planning.graph import graph_of
from holdfast.planning.grouping import MOST_TOGETHER, groups_of, shown_by
from holdfast.planning.lanes import steps

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "groupings.toml").read_text("utf-8"))["case"]


def roadmap_of(case: dict[str, Any]) -> Roadmap:
    phases = tuple(
        Phase(**{"title": "", **row, "after": tuple(row.get("after", ()))}) for row in case.get("phases", [])
    )
    lists = ("after", "files")
    tasks = [Task(**{"title": "Do it", **row, **{n: tuple(row.get(n, ())) for n in lists}}) for row in case["tasks"]]
    return Roadmap("roadmap", "", phases, tuple(tasks))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_roadmap_falls_into_these_groups(case: dict[str, Any]) -> None:
    """The groups, in order, each with its rule and a reason in words."""
    roadmap = roadmap_of(case)
    groups = groups_of(roadmap, graph_of(roadmap), case["by"], case.get("most", MOST_TOGETHER))
    assert [list(group.ids) for group in groups] == case["groups"]
    assert {group.rule for group in groups} <= {case["by"]}
    for part, group in zip(case.get("because", []), groups, strict=False):
        assert part in group.because


def test_every_rule_has_cases() -> None:
    """No rule is a word only."""
    assert {case["by"] for case in CASES} == set(GROUPINGS)


TASKS = st.lists(
    st.tuples(
        st.sampled_from(["Fix retry limit", "Test retry limit", "Name table", "Think"]),
        st.sampled_from(["", "S", "T"]),
        st.sets(st.sampled_from(["a.py", "b.py", "c.py"]), max_size=2),
        st.sets(st.integers(0, 9), max_size=2),
    ),
    min_size=1,
    max_size=10,
)


@given(TASKS, st.sampled_from(GROUPINGS), st.integers(2, 4))
def test_groups_as_nodes_make_no_circle(
    rows: list[tuple[str, str, set[str], set[int]]], by: GroupBy, most: int
) -> None:
    """However tasks need each other, all groups together can be nodes of the graph, and a run over it ends."""
    tasks = [
        Task(f"t{n}", title, section=section, files=tuple(sorted(files)), after=tuple(f"t{m}" for m in after if m < n))
        for n, (title, section, files, after) in enumerate(rows)
    ]
    roadmap = Roadmap("roadmap", "", (), tuple(tasks))
    groups = groups_of(roadmap, graph_of(roadmap), by, most)
    members = [id for group in groups for id in group.ids]
    assert len(members) == len(set(members)) and all(2 <= len(group.ids) <= most for group in groups)
    graph = graph_of(roadmap, [group.ids for group in groups])
    whole = graph_of(roadmap)
    for task, other in (step for lane in whole.lanes for step in steps(lane)):
        assert graph.number[whole.order[other]] <= graph.number[whole.order[task]]
    assert graph.remarks == () and not graph.stuck
    states: dict[str, TaskState] = {}
    frontier = Frontier(graph, states)
    while chosen := frontier.ready(1):
        frontier.moved(chosen[0], "COMPLETED")
    assert all(frontier.state(id) == "COMPLETED" for id in graph.order)


@pytest.mark.parametrize("by", GROUPINGS)
def test_ten_thousand_tasks_are_grouped_in_linear_time(by: GroupBy) -> None:
    """Also where all of them are related."""
    tasks = tuple(Task(f"t{n}", "Fix retry limits", section="S", files=("x.py",)) for n in range(10_000))
    roadmap = Roadmap("roadmap", "", (), tasks)
    graph = graph_of(roadmap)
    began = time.process_time()
    groups = groups_of(roadmap, graph, by)
    assert time.process_time() - began < 15
    assert len(groups) == (0 if by == "off" else 10_000 // MOST_TOGETHER)


def test_groups_that_cross_each_other_are_told_and_left_alone() -> None:
    """A grouping of somebody else that makes a circle is found like any other; nothing hangs."""
    tasks = (Task("a", "x"), Task("b", "x"), Task("c", "x", after=("b",)), Task("d", "x", after=("a",)))
    graph = graph_of(Roadmap("roadmap", "", (), tasks), [("a", "c"), ("b", "d")])
    assert graph.stuck.keys() == {0, 1}
    assert "a → b → a" in graph.remarks[0].text


def test_groups_that_cross_in_their_files_still_have_an_order() -> None:
    """Lanes give way where they would make a circle of groups: an order is not a need."""
    tasks = tuple(
        Task(id, "x", files=(file,)) for id, file in zip("abcd", ("x.py", "y.py", "x.py", "y.py"), strict=True)
    )
    graph = graph_of(Roadmap("roadmap", "", (), tasks), [("a", "d"), ("b", "c")])
    assert (graph.order, graph.stuck) == (("a", "b"), {})
    assert Frontier(graph, {}).ready() == ("a",)


@pytest.mark.parametrize(
    ("added", "accepted", "shown"),
    [
        pytest.param({"a.py": "A = 1"}, False, "1", id="its own file"),
        pytest.param({"c/d/e.txt": ""}, False, "2", id="below its own folder"),
        pytest.param({"shared.py": "def parseHeader():"}, False, "3", id="a word that only it has"),
        pytest.param({"shared.py": "def nothing():"}, False, "", id="a file that two of them name"),
        pytest.param({"z.txt": "x"}, True, "4", id="its acceptance command passed"),
        pytest.param({"z.txt": "x"}, False, "", id="no acceptance command was run"),
    ],
)
def test_each_task_of_a_group_is_shown_by_its_own_evidence(added: dict[str, str], accepted: bool, shown: str) -> None:
    """Its file, its words in what was added, or its acceptance command; that others did theirs shows nothing."""
    tasks = (
        Task("1", "Change `a.py`"),
        Task("2", "Fill it", files=("c/*",)),
        Task("3", "Let shared.py parse headers"),
        Task("4", "Let shared.py be quick", accept="make quick"),
    )
    assert "".join(sorted(shown_by(tasks, added, accepted=accepted))) == shown


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Return None for empty strings in calc.py", False),
        ("Handle a part that is negative in calc.py", False),
        ("Raise a ValueError in calc.py for what is no number", False),
        ("Let calc.py split text at a comma", True),
        ("Make a list of parts in calc.py", True),
    ],
)
def test_a_word_that_stands_in_any_program_shows_no_task(title: str, *, shown: bool) -> None:
    """Of two tasks over one file only the first was done: the other is not taken for done by a word they share."""
    done = 'def parse(text):\n    """A list of parts."""\n    return [int(part) for part in text.split(",")]  # comma\n'
    tasks = (Task("1", "Add parse() to calc.py"), Task("2", title))
    assert shown_by(tasks, {"calc.py": done}, accepted=False) == ({"1", "2"} if shown else {"1"})
