"""A shared PostgreSQL whose writer is hostile: workers are stopped or misled; nothing runs at home, nothing lands."""

from __future__ import annotations

import base64
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg
import pytest

from engine.durable.cluster import Cluster
from roadmapped import boxes, commits, git, mapped

pytestmark = pytest.mark.long

PATIENCE_S = 90
ATTACK_S = 8
PLANTED = "planted"
EVERYWHERE: LiteralString = "queue_name = '_dbos_internal_queue'"


@pytest.fixture
def url() -> Iterator[str]:
    cluster = Cluster()
    try:
        yield cluster.url("hostile")
    finally:
        cluster.remove()


def driven(here: Any, url: str, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "holdfast", "run", "--agent", "mine", "--yes", "--database", url, *words]
    return subprocess.Popen(argv, cwd=here.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Opens:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


class Row(NamedTuple):
    """The work that stands in line, and a file that no code of the attacker's may make."""

    store: psycopg.Connection[Any]
    id: str
    opened: Path

    def change(self, columns: LiteralString) -> None:
        self.store.execute(f"UPDATE dbos.workflow_status SET {columns} WHERE workflow_uuid = %s", [self.id])

    def copy(self, columns: LiteralString) -> None:
        """One more row with the same argument."""
        tables: tuple[LiteralString, ...] = ("workflow_status", "workflow_input")
        for table in tables:
            self.store.execute(
                f"CREATE TEMP TABLE copy AS SELECT * FROM dbos.{table} WHERE workflow_uuid = '{self.id}'"  # type: ignore[arg-type]
            )
            self.store.execute("UPDATE copy SET workflow_uuid = %s", [PLANTED])
            if table == "workflow_status":
                self.store.execute(f"UPDATE copy SET {columns}")
            self.store.execute(f"INSERT INTO dbos.{table} SELECT * FROM copy")
            self.store.execute("DROP TABLE copy")


def _moved(row: Row) -> None:
    """In the line to which every process listens, the home as well."""
    row.change(EVERYWHERE)


def _landing(row: Row) -> None:
    row.copy(f"{EVERYWHERE}, name = 'land'")


def _other_work(row: Row) -> None:
    """The same order for an item that the book does not know."""
    row.copy(EVERYWHERE)


def _begun_here(row: Row) -> None:
    """As if it had been begun at home and were to be gone on with."""
    row.change("status = 'PENDING', queue_name = NULL")


def _done(row: Row) -> None:
    """It says that it is done."""
    row.change("status = 'SUCCESS', output = '{}'")


def _pickled(row: Row) -> None:
    """Code in place of the argument."""
    said = base64.b64encode(pickle.dumps(Opens(row.opened))).decode()
    row.copy(f"{EVERYWHERE}, serialization = 'py_pickle', inputs = NULL")
    row.store.execute("UPDATE dbos.workflow_input SET inputs = %s WHERE workflow_uuid = %s", [said, PLANTED])


def _scheduled(row: Row) -> None:
    """The engine's own clock would start work every second, with code as its context."""
    said = base64.b64encode(pickle.dumps(Opens(row.opened))).decode()
    row.store.execute(
        "INSERT INTO dbos.workflow_schedules (schedule_id, schedule_name, workflow_name, schedule, context,"
        " application_name) VALUES ('s', 's', 'work', '* * * * * *', %s, 'holdfast')",
        [said],
    )


ATTACKS = {
    attack.__name__.strip("_").replace("_", " "): attack
    for attack in (_moved, _landing, _other_work, _begun_here, _done, _pickled, _scheduled)
}


def attacked(url: str, child: subprocess.Popen[str], attack: Callable[[Row], None], opened: Path) -> str:
    """As soon as work is in line; afterwards the run has time to do what it should not.

    How the row that was planted ended; empty where none was, or nobody took it.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < end and child.poll() is None, "no work came to stand in line"
        time.sleep(0.1)
        with psycopg.connect(url, autocommit=True) as store:
            try:
                row = store.execute("SELECT workflow_uuid FROM dbos.workflow_status WHERE name = 'work'").fetchone()
            except psycopg.errors.UndefinedTable:
                continue
            if row is not None:
                attack(Row(store, row[0], opened))
                break
    with suppress(subprocess.TimeoutExpired):
        child.wait(ATTACK_S)
    with psycopg.connect(url, autocommit=True) as store:
        row = store.execute("SELECT status FROM dbos.workflow_status WHERE workflow_uuid = %s", [PLANTED]).fetchone()
    child.send_signal(signal.SIGTERM)
    return str(row[0]) if row is not None and row[0] != "ENQUEUED" else ""


def delegations(here: Any) -> int:
    ledger = (here.directory / ".holdfast/ledger.jsonl").read_text(encoding="utf-8")
    return ledger.count('"kind":"delegation"')


@pytest.mark.parametrize("name", ATTACKS)
def test_who_writes_the_database_has_nothing_done_at_home(guarded: Any, url: str, tmp_path: Path, name: str) -> None:
    """Where others do all the work, no row makes the home start an agent or land anything; the run ends in order."""
    here = mapped(guarded, "Create a.py")
    child = driven(here, url, "--workers-only")
    try:
        ended = attacked(url, child, ATTACKS[name], tmp_path / "opened")
        _, told = child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert not (here.directory / "a.py").exists() and git(here, "status", "--short") == ""
    assert (boxes(here), commits(here), delegations(here)) == (".", [], 0)
    assert not (tmp_path / "opened").exists()
    # The control: what was planted was taken here, and refused here.
    assert name not in ("landing", "other work", "pickled") or ended == "ERROR"
    assert name != "moved" or "is work for others" in told
    assert child.returncode == 130


def test_the_same_row_has_work_done_where_the_home_works(guarded: Any, url: str, tmp_path: Path) -> None:
    """The control of the control: without `--workers-only` the home does what stands in the line of everybody."""
    here = mapped(guarded, "Create a.py")
    child = driven(here, url)
    try:
        attacked(url, child, _moved, tmp_path / "opened")
        child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert (boxes(here), delegations(here)) == ("x", 1)
