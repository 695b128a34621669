"""SIGKILL at every system call of a change, of an undo and of a rollback.

After recovery the tree is exactly the old or exactly the new one, metadata included; an acknowledged change is there;
the ledger verifies and says the same; the next change works; what was changed can be undone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread, Timer
from typing import Any, Literal

import pytest

import holdfast
from crash.driver import (
    Arena,
    Outcome,
    Place,
    discard,
    interrupted,
    judge,
    judge_life_goes_on,
    kill_in,
    start,
    trace_of,
    use,
)
from crash.scenarios import BY_NAME, SCENARIOS, Scenario
from crash.walker import undated, walk
from holdfast import Holdfast
from holdfast.engine.history import KEEP_AT_LEAST, PACK_AFTER_NS, collect
from holdfast.model.plan import Run
from holdfast.testing import ALL, CHANGES, At, FaultyCalls, Kill, KillAt

Counted = Callable[[int], None]
Sampled = Callable[[Sequence[Any]], list[Any]]
NAMES = [scenario.name for scenario in SCENARIOS]
# Each action, few and many, forwards and backwards. Those that take longest are in `make test-long`.
OFTEN = ["one", "few", "folders", "modes", "many"]
SELDOM = ["types", "few-unhealthy", "types-undo", "few-redo", "few-merge", "many-restore", "run"]
MARKS = {
    **{name: [pytest.mark.crash] for name in OFTEN},
    **{name: [pytest.mark.crash, pytest.mark.long] for name in SELDOM},
}
AT_LEAST = 500
# A program is stopped so many milliseconds after its shadow was filled: before it starts, as it starts, at work.
_AS_IT_IS_MADE = 12
WHILE_IT_RUNS = (1, 5, 10, 20, 30, 40, 60, 80, 120, 200)
SLOW = Scenario("slow", "apply", (Run(("/bin/sh", "-e", "-c", "echo half > a.txt; rm b.txt; sleep 30")),))


def bounded_points(outcome: Outcome) -> list[Kill]:
    """Before each call that can change the disk, and after the last one."""
    return [*(Kill(number) for number in range(1, len(outcome.trace) + 1)), Kill(len(outcome.trace), "after")]


def verdicts(arena: Arena, scenario: Scenario, kills: list[Kill], counted: frozenset[str] = CHANGES) -> Iterator[str]:
    outcome = arena.outcome(scenario)
    for kill in kills:
        begun = start(arena, scenario)
        acknowledged = kill_in(begun, scenario, kill, counted)
        verdict = judge(begun, outcome, scenario, acknowledged) or judge_life_goes_on(begun)
        yield from (f"{scenario.name}, {kill}: {what}" for what in verdict)
        discard(begun.place)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [pytest.mark.crash_full])) for name in NAMES]
)
def test_killed_before_every_change_of_the_disk(
    name: str, arena: Arena, sampled: Sampled, kill_points: Counted
) -> None:
    """A process killed before any call that changes the disk leaves, after recovery, the old tree or the new one."""
    kills = sampled(bounded_points(arena.outcome(BY_NAME[name])))
    assert list(verdicts(arena, BY_NAME[name], kills)) == []
    kill_points(len(kills))


@pytest.mark.crash
def test_the_bounded_part_has_five_hundred_points(arena: Arena, kill_points: Counted) -> None:
    """`make test` kills at no fewer than 500 different places."""
    counts = {name: len(bounded_points(arena.outcome(BY_NAME[name]))) for name in OFTEN}
    print(f"kill points in make test: {sum(counts.values())} ({counts})")
    assert sum(counts.values()) >= AT_LEAST


@pytest.mark.crash
@pytest.mark.parametrize("name", ["few", "many-undo", "many-unhealthy", "run", "run-copy", "agent"])
def test_killed_at_every_named_point(name: str, arena: Arena, sampled: Sampled, kill_points: Counted) -> None:
    """A process killed at any named point leaves, after recovery, the old tree or the new one."""
    scenario = BY_NAME[name]
    outcome = arena.outcome(scenario)
    bad = []
    points = sampled(outcome.points)
    for point in points:
        begun = start(arena, scenario)
        acknowledged = kill_in(begun, scenario, KillAt(point))
        assert not acknowledged, f"{point} was not passed"
        bad += [f"{point}: {what}" for what in judge(begun, outcome, scenario, False) or judge_life_goes_on(begun)]
        discard(begun.place)
    assert bad == []
    kill_points(len(points))


@pytest.mark.crash
@pytest.mark.parametrize("shadow", ["overlay", "copy"])
def test_killed_while_a_program_runs(
    shadow: Literal["overlay", "copy"], arena: Arena, sampled: Sampled, kill_points: Counted
) -> None:
    """Killed while its program starts or works: the old tree, no shadow, and nobody left at work.

    But where the kill hits bubblewrap between two of its system calls (SHORTCOMINGS), which is seldom.
    """
    scenario = SLOW._replace(shadow=shadow)
    delays = sampled(WHILE_IT_RUNS)
    stayed = 0
    for delay in delays:
        begun = start(arena, scenario)
        moment = At("shadow-filled", lambda delay=delay: _die_in(delay / 1000))  # type: ignore[misc]
        assert not kill_in(begun, scenario, moment)
        outcome = Outcome(undated(begun.old), (), ())
        assert judge(begun, outcome, scenario._replace(manner="unhealthy"), acknowledged=False) == [], delay
        assert judge_life_goes_on(begun) == [], delay
        stayed += _ended_what_stayed(begun.place.workspace)
        discard(begun.place)
    assert stayed <= max(1, len(delays) // 4)
    kill_points(len(delays))


@pytest.mark.crash
def test_killed_as_a_sandbox_is_made(arena: Arena, kill_points: Counted) -> None:
    """Killed at the moment when the sandbox's first process appears: that one does not wait for ever.

    But where the kill hits bubblewrap between two of its system calls (SHORTCOMINGS), which is seldom.
    """
    stayed = 0
    for _ in range(_AS_IT_IS_MADE):
        begun = start(arena, SLOW)
        assert not kill_in(begun, SLOW, At("shadow-filled", _die_with_a_grandchild))
        stayed += _ended_what_stayed(begun.place.workspace)
        discard(begun.place)
    assert stayed <= _AS_IT_IS_MADE // 4
    kill_points(_AS_IT_IS_MADE)


def _ended_what_stayed(directory: str) -> bool:
    """End what still works there; whether there was anything."""
    left = _working_in(directory)
    for pid in left:
        with suppress(ProcessLookupError):  # one takes the other with it
            os.kill(int(pid), signal.SIGKILL)
    return bool(left)


def _die_with_a_grandchild() -> None:
    """End this process as soon as a child of it has a child."""
    main = os.getpid()

    def watch() -> None:
        while not any(_children(child) for child in _children(main)):
            pass
        os.kill(main, signal.SIGKILL)

    Thread(target=watch, daemon=True).start()


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in os.listdir(f"/proc/{pid}/task")
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]
    except OSError:
        return []


def _die_in(seconds: float) -> None:
    Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def _working_in(directory: str, patience: float = 2.0) -> list[str]:
    """Processes that work there or were told of it, after a moment to end."""
    end = time.monotonic() + patience
    while found := [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _knows(pid, directory)]:
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return found


def _knows(pid: str, directory: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return os.readlink(f"/proc/{pid}/cwd").startswith(directory) or directory.encode() in words
    except OSError:
        return False


@pytest.mark.crash_full
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_every_call(name: str, arena: Arena, sampled: Sampled, kill_points: Counted) -> None:
    """Killed before any call at all, reading ones included, and after each that changes the disk: old tree or new."""
    kills = [
        Kill(number, when)
        for number, call in enumerate(trace_of(arena, BY_NAME[name]), 1)
        for when in ("before", "after")
        if when == "before" or call in CHANGES
    ]
    kills = sampled(kills)
    assert list(verdicts(arena, BY_NAME[name], kills, ALL)) == []
    kill_points(len(kills))


@pytest.mark.crash
def test_killed_while_a_workspace_is_made(arena: Arena, kill_points: Counted) -> None:
    """`init` killed anywhere is completed by the next `init`, and the workspace then works."""
    number = 0
    done = False
    while not done:
        number += 1
        place = arena.bare()
        place.enter()
        done = interrupted(_init(place, FaultyCalls(Kill(number), counted=CHANGES)))
        holdfast.init(place.workspace)
        with place.open() as hf:
            with hf.transaction("first", approved_by="me") as tx:
                tx.write("first.txt", b"1")
            assert hf.audit().ok, f"killed at call {number}"
        discard(place)
    kill_points(number)


def _init(place: Place, calls: FaultyCalls) -> Callable[[], None]:
    def work() -> None:
        holdfast.init(place.workspace, calls)

    return work


def changes(hf: Holdfast) -> None:
    """More executions than `gc` always keeps, each with an old file to pack."""
    for number in range(KEEP_AT_LEAST + 2):
        with hf.transaction(f"change {number}", approved_by="me") as tx:
            tx.write(f"f{number % 3}.txt", b"%d\n" % number)
            tx.create(f"d{number}/")


def collect_all(hf: Holdfast) -> None:
    """What gc does when everything is old."""
    collect(hf.pipeline, keep_ns=0, now_ns=time.time_ns() + 2 * PACK_AFTER_NS)


@pytest.mark.crash_full
def test_killed_while_old_material_is_collected(arena: Arena, kill_points: Counted) -> None:
    """`gc` killed anywhere can be run again, and every execution whose material it keeps can still be undone."""
    number = 0
    done = False
    while not done:
        number += 1
        place = arena.fresh(BY_NAME["one"])
        with place.open() as hf:
            changes(hf)
        before = walk(place.workspace)
        done = interrupted(use(place, FaultyCalls(counted=CHANGES), collect_all, Kill(number)))
        assert walk(place.workspace) == before
        with place.open() as hf:
            collect_all(hf)
            assert hf.audit().ok, f"killed at call {number}"
            for row in hf.log():
                if row.kept and row.live:
                    hf.undo(row.id, approved_by="me")
        assert sorted(name for name in os.listdir(place.workspace) if name.startswith("d1")) == ["d1"], number
        discard(place)
    kill_points(number)
