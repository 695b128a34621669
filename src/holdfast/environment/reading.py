"""Reading small files that a repository may have put there: a pipe or a device must keep nobody waiting."""

from __future__ import annotations

import os
import stat


def small_file(path: str, most: int) -> bytes:
    """The beginning of a plain file; nothing for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(fd)
