"""Verification: the plan's commands, run on a copy of what shall land.

Every command is run, also after one has failed: a person repairs three failures faster in one go than in three.
The caller makes the copy and throws it away; nothing a command writes there can land.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from holdfast.checks.attempt import Progress, duration, shown, silent, try_command
from holdfast.model.execution import Receipt
from holdfast.model.plan import CommandCheck


def verify(
    checks: Sequence[CommandCheck],
    *,
    directory: str,
    tree_digest: str,
    save_log: Callable[[bytes], str],
    progress: Progress = silent,
) -> tuple[Receipt, ...]:
    """One receipt a check, in order; `tree_digest` names what stands in `directory`."""
    receipts = []
    for done, check in enumerate(checks):
        progress(done, len(checks), shown(check.argv))
        started = time.monotonic()
        attempt = try_command(check.argv, directory, check.within_ms)
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
            )
        )
    return tuple(receipts)
