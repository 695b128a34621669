"""The home is killed with SIGKILL again and again: nothing is lost, and what was done twice can be explained."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.durable.child_words import ITEMS, STEPS, ids
from engine.durable.children import child, until
from holdfast.engine.durable import Database
from holdfast.engine.durable_dbos import desk

Effects = Callable[[], list[str]]


pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "kills", [pytest.param(4, marks=pytest.mark.crash), pytest.param(20, marks=pytest.mark.crash_full)]
)
def test_every_step_is_done(database: Database, effects: Effects, tmp_path: Path, kills: int) -> None:
    """60 items of 3 steps over so many kills: every effect is there, every value is of a run that made its effect.

    A step that was done twice was done by different processes, each but the last of which was killed, and at most as
    many as were at work at once when it was.
    """
    chance = random.Random(20260 + kills)
    killed: list[int] = []
    for _ in range(kills):
        with child("home", database, tmp_path / "effects", ITEMS) as process:
            before, more = len(effects()), chance.randint(2, 7)
            until(lambda wanted=before + more: len(effects()) >= wanted)  # type: ignore[misc]
            time.sleep(chance.random() * 0.04)
            process.kill()
            killed.append(process.pid)
    with child("home", database, tmp_path / "effects", ITEMS) as process:
        said, error = process.communicate(timeout=240)
        assert said.split() == ["started", "done"], error
        _explained(effects(), killed, process)
    with desk(database) as other:
        items = {item.id: item for item in other.items("w-child/")}
    assert set(items) == set(ids(ITEMS))
    assert {item.state for item in items.values()} == {"done"}
    made = {tuple(line.split()[:3]) for line in effects()}
    for item in items.values():
        assert isinstance(item.value, list)
        assert all((item.id, step, str(pid)) in made for step, pid in zip(STEPS, item.value, strict=True))


def _explained(lines: list[str], killed: list[int], last: subprocess.Popen[str]) -> None:
    by_step: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in lines:
        item, step, pid, token = line.split()
        assert token == "1"
        by_step[item, step].append(int(pid))
    assert set(by_step) == {(item, step) for item in ids(ITEMS) for step in STEPS}
    again: Counter[int] = Counter()
    for pids in by_step.values():
        assert len(set(pids)) == len(pids)
        assert set(pids[:-1]) <= set(killed) and pids[-1] in {*killed, last.pid}
        again.update(pids[:-1])
    # Four at once: a kill can cost at most the unrecorded effect of each.
    assert all(count <= 4 for count in again.values()), again
