"""Runs and tasks as tables: where every task of every run stands. A projection of the ledger, like all tables here."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from holdfast.model.canonical import Json
from holdfast.store.database import Tables, dependable

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs(
  id TEXT PRIMARY KEY, roadmap TEXT NOT NULL, state TEXT NOT NULL, at_ns INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tasks(
  run TEXT NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL, adapter_id TEXT NOT NULL, at_ns INTEGER NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY(run, task)) WITHOUT ROWID;
"""
# Apart, since a database of an earlier release lacks it: there an answer did not say what it was to.
_REPLIES = """
CREATE TABLE IF NOT EXISTS replies(
  run TEXT NOT NULL, task TEXT NOT NULL, yes INTEGER NOT NULL, skip INTEGER NOT NULL, by TEXT NOT NULL,
  reason TEXT NOT NULL, at_ns INTEGER NOT NULL, question INTEGER NOT NULL, simulation TEXT NOT NULL,
  PRIMARY KEY(run, task, question)) WITHOUT ROWID;
"""
# No question has this number.
NO_QUESTION = -1


class RunRow(NamedTuple):
    id: str
    roadmap: str
    state: str
    at_ns: int
    document: dict[str, Json]


class TaskRow(NamedTuple):
    run: str
    task: str
    state: str
    adapter_id: str
    at_ns: int
    document: dict[str, Json]


class Said(NamedTuple):
    """A person's newest answer to a question about a task. `skip`: a no that leaves the task out, and the rest goes on.

    `question` and `simulation` say which one, as that person was shown it; an entry that does not is an answer to none.
    """

    run: str
    task: str
    yes: bool
    skip: bool
    by: str
    reason: str
    at_ns: int
    question: int = NO_QUESTION
    simulation: str = ""


class Runs(Tables):
    """The tables are made when the first run is."""

    @dependable
    def prepare(self) -> None:
        self._db.executescript(_SCHEMA)

    @dependable
    def exist(self) -> bool:
        return self._has("tasks")

    def _has(self, table: str) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_master WHERE name=?", (table,)).fetchone() is not None

    @dependable
    def save_run(self, row: RunRow) -> None:
        self._db.execute("INSERT OR REPLACE INTO runs VALUES(?,?,?,?,?)", (*row[:4], json.dumps(row.document)))

    @dependable
    def save_task(self, row: TaskRow) -> None:
        self._db.execute("INSERT OR REPLACE INTO tasks VALUES(?,?,?,?,?,?)", (*row[:5], json.dumps(row.document)))

    @dependable
    def save_answer(self, said: Said) -> None:
        self._db.execute(_REPLIES)
        self._db.execute("INSERT OR REPLACE INTO replies VALUES(?,?,?,?,?,?,?,?,?)", said)

    @dependable
    def said(self, run: str, task: str, question: int) -> Said | None:
        if not self._has("replies"):
            return None
        asked = (run, task, question)
        row = self._db.execute("SELECT * FROM replies WHERE run=? AND task=? AND question=?", asked).fetchone()
        return None if row is None else Said(row[0], row[1], bool(row[2]), bool(row[3]), *row[4:])

    @dependable
    def runs(self, *, limit: int = -1) -> list[RunRow]:
        """Newest first."""
        if not self.exist():
            return []
        rows = self._db.execute("SELECT * FROM runs ORDER BY rowid DESC LIMIT ?", (limit,))
        return [_run(row) for row in rows]

    @dependable
    def run(self, id: str) -> RunRow | None:
        if not self.exist():
            return None
        row = self._db.execute("SELECT * FROM runs WHERE id=?", (id,)).fetchone()
        return None if row is None else _run(row)

    @dependable
    def tasks(self, run: str) -> list[TaskRow]:
        if not self.exist():
            return []
        rows = self._db.execute("SELECT * FROM tasks WHERE run=?", (run,))
        return [_task(row) for row in rows]

    @dependable
    def newest(self, roadmap: str, state: str, but: str) -> list[TaskRow]:
        """Of every task how it moved last, in whichever run over this roadmap, where it moved into this state and not
        in the run `but`."""
        if not self.exist():
            return []
        rows = self._db.execute(  # SQLite takes the other columns from the row that has the maximum
            "SELECT * FROM (SELECT t.run, t.task, t.state, t.adapter_id, max(t.at_ns), t.document FROM tasks t"
            " JOIN runs r ON r.id=t.run WHERE r.roadmap=? GROUP BY t.task) WHERE state=? AND run<>?",
            (roadmap, state, but),
        )
        return [_task(row) for row in rows]

    @dependable
    def task(self, run: str, task: str) -> TaskRow | None:
        if not self.exist():
            return None
        row = self._db.execute("SELECT * FROM tasks WHERE run=? AND task=?", (run, task)).fetchone()
        return None if row is None else _task(row)


def _run(row: tuple[Any, ...]) -> RunRow:
    id, roadmap, state, at_ns, document = row
    return RunRow(id, roadmap, state, at_ns, json.loads(document))


def _task(row: tuple[Any, ...]) -> TaskRow:
    run, task, state, adapter_id, at_ns, document = row
    return TaskRow(run, task, state, adapter_id, at_ns, json.loads(document))
