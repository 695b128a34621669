"""The memory of triggers: what is due, what was begun, how far each trigger was looked after. It outlives us.

    .holdfast/triggers/firings.db     SQLite, every commit on the disk before it returns (WAL, synchronous=FULL)
    .holdfast/triggers/lock           who watches; one process at a time

Invariants
  M1  A firing's row and the mark of its trigger change in one transaction: no moment is both passed and forgotten.
  M2  An id is noted once. A second note of it, from any thread or process, changes nothing and says so.
  M3  A state changes by comparing: of two that begin the same firing, one does.
  M4  What is open (DUE, BEGUN) is never forgotten; of what is settled, the newest REMEMBERED of each trigger stay,
      without their bodies.
  M5  At most WAITING firings of one trigger are open; more are refused, never dropped behind somebody's back.

It is not a projection of the ledger: a run that was started is in the ledger, a run that was not is only here.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal

from holdfast.disk.confined import Root
from holdfast.disk.lock import Lock
from holdfast.errors import Blocked, HoldfastError, Locked, Tampering
from holdfast.model.trigger import FIRING_STATES, KINDS, Firing, FiringState, Mark

FOLDER = "triggers"
REMEMBERED = 10_000
WAITING = 100
Noted = Literal["noted", "known", "full"]
_FILE = "firings.db"
_VERSION = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS firings(
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, trigger TEXT NOT NULL, kind TEXT NOT NULL,
  moment_ns INTEGER NOT NULL, since_ns INTEGER NOT NULL, what TEXT NOT NULL, body BLOB NOT NULL,
  state TEXT NOT NULL, because TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS firings_of ON firings(trigger, state);
CREATE TABLE IF NOT EXISTS marks(
  trigger TEXT PRIMARY KEY, rule TEXT NOT NULL, moment_ns INTEGER NOT NULL, like_ TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version={_VERSION};
"""
_COLUMNS = "id,trigger,kind,moment_ns,since_ns,what,body"


class Firings:
    """Open it for one workspace; `state` is the state directory. Every method may be called from any thread."""

    def __init__(self, state: Root) -> None:
        self._calls = state.calls
        self._path = os.path.join(state.path, FOLDER)
        _make_folder(state)
        for name in (_FILE, f"{_FILE}-wal", f"{_FILE}-shm"):
            _refuse_irregular(state, name)
        self._turn = threading.Lock()
        with _in_our_words():
            self._db = sqlite3.connect(
                os.path.join(self._path, _FILE), timeout=10, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except HoldfastError:
            self._db.close()
            raise

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Only one process watches a workspace: another's BEGUN is not a crash (Locked)."""
        lock = Lock(os.path.join(self._path, "lock"), calls=self._calls)
        try:
            lock.__enter__()
        except Locked as error:
            who = error.message.rpartition("(")[2].rstrip(")")
            raise Locked(f"the triggers of this workspace are being watched already ({who})", hint="End it.") from error
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def mark(self, trigger: str) -> Mark | None:
        with self._asking() as db:
            row = db.execute("SELECT trigger,rule,moment_ns,like_ FROM marks WHERE trigger=?", (trigger,)).fetchone()
        return None if row is None else Mark(*row)

    def set_mark(self, mark: Mark) -> None:
        """A beginning: from here on the trigger is looked after."""
        with self._changing() as db:
            db.execute("INSERT OR REPLACE INTO marks VALUES(?,?,?,?)", mark)

    def note(self, firing: Firing, mark: Mark | None = None) -> Noted:
        """Remember that it is due, and how far its trigger has come by that (M1, M2, M5)."""
        with self._changing() as db:
            if db.execute("SELECT 1 FROM firings WHERE id=?", (firing.id,)).fetchone() is not None:
                return "known"
            query = "SELECT count(*) FROM firings WHERE trigger=? AND state IN ('DUE','BEGUN')"
            if db.execute(query, (firing.trigger,)).fetchone()[0] >= WAITING:
                return "full"
            values = (*firing[:5], _storable(firing.what), firing.body)
            db.execute(f"INSERT INTO firings({_COLUMNS},state) VALUES(?,?,?,?,?,?,?,'DUE')", values)
            if mark is not None:
                db.execute("INSERT OR REPLACE INTO marks VALUES(?,?,?,?)", mark)
            _forget_the_oldest(db, firing.trigger)
        self._calls.point("firing-noted")
        return "noted"

    def in_state(self, state: FiringState) -> tuple[Firing, ...]:
        """In the order in which they were noted."""
        with self._asking() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM firings WHERE state=? ORDER BY seq", (state,)).fetchall()
        return tuple(map(_believed, rows))

    def state_of(self, id: str) -> tuple[FiringState, str] | None:
        """Where a firing stands, and why."""
        with self._asking() as db:
            row = db.execute("SELECT state,because FROM firings WHERE id=?", (id,)).fetchone()
        if row is None:
            return None
        state = next((known for known in FIRING_STATES if known == row[0]), None)
        if state is None:
            raise _strange("a state that is none")
        return state, str(row[1])

    def move(self, id: str, old: FiringState, new: FiringState, because: str = "") -> bool:
        """From one state to the next; False when it was not in the old one (M3)."""
        with self._changing() as db:
            settled = new not in ("DUE", "BEGUN")
            body = "x''" if settled else "body"
            statement = f"UPDATE firings SET state=?, because=?, body={body} WHERE id=? AND state=?"
            done = db.execute(statement, (new, _storable(because), id, old)).rowcount == 1
        self._calls.point(f"firing-{new.lower()}")
        return done

    def close(self) -> None:
        with self._turn:
            self._db.close()

    def __enter__(self) -> Firings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── the database ──

    def _prepare(self) -> None:
        with self._asking() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise Tampering(f".holdfast/{FOLDER}/{_FILE} has version {version}; this Holdfast reads {_VERSION}")
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            if version < _VERSION:
                db.executescript(_SCHEMA)

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        with self._turn, _in_our_words():
            yield self._db

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._turn, _in_our_words():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # where there is no room, SQLite may have rolled it back itself
                    self._db.execute("ROLLBACK")
                raise


def _forget_the_oldest(db: sqlite3.Connection, trigger: str) -> None:
    db.execute(
        """DELETE FROM firings WHERE trigger=? AND state IN ('STARTED','FAILED','MISSED') AND seq <= (
             SELECT seq FROM firings WHERE trigger=? ORDER BY seq DESC LIMIT 1 OFFSET ?)""",
        (trigger, trigger, REMEMBERED),
    )


def _make_folder(state: Root) -> None:
    try:
        state.calls.mkdir(FOLDER, 0o700, dir_fd=state.fd)
        state.calls.fsync(state.fd)
    except FileExistsError:
        if not stat.S_ISDIR(state.calls.stat(FOLDER, dir_fd=state.fd, follow_symlinks=False).st_mode):
            raise Tampering(f".holdfast/{FOLDER} is not a directory") from None


def _refuse_irregular(state: Root, name: str) -> None:
    """SQLite follows links and opens whatever is there; we do not let it."""
    try:
        found = state.calls.stat(f"{FOLDER}/{name}", dir_fd=state.fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise Tampering(f".holdfast/{FOLDER}/{name} is not a regular file")


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise  # our mistake, not the file's
    except sqlite3.OperationalError as error:
        raise Blocked(f".holdfast/{FOLDER}/{_FILE} cannot be used: {error}", hint="No run was started.") from error
    except sqlite3.DatabaseError as error:
        raise _strange(str(error)) from error


def _strange(what: str) -> Tampering:
    return Tampering(
        f".holdfast/{FOLDER}/{_FILE} is damaged: {what}",
        hint="Move it away: the triggers then begin anew, and nothing that was missed is made up for.",
    )


def _believed(row: tuple[object, ...]) -> Firing:
    """SQLite checks no types, and the file may have been changed by anybody who is this user."""
    kinds = (str, str, str, int, int, str, bytes)
    if not all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)) or row[2] not in KINDS:
        raise _strange("a firing that is none")
    return Firing(*row)  # type: ignore[arg-type]


def _storable(text: str) -> str:
    """SQLite keeps text that is whole Unicode only; a byte that is none is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
