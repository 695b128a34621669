"""SQLite: open for reading only, and let it check itself (`PRAGMA quick_check`).

Invariant Q1: the check leaves no file behind. A database in WAL mode whose log is gone was closed cleanly;
opening it the ordinary way would make the log and its index anew, so it is opened as unchanging instead.
"""

from __future__ import annotations

import os
import stat
import time
from urllib.parse import quote

from holdfast.checks.attempt import Attempt
from holdfast.model.path import printable

_MAGIC = b"SQLite format 3\0"
_WRITE_VERSION = 18  # position in the header; 2 means WAL
_STEPS_BETWEEN_LOOKS = 10_000


def try_sqlite(path: str, directory: str, deadline: float) -> Attempt:
    whole = os.path.join(directory, path)
    try:
        found = os.stat(whole)
        if not stat.S_ISREG(found.st_mode):
            return Attempt(False, "is not a file", b"", hopeless=True)
        with open(whole, "rb") as file:
            header = file.read(100)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else None
        return Attempt(False, f"cannot be opened: {(words or str(error)).lower()}", b"")
    if not header:
        return Attempt(False, "is an empty file, not a database", b"")
    if not header.startswith(_MAGIC):
        return Attempt(False, "is not an SQLite database", b"")
    closed_cleanly = header[_WRITE_VERSION : _WRITE_VERSION + 1] == b"\x02" and not os.path.exists(f"{whole}-wal")
    return _ask(whole, deadline, immutable=closed_cleanly)


def _ask(path: str, deadline: float, *, immutable: bool) -> Attempt:
    import sqlite3
    from contextlib import closing

    uri = f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode=ro{'&immutable=1' if immutable else ''}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=max(0.0, deadline - time.monotonic()))) as connection:
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS_BETWEEN_LOOKS)
            rows = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)")]
    except sqlite3.Error as error:
        if time.monotonic() > deadline:
            return Attempt(False, "was not checked in time", b"")
        return Attempt(False, f"failed: {printable(str(error))}", b"")
    if rows == ["ok"]:
        return Attempt(True, "passed quick_check", b"")
    return Attempt(False, f"is damaged: {printable(rows[0][:200]) if rows else 'no answer'}", "\n".join(rows).encode())
