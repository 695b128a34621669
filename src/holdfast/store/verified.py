"""The verified mark: what the ledger's file looked like when every record in it was last checked.

The anchor knows the newest record only. Whether an old one was edited, a walk over all of them says, and that takes
time that grows with the ledger. The mark, beside the anchor, spares the walk while nobody has touched the file:

    <anchor>.verified     holdfast-verified 1 <inode> <size> <mtime> <ctime> <check>, blanks, newline: one disk sector

Invariants
  W1  The mark is moved by a walk that found nothing, or by our own append to a file that looked like the mark before.
      So an edit before that append is still found: its file did not look like the mark.
  W2  The change time of a file cannot be set by whoever writes it. Content that was changed has another one.
  W3  The mark is a shortcut, never evidence: lost, torn, old or forged with another key, it costs one walk.
      It is written without a sync and without a lock: after a power cut, or between two processes, it is at worst old.
  W4  A page that somebody has mapped and written can be written again without another change time, until it is on the
      disk: a walk syncs first, and our own append looks between its write and its sync.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Tampering
from holdfast.store.private import READ, READ_WRITE, create_private, open_private

_SECTOR = 512
_PERSON = b"holdfast-verif-1"
_FORMAT = b"holdfast-verified 1"


class Look(NamedTuple):
    """What `fstat` says of the file, as far as it tells whether anybody wrote to it."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def look_of(about: os.stat_result) -> Look:
    return Look(about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


class VerifiedMark:
    """The mark of one workspace's ledger."""

    def __init__(self, anchor_path: str, key: bytes, workspace_id: str, calls: Calls) -> None:
        self._path = f"{anchor_path}.verified"
        self._calls = calls
        self._keyed = blake2b(workspace_id.encode() + b"\n", key=key, digest_size=32, person=_PERSON)

    def load(self) -> Look | None:
        """None when there is none that can be believed (W3)."""
        try:
            fd = open_private(self._path, READ, self._calls)
            try:
                return self._parsed(self._calls.pread(fd, _SECTOR, 0))
            finally:
                self._calls.close(fd)
        except (OSError, Tampering):
            return None

    def save(self, look: Look) -> None:
        with suppress(OSError, Tampering):  # W3
            self._save(self._spelled(look))

    def _save(self, data: bytes) -> None:
        try:
            fd = open_private(self._path, READ_WRITE, self._calls)
        except FileNotFoundError:
            create_private(self._path, data, self._calls)
            return
        try:
            self._calls.pwrite(fd, data, 0)
        finally:
            self._calls.close(fd)

    def _spelled(self, look: Look) -> bytes:
        stem = b"%b %d %d %d %d" % (_FORMAT, *look)
        return (stem + b" " + self._check(stem)).ljust(_SECTOR - 1) + b"\n"

    def _parsed(self, data: bytes) -> Look | None:
        stem, _, check = data.rstrip().rpartition(b" ")
        if check != self._check(stem):
            return None
        return Look(*map(int, stem.split(b" ")[2:]))

    def _check(self, stem: bytes) -> bytes:
        state = self._keyed.copy()
        state.update(stem)
        return state.hexdigest().encode("ascii")
