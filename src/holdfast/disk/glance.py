"""Many `lstat`s in one go: the names of one directory, each asked by a call of its own, but none made into an object.

Python's own `lstat` takes as long again as the kernel does, since it makes twenty numbers of every answer.
Here the answers stay in the bytes that the kernel wrote, for who only compares them with earlier ones.

Invariants
  G1  All or nothing: where a single name cannot be asked, or the C library has no `statx`, there is no answer.
      Whoever wants to know why asks by `lstat`.
  G2  Nothing is followed: no link, no automount; as `lstat` does.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import repeat

# struct statx, the same on every architecture, in words of eight bytes.
ANSWER = 32
_NOFOLLOW, _NO_AUTOMOUNT = 0x100, 0x800
_BASIC = 0x7FF
_FEW = 128

_statx = getattr(ctypes.CDLL(None), "statx", None)


class Glass:
    """Room for answers. Of one thread: the next answers take the place of the last ones."""

    def __init__(self) -> None:
        self._make_room(_FEW)

    def answers(self, directory: int, names: Sequence[bytes]) -> array[int] | None:
        """What the kernel says of each name, one after the other; None where it does not say it of all (G1)."""
        if _statx is None:
            return None
        if len(names) > len(self._places):
            self._make_room(2 * len(names))
        failed = map(_statx, repeat(directory), names, repeat(_NOFOLLOW | _NO_AUTOMOUNT), repeat(_BASIC), self._places)
        return None if any(failed) else self._room[: ANSWER * len(names)]

    def _make_room(self, most: int) -> None:
        self._room = array("Q", bytes(8 * ANSWER * most))
        room = ctypes.c_uint64.from_buffer(self._room)
        self._places = [ctypes.byref(room, 8 * ANSWER * number) for number in range(most)]
