"""Who can have been started since a moment: by the numbers that the kernel has given since.

The kernel gives pids in a circle. What came from a program has numbers between its own and the last one given.
They are few when it ran for a moment, however many processes the host has.

Invariants
  E1  Whoever was started since is in the answer, or there is no answer, and everybody has to be looked at.
  E2  No answer when the circle may have been closed since: the last number is below the first, or there was time
      to give all free numbers away. So the look at everybody comes only after a run that took longer than it.
  E3  No answer from a file that is not the kernel's own: containers may have another one in its place.

Somebody who may choose pids (CAP_CHECKPOINT_RESTORE, as CRIU does) can be older by number than by birth.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import NamedTuple

# Never given again after the first round, so that no number of the system's first processes comes back.
_RESERVED = 300
# No machine starts threads faster: each start takes the one lock of all numbers, and the one of the list of all.
_FASTEST_S = 1e-6
# To ask for so many numbers takes about as long as a look at all processes of a small host.
_MOST = 512


class Moment(NamedTuple):
    """`last` is the number last given in our namespace, `at` is not later than that, by the monotonic clock.

    `threads` is how many there are on the host; each has a number that cannot be given.
    """

    last: int
    at: float
    threads: int = 0


def moment() -> Moment | None:
    """Now; None where the kernel does not tell (E3)."""
    at = time.monotonic()
    try:
        fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_dev != os.stat("/proc/self").st_dev:
                return None
            fields = os.read(fd, 200).split()
        finally:
            os.close(fd)
        return Moment(int(fields[4]), at, int(fields[3].partition(b"/")[2]))
    except (OSError, ValueError, IndexError):
        return None


def newcomers(since: Moment | None, now: Moment | None) -> range | None:
    """All pids given between two moments; also those of threads, and of whoever has ended. None: it cannot be told."""
    if since is None or now is None or not since.last <= now.last <= since.last + _MOST:
        return None
    if time.monotonic() - since.at > (_pid_max() - _RESERVED - now.threads) * _FASTEST_S:
        return None
    return range(since.last + 1, now.last + 1)


@cache
def _pid_max() -> int:
    """Of our namespace; so few that nothing can be told, where it is not known."""
    try:
        with open("/proc/sys/kernel/pid_max", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
