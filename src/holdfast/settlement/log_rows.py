"""Ledger entries as rows of the tables `events`, `execution_log` and `delegations`, which other tools read.

run   ─▶ EXECUTION_STARTED, EXECUTION_FINISHED
task  ─▶ TASK_STARTED, TASK_COMPLETED, TASK_FAILED (an attempt ended and did not land), TASK_STATE (any other move)
delegation ─▶ a row of delegations, and one of execution_log for each attempt of the agent
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from holdfast.model.canonical import Json
from holdfast.store.chain import Entry
from holdfast.store.database import Records
from holdfast.store.ledger import Ledger
from holdfast.store.log_tables import AttemptRow, DelegationRow, EventRow, LogTables

_MOVES = {"IN_PROGRESS": "TASK_STARTED", "COMPLETED": "TASK_COMPLETED"}
_OF_A_RUN = re.compile(r"(?P<task>\S+), attempt \d+ \(\d+\) of run (?P<run>\S+)")
_KINDS = ("run", "task", "delegation")


def objective_of(task: str, attempt: int, token: int, run: str) -> str:
    """The objective of a plan that is an attempt at a task of a run; the rows are found by it."""
    return f"{task}, attempt {attempt} ({token}) of run {run}"


def attempt_of(body: Mapping[str, Json]) -> tuple[str, str]:
    """The run and the task that a delegation was an attempt at; empty for one that no run asked for."""
    found = _OF_A_RUN.fullmatch(str(body.get("objective", "")))
    return (found["run"], found["task"]) if found is not None else ("", "")


def log_rows(records: Records, entry: Entry) -> None:
    """One entry as rows; nothing for an entry of another kind, or while `fill_log` has not made the tables."""
    tables = LogTables(records)
    if entry.kind not in _KINDS or not tables.exist():
        return
    if entry.kind == "delegation":
        attempts = list(_attempts(entry))
        tables.save_attempts(attempts)
        tables.save_delegation(_delegation(entry, attempts[-1].error if attempts else ""))
    else:
        tables.save_event(_event(entry))


def fill_log(ledger: Ledger, records: Records, up_to: int) -> None:
    """The rows of all entries up to this one, for a database of an earlier release, which has no such tables.

    All of them or none: tables that a kill left half filled would never be filled again.
    """
    if not LogTables(records).exist():
        records.dependably(lambda: _fill(ledger, records, up_to))


def _fill(ledger: Ledger, records: Records, up_to: int) -> None:
    with records.connection as transaction:
        transaction.execute("BEGIN IMMEDIATE")
        LogTables(records).prepare()
        for entry in ledger.entries():
            if entry.seq > up_to:
                break
            log_rows(records, entry)


def _event(entry: Entry) -> EventRow:
    body = entry.body
    if entry.kind == "run":
        event = "EXECUTION_STARTED" if body["state"] == "RUNNING" else "EXECUTION_FINISHED"
        return EventRow(entry.seq, entry.at_ns, event, str(body["id"]), "", body)
    event = "TASK_FAILED" if body.get("tried") is not None else _MOVES.get(str(body["state"]), "TASK_STATE")
    return EventRow(entry.seq, entry.at_ns, event, str(body["run"]), str(body["task"]), body)


def _attempts(entry: Entry) -> Iterator[AttemptRow]:
    body = entry.body
    run, task = attempt_of(body)
    rows = body.get("attempts")
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        claimed, measured, evidence = _table(row, "claimed"), _table(row, "measured"), str(row.get("evidence", ""))
        changed = measured.get("changed")
        yield AttemptRow(
            seq=entry.seq,
            attempt=_number(row.get("number")),
            at_ns=entry.at_ns,
            plan_id=str(body["subject"]),
            run_id=run,
            task_id=task,
            adapter_id=str(body["agent"]),
            success=not evidence,
            output=str(claimed.get("words", "")),
            error=(str(measured.get("detail") or "") or evidence) if evidence else "",
            duration_ms=_number(measured.get("duration_ms")),
            artifacts=tuple(str(path) for path in changed) if isinstance(changed, list) else (),
        )


def _delegation(entry: Entry, error: str) -> DelegationRow:
    body = entry.body
    return DelegationRow(
        entry.seq, str(body["id"]), entry.at_ns, str(body.get("subject", "")), *attempt_of(body),
        str(body.get("agent", "")), body.get("good") is True, str(body.get("task", "")), error,
    )  # fmt: skip


def _table(row: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    found = row.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: Json) -> int:
    return value if type(value) is int else 0
