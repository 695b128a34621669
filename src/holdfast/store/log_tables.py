"""Tables for other tools: what happened in runs (`events`), each attempt of an agent (`execution_log`), and all its
attempts at one plan together (`delegations`), which `log` reads too.

A projection of the ledger, like all tables here; Holdfast itself decides nothing from them.
A row is found again by the number of its ledger entry, so projecting an entry twice writes it once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.model.canonical import Json
from holdfast.store.database import Tables, dependable

_EVENTS = """
CREATE TABLE IF NOT EXISTS events(
  seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, event TEXT NOT NULL, run_id TEXT NOT NULL, task_id TEXT NOT NULL,
  document TEXT NOT NULL);
"""
_LOG = """
CREATE TABLE IF NOT EXISTS execution_log(
  seq INTEGER NOT NULL, attempt INTEGER NOT NULL, at_ns INTEGER NOT NULL, plan_id TEXT NOT NULL, run_id TEXT NOT NULL,
  task_id TEXT NOT NULL, adapter_id TEXT NOT NULL, success INTEGER NOT NULL, output TEXT NOT NULL, error TEXT NOT NULL,
  duration_ms INTEGER NOT NULL, artifacts TEXT NOT NULL, PRIMARY KEY(seq, attempt)) WITHOUT ROWID;
"""
_DELEGATIONS = """
CREATE TABLE IF NOT EXISTS delegations(
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL, at_ns INTEGER NOT NULL, plan_id TEXT NOT NULL, run_id TEXT NOT NULL,
  task_id TEXT NOT NULL, adapter_id TEXT NOT NULL, good INTEGER NOT NULL, task TEXT NOT NULL, error TEXT NOT NULL);
"""
_DAY_NS = 86_400 * 10**9
# Where a task moves when it, or a part of it, landed.
_LANDING = ("COMPLETED", "PENDING")


class EventRow(NamedTuple):
    """`event` is a name of `model.run.EVENTS`; `task_id` is empty for what is about a whole run."""

    seq: int
    at_ns: int
    event: str
    run_id: str
    task_id: str
    document: dict[str, Json]


class AttemptRow(NamedTuple):
    """One attempt of an agent. `success` was measured; `output` is what the agent said."""

    seq: int
    attempt: int
    at_ns: int
    plan_id: str
    run_id: str
    task_id: str
    adapter_id: str
    success: bool
    output: str
    error: str
    duration_ms: int
    artifacts: tuple[str, ...]


class DelegationRow(NamedTuple):
    """`good` was measured; `task` is what the agent was asked for, `error` why its last attempt was not good."""

    seq: int
    id: str
    at_ns: int
    plan_id: str
    run_id: str
    task_id: str
    adapter_id: str
    good: bool
    task: str
    error: str


class LogTables(Tables):
    @dependable
    def exist(self) -> bool:
        found = self._db.execute(
            "SELECT count(*) FROM sqlite_master WHERE name IN ('events', 'execution_log', 'delegations')"
        )
        return bool(found.fetchone() == (3,))

    @dependable
    def prepare(self) -> None:
        """Also inside of a transaction, which `executescript` would end."""
        self._db.execute(_EVENTS)
        self._db.execute(_LOG)
        self._db.execute(_DELEGATIONS)

    @dependable
    def save_event(self, row: EventRow) -> None:
        values = (*row[:5], json.dumps(row.document))
        self._db.execute("INSERT OR REPLACE INTO events VALUES(?,?,?,?,?,?)", values)

    @dependable
    def save_attempts(self, rows: Sequence[AttemptRow]) -> None:
        values = [(*row[:11], json.dumps(row.artifacts)) for row in rows]
        self._db.executemany("INSERT OR REPLACE INTO execution_log VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", values)

    @dependable
    def save_delegation(self, row: DelegationRow) -> None:
        self._db.execute("INSERT OR REPLACE INTO delegations VALUES(?,?,?,?,?,?,?,?,?,?)", row)

    @dependable
    def failed_delegations(self, *, limit: int, search: str = "") -> list[DelegationRow]:
        """Newest first: those that led to nothing, by a part of their task, id or error."""
        if not self.exist():
            return []
        found = self._db.execute(
            "SELECT * FROM delegations WHERE NOT good AND instr(lower(task||' '||id||' '||error), lower(?)) > 0 "
            "ORDER BY seq DESC LIMIT ?",
            (search, limit),
        )
        return [DelegationRow(*row)._replace(good=False) for row in found]

    @dependable
    def run_that_landed(self, execution: str, at_ns: int) -> str:
        """The run of a task that named this execution of that moment, also if it was undone since; empty for none.

        The task's entry comes after the execution; a day more is looked through, for clocks that are set back.
        """
        if not self.exist():
            return ""
        named = f'%"execution": {json.dumps(execution)}%'
        question = "SELECT run_id FROM events WHERE at_ns >= ? AND document LIKE ? ORDER BY seq LIMIT 1"
        row = self._db.execute(question, (at_ns - _DAY_NS, named)).fetchone()
        return "" if row is None else str(row[0])

    @dependable
    def landed_unverified(self, since_ns: int) -> dict[str, str]:
        """The executions by which runs landed what no check says works, from this moment on, each with the reason.

        What the first entry says that names an execution counts: later ones may be about other parts of its task.
        """
        if not self.exist():
            return {}
        question = 'SELECT document FROM events WHERE at_ns >= ? AND document LIKE \'%"execution": "e-%\' ORDER BY seq'
        found: dict[str, str] = {}
        for (text,) in self._db.execute(question, (since_ns - _DAY_NS,)):
            document = json.loads(text)
            if document.get("state") in _LANDING:
                found.setdefault(str(document["execution"]), str(document.get("unverified", "")))
        return {execution: why for execution, why in found.items() if why}
