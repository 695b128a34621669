"""SIGKILL in mid-change, and the state copied away and back before anybody recovers: content decides, not inodes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator

import pytest

from crash.driver import Arena, Start, discard, judge, judge_life_goes_on, kill_in, kill_in_recovery, start
from crash.scenarios import BY_NAME, SCENARIOS, Scenario
from holdfast.testing import Fault, Kill, KillAt

Counted = Callable[[int], None]
POINTS = ("prepared", "flipped", "applied", "commit", "committed", "rolled-back", "aborted", "in-ledger")


def _copied(begun: Start) -> None:
    state, aside = os.path.join(begun.place.workspace, ".holdfast"), os.path.join(begun.place.root, "aside")
    dated = os.stat(begun.place.workspace)
    subprocess.run(["cp", "-a", state, aside], check=True)
    shutil.rmtree(state)
    subprocess.run(["cp", "-a", aside, state], check=True)
    shutil.rmtree(aside)
    # Where the state is made and removed is the person's doing, and no part of what is judged.
    os.utime(begun.place.workspace, ns=(dated.st_atime_ns, dated.st_mtime_ns))


def _verdicts(arena: Arena, scenario: Scenario, faults: Iterable[Fault], again: int) -> Iterator[str]:
    outcome = arena.outcome(scenario)
    for fault in faults:
        begun = start(arena, scenario)
        acknowledged = kill_in(begun, scenario, fault)
        _copied(begun)
        if again:
            kill_in_recovery(begun.place, Kill(again))
        verdict = judge(begun, outcome, scenario, acknowledged) or judge_life_goes_on(begun)
        discard(begun.place)
        yield from (f"{scenario.name}, {fault}, then {again}: {what}" for what in verdict)


@pytest.mark.crash
@pytest.mark.parametrize("name", ["few", "types-undo"])
def test_a_state_copied_after_a_kill_is_recovered(name: str, arena: Arena, kill_points: Counted) -> None:
    """Killed at a named point, the state copied: the tree is the old or the new one, and undo works."""
    points = [KillAt(point) for point in POINTS if point in arena.outcome(BY_NAME[name]).points]
    assert list(_verdicts(arena, BY_NAME[name], points, again=0)) == []
    kill_points(len(points))


@pytest.mark.crash
def test_modes_and_times_come_back_however_often_a_recovery_is_killed(arena: Arena, kill_points: Counted) -> None:
    """A directory that went away and whose copy moved back in a recovery that was killed has its old mode and time."""
    killed = range(0, 80, 5)
    assert _after_killed_recoveries(arena, BY_NAME["many-restore"], killed) == []
    kill_points(len(killed))


@pytest.mark.crash_full
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_every_recovery_of_a_copied_state_may_be_killed(name: str, arena: Arena, kill_points: Counted) -> None:
    """Killed when everything had moved, the state copied, its recovery killed anywhere: the old tree or the new one."""
    killed = range(1, len(arena.outcome(BY_NAME[name]).trace) + 1, 2)
    assert _after_killed_recoveries(arena, BY_NAME[name], killed) == []
    kill_points(len(killed))


def _after_killed_recoveries(arena: Arena, scenario: Scenario, killed: Iterable[int]) -> list[str]:
    return [what for again in killed for what in _verdicts(arena, scenario, [KillAt("applied")], again)]


@pytest.mark.crash_full
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
@pytest.mark.parametrize("again", [0, 2, 5])
def test_a_state_copied_after_any_kill_is_recovered(name: str, again: int, arena: Arena, kill_points: Counted) -> None:
    """Killed anywhere, the state copied, and its recovery killed too: the tree is the old or the new one."""
    scenario = BY_NAME[name]
    kills = [Kill(number) for number in range(1, len(arena.outcome(scenario).trace) + 1, 3)]
    assert list(_verdicts(arena, scenario, kills, again)) == []
    kill_points(len(kills))
