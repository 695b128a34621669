"""Checks in the sandbox: how a command of ours becomes a confined one.

The sandbox gives it a home and a place for temporary files of its own; of ours it sees only the directory for reports.
A run that a limit ended is not a run that succeeded, whatever its exit code was.
"""

from __future__ import annotations

import signal

from holdfast.checks.attempt import REPORTS_VARIABLE, Run
from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.exceeded import exceeded
from holdfast.sandbox.process import Command, Finished
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View


def confined(view: View, profile: Profile) -> Run:
    """A way to run commands in `view`, for `verify` and `gather`."""

    def run(command: Command) -> Finished:
        reports = command.env.get(REPORTS_VARIABLE, "")
        allowed = profile._replace(writable=(*profile.writable, reports)) if reports else profile
        if allowed.limits.time_ms:
            command = command._replace(timeout_ms=min(command.timeout_ms, allowed.limits.time_ms))
        done = run_confined(command, view, allowed)
        if not done.limit:
            return done.finished
        much = exceeded(done.limit, allowed.limits)
        said = f"\n[ended by a limit of the sandbox: {f'it {much}' if much else done.limit}]\n".encode()
        ended = done.finished._replace(exit_code=None, output=done.finished.output + said)
        return ended if ended.timed_out else ended._replace(signal=signal.SIGKILL)

    return run


def written_to(view: View) -> str:
    """Where files that commands write can be read afterwards: the topmost layer, or the copy itself."""
    return view.layers[-1].upper if view.layers else view.base
