"""The tables that other tools read after a run: `tasks`, `adapters`, `execution_log` and `events`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from guarded import guard
from holdfast.settlement.log_rows import fill_log
from holdfast.store.chain import Entry
from holdfast.store.ledger import Ledger
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
    assert _rows(here, "SELECT DISTINCT adapter_id FROM tasks") == [("mine",)]

    assert here.fresh("audit", "verify").status == 0
    for lost in (("events", "execution_log"), ("events",), ("execution_log",)):
        with sqlite3.connect(here.directory / ".holdfast" / "holdfast.db") as database:
            database.executescript("".join(f"DROP TABLE {name};" for name in lost))
        assert here.fresh("recover").status == 0
        assert (_rows(here, log), _rows(here, question)) == (attempts, events)

    with sqlite3.connect(here.directory / ".holdfast" / "holdfast.db") as database:
        database.execute("UPDATE tasks SET state='COMPLETED'")
    verified = here.fresh("audit", "verify")
    assert verified.status == 12 and f"tasks {run} " in verified.err and "mv .holdfast/holdfast.db" in verified.err

    for path in (here.directory / ".holdfast").glob("holdfast.db*"):
        shutil.move(path, here.directory.parent / path.name)
    assert here.fresh("recover").status == 0
    assert (_rows(here, log), _rows(here, question)) == (attempts, events)


class _Dying:
    """A ledger over whose entries somebody is killed."""

    def __init__(self, ledger: Ledger, after: int) -> None:
        self._ledger, self._after = ledger, after

    def entries(self) -> Iterator[Entry]:
        for entry in self._ledger.entries():
            if entry.seq > self._after:
                raise KeyboardInterrupt
            yield entry


def test_tables_are_filled_whole_or_not_at_all(tmp_path: Path) -> None:
    """Who is killed while the tables of an older database are filled leaves none, and the next one fills them."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    for number in range(3):
        ground.hf.pipeline.note("run", {"id": f"u-{number}", "roadmap": "r.md", "state": "RUNNING"})
    database = ground.hf.records.connection
    database.executescript("DROP TABLE events; DROP TABLE execution_log")
    up_to = ground.hf.records.projected
    with pytest.raises(KeyboardInterrupt):
        fill_log(cast("Ledger", _Dying(ground.hf.ledger, up_to - 2)), ground.hf.records, up_to)
    fill_log(ground.hf.ledger, ground.hf.records, up_to)
    assert [row[0] for row in database.execute("SELECT run_id FROM events ORDER BY seq")] == ["u-0", "u-1", "u-2"]
