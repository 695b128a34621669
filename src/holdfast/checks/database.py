"""Which database a URL means. The answer of each is asked for in its own module."""

from __future__ import annotations

import os
import stat
from urllib.parse import quote, unquote, urlsplit

from holdfast.checks.attempt import Attempt
from holdfast.model.check import MASK, DatabaseCheck

_LONGEST_PASSWORD = 4096


def try_database(check: DatabaseCheck, directory: str, deadline: float) -> Attempt:
    """Connect and ask once; `directory` is where a relative path of SQLite begins."""
    scheme = check.url.partition(":")[0]
    if scheme == "sqlite":
        from holdfast.checks.sqlite import try_sqlite

        path = check.url.removeprefix("sqlite:").removeprefix("//")
        return try_sqlite(path, directory, deadline)
    try:
        parts = urlsplit(check.url)
        port = parts.port
    except ValueError:
        return Attempt(False, "is not a well-formed URL", b"", hopeless=True)
    password = unquote(parts.password or "")
    if check.password_file:
        try:
            password = _first_line(os.path.join(directory, check.password_file))
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else None
            return Attempt(False, f"has no readable password file: {(words or str(error)).lower()}", b"")
    if scheme in ("postgresql", "postgres"):
        from holdfast.checks.postgresql import try_postgresql

        return _without(password, try_postgresql(check.url, password, deadline))
    if scheme in ("redis", "rediss"):
        from holdfast.checks.redis import Login, try_redis

        login = Login(unquote(parts.username or ""), password, parts.path.strip("/"))
        host = parts.hostname or "127.0.0.1"
        return _without(password, try_redis(host, port or 6379, login, deadline, tls=scheme == "rediss"))
    return Attempt(False, "is not postgresql://, redis://, rediss:// or sqlite:", b"", hopeless=True)


def _without(password: str, attempt: Attempt) -> Attempt:
    """A server or library may repeat what it was sent; nobody shall read a password in a receipt."""
    for secret in {password, quote(password, safe="")} - {""}:
        raw = secret.encode("utf-8", "surrogateescape")
        log = attempt.log.replace(raw, MASK.encode())
        attempt = attempt._replace(said=attempt.said.replace(secret, MASK), log=log)
    return attempt


def _first_line(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a plain file")
        lines = file.read(_LONGEST_PASSWORD).splitlines()
    if not lines or b"\0" in lines[0]:
        raise ValueError("it holds no password")
    return lines[0].decode("utf-8", "surrogateescape")
