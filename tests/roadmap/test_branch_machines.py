"""A run on a branch whose work is done on other machines, of which one is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.durable.cluster import Cluster
from roadmap.machines import Base, wait_until

pytestmark = pytest.mark.long

_TASKS = 6


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Base]:
    cluster = Cluster()
    found = Base(tmp_path / "lab", cluster.url("branch"), tasks=_TASKS, seconds=(2.0, 3.0))
    yield found
    found.end()
    cluster.remove()


def test_workers_on_other_machines_land_on_a_branch(base: Base) -> None:
    """Two workers with clones of their own over one PostgreSQL, one killed while it works: every task is one commit of
    the branch with its box, at its first attempt; the checkout stays as it is."""
    before = base.git("rev-parse", "HEAD"), (base.workspace / ".git" / "index").read_bytes()
    run = base.run("--branch", "night", "--parallel", "3")
    wait_until(lambda: base.tells("tasks", "--branch", "night", "--json")[0] == 0)
    base.id = str(base.document("status", "--branch", "night")["id"])
    workers = [base.worker(name) for name in ("one", "two")]
    wait_until(lambda: any("works on" in worker.told for worker in workers), 120, lambda: run.told)
    next(worker for worker in workers if "works on" in worker.told).kill()
    assert run.ended(300) == 0, run.told[-3000:]
    assert (base.git("rev-parse", "HEAD"), (base.workspace / ".git" / "index").read_bytes()) == before
    assert base.git("status", "--porcelain") == ""
    assert not list(base.workspace.glob("t*.py"))
    tasks = base.document("tasks", "--branch", "night")["tasks"]
    assert [(task["status"], task["attempts"]) for task in tasks] == [("COMPLETED", 1)] * _TASKS
    titles = base.git("log", "--format=%s", "night").splitlines()
    assert sorted(titles) == sorted(["base", *(f"1.{n} Create t{n}.py" for n in range(1, _TASKS + 1))])
    assert base.git("show", "night:ROADMAP.md").count("- [x]") == _TASKS
    (tree,) = (path for path in (base.workspace / ".holdfast" / "branches").iterdir() if path.is_dir())
    assert base.git("-C", str(tree), "status", "--porcelain") == ""
