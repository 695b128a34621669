"""Tasks that their file defers or drops: they are not begun, they are told with the reason, and a name frees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driven_run import Sitting
from guarded import ME, Ground, guard
from holdfast.cli.run_told import counts_in, lines
from holdfast.cli.screen import Screen
from holdfast.engine.roadmap_rules import RoadmapRules
from holdfast.engine.run_preview import preview_of
from holdfast.engine.run_standing import Standing
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.model.run import RunFinished, RunOptions, RunRecord
from holdfast.model.task import Held, Phase, Roadmap, Task, TaskRecord
from holdfast.planning.frontier import Frontier
from holdfast.planning.graph import blocked, graph_of

DEFERS, DROPS = "its file defers it", "its file drops it"
PHASES = (Phase("p1", "First"), Phase("p2", "Then", after=("p1",)))
#  later is deferred, never is dropped; needs_later and needs_never name them, next is of the phase behind theirs
TASKS = (
    Task("plain", "Plain", phase="p1"),
    Task("later", "Later", phase="p1"),
    Task("never", "Never", phase="p1", done=True),
    Task("needs_later", "Needs later", after=("later",)),
    Task("needs_never", "Needs never", after=("never",)),
    Task("next", "Next", phase="p2"),
)
ROADMAP = Roadmap("roadmap", "R", PHASES, TASKS, held=(Held("later", DEFERS), Held("never", DROPS)))


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": b"- [ ] One\n"})
    yield found
    found.hf.close()


def test_what_is_held_is_not_begun_and_stops_no_phase() -> None:
    """The phase behind a deferred task goes on; who names it waits, and is not lost; who names a dropped one goes."""
    graph = graph_of(ROADMAP)
    frontier = Frontier(graph, {})
    assert set(frontier.ready()) == {"plain", "needs_never"}
    frontier.moved("plain", "COMPLETED")
    assert set(frontier.ready()) == {"needs_never", "next"}
    assert blocked(graph, {}) == ()


def test_what_was_begun_and_is_held_now_is_not_begun_again() -> None:
    """An attempt failed, and the person put it off meanwhile; fresh and moved frontiers agree."""
    graph = graph_of(ROADMAP)
    moved = Frontier(graph, {"later": "IN_PROGRESS"})
    moved.moved("later", "PENDING")
    assert "later" not in moved.ready()
    assert moved.ready() == Frontier(graph, {"later": "PENDING"}).ready()


def test_one_that_a_person_skipped_is_lost_as_ever() -> None:
    """Skipping is a decision in the run, deferring one in the file."""
    assert [row.id for row in blocked(graph_of(ROADMAP), {"later": "SKIPPED"})] == ["needs_later"]


def test_who_names_it_gets_it() -> None:
    """Deferred or dropped: it is to do, for this run and nobody else's."""
    freed = ROADMAP.asked_for(["later", "never"])
    assert freed.held == () and set(Frontier(graph_of(freed), {}).ready()) == {"plain", "later", "never"}
    assert ROADMAP.asked_for(["plain"]) is ROADMAP


@pytest.mark.parametrize(("only", "wanted"), [((), {"plain", "needs_never"}), (("later",), {"later"})])
def test_the_rules_of_a_run_begin_it_only_by_name(ground: Ground, only: tuple[str, ...], wanted: set[str]) -> None:
    """`holdfast run --task ID`."""
    options = RunOptions(only=only)
    book = TaskBook(
        ground.hf.pipeline, begin_run(ground.hf.pipeline, RunRecord("", "R", options, by=ME)), lambda _: None
    )
    rules = RoadmapRules(ROADMAP.asked_for(only), book, options, lambda task: ())
    assert {task.id for task in rules.ready()} == wanted and not list(rules.blocked())


def test_a_preview_tells_what_is_held_and_why() -> None:
    """It is neither a turn nor left for later; what waits for it is."""
    found = preview_of("R.md", ROADMAP, RunOptions(), lambda task: "mine")
    assert [(task.id, because) for task, because in found.held] == [("later", DEFERS), ("never", DROPS)]
    assert [turn.task.id for turn in found.turns] == ["plain", "needs_never", "next"]
    assert [task.id for task in found.left] == ["needs_later"] and found.stuck == ()
    named = preview_of("R.md", ROADMAP, RunOptions(only=("later",)), lambda task: "mine")
    assert [turn.task.id for turn in named.turns] == ["later"]


def test_it_is_shown_as_held_with_the_reason() -> None:
    """In the table and in the counts; one that landed all the same is shown as landed."""
    standing = Standing(RunRecord("u-1", "R.md"), ROADMAP, {})
    rows = dict(
        zip(
            (task.id for task in TASKS),
            lines(Screen("text", colour=False), list(standing.rows()), standing),
            strict=True,
        )
    )
    assert rows["later"].endswith(f"held: {DEFERS}") and rows["never"].endswith(f"held: {DROPS}")
    assert "waits for Later" in rows["needs_later"] and rows["needs_never"].endswith("to do")
    assert counts_in(standing)._asdict() == {
        "tasks": 6, "completed": 0, "failed": 0, "waiting": 0, "skipped": 2, "left": 4, "parts": 0, "landed": 0,
        "held": 2, "unverified": 0,
    }  # fmt: skip
    landed = TaskRecord("u-1", "later", "COMPLETED", execution="e-1")
    assert standing._replace(records={"later": landed}).of(TASKS[1]) == landed


def test_a_run_leaves_alone_what_the_file_defers(ground: Ground) -> None:
    """Marks, strike-through and words: not begun, counted as held, and landed once it is named."""
    text = (
        "# R\n\n- [ ] One\n- [>] Two\n- [-] Three\n- [ ] Four (depends on Two)\n- [ ] ~~Five~~\n- [ ] Six (deferred)\n"
    )
    sitting = Sitting(ground, text)
    assert sitting.drive().state == "FINISHED"
    assert [title for title, state in sitting.states().items() if state == "COMPLETED"] == ["One"]
    ended = next(event for event in sitting.events if isinstance(event, RunFinished))
    assert (ended.completed, ended.failed, ended.left) == (1, 0, 1)
    two = sitting.record("Two").task
    named = Sitting(ground, text, options=RunOptions(only=(two,)))
    assert named.drive().state == "FINISHED" and named.record("Two").state == "COMPLETED"
