"""Every scenario, played by an agent that follows a script: it fails as it is said to, is told why, and mends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.engine.roadmap_runs import Crew
from scenarios.endings import after_the_undo, at_the_end
from scenarios.playing import NAMES, Move, Player, Scenario, Stage, scenario

pytestmark = pytest.mark.long

ALL = ("broken_import_javascript", "broken_import_python", "cascade", "circular_import", "grouping",
       "missing_dependency", "syntax_left_behind", "wrong_path")  # fmt: skip

TWO_AT_ONCE = ("cascade", "grouping")


@pytest.fixture(params=NAMES)
def played(request: pytest.FixtureRequest) -> Scenario:
    found = scenario(request.param)
    if shutil.which(found.check[0]) is None:
        pytest.skip(f"THERE IS NO {found.check[0]} HERE: nothing was tried of {found.story!r}")
    return found


def test_a_scenario_ends_as_it_is_said_to(played: Scenario, tmp_path: Path) -> None:
    """It fails for its own reason, the evidence names the place, the repair lands, and one task can be taken back."""
    stage, player = Stage(played, tmp_path / "workspace"), Player(played)
    run = stage.play("player", Crew(agents={"player": player}))
    at_the_end(stage, run, player.given)
    after_the_undo(stage)


@pytest.mark.parametrize("name", TWO_AT_ONCE)
def test_a_scenario_ends_the_same_with_two_at_work_at_once(name: str, tmp_path: Path) -> None:
    """Each over a mirror of its own: the same failures, the same repairs, the same commits, and the same way back."""
    played = scenario(name)
    stage, player = Stage(played, tmp_path / "workspace"), Player(played)
    run = stage.play("player", Crew(agents={"player": player}), parallel=2)
    at_the_end(stage, run, player.given)
    after_the_undo(stage)


def test_what_a_person_brings_lets_the_task_land(tmp_path: Path) -> None:
    """A task that lacks a dependency waits; once the person has it there and says yes, the next attempt passes. That it
    declares a dependency which nothing here installs is asked once more, and then it lands."""
    played = scenario("missing_dependency")
    stage, crew = Stage(played, tmp_path / "workspace"), Crew(agents={"player": Player(played)})
    assert stage.play("player", crew).state == "WAITING"
    (stage.path / "fancy_tables.py").write_text("table = str\n", encoding="utf-8")
    with holdfast.open(str(stage.path), wait=60.0) as hf:
        hf.runs.answer("1.1", yes=True)
        assert hf.runs.resume(crew=crew).state == "WAITING"
        assert "requirements.txt" in stage.records()["1.1"].because
        hf.runs.answer("1.1", yes=True)
        assert hf.runs.resume(crew=crew).state == "FINISHED"
    record = stage.records()["1.1"]
    assert (record.state, record.attempt) == ("COMPLETED", 3)
    assert stage.passes().returncode == 0
    assert stage.git("status", "--short") == "?? fancy_tables.py\n"


def test_the_scenarios_are_those_that_were_promised() -> None:
    """None was lost, each tells its story, and each repair is played only by whoever was told something."""
    assert NAMES == ALL
    for found in map(scenario, NAMES):
        assert found.story.endswith(".")
        assert any(move.told for move in found.moves)
        assert all(move.told for later in _later(found) for move in later)


def _later(found: Scenario) -> Iterator[list[Move]]:
    for task in dict.fromkeys(move.task for move in found.moves):
        yield [move for move in found.moves if move.task == task][1:]
