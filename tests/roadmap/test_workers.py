"""Workers on a shared PostgreSQL do the work of a run; none of what happens to them loses or doubles a landing."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.durable.cluster import Cluster
from roadmap.soaking import Crowd, check, ended, prepare, sit

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


def driven(tmp_path: Path, cluster: Cluster, *, troubles: int, seconds: float, seed: int) -> Crowd:
    """Until it is done, or longer: troubles come one after the other, and between two of them the database goes."""
    workspace, restart = tmp_path / "workspace", True
    prepare(workspace, Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast", seconds=seconds)
    database = cluster.url(f"run{seed}")
    crowd, chance = Crowd(tmp_path, workspace, database), random.Random(seed)
    home = sit(workspace, 4, "roadmap", database, within_ms=4_000 + int(1_000 * seconds))
    try:
        crowd.tend()
        while home.poll() is None:
            try:
                home.wait(chance.uniform(1.0, 4.0))
            except subprocess.TimeoutExpired:
                crowd.tend()
                if troubles > 0:
                    crowd.trouble(chance)
                    troubles -= 1
                if restart and crowd.killed + crowd.frozen >= 2:
                    cluster.stop()
                    cluster.start()
                    restart = False
    finally:
        crowd.end()
        home.kill()
        out, err = home.communicate()
    assert home.returncode == 0 and out.split()[-1] == "FINISHED", f"{out[-1000:]}\n{err[-4000:]}"
    return crowd


def test_workers_elsewhere_take_a_roadmap_to_done(tmp_path: Path, cluster: Cluster) -> None:
    """Three workers without a workspace do everything; one is killed, one is cut off; each task lands once."""
    crowd = driven(tmp_path, cluster, troubles=3, seconds=0.5, seed=3)
    assert crowd.killed + crowd.frozen >= 2
    check(ended(tmp_path / "workspace"))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_workers_that_are_killed_and_cut_off_lose_nothing(tmp_path: Path, cluster: Cluster, seed: int) -> None:
    """The same with kills and freezes as long as the run lasts, and the database restarted in between."""
    crowd = driven(tmp_path, cluster, troubles=100, seconds=6.0, seed=seed)
    assert crowd.killed + crowd.frozen >= 3
    check(ended(tmp_path / "workspace"))
