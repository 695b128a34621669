"""Room on the disk: where there is none, nobody failed and no gate spoke. A run stops, and goes on once there is some.

Invariants
  Z1  A full disk is told as DiskFull, whatever it was wrapped in on the way: it is looked for among the causes.
  Z2  It costs no attempt, and no agent is blamed for it (see `outcomes`, `delegation`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import DiskFull, HoldfastError
from holdfast.model.run import RunRecord

STOPPED_BECAUSE = "the disk is full"
GO_ON = "Make room, then go on with: holdfast resume"
# With less than that nothing of ours can be written, and hardly anything of an agent's.
_LEAST_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MOST_CAUSES = 16


def is_full(error: BaseException | None) -> bool:
    """Z1."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return False
        if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in _FULL):
            return True
        error = error.__cause__
    return False


@contextmanager
def told_as_full(what: str, hint: str = DiskFull.default_hint) -> Iterator[None]:
    """Whatever a full disk raised inside is DiskFull; all else is as it was."""
    try:
        yield
    except DiskFull as error:
        error.hint = hint
        raise
    except (OSError, HoldfastError) as error:
        if not is_full(error):
            raise
        changed = isinstance(error, HoldfastError) and error.changed
        said = error.message if isinstance(error, HoldfastError) else error.strerror or str(error)
        raise DiskFull(f"{what}: {said}", hint=hint, changed=changed) from error


def require_room(descriptor: int) -> None:
    """DiskFull where the disk of this directory has as good as nothing left, of bytes or of files.

    Some file systems do not say how much they hold: of them nothing is known.
    """
    about = os.fstatvfs(descriptor)
    free = about.f_bavail * about.f_frsize
    if about.f_blocks and free < _LEAST_BYTES:
        raise DiskFull(f"the disk has {free:,} bytes left")
    if about.f_files and not about.f_favail:
        raise DiskFull("the disk has no room for another file")


def stopped_for_room(run: RunRecord) -> bool:
    return run.state == "STOPPED" and run.because.startswith(STOPPED_BECAUSE)
