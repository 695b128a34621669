"""Health: does the real host work with the change in place?

Services need a moment, so a check is tried until it passes or its time is over, with growing pauses.
One attempt may take all the time that is left: an endpoint that needs 8 of its 10 seconds is healthy.
The last attempt comes near the end, so that a service that recovers late is still seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.checks.attempt import Attempt, Progress, duration, shown, silent, try_command
from holdfast.model.execution import Receipt
from holdfast.model.path import printable
from holdfast.model.plan import HealthCheck, HttpCheck

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LEAST_TIME_S = 0.05


def check_health(
    checks: Sequence[HealthCheck],
    *,
    directory: str,
    tree_digest: str,
    save_log: Callable[[bytes], str],
    progress: Progress = silent,
) -> tuple[Receipt, ...]:
    """One receipt a check, in order; commands run in `directory`, the workspace itself."""
    receipts = []
    for done, check in enumerate(checks):
        said = _Said(check)
        started = time.monotonic()
        attempt = _until_healthy(check, directory, said, partial(progress, done, len(checks)))
        took_ms = int((time.monotonic() - started) * 1000)
        receipts.append(
            Receipt(
                command=_command(check),
                kind=check.kind,
                passed=attempt.passed,
                exit_code=attempt.exit_code,
                duration_ms=took_ms,
                log_digest=save_log(said.log(attempt)),
                tree_digest=tree_digest,
                detail=said.detail(attempt, took_ms),
            )
        )
    return tuple(receipts)


def _until_healthy(check: HealthCheck, directory: str, said: _Said, tell: Callable[[str], None]) -> Attempt:
    deadline = time.monotonic() + check.within_ms / 1000
    pause = _FIRST_PAUSE_S
    previous: Attempt | None = None
    tell(said.subject)
    while True:
        attempt = _try_once(check, directory, deadline)
        said.add(attempt)
        left = deadline - time.monotonic()
        if left <= 0 and not attempt.passed and previous is not None:
            return previous  # our own deadline cut the last one off; what was answered before says more
        previous = attempt
        if attempt.passed or attempt.hopeless or left < _LEAST_TIME_S:
            return attempt
        tell(f"{said.subject} {attempt.said}")
        time.sleep(min(pause, left / 2))
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _try_once(check: HealthCheck, directory: str, deadline: float) -> Attempt:
    if isinstance(check, HttpCheck):
        from holdfast.checks.probe import try_get

        return try_get(check, deadline)
    return try_command(check.argv, directory, max(1, int((deadline - time.monotonic()) * 1000)))


def _command(check: HealthCheck) -> tuple[str, ...]:
    return ("GET", _public(check.url)) if isinstance(check, HttpCheck) else check.argv


def _public(url: str) -> str:
    """A URL without the password that should not be in it, and that nobody shall read in a receipt."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


class _Said:
    """What the attempts said, equal ones in a row counted."""

    def __init__(self, check: HealthCheck) -> None:
        self.subject = f"GET {printable(_public(check.url))}" if isinstance(check, HttpCheck) else shown(check.argv)
        self._lines: list[str] = []
        self._counts: list[int] = []

    def add(self, attempt: Attempt) -> None:
        if self._lines and self._lines[-1] == attempt.said:
            self._counts[-1] += 1
        else:
            self._lines.append(attempt.said)
            self._counts.append(1)

    def detail(self, attempt: Attempt, took_ms: int) -> str:
        """One sentence: the last answer, and how often it was asked in which time."""
        attempts = sum(self._counts)
        same = sum(count for line, count in zip(self._lines, self._counts, strict=True) if line == attempt.said)
        if attempt.hopeless:
            how_often = ""
        elif attempt.passed:
            how_often = f" after {duration(took_ms)}" + (f", at attempt {attempts}" if attempts > 1 else "")
        elif same < attempts:
            how_often = f", in {same} of {attempts} attempts within {duration(took_ms)}"
        else:
            how_often = f", {_times(attempts)} in {duration(took_ms)}"
        return f"{self.subject} {attempt.said}{how_often}{attempt.remarks}"

    def log(self, attempt: Attempt) -> bytes:
        """All attempts, a line each or for equal ones, then what the last one printed or sent."""
        pairs = zip(self._lines, self._counts, strict=True)
        lines = [f"{self.subject} {line} ({_times(count)})\n" for line, count in pairs]
        return "".join(lines).encode("utf-8", "surrogateescape") + b"\n" + attempt.log


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
