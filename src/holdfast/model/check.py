"""The checks a plan can ask for: frozen nouns, two closed unions, and their names for people.

Times are milliseconds. For every health check:

    within_ms   how long it may take to become healthy
    settle_ms   how long it must then stay healthy without a break; 0: one good answer is enough
    every_ms    the pause between two looks; 0: short at first, then growing

Invariant K1: nothing here renders a password. A plan should have none: change files with one are refused.
Where a program made one all the same, `subject` and `document` mask it, and the plan cannot be read back from those.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.path import printable

MASK = "***"


class CommandCheck(NamedTuple):
    """A command that must exit 0 within a time."""

    argv: tuple[str, ...]
    within_ms: int = 600_000
    settle_ms: int = 0
    every_ms: int = 0
    kind: Literal["run"] = "run"


class SuiteCheck(NamedTuple):
    """A test run, judged by what it wrote: JUnit XML and coverage, paths relative to the workspace.

    Coverage is in hundredths of a percent, since a digest knows no fractions. None asks for no coverage.
    """

    argv: tuple[str, ...]
    junit: str = ""
    coverage: str = ""
    minimum_coverage: int | None = None
    maximum_failures: int = 0
    required: tuple[str, ...] = ()
    within_ms: int = 600_000
    kind: Literal["tests"] = "tests"


class HttpCheck(NamedTuple):
    """A GET that must answer with a status, and optionally contain a text, within a time."""

    url: str
    status: int = 200
    contains: str = ""
    within_ms: int = 10_000
    settle_ms: int = 0
    every_ms: int = 0
    kind: Literal["http"] = "http"


class TcpCheck(NamedTuple):
    """A port that must accept connections."""

    host: str
    port: int
    within_ms: int = 10_000
    settle_ms: int = 0
    every_ms: int = 0
    kind: Literal["tcp"] = "tcp"


class DatabaseCheck(NamedTuple):
    """A database that must answer: postgresql://, redis://, rediss:// or sqlite: and a path.

    The first line of `password_file` is the password; it is read when the check runs, and is no part of the plan.
    """

    url: str
    password_file: str = ""
    within_ms: int = 10_000
    settle_ms: int = 0
    every_ms: int = 0
    kind: Literal["database"] = "database"


class ServiceCheck(NamedTuple):
    """A systemd unit that must be active."""

    unit: str
    within_ms: int = 10_000
    settle_ms: int = 0
    every_ms: int = 0
    kind: Literal["service"] = "service"


class ProcessCheck(NamedTuple):
    """A process that must be alive, found by its command's name, by the number in a file, or by both."""

    name: str = ""
    pid_file: str = ""
    within_ms: int = 10_000
    settle_ms: int = 0
    every_ms: int = 0
    kind: Literal["process"] = "process"


VerifyCheck: TypeAlias = CommandCheck | SuiteCheck
HealthCheck: TypeAlias = CommandCheck | HttpCheck | TcpCheck | DatabaseCheck | ServiceCheck | ProcessCheck

_SECRET_PARAMETER = re.compile(r"([?&;](?:[a-z_]*password|passwd|secret|token|api_?key)=)[^&;#]*", re.IGNORECASE)


def masked(url: str) -> str:
    """A URL without its password, for everything that is shown, logged or kept.

    The last `@` ends the password, wherever it stands: one that was not percent-encoded may hold a slash.
    """
    scheme, separator, rest = url.partition("://")
    who, at, host = rest.rpartition("@")
    user, colon, _ = who.partition(":")
    if separator and colon:
        url = f"{scheme}{separator}{user}:{MASK}{at}{host}"
    return _SECRET_PARAMETER.sub(rf"\g<1>{MASK}", url)


def masked_words(text: str) -> str:
    """A text of somebody's own, with every URL in it masked."""
    return re.sub(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://\S+", lambda found: masked(found[0]), text)


def quoted(argv: tuple[str, ...]) -> str:
    """A command on one line, as a shell would need it."""
    import shlex  # only for somebody who looks

    return printable(shlex.join(argv)) or "an empty command"


def subject(check: VerifyCheck | HealthCheck) -> str:
    """What is checked, as a sentence begins with it."""
    if isinstance(check, (CommandCheck, SuiteCheck)):
        return quoted(check.argv)
    if isinstance(check, HttpCheck):
        return f"GET {printable(masked(check.url))}"
    if isinstance(check, TcpCheck):
        return f"TCP {printable(address_of(check.host, check.port))}"
    if isinstance(check, DatabaseCheck):
        return f"database {printable(masked(check.url))}"
    if isinstance(check, ServiceCheck):
        return f"service {printable(check.unit)}"
    by_file = f"of {printable(check.pid_file)}" if check.pid_file else ""
    return " ".join(part for part in ("process", printable(check.name), by_file) if part)


def command_of(check: VerifyCheck | HealthCheck) -> tuple[str, ...]:
    """What a receipt calls the command; for a check that runs none, what was asked of whom."""
    if isinstance(check, (CommandCheck, SuiteCheck)):
        return check.argv
    verb, _, whom = subject(check).partition(" ")
    return (verb, whom)


def document(check: VerifyCheck | HealthCheck) -> dict[str, object]:
    """The check as JSON shows it (K1)."""
    row = check._asdict()
    if "url" in row:
        row["url"] = masked(str(row["url"]))
    return row


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
