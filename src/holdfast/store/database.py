"""The database: executions and plans, for looking things up.

The ledger and the journals are the truth; these tables are a projection of them.
They are written without waiting for the disk (a process crash loses nothing, a power cut may lose the last rows);
Documents are packed (see `documents`).
`Records.projected` says up to which ledger entry they go, and what is missing is projected again at the next verb.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from holdfast.errors import Blocked, DiskFull, HoldfastError, Tampering, UnknownId
from holdfast.model.canonical import Json
from holdfast.store.documents import unpacked
from holdfast.store.footing import Mode, copy_of, footing_of, set_mode

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plans(
  id TEXT PRIMARY KEY, digest TEXT NOT NULL, at_ns INTEGER NOT NULL, document BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS executions(
  id TEXT PRIMARY KEY, plan_id TEXT NOT NULL, plan_digest TEXT NOT NULL, intent TEXT NOT NULL, status TEXT NOT NULL,
  at_ns INTEGER NOT NULL, changes INTEGER NOT NULL, live INTEGER NOT NULL, kept INTEGER NOT NULL,
  summary TEXT NOT NULL, document BLOB);
CREATE INDEX IF NOT EXISTS executions_by_time ON executions(at_ns);
CREATE INDEX IF NOT EXISTS executions_by_plan ON executions(plan_digest);
CREATE TABLE IF NOT EXISTS simulations(
  id TEXT PRIMARY KEY, subject TEXT NOT NULL, at_ns INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS decisions(
  id TEXT PRIMARY KEY, subject TEXT NOT NULL, at_ns INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS approvals(
  id TEXT PRIMARY KEY, subject TEXT NOT NULL, at_ns INTEGER NOT NULL, document TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS simulations_by_plan ON simulations(subject);
CREATE INDEX IF NOT EXISTS decisions_by_simulation ON decisions(subject);
CREATE INDEX IF NOT EXISTS approvals_by_simulation ON approvals(subject);
"""
# 2: the papers between a plan and its execution. A database of version 1 gets the tables when it is opened.
VERSION = 2
# SQLite keeps to itself what the kernel said: a disk without room for a new file is one that cannot be opened.
_NO_WAY_TO_WRITE = "See that the disk has room and can be written, then do it again."
Table = Literal["simulations", "decisions", "approvals"]
TABLES: tuple[Table, ...] = ("simulations", "decisions", "approvals")


class Row(NamedTuple):
    """An execution as the lists show it. `live`: its effect stands. `kept`: its old objects are still here."""

    id: str
    plan_id: str
    plan_digest: str
    intent: str
    status: str
    at_ns: int
    changes: int
    live: bool
    kept: bool
    summary: dict[str, Json]


class Paper(NamedTuple):
    """A simulation, decision or approval as the ledger has it. `subject` is the plan or simulation that it is about."""

    id: str
    subject: str
    at_ns: int
    document: dict[str, Json]


@contextmanager
def in_our_words() -> Iterator[None]:
    """SQLite's errors as ours: what cannot be used now, and what is broken."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise  # our mistake, not the file's
    except sqlite3.OperationalError as error:
        if _kind(error) == sqlite3.SQLITE_FULL:
            raise DiskFull(f".holdfast/holdfast.db cannot be written: {error}") from error
        hint = _NO_WAY_TO_WRITE if _is_about_the_disk(error) else ""
        raise Blocked(f".holdfast/holdfast.db cannot be used: {error}", hint=hint) from error
    except (sqlite3.DatabaseError, ValueError) as error:  # ValueError: a column that holds no JSON, no number
        raise Tampering(
            f".holdfast/holdfast.db is damaged: {error}",
            hint="It can be rebuilt: move it away and run 'holdfast recover'. Nothing else was changed.",
        ) from error


class Records:
    """The tables. `volatile` means in memory, because the disk has no room or cannot be written:
    a copy, brought up to the ledger when opened, so that looking, recovering and gc still work.
    """

    def __init__(self, state: str, *, read_only: bool = False) -> None:
        path = os.path.join(state, "holdfast.db")
        for part in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
            _refuse_irregular(part)
        has_room, mode = footing_of(state)
        self.volatile = not has_room
        try:
            if has_room:
                self._open(path, read_only, mode)
            else:
                self._open_copy(path)
        except (Blocked, DiskFull) as error:
            if has_room and not _is_about_the_disk(error.__cause__):
                raise
            self._open(":memory:", read_only=False, mode="DELETE")
            self.volatile = True

    def _open(self, path: str, read_only: bool, mode: Mode) -> None:
        with in_our_words():
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None)
        self._made_ready(read_only, mode)

    def _open_copy(self, path: str) -> None:
        with in_our_words():
            self._db = copy_of(path)
        self._made_ready(read_only=False, mode="DELETE")

    def _made_ready(self, read_only: bool, mode: Mode) -> None:
        try:
            self._prepare(read_only, mode)
        except HoldfastError:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """For the tables of others in this room; transactions are their own business."""
        return self._db

    @property
    @in_our_words()
    def projected(self) -> int:
        """The last ledger entry these tables know; 0 for none."""
        row = self._db.execute("SELECT value FROM meta WHERE key='projected'").fetchone()
        return int(row[0]) if row else 0

    @in_our_words()
    def save_plan(self, id: str, digest: str, at_ns: int, document: bytes) -> None:
        self._db.execute("INSERT OR IGNORE INTO plans VALUES(?,?,?,?)", (id, digest, at_ns, document))

    @in_our_words()
    def save_execution(self, row: Row, document: bytes | None, seq: int, *, off: list[str], on: list[str]) -> None:
        """One transaction: the row, what it switched off and on again, and how far the ledger is projected."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT INTO executions VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET "
                "status=excluded.status, live=excluded.live, kept=excluded.kept, summary=excluded.summary, "
                "document=coalesce(excluded.document, document)",
                (*row._replace(intent=_storable(row.intent))[:9], json.dumps(row.summary), document),
            )
            self._db.executemany("UPDATE executions SET live=0 WHERE id=?", [(id,) for id in off])
            self._db.executemany("UPDATE executions SET live=1 WHERE id=?", [(id,) for id in on])
            self.mark_projected(seq)

    @in_our_words()
    def save_paper(self, table: Table, paper: Paper, seq: int) -> None:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                f"INSERT OR IGNORE INTO {table} VALUES(?,?,?,?)",
                (paper.id, paper.subject, paper.at_ns, json.dumps(paper.document)),
            )
            self.mark_projected(seq)

    @in_our_words()
    def has_paper(self, table: Table, id: str) -> bool:
        return self._db.execute(f"SELECT 1 FROM {table} WHERE id=?", (id,)).fetchone() is not None

    @in_our_words()
    def paper(self, table: Table, id: str) -> Paper:
        found = self._db.execute(f"SELECT id,subject,at_ns,document FROM {table} WHERE id=?", (id,)).fetchone()
        if found is None:
            raise UnknownId(f"there is no {table[:-1]} {id}")
        return Paper(found[0], found[1], found[2], json.loads(found[3]))

    @in_our_words()
    def papers(self, table: Table, subject: str = "") -> list[Paper]:
        """Newest first; all of them, or those about one subject."""
        found = self._db.execute(
            f"SELECT id,subject,at_ns,document FROM {table} WHERE ?='' OR subject=? ORDER BY rowid DESC",
            (subject, subject),
        )
        return [Paper(id, about, at_ns, json.loads(text)) for id, about, at_ns, text in found]

    @in_our_words()
    def mark_projected(self, seq: int) -> None:
        """Only ever the next one: a gap must stay visible, so that what was lost is projected again."""
        if seq == self.projected + 1:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES('projected',?)", (str(seq),))

    @in_our_words()
    def forget_material(self, ids: list[str]) -> None:
        """After gc: these can no longer be undone."""
        self._db.executemany("UPDATE executions SET kept=0 WHERE id=?", [(id,) for id in ids])

    @in_our_words()
    def executions(self, *, limit: int = -1, since_ns: int = 0, search: str = "") -> list[Row]:
        """Newest first: in the order of the ledger, for a clock may be set back."""
        pattern = "%" + _storable(search).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary FROM executions "
            "WHERE at_ns>=? AND (intent LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\') ORDER BY rowid DESC LIMIT ?",
            (since_ns, pattern, pattern, limit),
        )
        return [_row(values) for values in found]

    @in_our_words()
    def row(self, id: str) -> Row:
        """One execution by its full id, without its document, which may be large."""
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary FROM executions WHERE id=?",
            (id,),
        ).fetchone()
        if found is None:
            raise UnknownId(f"there is no execution {id}")
        return _row(found)

    @in_our_words()
    def execution(self, id: str) -> tuple[Row, dict[str, Any] | None]:
        """One execution by its full id, with its document where it was saved."""
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary,document "
            "FROM executions WHERE id=?",
            (id,),
        ).fetchone()
        if found is None:
            raise UnknownId(f"there is no execution {id}")
        return _row(found[:10]), unpacked(found[10]) if found[10] else None

    @in_our_words()
    def plan(self, id: str) -> dict[str, Any]:
        found = self._db.execute("SELECT document FROM plans WHERE id=?", (id,)).fetchone()
        if found is None:
            raise UnknownId(f"there is no plan {id}")
        return unpacked(found[0])

    @in_our_words()
    def resolve(self, prefix: str) -> str:
        """The one id that starts so; raises UnknownId for none or several."""
        if not prefix.replace("-", "").isalnum():
            raise UnknownId(f"{prefix!r} is not an id")
        pattern = prefix + "%"
        ids = [
            row[0]
            for table in ("executions", "plans", *TABLES)
            for row in self._db.execute(f"SELECT id FROM {table} WHERE id LIKE ? LIMIT 10", (pattern,))
        ]
        ids += self._patches(pattern)
        if prefix in ids:
            return prefix
        if not ids:
            raise UnknownId(f"there is nothing called {prefix}")
        if len(ids) > 1:
            raise UnknownId(f"{prefix} could be {', '.join(sorted(ids))}")
        return str(ids[0])

    def _patches(self, pattern: str) -> list[str]:
        """Their table is made by the first patch (see `patch_history`)."""
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name='patch_history'").fetchone() is None:
            return []
        found = self._db.execute("SELECT DISTINCT patch FROM patch_history WHERE patch LIKE ? LIMIT 10", (pattern,))
        return [row[0] for row in found]

    @in_our_words()
    def landed_with_plan(self, plan_digest: str) -> list[Row]:
        """Newest first; those that were undone too."""
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary FROM executions "
            "WHERE plan_digest=? AND status='COMPLETED' ORDER BY rowid DESC",
            (plan_digest,),
        )
        return [_row(values) for values in found]

    def live_with_plan(self, plan_digest: str) -> list[Row]:
        return [row for row in self.landed_with_plan(plan_digest) if row.live]

    @in_our_words()
    def _prepare(self, read_only: bool, mode: Mode) -> None:
        if mode == "DELETE":
            set_mode(self._db, mode)  # before anything else: in the other mode a look maps memory
        if read_only:
            self._db.execute("PRAGMA query_only=ON")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise Tampering(f".holdfast/holdfast.db has version {version}; this Holdfast reads {VERSION}")
        if version < VERSION:
            self._db.execute("PRAGMA query_only=OFF")
            set_mode(self._db, mode)
            self._db.executescript(_SCHEMA + f"PRAGMA user_version={VERSION};")
        self._db.execute("PRAGMA synchronous=NORMAL")


def _storable(text: str) -> str:
    """SQLite keeps text that is whole Unicode only; a byte that is none is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _refuse_irregular(path: str) -> None:
    """SQLite follows links and opens whatever is there; we do not let it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise Tampering(f".holdfast/{os.path.basename(path)} is not a regular file")


def _is_about_the_disk(error: BaseException | None) -> bool:
    """No room, no permission to write, no file: not damage, and not somebody else's lock."""
    if not isinstance(error, sqlite3.Error):
        return False
    kinds = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return _kind(error) in kinds


def _kind(error: sqlite3.Error) -> int:
    """SQLite's own number for it; 0 for what Python itself complains of."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _row(values: tuple[Any, ...]) -> Row:
    id, plan_id, plan_digest, intent, status, at_ns, changes, live, kept, summary = values
    return Row(id, plan_id, plan_digest, intent, status, at_ns, changes, bool(live), bool(kept), json.loads(summary))
