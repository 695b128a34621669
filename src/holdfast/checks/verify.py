"""Verification: the plan's commands, run on a copy of what shall land.

Every command is run, also after one has failed: a person repairs three failures faster in one go than in three.
The caller makes the copy and throws it away; nothing a command writes there can land.

A report that was there before the run, and was not written by it, is no report of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.checks.attempt import REPORT_LIMIT, Attempt, Progress, Run, duration, shown, silent, try_command
from holdfast.checks.tree import read_beneath
from holdfast.model.check import CommandCheck, SuiteCheck, VerifyCheck
from holdfast.model.execution import Receipt
from holdfast.sandbox.process import run as run_plainly

_Report = TypeVar("_Report")
_Stamp = tuple[int, int, int, int] | None


def verify(
    checks: Sequence[VerifyCheck],
    *,
    directory: str,
    tree_digest: str,
    save_log: Callable[[bytes], str],
    progress: Progress = silent,
    run: Run = run_plainly,
    written: str = "",
    env: tuple[tuple[str, str], ...] = (),
) -> tuple[Receipt, ...]:
    """One receipt a check, in order; `tree_digest` names what stands in `directory`.

    `env` comes on top of a clean environment. `written` is where the files that a command writes can be read
    afterwards; `directory` itself unless told.
    """
    receipts = []
    for done, check in enumerate(checks):
        progress(done, len(checks), shown(check.argv))
        started = time.monotonic()
        if isinstance(check, CommandCheck):
            attempt = try_command(check.argv, directory, check.within_ms, run=run, env=env)
        else:
            attempt = _tested(check, directory, run, written or directory, env)
        took_ms = int((time.monotonic() - started) * 1000)
        receipts.append(
            Receipt(
                command=check.argv,
                kind=check.kind,
                passed=attempt.passed,
                exit_code=attempt.exit_code,
                duration_ms=took_ms,
                log_digest=save_log(attempt.log),
                tree_digest=tree_digest,
                detail=f"{shown(check.argv)} {attempt.said} ({duration(took_ms)}){attempt.remarks}",
                origin="plan",
            )
        )
    return tuple(receipts)


def _tested(check: SuiteCheck, directory: str, run: Run, written: str, env: tuple[tuple[str, str], ...]) -> Attempt:
    from holdfast.checks.junit import read_junit
    from holdfast.checks.linecoverage import read_coverage
    from holdfast.checks.reports import Ended, criteria_of, judged

    before = {path: _stamp(written, path) for path in (check.junit, check.coverage) if path}
    attempt = try_command(check.argv, directory, check.within_ms, run=run, env=env)
    if attempt.hopeless:
        return attempt
    problems: list[str] = []
    results = _report(written, check.junit, before, read_junit, problems)
    coverage = _report(written, check.coverage, before, read_coverage, problems)
    ended = Ended(attempt.exit_code, timed_out=attempt.timed_out)
    verdict = judged(criteria_of(check), ended, results, coverage)
    said = "; ".join((attempt.said, *filter(None, (verdict.summary,)), *problems, *verdict.reasons))
    return attempt._replace(passed=verdict.passed and not attempt.survived, said=said)


def _report(
    written: str, path: str, before: dict[str, _Stamp], read: Callable[[bytes], _Report], problems: list[str]
) -> _Report | None:
    from holdfast.checks.xmltext import BadReport

    if not path:
        return None
    stamp = _stamp(written, path)
    if stamp is None or stamp == before[path]:
        problems.append(f"{path} was not written" + ("" if stamp is None else " by this run"))
        return None
    try:
        return read(_bytes(written, path))
    except OSError as error:
        problems.append(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")
    except BadReport as error:
        problems.append(f"{path} cannot be read: {error}")
    return None


def _bytes(written: str, path: str) -> bytes:
    root = os.open(written, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return read_beneath(root, path, REPORT_LIMIT)
    finally:
        os.close(root)


def _stamp(written: str, path: str) -> _Stamp:
    """Who and when; a file that is rewritten in place or replaced has another."""
    try:
        found = os.lstat(os.path.join(written, path))
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
