"""The tables that other tools read after a run: `tasks`, `adapters`, `execution_log` and `events`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from typing import Any

from roadmapped import mapped


def _rows(here: Any, question: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(here.directory / ".holdfast" / "holdfast.db") as database:
        return list(database.execute(question))


def test_attempts_and_events_are_in_tables(guarded: Any) -> None:
    """Each attempt of an agent is a row with what was measured, each event of a task a row with its name; a database
    that lost the tables, as one of an earlier release, gets them back from the ledger."""
    here = mapped(guarded, "Create a.py", "Create b.py nothing")
    here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1")
    log = "SELECT run_id, task_id, adapter_id, success, output, error, duration_ms, artifacts FROM execution_log"
    attempts = _rows(here, log)
    first, *others = attempts
    (run, task, agent, success, output, error, duration, artifacts) = first
    assert (agent, success, error, json.loads(artifacts)) == ("mine", 1, "", ["a.py"])
    assert run.startswith("u-") and task.startswith("create-a-py") and "writing a.py" in output and duration >= 0
    assert others and all(row[3] == 0 and "Nothing was changed" in row[5] for row in others)
    question = "SELECT event, run_id, task_id FROM events ORDER BY seq"
    events = _rows(here, question)
    names = [event for event, _, _ in events]
    assert (names[0], names[-1]) == ("EXECUTION_STARTED", "EXECUTION_FINISHED")
    assert {"TASK_STARTED", "TASK_COMPLETED", "TASK_FAILED"} <= set(names)
    assert {run_id for _, run_id, _ in events} == {run}
    assert _rows(here, "SELECT count(*) FROM tasks") == [(2,)]
    assert _rows(here, "SELECT name FROM adapters") == [("mine",)]

    with sqlite3.connect(here.directory / ".holdfast" / "holdfast.db") as database:
        database.executescript("DROP TABLE events; DROP TABLE execution_log")
    assert here.fresh("recover").status == 0
    assert (_rows(here, log), _rows(here, question)) == (attempts, events)

    for path in (here.directory / ".holdfast").glob("holdfast.db*"):
        shutil.move(path, here.directory.parent / path.name)
    assert here.fresh("recover").status == 0
    assert (_rows(here, log), _rows(here, question)) == (attempts, events)
