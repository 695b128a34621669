"""The engine's database: a SQLite file of this workspace, or a PostgreSQL that many machines share.

Invariants
  E1  `engine.db` is a private file (0600, ours, no symbolic link) in a private directory, or nothing is opened: who can
      write it decides what runs. SQLite gives its companions (-wal, -shm) the same mode.
  E2  Every commit is on the disk before it counts (WAL, synchronous FULL). Writers take turns from their first
      statement on (IMMEDIATE), and wait for each other instead of failing.
  E3  A client of PostgreSQL that freezes inside a transaction is thrown out by the server, and its locks with it.
  E4  Passwords are in no message: URLs are never printed.
  E5  Trouble with the database is told in our words, as DatabaseAway where waiting may help, and as Blocked where it
      does not: one that is full says so at once. What is done again after an outage must bear to be done twice.
  E6  A network that swallows everything is noticed by the kernel within half a minute, and not when TCP gives up.
  E7  Text is text: it is asked for in UTF-8, whatever the environment or the URL says, and a database that would keep
      any bytes as text (SQL_ASCII) is refused.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from holdfast.disk.calls import CALLS
from holdfast.engine.durable import Database
from holdfast.errors import Blocked, DatabaseAway, DiskFull, HoldfastError, InvalidInput, Unsupported
from holdfast.store.footing import footing_of
from holdfast.store.private import READ, create_private, open_private

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
    from sqlalchemy.exc import SQLAlchemyError

FILE = "engine.db"
_BUSY_MS = 60_000
_POOL = 20
_CONNECT_SECONDS = 10
_LOOK_AGAIN = 0.2
# It is starting up, shutting down, in recovery mode; a refused connection has no code that would say so.
_RESTARTING = "the database system is "
# Shorter than any sensible lease: what a frozen worker holds must be free when its items are taken from it.
_IDLE_IN_TRANSACTION_MS = 10_000
_SQLITE_WAITS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_POSTGRESQL_FULL = "53100"
_NO_ENCODING = "SQL_ASCII"
# After a failover the server that we reach may be the old one, or not be promoted yet.
_POSTGRESQL_READ_ONLY = "25006"
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
# How long a thread that has nothing else to do waits for a database that is away, and how soon it looks again: often,
# because a worker must say that it lives before it is found silent twice.
_PATIENCE_SECONDS = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
_SCHEMA = ("CREATE", "ALTER", "DROP")
MENDED = "What was under way goes on at the next start, as soon as the database can be written again."
_FORM = "postgresql://USER@HOST:PORT/NAME"
_T = TypeVar("_T")


def connect(database: Database) -> sa.Engine:
    """A pool of connections; nothing is connected yet."""
    return _postgresql(database.url) if database.url else _sqlite(os.path.join(database.state, FILE))


def exists(database: Database) -> bool:
    """Whether anything can have been stored there; looking makes nothing."""
    return bool(database.url) or os.path.exists(os.path.join(database.state, FILE))


def reachable(engine: sa.Engine) -> None:
    """Blocked when nobody answers: everything later waits for a database that is away, and this must not.

    One that answers that it is about to be there is waited for, for moments.
    """
    from sqlalchemy.exc import DBAPIError

    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return engine.connect().close()
        except DBAPIError as error:
            if _RESTARTING not in str(error.orig) or time.monotonic() >= deadline:
                raise Blocked(_without_passwords(trouble(error), engine.url)) from None
        time.sleep(_LOOK_AGAIN)


@contextmanager
def in_our_words() -> Iterator[None]:
    """E5, for whatever the library or its queries raise inside."""
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        raise _told(error) from None


def patiently(work: Callable[[], _T], seconds: float = _PATIENCE_SECONDS) -> _T:
    """Do it; while the database is away or busy, wait and do it again (E5). DatabaseAway after that time.

    For threads that have nothing else to do. The driver of a run has: see `patience`.
    """
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            return work()
        except (DBAPIError, PoolTimeout) as error:
            if not is_away(error):
                if isinstance(error, OperationalError | InterfaceError):
                    raise Blocked(trouble(error), hint=MENDED) from None
                raise
            if time.monotonic() >= deadline:
                raise _told(error) from None
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _told(error: SQLAlchemyError) -> HoldfastError:
    return DatabaseAway(trouble(error)) if is_away(error) else Blocked(trouble(error), hint=MENDED)


def trouble(error: SQLAlchemyError) -> str:
    """Without the statement and its values, which SQLAlchemy puts into its message."""
    said = " ".join(str(getattr(error, "orig", error)).split())
    return f"the engine's database {'does not answer' if is_away(error) else 'cannot be used'}: {said}"


def is_away(error: BaseException) -> bool:
    """Whether it may be well again without anybody's help (E5)."""
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    if isinstance(error, PoolTimeout):
        return True  # every connection waits for an answer
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _SQLITE_WAITS
    code = getattr(error.orig, "sqlstate", None)
    if code == _POSTGRESQL_READ_ONLY or error.connection_invalidated:
        return True
    return isinstance(error, (OperationalError, InterfaceError)) and code != _POSTGRESQL_FULL


def _without_passwords(text: str, url: sa.URL) -> str:
    given = url.query.get("password", "")
    for secret in (url.password or "", *((given,) if isinstance(given, str) else given)):
        text = text.replace(secret, "***") if secret else text
    return text


def _sqlite(path: str) -> sa.Engine:
    import sqlalchemy as sa

    if not footing_of(os.path.dirname(path)).has_room:
        raise DiskFull("there is no room for the engine's database")
    create_private(path, b"", CALLS)
    CALLS.close(open_private(path, READ, CALLS))
    url = sa.URL.create("sqlite", database=path)
    # One statement at a time in each connection, whichever thread uses it: the pool hands it out.
    engine = sa.create_engine(
        url,
        pool_size=_POOL,
        max_overflow=_POOL,
        pool_timeout=_BUSY_MS / 1000,
        connect_args={"check_same_thread": False},
    )
    sa.event.listen(engine, "connect", _prepared)
    sa.event.listen(engine, "before_cursor_execute", _whole_schema)
    return engine


def _whole_schema(connected: sa.Connection, _: DBAPICursor, statement: str, *rest: object) -> None:
    """Tables are made all together, or not at all.

    Python's driver opens a transaction before rows are written, not before tables are made: each would stand by itself,
    and a kill in between would leave some of them, which no later start gets over.
    """
    raw = connected.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    if statement.lstrip()[:6].upper().startswith(_SCHEMA) and not raw.in_transaction:
        raw.execute("BEGIN IMMEDIATE")


def _prepared(connection: DBAPIConnection, _: object) -> None:
    cursor = connection.cursor()
    # Before anything else: the switch to WAL itself may have to wait.
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    (mode,) = cursor.fetchone() or ("none",)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()
    connection.isolation_level = "IMMEDIATE"
    if mode != "wal":
        raise Unsupported(f"this file system cannot hold the engine's database: SQLite stays in mode {mode}")


def _postgresql(address: str) -> sa.Engine:
    import sqlalchemy as sa
    from sqlalchemy.exc import ArgumentError

    try:
        url = sa.make_url(address)
    except (ArgumentError, ValueError):  # a port that is no number
        raise InvalidInput("the database URL cannot be read", hint=_FORM) from None
    if url.get_backend_name() != "postgresql":
        raise InvalidInput("only PostgreSQL can be shared by machines", hint=_FORM)
    options = f"-c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION_MS}"
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=_POOL, max_overflow=_POOL, pool_pre_ping=True,
        connect_args={
            "connect_timeout": _CONNECT_SECONDS, "application_name": "holdfast", "options": options,
            "client_encoding": "utf-8", **_KEEPALIVE,
        },
    )  # fmt: skip
    sa.event.listen(engine, "connect", _require_text)
    return engine


def _require_text(connection: DBAPIConnection, _: object) -> None:
    """E7. Python's driver would hand out bytes where its own encoding is that one, too."""
    info = connection.info
    if info.parameter_status("server_encoding") != _NO_ENCODING:
        return
    # In the locale C, which every encoding goes with; the others may not.
    words = ["createdb", "-E", "UTF8", "-T", "template0", "-l", "C"]
    for option, value in (("-h", info.host), ("-p", str(info.port)), ("-U", info.user)):
        words += [option, value] if value else []
    raise Unsupported(
        f"the database {info.dbname} has the encoding {_NO_ENCODING}: it would take any bytes for text",
        hint=f"Make another one, and give its URL: {shlex.join([*words, f'{info.dbname}_utf8'])}",
    )
