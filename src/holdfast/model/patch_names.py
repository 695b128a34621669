"""The names in a patch: quoted or not, with a time stamp or not, with `a/` and `b/`, other prefixes, or none.

    --- a/src/app.py<TAB>2026-11-15 10:00:00        +++ "b/caf\\303\\251.txt"        diff --git a/x y b/x y

Which prefix was used is never guessed from one name: two names that are one name without their first directory had one.
Only where the other side is `/dev/null` and no git header tells, `a/` and `b/` are taken for prefixes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.path import printable

_ESCAPED = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_DATE = re.compile(rb"\s+((?:19|20)\d\d-\d\d-\d\d[ T]\d\d:\d\d.*)$")
# Tools that know no /dev/null date a missing file with the beginning of time, in whatever zone they are.
_BEGINNING = re.compile(rb"(?:1970-01-01|1969-12-31)[ T]")
_BACKUPS = (".orig", ".old", ".bak", "~")
_MEANT = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


class Named(NamedTuple):
    """A name from a `---` or `+++` line; None for /dev/null. `dated_missing`: its date says that it is not there."""

    path: str | None
    dated_missing: bool = False


def name_on_line(rest: bytes, line: int) -> Named:
    """The name that follows `--- ` or `+++ `."""
    rest = rest.rstrip(b"\r")
    quoted = _QUOTED.match(rest)
    if quoted is not None:
        name, date = unquoted(quoted[1], line), rest[quoted.end() :].strip()
    else:
        raw, tab, date = rest.partition(b"\t")
        found = None if tab else _DATE.search(raw)
        if found is not None:
            raw, date = raw[: found.start()], found[1]
        name = _text(raw if tab else raw.rstrip())
    if not name:
        raise InvalidInput(f"line {line}: the name of a file is missing")
    return Named(None if name == "/dev/null" else name, _BEGINNING.match(date) is not None)


def plain_name(rest: bytes, line: int) -> str:
    """The name after `rename from` and the like, which has no prefix and no date."""
    rest = rest.rstrip(b"\r")
    quoted = _QUOTED.fullmatch(rest)
    name = unquoted(quoted[1], line) if quoted is not None else _text(rest)
    if not name:
        raise InvalidInput(f"line {line}: the name of a file is missing")
    return name


def header_names(rest: bytes, line: int) -> tuple[str, str] | None:
    """Both names of a `diff --git` line, prefixes included; None where they cannot be told apart."""
    rest = rest.rstrip(b"\r")
    first = _QUOTED.match(rest)
    if first is not None:
        return unquoted(first[1], line), plain_name(rest[first.end() :].lstrip(b" "), line)
    if rest.endswith(b'"') and b' "' in rest:
        left, _, right = rest.partition(b' "')
        return _text(left), plain_name(b'"' + right, line)
    # Neither is quoted, and blanks may be part of them. Both are equally long unless the file was renamed.
    middle = len(rest) // 2
    left, blank, right = rest[:middle], rest[middle : middle + 1], rest[middle + 1 :]
    if blank != b" " or not left or (left != right and _below(_text(left)) != _below(_text(right))):
        return None
    return _text(left), _text(right)


def one_name(old: str, new: str, line: int) -> str:
    """The path that two names of one file mean."""
    if old == new:
        return old
    below = _below(new)
    if below and _below(old) == below:
        return below
    for end in _BACKUPS:
        if old == new + end:
            return new
        if below and _below(old) == below + end:
            return below
    raise InvalidInput(
        f"line {line}: {printable(old)} and {printable(new)} do not name one file",
        hint="A file that gets another name needs git's lines 'rename from' and 'rename to'.",
    )


def without_prefix(name: str, prefix: str) -> str:
    return name.removeprefix(prefix) or name


def stripped(name: str, names: int, line: int) -> str:
    """Without that many leading directories, as `patch -pN` does."""
    parts = name.split("/")
    if len(parts) <= names:
        raise InvalidInput(f"line {line}: {printable(name)} has no {names} directories to take off")
    return "/".join(parts[names:])


def unquoted(raw: bytes, line: int) -> str:
    """What stands between C's quotes, in plain."""
    if b"\\" in _ESCAPED.sub(b"", raw):
        raise InvalidInput(f"line {line}: a quoted name has an escape that does not exist")
    return _text(_ESCAPED.sub(_plain, raw))


def _plain(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8)]) if code[:1].isdigit() else _MEANT.get(code, code)


def _below(name: str) -> str:
    return name.partition("/")[2]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
