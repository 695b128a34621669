"""Runs whose work is done on other machines go on whatever happens to those, to the database or to the network.

Every machine has a HOME of its own, and all of them share one real PostgreSQL.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from engine.durable.cluster import Cluster
from holdfast.disk.lock import Lock
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.run import RunEvent, RunOptions, RunStarted
from roadmap.machines import Base

pytestmark = pytest.mark.long
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


@pytest.fixture
def based(tmp_path: Path, cluster: Cluster) -> Iterator[Callable[..., Base]]:
    """A base with a fresh database; every process of every machine is gone afterwards."""
    made: list[Base] = []

    def make(**given: object) -> Base:
        made.append(Base(tmp_path / f"lab{len(made)}", cluster.url(f"m{next(_numbers)}"), **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for base in made:
        base.end()


def wide_run(base: Base) -> None:
    """24 independent tasks, six at once, two workers: orders are written all the time while something lands."""
    for name in ("one", "two"):
        base.worker(name)
    run = base.run("--parallel", "6")
    assert run.ended(300) == 0, run.told[-3000:]
    base.check_done()


def test_a_landing_never_ends_the_driver_that_asked_for_it(based: Callable[..., Base]) -> None:
    """The driver waits for its own process's landings, also without `--wait`; every task lands at its first attempt."""
    wide_run(based(tasks=24, seconds=(0.1, 0.8)))


def test_the_driver_waits_for_a_thread_of_its_own_process(
    based: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace that was opened without patience, and is locked by another thread when the first order is written."""
    base = based(tasks=1)
    base.worker("far").says("listens")
    monkeypatch.setenv("HOME", str(base.home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name)
    holder: list[threading.Thread] = []
    with holdfast.open(str(base.workspace), wait=0.0) as hf:

        def land_something(event: RunEvent) -> None:
            if isinstance(event, RunStarted):
                holds = threading.Event()

                def hold() -> None:
                    with Lock(hf.lock_path):
                        holds.set()
                        time.sleep(1.0)

                holder.append(threading.Thread(target=hold))
                holder[0].start()
                assert holds.wait(10)

        options = RunOptions(agent="mine", parallel=2, here=False)
        crew = Crew(watcher=land_something)
        assert hf.runs.start("ROADMAP.md", options, crew, yes=True, database=base.database).state == "FINISHED"
    holder[0].join()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(8))
def test_eight_such_runs_end_well(based: Callable[..., Base], number: int) -> None:
    """The same, eight times: without the wait, half of them died."""
    wide_run(based(tasks=24, seconds=(0.1, 0.8)))
