"""Phrases that name a check: a command, a URL, a port, a service, a process.

A rule knows every word of the clause it takes, or takes nothing.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from holdfast.checks.clauses import COMMAND, MAX_CLAUSE, QUOTE, URL, Clause
from holdfast.model.check import CommandCheck, DatabaseCheck, HttpCheck, ProcessCheck, ServiceCheck, TcpCheck, masked

_REFUSED = re.compile(
    r"\b(?:not|n't|dont|don't|doesn't|never|skip|skipping|without|except|unless|if|when|until|instead|avoid|ignore|"
    r"omit|either|or|maybe|optionally)\b"
)
_SHELL = re.compile(r"&&|\|\||[|;<>&$()]|\*")
_UNITS = {"ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000,
          "minute": 60_000}  # fmt: skip
_TIME = r"(\d{1,6}) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?)\b"
_WITHIN = re.compile(rf"\b(?:within|in (?:less than|under|at most)|in|for up to|after at most) {_TIME}")
_SETTLE = re.compile(
    rf"\b(?:(?:stays?|remains?|keeps?|keep|stay|remain)(?: \w+)? )?(?:for|during)(?: at least)?(?: the next)? {_TIME}"
)
_STATUS = re.compile(r"\b([1-5]\d\d)\b")
_CONTAINS = re.compile(
    r"\b(?:contains?|containing|says?|saying|shows?|showing|includes?|including|with(?: the)? (?:text|body|content))"
    rf" {QUOTE}"
)
_ADDRESS = re.compile(r"(?<![\w.])(\[[0-9a-f:]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?):(\d{1,5})\b")
_PORT = re.compile(r"\bport (\d{1,5})(?: (?:on|of|at) ([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?))?")
_NAME = r"([a-z0-9_][a-z0-9_@.-]*)"
_COMMON = frozenset(
    "the a an is are be was it its must should still to that can all of on at with our up ok and".split()
)
_ASKING = frozenset("get curl request open visit hit fetch call ping load query ask probe run execute".split())
_STAYING = frozenset("stays remains keeps alive healthy available reachable works answers responds accepts".split())
_LIVING = frozenset("running alive active up started healthy exists stays remains keeps".split())
_SUBJECTS = _COMMON | _ASKING | _STAYING
_HTTP = _SUBJECTS | frozenset(
    """url page site website endpoint service server app api address http status code answer returns return respond
    replies reply working loads gives give response responding answering accessible web application home homepage
    successfully success body""".split()
)
_DATABASE = _SUBJECTS | frozenset(
    """database db connect connects connection connections reached opened intact redis postgres postgresql
    sqlite""".split()
)
_TCP = _SUBJECTS | frozenset(
    """tcp port listening listens accept connections connection server something somebody someone connect""".split()
)
_RUN = _COMMON | frozenset(
    "run execute command commands pass passes succeed succeeds exit exits code 0 works script step zero green".split()
)
PROGRAMS = frozenset(
    """pytest tox nox mypy ruff flake8 pylint npm yarn pnpm npx cargo mvn gradle rspec rake phpunit composer dotnet
    bundle python python3 eslint tsc jest vitest pre-commit bazel ctest make go node""".split()
)
# These begin sentences too; they are programs only after `run`.
_ALSO_WORDS = frozenset(("make", "go", "node", "rake", "bundle"))
_ARGUMENT = re.compile(r"[A-Za-z0-9_./:=@,+%~^\[\]-]+")
_NO_ARGUMENTS = frozenset(
    """on the for in all and with to of a an if when then it its must should passes pass is are still from
    against""".split()
)


class Modifiers(NamedTuple):
    status: int = 0
    contains: str = ""
    within_ms: int = 0
    settle_ms: int = 0


def refusal_in(clause: Clause) -> str:
    """Why a clause must not be understood at all (H2); quotes and commands do not count."""
    if len(clause.plain) > MAX_CLAUSE:
        return "it is too long for one demand"
    found = _REFUSED.search(clause.plain)
    return f"it says {found[0]!r}: give the checks as a list, or skip them with a reason" if found else ""


# ── checks ──


def command_in(clause: Clause) -> CommandCheck | None:
    rest, within = _taken(clause.plain, _WITHIN)
    quoted = clause.commands or (clause.quotes if re.match(r"(?:run|execute)\b", rest) else ())
    if len(quoted) == 1 and not clause.urls and (len(clause.commands) + len(clause.quotes) == 1):
        left = [word for word in words_of(rest) if word not in (COMMAND, QUOTE)]
        return _command(_split(quoted[0]), within) if set(left) <= _RUN else None
    if clause.commands or clause.quotes or clause.urls:
        return None
    found = re.match(r"(?:(run|execute) )?(?:the command )?(\S+)", clause.original, re.I)
    if not found or found[2].lower() not in PROGRAMS or (found[2].lower() in _ALSO_WORDS and not found[1]):
        return None
    words = _WITHIN.sub("", clause.original[found.start(2) :]).split()
    if not all(_ARGUMENT.fullmatch(word) and word.lower() not in _NO_ARGUMENTS for word in words):
        return None
    return _command(words, within)


def http_in(clause: Clause) -> HttpCheck | None:
    if len(clause.urls) != 1 or not clause.urls[0].startswith("http") or clause.commands:
        return None
    if "@" in clause.urls[0].split("/")[2]:
        return None  # a name and password, which no health check sends
    found, rest = _modifiers(clause, status=True)
    if not set(words_of(rest)) - {URL} <= _HTTP:
        return None
    check = HttpCheck(clause.urls[0], found.status or 200, found.contains)
    return check._replace(within_ms=found.within_ms or check.within_ms, settle_ms=found.settle_ms)


def database_in(clause: Clause) -> DatabaseCheck | None:
    if len(clause.urls) != 1 or clause.urls[0].startswith("http") or clause.commands or clause.quotes:
        return None
    found, rest = _modifiers(clause)
    if masked(clause.urls[0]) != clause.urls[0] or not set(words_of(rest)) - {URL} <= _DATABASE:
        return None  # a password has no place in a plan
    check = DatabaseCheck(clause.urls[0])
    return check._replace(within_ms=found.within_ms or check.within_ms, settle_ms=found.settle_ms)


def port_in(clause: Clause) -> TcpCheck | None:
    if clause.urls or clause.commands or clause.quotes:
        return None
    found, rest = _modifiers(clause)
    port = _PORT.search(rest)
    address = _ADDRESS.search(rest)
    if port:
        host, number, rest = port[2] or "127.0.0.1", int(port[1]), _cut(rest, port)
    elif address:
        host, number, rest = address[1].strip("[]"), int(address[2]), _cut(rest, address)
    else:
        return None
    if not 1 <= number <= 65535 or not set(words_of(rest)) <= _TCP:
        return None
    check = TcpCheck(host, number)
    return check._replace(within_ms=found.within_ms or check.within_ms, settle_ms=found.settle_ms)


def service_in(clause: Clause) -> ServiceCheck | None:
    if name := _named_thing(clause, "(?:systemd )?(?:service|unit)"):
        found, _ = _modifiers(clause)
        check = ServiceCheck(name)
        return check._replace(within_ms=found.within_ms or check.within_ms, settle_ms=found.settle_ms)
    return None


def process_in(clause: Clause) -> ProcessCheck | None:
    if name := _named_thing(clause, "process"):
        found, _ = _modifiers(clause)
        check = ProcessCheck(name)
        return check._replace(within_ms=found.within_ms or check.within_ms, settle_ms=found.settle_ms)
    return None


def _named_thing(clause: Clause, noun: str) -> str:
    """`service NAME is running` or `the NAME service is up`; something must be said of it."""
    if clause.urls or clause.commands or clause.quotes:
        return ""
    found, rest = _modifiers(clause)
    for pattern in (rf"\b{noun} (?:named |called )?{_NAME}(?= |$)", rf"{_NAME} {noun}(?= |$)"):
        match = re.search(pattern, rest)
        name = match[1] if match else ""
        if not match or name in _COMMON | _LIVING | {"every", "this", "each", "health", "web"}:
            continue
        left = set(words_of(_cut(rest, match)))
        if left <= _COMMON | _LIVING and (left & (_LIVING | {"up"}) or found.settle_ms):
            start = clause.plain.index(name)
            return clause.original[start : start + len(name)]
    return ""


def modifiers_of(clause: Clause) -> Modifiers | None:
    """A clause that has no subject of its own."""
    if clause.urls or clause.commands:
        return None
    found, rest = _modifiers(clause, status=True)
    spoken = (
        set(words_of(rest)) - _COMMON - {"answers", "returns", "responds", "status", "code", "http", "stays", "body"}
    )
    return found if found != Modifiers() and not spoken else None


# ── the parts ──


def _modifiers(clause: Clause, *, status: bool = False) -> tuple[Modifiers, str]:
    """What is said about times, status and text, and the words that are left."""
    rest, settle = _taken(clause.plain, _SETTLE)
    rest, within = _taken(rest, _WITHIN)
    contains = ""
    if clause.quotes and (match := _CONTAINS.search(rest)):
        contains, rest = clause.quotes[0], _cut(rest, match)
    code = 0
    if status and (match := _STATUS.search(rest)):
        code, rest = int(match[1]), _cut(rest, match)
    return Modifiers(code, contains, within, settle), rest


def _taken(text: str, pattern: re.Pattern[str]) -> tuple[str, int]:
    match = pattern.search(text)
    if match is None:
        return text, 0
    unit = match[2] if match[2] in _UNITS else match[2].rstrip("s")
    return _cut(text, match), max(1, int(match[1]) * _UNITS[unit])


def _cut(text: str, match: re.Match[str]) -> str:
    return " ".join((text[: match.start()] + " " + text[match.end() :]).split())


def words_of(text: str) -> list[str]:
    return [word.strip(".:") for word in re.findall(r"[^\s(),]+", text) if word.strip(".:")]


def _split(text: str) -> list[str]:
    """The words of a command; none when it needs a shell, which there is not."""
    plain = re.sub(r"'[^']*'", "", text)
    if "$" in plain or _SHELL.search(re.sub(r'"[^"]*"', "", plain)):
        return []
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _command(words: list[str], within_ms: int) -> CommandCheck | None:
    if not words:
        return None
    check = CommandCheck(tuple(words))
    return check._replace(within_ms=within_ms) if within_ms else check
