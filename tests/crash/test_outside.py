"""Kills from outside, at system calls that the shim may not see. Needs strace; says so where it is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.driver import Arena, discard, judge, judge_life_goes_on, kill_in, start
from crash.outside import killed, stops
from crash.scenarios import BY_NAME, SCENARIOS
from holdfast.testing import KillAt

Counted = Callable[[int], None]
pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="killing from outside needs strace")


def verdicts(arena: Arena, name: str, log: Path, every: int, count: Counted) -> list[str]:
    scenario, bad = BY_NAME[name], []
    outcome, model = arena.outcome(scenario), start(arena, scenario)
    stops(model.place, log, "recover")  # writes byte code
    found = stops(model.place, log, "act", name)[::every]
    for stop in found:
        begun = start(arena, scenario)
        assert killed(begun.place, stop, "act", name) == b"", f"{stop} was not reached"
        verdict = judge(begun, outcome, scenario, False) or judge_life_goes_on(begun)
        bad += [f"{name}, {stop}: {what}" for what in verdict]
        discard(begun.place)
    assert found
    count(len(found))
    return bad


@pytest.mark.long
@pytest.mark.crash
def test_killed_from_outside(arena: Arena, tmp_path: Path, kill_points: Counted) -> None:
    """A program killed from outside at a sample of its system calls leaves, after recovery, the old tree or the new."""
    assert verdicts(arena, "few", tmp_path / "log", 4, kill_points) == []


@pytest.mark.crash_full
# A program's own calls would be counted too, and are not the same in every run.
@pytest.mark.parametrize("name", [s.name for s in SCENARIOS if s.manner != "unhealthy" and not s.has_program])
def test_killed_from_outside_at_every_call(name: str, arena: Arena, tmp_path: Path, kill_points: Counted) -> None:
    """The same at every system call that can change a disk, the database's included."""
    assert verdicts(arena, name, tmp_path / "log", 1, kill_points) == []


@pytest.mark.crash_full
@pytest.mark.parametrize("point", ["prepared", "flipped", "committed"])
def test_a_recovery_killed_from_outside(point: str, arena: Arena, tmp_path: Path, kill_points: Counted) -> None:
    """A recovery killed from outside at any system call is finished by the next one."""
    scenario, bad = BY_NAME["few"], []
    outcome, model = arena.outcome(scenario), start(arena, scenario)
    kill_in(model, scenario, KillAt(point))
    found = stops(model.place, tmp_path / "log", "recover")
    for stop in found:
        begun = start(arena, scenario)
        kill_in(begun, scenario, KillAt(point))
        assert killed(begun.place, stop, "recover") == b"", f"{stop} was not reached"
        bad += [f"{stop}: {what}" for what in judge(begun, outcome, scenario, False) or judge_life_goes_on(begun)]
        discard(begun.place)
    assert found and bad == []
    kill_points(len(found))
