"""The database: executions and plans, for looking things up.

The ledger and the journals are the truth; these tables are a projection of them.
They are written without waiting for the disk (a process crash loses nothing, a power cut may lose the last rows);
Documents are packed (see `documents`).
`Records.projected` says up to which ledger entry they go, and what is missing is projected again at the next verb.

    a call fails                          what happens
    ──────────────────────────────────────────────────────────────────────────────────────────────────────
    once                                  the database is opened again, and the call repeated
    twice: it cannot be read or written   the call is repeated on tables in memory, filled from the ledger
    twice: it is damaged                  the same; the file is set aside, and the next verb makes a new one

Invariants
  T1  No fault of this file stops a verb or changes what it says: the ledger has every record, and a fault after the
      commit is no failure of the change. `trouble` says in words what happened.
      One exception: a plan is not in the ledger, and one that cannot be kept is refused, before anything was changed.
  T2  What is repeated is a whole call, from its beginning. Each of them can be repeated.
  T3  The file that is set aside is the one that was open here: another process may have made a new one since.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from holdfast.errors import Blocked, DiskFull, Tampering, UnknownId, Unsupported
from holdfast.model.canonical import Json
from holdfast.model.execution import landed_in
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
_CANNOT_BE_USED = "See that the disk has room and can be written, then do it again."
_HEADER = 100
# What the file can do to us; and what is our mistake.
_FAULTS = (sqlite3.Error, ValueError, zlib.error)
_MISTAKES = (sqlite3.ProgrammingError, sqlite3.InterfaceError)
Table = Literal["simulations", "decisions", "approvals"]
# Their rows are made of several entries, or named by an entry's number.
_COUNTED_BY_ENTRY = ("runs", "tasks", "replies", "events", "execution_log", "delegations")
# As a summary has it; inside of a string the quotes would be escaped.
_IS_OPEN = '"open": true'
TABLES: tuple[Table, ...] = ("simulations", "decisions", "approvals")
# What the ledger alone says, by table: the columns that name a row, and all that can be compared. What gc took away and
# the details of steps are not in the ledger.
_FROM_THE_LEDGER: dict[str, tuple[int, str]] = {
    "executions": (1, "id, plan_id, plan_digest, intent, status, at_ns, changes, live, summary"),
    **dict.fromkeys(TABLES, (1, "id, subject, at_ns, document")),
    "runs": (1, "id, roadmap, state, at_ns, document"),
    "tasks": (2, "run, task, state, adapter_id, at_ns, document"),
    "replies": (3, "run, task, question, yes, skip, by, reason, at_ns, simulation"),
}


class Row(NamedTuple):
    """An execution as the lists show it. `live`: its effect stands. `kept`: its old objects are still here.
    `landed`: its files came into place for good; a row of the first release that says PARTIAL is one that did not.
    """

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

    @property
    def landed(self) -> bool:
        return landed_in(self.summary)

    @property
    def undoable(self) -> bool:
        return self.landed and self.live and self.kept


class Paper(NamedTuple):
    """A simulation, decision or approval as the ledger has it. `subject` is the plan or simulation that it is about."""

    id: str
    subject: str
    at_ns: int
    document: dict[str, Json]


_Said = TypeVar("_Said")
_Given = ParamSpec("_Given")


class OnTables(Protocol):
    """Whatever has tables in this database."""

    @property
    def records(self) -> Records: ...


_Owner = TypeVar("_Owner", bound=OnTables)


def dependable(
    method: Callable[Concatenate[_Owner, _Given], _Said],
) -> Callable[Concatenate[_Owner, _Given], _Said]:
    """A call on the tables that a fault of the file does not stop (T1). It must be one that can be repeated (T2)."""

    @wraps(method)
    def called(owner: _Owner, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Said:
        return owner.records.dependably(lambda: method(owner, *args, **kwargs))

    return called


@contextmanager
def in_our_words() -> Iterator[None]:
    """SQLite's errors as ours, where no table in memory helps either."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise  # our mistake, not the file's
    except (sqlite3.Error, ValueError, zlib.error) as error:  # ValueError: a column that holds no JSON, no number
        if _kind(error) == sqlite3.SQLITE_FULL:
            raise DiskFull(f".holdfast/holdfast.db cannot be written: {error}") from error
        raise Blocked(f".holdfast/holdfast.db cannot be used: {error}", hint=_CANNOT_BE_USED) from error


def _nothing_to_fill_from(records: Records) -> None:
    """Where the tables are opened without a ledger."""


class Records:
    """The tables. `volatile` means in memory, because the file cannot be used: filled from the ledger by `refill`,
    so that what is said is true, and looking, recovering, landing and gc still work.
    """

    def __init__(
        self,
        state: str,
        *,
        read_only: bool = False,
        refill: Callable[[Records], None] = _nothing_to_fill_from,
        in_memory: bool = False,
    ) -> None:
        """`in_memory`: whatever the file holds, only what `refill` knows."""
        self._path = os.path.join(state, "holdfast.db")
        self._read_only = read_only
        self._refills = [refill]
        self._inside = False  # of a call: what it calls in turn is repeated with it
        self._inode = 0
        self.trouble = ""
        has_room, self._mode = footing_of(state)
        self.volatile = False
        with in_our_words():
            if in_memory:
                self._in_memory(_empty)
            else:
                self._open_somehow(has_room)

    def _open_somehow(self, has_room: bool) -> None:
        try:
            for part in self._parts():
                _refuse_irregular(part)
        except OSError as error:
            self._in_memory(_empty, error)  # what cannot be looked at is not opened
            return
        if not has_room:
            self._in_memory(self._copied)
            return
        try:
            self._open()
        except _FAULTS as error:
            if isinstance(error, _MISTAKES):
                raise
            self._mend(error)

    def _mend(self, error: Exception) -> None:
        """The database could not be opened: once more, then a new one in place of a damaged one, then memory."""
        for is_last in (False, True):
            try:
                if is_last:
                    self._set_aside(error)
                self._open()
            except (*_FAULTS, OSError) as again:
                error = again
            else:
                return
        self._in_memory(_empty if _is_damage(error) else self._copied, error)

    def _open(self) -> None:
        if _is_cut_off(self._path):
            raise sqlite3.DatabaseError("the file was cut off")
        self._db = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        try:
            self._prepare(self._read_only, self._mode)
            with suppress(OSError):
                self._inode = os.stat(self._path).st_ino
        except BaseException:
            self._db.close()
            raise

    def _in_memory(self, made: Callable[[], sqlite3.Connection], error: Exception | None = None) -> None:
        """Tables of our own, with everything that the ledger says."""
        try:
            self._db = made()
            self._prepare(read_only=False, mode="DELETE")
        except _FAULTS:  # of the file that was to be copied
            self._db = _empty()
            self._prepare(read_only=False, mode="DELETE")
        self.volatile = True
        if error is not None:
            self.trouble = _told(error)
        inside, self._inside = self._inside, True
        try:
            for refill in self._refills:
                refill(self)
        finally:
            self._inside = inside

    def _copied(self) -> sqlite3.Connection:
        return copy_of(self._path)

    def _set_aside(self, error: Exception) -> None:
        """Away with a damaged file, for a person to look at (T3); the log first, which belongs to it alone."""
        if not _is_damage(error) or (self._inode and os.stat(self._path).st_ino != self._inode):
            return
        for part in reversed(self._parts()):
            with suppress(FileNotFoundError):
                os.rename(part, part.replace("holdfast.db", "holdfast.db.damaged"))

    def _parts(self) -> tuple[str, ...]:
        return (self._path, *(f"{self._path}-{suffix}" for suffix in ("wal", "shm", "journal")))

    def dependably(self, work: Callable[[], _Said], *, in_memory: bool = True) -> _Said:
        """What `work` says of the tables, whatever becomes of the file they are in (T1).

        Without `in_memory` it is refused where the file cannot take it: for what is nowhere else.
        """
        if self._inside:
            return work()
        self._inside = True
        try:
            with in_our_words():
                return self._tried(work, (self._reopen, self._leave_the_file if in_memory else self._renew))
        finally:
            self._inside = False

    def _tried(self, work: Callable[[], _Said], remedies: tuple[Callable[[Exception], None], ...]) -> _Said:
        for remedy in remedies:
            try:
                return work()
            except _FAULTS as error:
                if self.volatile or isinstance(error, _MISTAKES):
                    raise
                remedy(error)
        return work()

    def _reopen(self, error: Exception) -> None:
        """Most faults of a disk or a lock are over when they are met a second time."""
        self._db.close()
        try:
            self._open()
        except _FAULTS as again:
            self._leave_the_file(again)

    def _renew(self, error: Exception) -> None:
        """A new file in place of a damaged one, at once, for what memory cannot keep; a bad disk stays the error."""
        self._db.close()
        try:
            self._set_aside(error)
            self._open()
        except (*_FAULTS, OSError):
            self._leave_the_file(error)
            raise error from None
        self.trouble = _told(error)

    def _leave_the_file(self, error: Exception) -> None:
        self._db.close()
        with suppress(OSError):  # it stays where it is, and the next verb finds it damaged again
            self._set_aside(error)
        self._in_memory(_empty if _is_damage(error) else self._copied, error)

    def use_memory(self) -> None:
        """For a look at tables that only the holder of the workspace's lock may bring up to date."""
        self._db.close()
        self._in_memory(self._copied)

    def refill_with(self, refill: Callable[[Records], None]) -> None:
        """Tables beside ours that are filled from elsewhere."""
        self._refills.append(refill)

    @property
    def records(self) -> Records:
        return self

    def close(self) -> None:
        self._db.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """For the tables of others in this room, anew for every call: it is another one after a fault."""
        return self._db

    @property
    @dependable
    def projected(self) -> int:
        """The last ledger entry these tables know; 0 for none."""
        row = self._db.execute("SELECT value FROM meta WHERE key='projected'").fetchone()
        return int(row[0]) if row else 0

    def save_plan(self, id: str, digest: str, at_ns: int, document: bytes) -> None:
        values = (id, digest, at_ns, document)
        self.dependably(
            lambda: self._db.execute("INSERT OR IGNORE INTO plans VALUES(?,?,?,?)", values), in_memory=False
        )

    @dependable
    def save_execution(self, row: Row, document: bytes | None, seq: int, *, off: list[str], on: list[str]) -> None:
        """One transaction: the row, what it switched off and on again, and how far the ledger is projected.

        A row that is there already is what this entry says, all of it: after an accepted break another entry may say
        it, of another time. Only the end of one that waited for a person leaves the time at which it began to wait.
        """
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT INTO executions VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET "
                "plan_id=excluded.plan_id, plan_digest=excluded.plan_digest, intent=excluded.intent, "
                "status=excluded.status, changes=excluded.changes, live=excluded.live, kept=excluded.kept, "
                f"at_ns=CASE WHEN summary LIKE '%{_IS_OPEN}%' THEN at_ns ELSE excluded.at_ns END, "
                "summary=excluded.summary, document=coalesce(excluded.document, document)",
                (*row._replace(intent=_storable(row.intent))[:9], json.dumps(row.summary), document),
            )
            self._db.executemany("UPDATE executions SET live=0 WHERE id=?", [(id,) for id in off])
            self._db.executemany("UPDATE executions SET live=1 WHERE id=?", [(id,) for id in on])
            self.mark_projected(seq)

    @dependable
    def save_paper(self, table: Table, paper: Paper, seq: int) -> None:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                f"INSERT OR IGNORE INTO {table} VALUES(?,?,?,?)",
                (paper.id, paper.subject, paper.at_ns, json.dumps(paper.document)),
            )
            self.mark_projected(seq)

    @dependable
    def has_paper(self, table: Table, id: str) -> bool:
        return self._db.execute(f"SELECT 1 FROM {table} WHERE id=?", (id,)).fetchone() is not None

    @dependable
    def paper(self, table: Table, id: str) -> Paper:
        found = self._db.execute(f"SELECT id,subject,at_ns,document FROM {table} WHERE id=?", (id,)).fetchone()
        if found is None:
            raise UnknownId(f"there is no {table[:-1]} {id}")
        return Paper(found[0], found[1], found[2], json.loads(found[3]))

    @dependable
    def papers(self, table: Table, subject: str = "") -> list[Paper]:
        """Newest first; all of them, or those about one subject."""
        found = self._db.execute(
            f"SELECT id,subject,at_ns,document FROM {table} WHERE ?='' OR subject=? ORDER BY rowid DESC",
            (subject, subject),
        )
        return [Paper(id, about, at_ns, json.loads(text)) for id, about, at_ns, text in found]

    @dependable
    def mark_projected(self, seq: int) -> None:
        """Only ever the next one: a gap must stay visible, so that what was lost is projected again."""
        if seq == self.projected + 1:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES('projected',?)", (str(seq),))

    @dependable
    def start_over(self, known: set[str]) -> None:
        """The ledger begins anew, with these: nothing is projected, and what the ledger lost is no longer listed.

        Details of steps stay with their executions; what is counted entry by entry is counted again.
        """
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM meta WHERE key='projected'")
            for table in ("executions", *TABLES):
                gone = [(id,) for (id,) in self._db.execute(f"SELECT id FROM {table}") if id not in known]
                self._db.executemany(f"DELETE FROM {table} WHERE id=?", gone)
            for table in _COUNTED_BY_ENTRY:
                self._db.execute(f"DROP TABLE IF EXISTS {table}")

    def unlike(self, other: Records) -> list[str]:
        """Rows that the other tables have otherwise or not at all, and theirs that are not here: table and key."""
        found: list[str] = []
        for table, (keys, columns) in _FROM_THE_LEDGER.items():
            here, there = (records.rows_of(table, columns) for records in (self, other))
            found += sorted({f"{table} {' '.join(map(str, row[:keys]))}" for row in here ^ there})
        return found

    @dependable
    def rows_of(self, table: str, columns: str) -> set[tuple[Any, ...]]:
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name=?", (table,)).fetchone() is None:
            return set()
        return {tuple(map(_ordered, row)) for row in self._db.execute(f"SELECT {columns} FROM {table}")}

    @dependable
    def forget_material(self, ids: list[str]) -> None:
        """After gc: these can no longer be undone."""
        self._db.executemany("UPDATE executions SET kept=0 WHERE id=?", [(id,) for id in ids])

    @dependable
    def executions(self, *, limit: int = -1, since_ns: int = 0, search: str = "") -> list[Row]:
        """Newest first: in the order of the ledger, for a clock may be set back."""
        pattern = "%" + _storable(search).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary FROM executions "
            "WHERE at_ns>=? AND (intent LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\') ORDER BY rowid DESC LIMIT ?",
            (since_ns, pattern, pattern, limit),
        )
        return [_row(values) for values in found]

    @dependable
    def row(self, id: str) -> Row:
        """One execution by its full id, without its document, which may be large."""
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary FROM executions WHERE id=?",
            (id,),
        ).fetchone()
        if found is None:
            raise UnknownId(f"there is no execution {id}")
        return _row(found)

    @dependable
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

    @dependable
    def plan(self, id: str) -> dict[str, Any]:
        found = self._db.execute("SELECT document FROM plans WHERE id=?", (id,)).fetchone()
        if found is None:
            raise UnknownId(f"there is no plan {id}")
        return unpacked(found[0])

    @dependable
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
            hint = "List the patches with: holdfast patches" if prefix.startswith("x-") else ""
            raise UnknownId(f"there is nothing called {prefix}", hint=hint)
        if len(ids) > 1:
            raise UnknownId(f"{prefix} could be {', '.join(sorted(ids))}")
        return str(ids[0])

    def _patches(self, pattern: str) -> list[str]:
        """Their table is made by the first patch (see `patch_history`)."""
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name='patch_history'").fetchone() is None:
            return []
        found = self._db.execute("SELECT DISTINCT patch FROM patch_history WHERE patch LIKE ? LIMIT 10", (pattern,))
        return [row[0] for row in found]

    @dependable
    def landed_with_plan(self, plan_digest: str) -> list[Row]:
        """Newest first; those that were undone too."""
        found = self._db.execute(
            "SELECT id,plan_id,plan_digest,intent,status,at_ns,changes,live,kept,summary FROM executions "
            "WHERE plan_digest=? ORDER BY rowid DESC",
            (plan_digest,),
        )
        return [row for row in map(_row, found) if row.landed]

    def _prepare(self, read_only: bool, mode: Mode) -> None:
        if mode == "DELETE":
            set_mode(self._db, mode)  # before anything else: in the other mode a look maps memory
        if read_only:
            self._db.execute("PRAGMA query_only=ON")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise Unsupported(
                f".holdfast/holdfast.db has version {version}; this Holdfast reads {VERSION}",
                hint="Use the newer Holdfast that wrote it. Or move it away: it is made again from the ledger.",
            )
        if version < VERSION:
            self._db.execute("PRAGMA query_only=OFF")
            set_mode(self._db, mode)
            self._db.executescript(_SCHEMA + f"PRAGMA user_version={VERSION};")
        self._db.execute("PRAGMA synchronous=NORMAL")


class Tables:
    """Tables of others in the same database."""

    def __init__(self, records: Records) -> None:
        self.records = records

    @property
    def _db(self) -> sqlite3.Connection:
        return self.records.connection


def _storable(text: str) -> str:
    """SQLite keeps text that is whole Unicode only; a byte that is none is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _ordered(value: Any) -> Any:
    """A document with its keys in order: whoever wrote it first had them in the order of the noun."""
    if not isinstance(value, str) or not value.startswith("{"):
        return value
    try:
        return json.dumps(json.loads(value), sort_keys=True)
    except ValueError:
        return value


def _refuse_irregular(path: str) -> None:
    """SQLite follows links and opens whatever is there; we do not let it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise Tampering(
            f".holdfast/{os.path.basename(path)} is not a regular file",
            hint="Move it away: the tables are made again from the ledger.",
        )


def _empty() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def _is_cut_off(path: str) -> bool:
    """SQLite reads what is missing of a last page as zeros, and says nothing. A write-ahead log may hold the rest."""
    try:
        if os.path.exists(f"{path}-wal"):
            return False
        with open(path, "rb") as file:
            header, size = file.read(_HEADER), os.fstat(file.fileno()).st_size
    except OSError:
        return False  # opening it says what is wrong
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    return bool(size) and (len(header) < _HEADER or size < int.from_bytes(header[28:32], "big") * page)


def _is_damage(error: Exception) -> bool:
    """What no second attempt repairs: not the disk's fault, and not somebody else's lock."""
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, (ValueError, zlib.error))
    return _kind(error) in (0, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _told(error: Exception) -> str:
    if _is_damage(error):
        return (
            f".holdfast/holdfast.db is damaged ({error}). The ledger has every record, and this command used it. "
            "The file is set aside as holdfast.db.damaged; the next command makes a new one from the ledger."
        )
    return (
        f".holdfast/holdfast.db cannot be used ({error}). The ledger has every record, and this command used it. "
        "The next command that can use the file brings it up to date."
    )


def _kind(error: Exception) -> int:
    """SQLite's own number for it; 0 for what Python itself complains of."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _row(values: tuple[Any, ...]) -> Row:
    """ValueError, which is damage, where a column holds something else than what was written."""
    id, plan_id, plan_digest, intent, status, at_ns, changes, live, kept, summary = values
    said = json.loads(summary)
    if not isinstance(said, dict) or {type(at_ns), type(changes), type(live), type(kept)} != {int}:
        raise ValueError(f"the row of {id} holds something else than what was written")
    return Row(id, plan_id, plan_digest, intent, status, at_ns, changes, bool(live), bool(kept), said)
