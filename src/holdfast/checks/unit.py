"""A systemd unit: what systemd itself says of it. Where systemd does not run, the check cannot run, and fails."""

from __future__ import annotations

import os
import time

from holdfast.checks.attempt import Attempt, try_command
from holdfast.model.check import ServiceCheck
from holdfast.model.path import printable

BOOTED = "/run/systemd/system"  # sd_booted(3) looks at the same place
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "MainPID", "NRestarts", "InvocationID")


def try_unit(check: ServiceCheck, deadline: float) -> Attempt:
    if not os.path.isdir(BOOTED):
        return Attempt(False, "cannot run here: systemd is not running on this host", b"", hopeless=True)
    argv = ("systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", check.unit)
    asked = try_command(argv, "/", max(1, int((deadline - time.monotonic()) * 1000)))
    if not asked.passed:
        return asked._replace(said=f"cannot be asked about: systemctl {asked.said}")
    return judged(asked.log)


def judged(shown: bytes) -> Attempt:
    """The verdict on what `systemctl show` printed."""
    lines = shown.decode("utf-8", "replace").splitlines()
    properties = dict(line.split("=", 1) for line in lines if "=" in line)
    load, active, sub = (properties.get(name, "unknown") for name in _PROPERTIES[:3])
    if load == "not-found":
        return Attempt(False, "is not known to systemd", shown)
    state = printable(f"{active} ({sub})")
    # Another invocation is another process, also where a timer or an operator started it.
    identity = "/".join(properties.get(name, "") for name in _PROPERTIES[3:])
    pid = properties.get("MainPID", "0")
    who = f", pid {printable(pid)}" if pid != "0" else ""
    return Attempt(active == "active", f"is {state}{who}", shown, identity=identity)
