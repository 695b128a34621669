"""Workers on a shared PostgreSQL do the work of a run; none of what happens to them loses or doubles a landing."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from engine.durable.cluster import Cluster
from roadmap.soaking import Crowd, Sitting, check, ended, prepare, sit

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


Trouble = Literal["kill", "freeze", "driver", "database"]
# The database is never restarted just after the driver: one that starts refuses a database that is away, and should.
TROUBLES: tuple[Trouble, ...] = ("kill", "freeze", "database", "driver")


class Driven(NamedTuple):
    """A run that came to its end, and the troubles that it was spared."""

    crowd: Crowd
    spared: tuple[Trouble, ...]


def driven(tmp_path: Path, cluster: Cluster, troubles: Sequence[Trouble], *, seconds: float, seed: int) -> Driven:
    """Until it is done: troubles come one after the other, those of workers when one holds an item."""
    workspace, waiting = tmp_path / "workspace", list(troubles)
    prepare(workspace, Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast", seconds=seconds)
    database, within_ms = cluster.url(f"run{seed}"), 4_000 + int(1_000 * seconds)
    crowd, chance = Crowd(tmp_path, workspace, database), random.Random(seed)
    home = sit(workspace, 4, "roadmap", database, within_ms=within_ms)
    try:
        while (child := ended_within(home, chance.uniform(0.2, 1.0 + seconds / 2))) is None:
            crowd.tend()
            match waiting[:1]:
                case ["kill"] if not crowd.kill():
                    continue
                case ["freeze"] if not crowd.freeze():
                    continue
                case ["driver"]:
                    home.kill()
                    home.communicate()
                    home = sit(workspace, 4, "roadmap", database, within_ms=within_ms)
                case ["database"]:
                    cluster.stop()
                    cluster.start()
            del waiting[:1]
    finally:
        crowd.end()
        home.kill()
        out, err = home.communicate()
    assert child == 0 and out.split()[-1] == "FINISHED", f"{out[-1000:]}\n{err[-4000:]}"
    return Driven(crowd, tuple(waiting))


def ended_within(home: Sitting, seconds: float) -> int | None:
    try:
        return home.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def test_workers_elsewhere_take_a_roadmap_to_done(tmp_path: Path, cluster: Cluster) -> None:
    """Three workers do everything; one is killed and one cut off while it holds an item, and the driver is killed.

    The one that was cut off is told that it was given up, and its item goes on under a new token; each task lands once.
    """
    crowd, spared = driven(tmp_path, cluster, TROUBLES, seconds=0.5, seed=3)
    assert (crowd.killed, crowd.frozen, spared) == (1, 1, ())
    assert crowd.given_up >= 1
    assert crowd.newest_token() > 1
    check(ended(tmp_path / "workspace"))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_workers_that_are_killed_and_cut_off_lose_nothing(tmp_path: Path, cluster: Cluster, seed: int) -> None:
    """The same with such troubles as long as the run lasts."""
    crowd, _ = driven(tmp_path, cluster, TROUBLES * 10, seconds=6.0, seed=seed)
    assert min(crowd.killed, crowd.frozen, crowd.given_up) >= 1
    assert crowd.newest_token() > 1
    check(ended(tmp_path / "workspace"))
