"""Runs that somebody tries to bend: by changing what they are about, or by carrying an order to another place."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.durable.cluster import Cluster
from holdfast.engine.orders import Order
from holdfast.engine.roadmap_orders import kept_order
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import task_record
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.runs import Runs
from holdfast.wiring import open as open_guard
from roadmapped import agents_alive, boxes, git, mapped, script, states, wait_until

pytestmark = pytest.mark.long

PROSE = "# Plan\n\nWe want a module a, and then b, which uses it.\n"
READ = json.dumps(
    {
        "version": 1,
        "title": "Plan",
        "tasks": [
            {"key": "a", "title": "Create a.py", "body": "", "files": ["a.py"], "after": [], "line": 3},
            {"key": "b", "title": "Create b.py", "body": "", "files": ["b.py"], "after": ["a"], "line": 3},
        ],
    }
)
MEDDLER = f"""
import re, sys
words = open(sys.argv[1]).read()
if "holdfast-tasks.json" in words:
    open("holdfast-tasks.json", "w").write({READ!r})
else:
    name = re.search(r"Create (\\w+)\\.py", words).group(1)
    open(name + ".py", "w").write("x = 1\\n")
    open("ROADMAP.md", "a").write("\\n")
"""


def test_an_agent_that_changes_a_roadmap_of_prose_does_not_end_the_run(guarded: Any) -> None:
    """One empty line more, and the tasks that were read out of it would be gone: a person is asked, exit 3."""
    here = mapped(guarded, "x")
    (here.directory / "ROADMAP.md").write_text(PROSE)
    git(here, "commit", "-qam", "prose")
    script(here).write_text(MEDDLER)
    done = here.fresh("run", "--agent", "mine", "--yes", "--normalise", "mine")
    assert done.status == 3, done.err
    assert (here.directory / "ROADMAP.md").read_text() == PROSE
    assert not (here.directory / "a.py").exists()
    assert states(here) == ["NEEDS_REVIEW", "PENDING"]


def ledger(directory: Path) -> list[str]:
    with closing(open_guard(str(directory))) as hf:
        return [entry.kind for entry in hf.ledger.entries()]


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_a_policy_that_asks_what_was_enforced_lets_nobody_work_elsewhere(guarded: Any, verb: str) -> None:
    """None of it could land: that is said before anything is written down or spent, exit 5."""
    here = mapped(guarded, "Create a.py slowly")
    if verb == "resume":
        child = here.start("run", "--agent", "mine", "--yes")
        wait_until(lambda: agents_alive(here))
        child.kill()
        child.wait()
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast/config.toml"
    config.write_text(config.read_text() + '\n[policy]\nsandbox = ["network"]\n')
    before = ledger(here.directory)
    words = ("--agent", "mine") if verb == "run" else ()
    done = here.fresh(verb, *words, "--yes", "--database", "postgresql://127.0.0.1:1/nobody")
    assert done.status == 5 and "[policy] sandbox" in done.err, done.err
    assert ledger(here.directory) == before and ("run" in before) == (verb == "resume")


def booked(directory: Path) -> tuple[TaskRecord, Order]:
    """The only task of the only run, and what was asked for it last."""
    with closing(open_guard(str(directory))) as hf:
        (run,) = Runs(hf.records).runs()
        (task,) = {str(entry.body["task"]) for entry in hf.ledger.entries() if entry.kind == "task"}
        record = task_record(Runs(hf.records), run.id, task)
        return record, kept_order(LargeBlobs(hf.site.state), record)


def test_an_order_for_work_here_is_not_given_out_to_others(guarded: Any) -> None:
    """Killed while it works here and resumed with a shared database: what is given out says that it is."""
    here = mapped(guarded, "Create a.py slowly")
    child = here.start("run", "--agent", "mine", "--yes")
    wait_until(lambda: agents_alive(here))
    child.kill()
    child.wait()
    _, before = booked(here.directory)
    assert (before.mirrored, before.base) == (False, "")
    script(here).write_text(script(here).read_text().replace("time.sleep(120)", "pass"))
    cluster = Cluster()
    try:
        done = here.fresh("resume", "--yes", "--database", cluster.url("resumed"))
    finally:
        cluster.remove()
    assert (done.status, boxes(here)) == (0, "x"), done.err
    record, order = booked(here.directory)
    assert (record.attempt, order.mirrored, bool(order.base)) == (2, True, True)


def test_what_landed_is_told_although_the_roadmap_is_gone(guarded: Any) -> None:
    """Somebody removes the file while an agent works: its task lands, and the end, table and document say so."""
    here = mapped(guarded, "Create a.py")
    script(here).write_text("import time\n" + script(here).read_text() + "time.sleep(2)\n")

    def remove() -> None:
        wait_until(lambda: agents_alive(here))
        (here.directory / "ROADMAP.md").unlink()

    with ThreadPoolExecutor(1) as beside:
        removed = beside.submit(remove)
        done = here.fresh("run", "--agent", "mine", "--yes")
        removed.result()
    assert done.status == 0, done.err
    assert "there is no ROADMAP.md in the workspace: what landed is not ticked" in done.out
    assert (here.directory / "a.py").read_text() == "x = 1\n"
    document = here("tasks", "--json").document
    assert [task["status"] for task in document["tasks"]] == ["COMPLETED"]
    assert document["unreadable"] == "there is no ROADMAP.md in the workspace"
    again = here.fresh("run", "--agent", "mine", "--yes")
    assert again.status == 2 and "Nothing was changed." in again.err
