"""Standard streams that whoever started us has closed."""

from __future__ import annotations

import os
import sys

_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_closed_streams() -> None:
    """Where one is closed, nothing is read or said: otherwise the next file that is opened would take its place."""
    for number, name, mode in _STREAMS:
        if getattr(sys, name) is not None:
            continue
        fd = os.open(os.devnull, os.O_RDWR)
        if fd != number:
            os.dup2(fd, number)
            os.close(fd)
        os.set_inheritable(number, True)
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
