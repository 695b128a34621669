"""Addresses of servers in a change file: databases and ports. One that cannot work is refused before any check starts.

A password never reaches a message: whatever has an `@` is shown as "the URL".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.intake.fields import known_keys, text_of
from holdfast.intake.urls import shown_url, split_url
from holdfast.intake.values import Fault, Value, quoted

if TYPE_CHECKING:
    pass

PASSWORD_HINT = "Give it with password_file: the path of a file whose first line it is."
_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
_PORT = re.compile(r"[0-9]{1,5}")
_SERVERS = ("postgresql", "postgres", "redis", "rediss")
# Whatever else libpq knows could name a file to read or a service to use instead.
_PARAMETERS = {"postgresql": frozenset(("host", "port", "sslmode")), "redis": frozenset[str]()}


def database_url_of(value: Value, key: str) -> str:
    """postgresql://, redis:// and rediss:// with a host; sqlite: with a path."""
    url = text_of(value, key)
    if url.startswith("sqlite:"):
        return _sqlite_url(url, key)
    parts = split_url(url, key)
    if parts.scheme not in _SERVERS:
        schemes = "postgresql://, redis://, rediss:// or sqlite:"
        raise Fault(f"{key}: {shown_url(url)} must begin with {schemes}", key,
                    hint='For example: database: "postgresql://app@127.0.0.1:5432/app"')  # fmt: skip
    if parts.password is not None:
        raise Fault(
            f"{key}: the URL must not carry a password; it would be kept with the plan", key, hint=PASSWORD_HINT
        )
    family = "redis" if parts.scheme.startswith("redis") else "postgresql"
    _check_parameters(parts.query, family, key)
    if parts.fragment:
        raise Fault(f"{key}: a database URL has no part after #", key)
    if not parts.hostname and not (family == "postgresql" and "host=" in parts.query):
        raise Fault(f"{key}: {shown_url(url)} must name a host", key)
    if family == "redis" and not re.fullmatch(r"/?|/[0-9]{1,5}", parts.path):
        raise Fault(f"{key}: after the host of a redis URL comes the number of a database, or nothing", key)
    return url


def endpoint_of(value: Value, key: str) -> tuple[str, int]:
    """`host:port`, `[address]:port`."""
    text = text_of(value, key)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise Fault(f"{key}: {quoted(text)} must be host:port, the port from 1 to 65535", key,
                    hint='For example: tcp: "127.0.0.1:5432"')  # fmt: skip
    if not (_is_address(host) if bracketed else _HOST_NAME.fullmatch(host)):
        raise Fault(f"{key}: {quoted(text)} does not name a host", key)
    return host, int(port)


def _is_address(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _check_parameters(query: str, family: str, key: str) -> None:
    from urllib.parse import parse_qsl

    names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    try:
        known_keys(names, _PARAMETERS[family], f"a {family} URL")
    except Fault as fault:
        raise Fault(fault.message.replace("unknown key", f"{key}: unknown parameter", 1), key) from None


def _sqlite_url(url: str, key: str) -> str:
    path = url.removeprefix("sqlite:").removeprefix("//")
    if not path.strip("/") or "\0" in path or path.endswith("/"):
        raise Fault(f"{key}: {quoted(url)} must name a file", key, hint='For example: database: "sqlite:data/app.db"')
    return url
