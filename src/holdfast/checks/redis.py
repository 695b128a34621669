"""Redis: log in, choose the database, PING. As much of the protocol as that needs, and no more.

Whatever a server sends is an answer or a failed attempt; at most LINE_LIMIT bytes of it are read.
"""

from __future__ import annotations

import io
from typing import NamedTuple

from holdfast.checks.attempt import Attempt
from holdfast.checks.connect import Reader, connected, reason_of, time_left
from holdfast.model.path import printable

LINE_LIMIT = 4096


class Login(NamedTuple):
    user: str = ""
    password: str = ""
    database: str = ""


class _Refused(Exception):
    """The server said something else than it should; the words are its own."""


def try_redis(host: str, port: int, login: Login, deadline: float, *, tls: bool) -> Attempt:
    try:
        with connected(host, port, deadline, tls=tls) as connection:
            connection.settimeout(time_left(deadline))
            steps = _steps(login)
            connection.sendall(b"".join(_encoded(*words) for words, _ in steps))
            with io.BufferedReader(Reader(connection, deadline, LINE_LIMIT)) as answers:
                for words, expected in steps:
                    _expect(answers, words[0], expected)
    except TimeoutError:
        return Attempt(False, "did not answer in time", b"")
    except _Refused as refused:
        return Attempt(False, str(refused), b"")
    except OSError as error:
        return Attempt(False, f"failed: {reason_of(error)}", b"")
    return Attempt(True, "answered PONG", b"")


def _steps(login: Login) -> list[tuple[tuple[str, ...], bytes]]:
    steps: list[tuple[tuple[str, ...], bytes]] = []
    if login.password:
        who = (login.user,) if login.user else ()
        steps.append((("AUTH", *who, login.password), b"+OK"))
    if login.database:
        steps.append((("SELECT", login.database), b"+OK"))
    return [*steps, (("PING",), b"+PONG")]


def _encoded(*words: str) -> bytes:
    raw = [word.encode("utf-8", "surrogateescape") for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)


def _expect(answers: io.BufferedReader[Reader], command: str, expected: bytes) -> None:
    line = answers.readline(LINE_LIMIT)
    if not line.endswith(b"\r\n"):
        raise _Refused("closed the connection without an answer" if not line else "did not answer as Redis does")
    if line.rstrip() == expected:
        return
    words = printable(line[1:].strip().decode("utf-8", "replace"))[:200]
    raise _Refused(f"refused {command}: {words}" if line.startswith(b"-") else f"answered {command} with {words}")
