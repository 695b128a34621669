"""PostgreSQL: connect with the real client library and ask `SELECT 1`.

The library (psycopg, extra `postgres`) is optional; where it is missing the check cannot run, and fails.
libpq knows only whole seconds, so the conversation happens in a thread and is given up at the deadline;
the thread ends by itself a moment later.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.checks.attempt import Attempt
from holdfast.checks.connect import time_left
from holdfast.model.path import printable

if TYPE_CHECKING:
    from types import ModuleType

_MISSING = "cannot run here: psycopg is not installed (pip install 'holdfast[postgres]')"
_LEAST_TIMEOUT_S = 2  # libpq takes anything smaller for this


def try_postgresql(url: str, password: str, deadline: float) -> Attempt:
    try:
        import psycopg
    except ImportError:
        return Attempt(False, _MISSING, b"", hopeless=True)
    import threading

    answers: list[Attempt] = []
    thread = threading.Thread(target=lambda: answers.append(_ask(psycopg, url, password, deadline)), daemon=True)
    thread.start()
    try:
        thread.join(time_left(deadline))
    except TimeoutError:
        pass  # said below: nothing was answered
    return answers[0] if answers else Attempt(False, "did not answer in time", b"")


def _ask(psycopg: ModuleType, url: str, password: str, deadline: float) -> Attempt:
    try:
        left = time_left(deadline)
        patience = max(_LEAST_TIMEOUT_S, math.ceil(left))
        options = f"-c statement_timeout={max(1, int(left * 1000))}"
        wanted = {"connect_timeout": patience, "options": options, "application_name": "holdfast"}
        with psycopg.connect(url, **wanted, **({"password": password} if password else {})) as connection:
            row = connection.execute("SELECT 1").fetchone()
            version = connection.info.parameter_status("server_version") or "?"
    except TimeoutError:
        return Attempt(False, "did not answer in time", b"")
    except psycopg.Error as error:
        return Attempt(False, f"failed: {_reason(str(error))}", str(error).encode("utf-8", "surrogateescape"))
    if row != (1,):
        return Attempt(False, "answered SELECT 1 with something else", repr(row).encode())
    return Attempt(True, f"answered SELECT 1 (PostgreSQL {printable(version)})", b"")


def _reason(text: str) -> str:
    """libpq's message on one line, without the advice it ends with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line for line in lines if not line.startswith("Is the server") and line != "Multiple connection attempts"
    ]
    return printable(telling[-1] if telling else "no reason given")[:300]
