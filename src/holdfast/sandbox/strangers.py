"""The namespace of strangers: whoever is root in it owns nothing on this host. Root's sandboxes are made in it.

It is made once for this process and lent to each sandbox, since to make one takes a process of its own. Every program
gets a further namespace below it, from bubblewrap, in which it has no capability: two sandboxes share an ancestor,
as they share the host's, and nothing else.

Invariant
  T1  A descriptor is lent only while it is of the namespace that was made: who closed our descriptors, as daemons do
      with all that are open, may have something else under its number.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

from holdfast.sandbox.stage import new_namespace_of_strangers


class _Made(NamedTuple):
    """A descriptor, and of what: device and inode."""

    fd: int
    what: tuple[int, int]


_lock = threading.Lock()
_made: dict[int, _Made] = {}


def namespace_of_strangers(shift: int) -> int:
    """A descriptor of the namespace whose root is the uid `shift`: lent, not to be closed. OSError where refused."""
    with _lock:
        made = _made.get(shift)
        if made is None or _what(made.fd) != made.what:
            fd = new_namespace_of_strangers(shift)
            _made[shift] = made = _Made(fd, _what(fd))
        return made.fd


def _what(fd: int) -> tuple[int, int]:
    try:
        found = os.fstat(fd)
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino
