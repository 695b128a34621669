"""Health: does the real host work with the change in place?

    WAITING ──healthy──▶ SETTLING ──window over──▶ passed
       │                    └──any bad look──▶ failed
       └──time over──▶ failed

WAITING   Services need a moment, so a check is tried until it passes or its time is over, with growing pauses.
          One attempt may take all the time that is left: an endpoint that needs 8 of its 10 seconds is healthy.
          The last attempt comes near the end, so that a service that recovers late is still seen.
SETTLING  What was healthy once must stay so for the whole window; the last look comes at its end.
          A process or unit must also be the same one: something that dies and is started again is not healthy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.checks.attempt import Attempt, Progress, duration, silent, try_command
from holdfast.model.check import (
    CommandCheck,
    DatabaseCheck,
    HealthCheck,
    HttpCheck,
    ServiceCheck,
    TcpCheck,
    command_of,
    subject,
)
from holdfast.model.execution import Receipt

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LEAST_TIME_S = 0.05
# While settling: often enough to see a process die, seldom enough to be no load.
_LOOKS_IN_A_WINDOW = 20
_SHORTEST_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.5


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
        tell = partial(progress, done, len(checks))
        attempt = _until_healthy(check, directory, said, tell)
        detail = said.detail(attempt, _since(started))
        if attempt.passed and check.settle_ms:
            attempt, detail = _settled(check, directory, said, tell, attempt, detail)
        receipts.append(
            Receipt(
                command=command_of(check),
                kind=check.kind,
                passed=attempt.passed,
                exit_code=attempt.exit_code,
                duration_ms=_since(started),
                log_digest=save_log(said.log(attempt)),
                tree_digest=tree_digest,
                detail=detail,
            )
        )
    return tuple(receipts)


def _until_healthy(check: HealthCheck, directory: str, said: _Said, tell: Callable[[str], None]) -> Attempt:
    deadline = time.monotonic() + check.within_ms / 1000
    pause = check.every_ms / 1000 or _FIRST_PAUSE_S
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
        pause = check.every_ms / 1000 or min(pause * 2, _LONGEST_PAUSE_S)


def _settled(
    check: HealthCheck, directory: str, said: _Said, tell: Callable[[str], None], first: Attempt, detail: str
) -> tuple[Attempt, str]:
    """SETTLING: the attempt that decides, and the sentence about it."""
    window = check.settle_ms / 1000
    pause = check.every_ms / 1000 or min(max(window / _LOOKS_IN_A_WINDOW, _SHORTEST_LOOK_S), _LONGEST_LOOK_S)
    started = time.monotonic()
    tell(f"{said.subject}: settling for {duration(check.settle_ms)}")
    attempt = first
    while (left := started + window - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        at_ms = _since(started)
        attempt = _try_once(check, directory, time.monotonic() + check.within_ms / 1000)
        said.add(attempt)
        replaced = attempt.passed and attempt.identity != first.identity
        if not attempt.passed or replaced:
            what = f"was replaced and {attempt.said}" if replaced else attempt.said
            when = f"{duration(at_ms)} into its settling window of {duration(check.settle_ms)}"
            return attempt._replace(passed=False), f"{detail}, but {what} {when}{attempt.remarks}"
    return attempt, f"{detail}, and stayed so for {duration(check.settle_ms)}"


def _try_once(check: HealthCheck, directory: str, deadline: float) -> Attempt:
    if isinstance(check, CommandCheck):
        return try_command(check.argv, directory, max(1, int((deadline - time.monotonic()) * 1000)))
    if isinstance(check, HttpCheck):
        from holdfast.checks.probe import try_get

        return try_get(check, deadline)
    if isinstance(check, TcpCheck):
        from holdfast.checks.tcp import try_connect

        return try_connect(check, deadline)
    if isinstance(check, DatabaseCheck):
        from holdfast.checks.database import try_database

        return try_database(check, directory, deadline)
    if isinstance(check, ServiceCheck):
        from holdfast.checks.unit import try_unit

        return try_unit(check, deadline)
    from holdfast.checks.living import try_process

    return try_process(check, directory)


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)


class _Said:
    """What the attempts said, equal ones in a row counted."""

    def __init__(self, check: HealthCheck) -> None:
        self.subject = subject(check)
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
