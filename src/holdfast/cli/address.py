"""Where a workspace on another host is: ssh://[user@]host[:port]/absolute/path

Invariants
  A1  Host and user are made of letters, digits and a few marks, and begin with a letter or digit:
      none can be taken for an option of ssh, nor mean anything to a ProxyCommand's shell.
  A2  No password: it would be in the process list and in the history. It is not repeated in the refusal either.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.path import printable

SCHEME = "ssh://"
_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[^@/]*)@)?(?P<host>\[[^\]/]*\]|[^:/@]*)(?P<port>:[^/]*)?(?P<path>/.*)?", re.DOTALL
)
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\$?")
_IPV6 = re.compile(r"\[(?P<number>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?)\]")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Address(NamedTuple):
    user: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        who = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        return f"{SCHEME}{who}{host}{port}{printable(self.path)}"


def address_of(text: str) -> Address:
    """The parts of an address, or InvalidInput."""
    from urllib.parse import unquote

    found = _ADDRESS.fullmatch(text)
    if found is None or "@" in (found["path"] or "").partition("/")[0]:
        raise _wrong("is not an address of a workspace on another host")
    user = found["user"] or ""
    if ":" in user:
        raise _wrong("must not carry a password; ssh asks for it, or uses a key")  # A2
    if found["user"] is not None and not _USER.fullmatch(user):
        raise _wrong(f'names the user "{printable(user)}", which no host has')
    path = found["path"] or ""
    if not path or path.startswith("/~"):
        raise _wrong("needs the absolute path of the workspace after the host")
    if "?" in path or "#" in path or _PERCENT.search(path):
        raise _wrong("must have ?, # and % in its path written as %3F, %23 and %25")
    path = unquote(path, errors="surrogateescape")
    if "\0" in path:
        raise _wrong("has a NUL byte in its path")
    return Address(user, _host(found["host"]), _port(found["port"]), path)


def _host(text: str) -> str:
    number = _IPV6.fullmatch(text)
    if number is not None:
        return number["number"]
    if not _NAME.fullmatch(text):
        raise _wrong(f'names the host "{printable(text)}", which is no name of a host')
    return text


def _port(text: str | None) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r":[0-9]{1,5}", text) or not 0 < int(text[1:]) < 65536:
        raise _wrong(f'names the port "{printable(text[1:])}", which is none')
    return int(text[1:])


def _wrong(what: str) -> InvalidInput:
    return InvalidInput(f"-C {what}", hint="For example: -C ssh://deploy@web1.example/srv/site")
