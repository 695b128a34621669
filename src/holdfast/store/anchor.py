"""The anchor: how long the ledger was when we last looked, kept where the workspace's writers cannot reach.

A chain alone cannot tell that its end was cut off. The anchor can: `$XDG_STATE_HOME/holdfast/anchors/<workspace>`
holds sequence number, mac and file length of the newest record, under a keyed checksum.

    bytes    0 –  511   slot 0   holdfast-anchor 1 <generation> <seq> <length> <mac> <check>, blanks, newline
    bytes  512 – 1023   slot 1   the same; the slot with the higher generation counts

Invariants
  A1  The file is created durably, both slots filled, before the ledger's first record is written.
  A2  It is advanced only after the record is durable, so it is never ahead of the ledger's disk.
  A3  An advance writes the older slot in place and does not sync: after a crash the anchor may be old, never wrong.
      A torn write leaves the other slot valid; each slot is one disk sector.
  A4  The checksum covers the workspace's id: the anchor of one workspace says nothing about another.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.disk.homes import state_home
from holdfast.errors import Tampering, Unsupported
from holdfast.model.path import printable
from holdfast.store.private import READ, create_private, open_private

SLOT = 512
_PERSON = b"holdfast-anchor1"
_FORMAT = b"holdfast-anchor 1"
_HINT = (
    "Restore the anchor from a backup: without it nobody can say whether records are missing at the end. "
    "Go on without one: holdfast audit accept"
)


def anchor_path(workspace_id: str) -> str:
    """Where the anchor of a workspace is kept."""
    if not workspace_id or not workspace_id.isascii() or not workspace_id.replace("-", "").isalnum():
        raise ValueError("a workspace id is made of letters, digits and hyphens")
    return os.path.join(state_home(), "anchors", workspace_id)


class Anchored(NamedTuple):
    """What one slot says; `generation` counts the advances, and comes first so that the newest compares highest."""

    generation: int
    seq: int
    length: int
    mac: str


class Anchor:
    """The anchor file of one workspace."""

    def __init__(self, path: str, key: bytes, workspace_id: str, calls: Calls) -> None:
        self.path = path  # shown to a person, opened by nobody else
        self._calls = calls
        # The bytes last read or written here, and what they mean: the next append need not check the same bytes again.
        self._raw, self._newest = b"(nothing read yet)", Anchored(0, 0, 0, "")
        self._keyed = blake2b(workspace_id.encode() + b"\n", key=key, digest_size=32, person=_PERSON)

    def load(self) -> Anchored | None:
        """The newest valid slot, None when there is no file; Tampering when no slot is valid."""
        fd = self.open(READ)
        if fd is None:
            return None
        try:
            return self.read(fd)
        finally:
            self._calls.close(fd)

    def open(self, flags: int) -> int | None:
        try:
            return open_private(self.path, flags, self._calls)
        except FileNotFoundError:
            return None

    def read(self, fd: int) -> Anchored:
        raw = self._calls.pread(fd, 2 * SLOT, 0)
        if raw == self._raw:
            return self._newest
        slots = [slot for slot in (self._parsed(raw[:SLOT]), self._parsed(raw[SLOT:])) if slot]
        if not slots:
            raise Tampering(f"{printable(self.path)} is damaged, or was written with another key", hint=_HINT)
        self._raw, self._newest = raw, max(slots)
        return self._newest

    def create(self, mac: str) -> None:
        """The anchor of an empty ledger (A1); `mac` is the chain's seed."""
        if not create_private(self.path, self._slot(Anchored(0, 0, 0, mac)) * 2, self._calls):
            raise Tampering(f"{printable(self.path)} appeared while the ledger was being started")

    def advance(self, fd: int, anchored: Anchored) -> None:
        """Record a longer ledger; the record at its end must be durable already (A2, A3)."""
        slot, odd = self._slot(anchored), anchored.generation % 2
        self._calls.pwrite(fd, slot, SLOT * odd)
        self._raw = self._raw[:SLOT] + slot if odd else slot + self._raw[SLOT:]
        self._newest = anchored

    def replace(self, anchored: Anchored) -> None:
        """Another anchor in place of whatever is there: a person accepted a broken ledger, and it starts anew."""
        aside = f"{self.path}.new"
        with suppress(FileNotFoundError):
            self._calls.unlink(aside)  # of one that was killed
        create_private(aside, self._slot(anchored) * 2, self._calls)
        self._calls.rename(aside, self.path)
        folder = self._calls.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._calls.fsync(folder)
        finally:
            self._calls.close(folder)

    def missing(self) -> Tampering:
        return Tampering(f"the ledger has records, but its anchor is missing: {printable(self.path)}", hint=_HINT)

    def _slot(self, anchored: Anchored) -> bytes:
        generation, seq, length, mac = anchored
        stem = b"%b %d %d %d %b" % (_FORMAT, generation, seq, length, mac.encode("ascii"))
        return (stem + b" " + self._check(stem)).ljust(SLOT - 1) + b"\n"

    def _parsed(self, slot: bytes) -> Anchored | None:
        stem, _, check = slot.rstrip().rpartition(b" ")
        if check != self._check(stem):
            return None
        _, version, generation, seq, length, mac = stem.split(b" ")
        if version != b"1":
            raise Unsupported(f"{printable(self.path)} was written by a newer Holdfast")
        return Anchored(int(generation), int(seq), int(length), mac.decode("ascii"))

    def _check(self, stem: bytes) -> bytes:
        state = self._keyed.copy()
        state.update(stem)
        return state.hexdigest().encode("ascii")
