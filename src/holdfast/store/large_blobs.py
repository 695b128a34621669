"""Blobs of any size, taken and given piece by piece: what travels between machines never stands in memory as a whole.

A `Stock` is whatever holds bytes by their digest: the state directory of a workspace, or a store that machines share.

Invariants
  Z1  Bytes get their name only after they were hashed on the way in; others are refused, and leave nothing behind.
  Z2  What is read is hashed on the way out, and its end is only reached when it was what its name says.
  Z3  A name that lost its bytes in a power cut is filled again by whoever brings them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from blake3 import blake3

from holdfast.disk.holes import end_pieces, put_piece
from holdfast.errors import InvalidInput, Tampering, UnknownId
from holdfast.store.blobs import Blobs

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stock(Protocol):
    """Bytes by BLAKE3, wherever they are."""

    def has(self, digest: str) -> bool: ...

    def pieces(self, digest: str) -> Iterator[bytes]:
        """All of it, checked (Z2); UnknownId when it is not here."""
        ...

    def take(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Keep these bytes; Tampering when they are others than the digest says (Z1)."""
        ...


class LargeBlobs(Blobs):
    """The blobs of a state directory as a stock."""

    def has(self, digest: str) -> bool:
        return self._has(self._folder(checked_digest(digest)), digest)

    def pieces(self, digest: str) -> Iterator[bytes]:
        hasher = blake3()
        try:
            for piece in self._pieces(checked_digest(digest)):
                hasher.update(piece)
                yield piece
        except FileNotFoundError:
            raise UnknownId(f"blob {digest[:12]} is not here any more") from None
        if hasher.hexdigest() != digest:
            raise Tampering(f"blob {digest[:12]} does not hold what its name says")

    def take(self, digest: str, pieces: Iterable[bytes]) -> None:
        folder = self._folder(checked_digest(digest))
        if self._has(folder, digest) and self._is_sound(digest):
            return
        temporary = f"new-{os.getpid()}-{os.urandom(6).hex()}"
        try:
            if self._written(folder, temporary, pieces) != digest:
                raise Tampering(f"the bytes that came for blob {digest[:12]} are others")
        except BaseException:
            # Ctrl-C too, and whatever the pieces raise while they are read.
            with suppress(FileNotFoundError):
                self._calls.unlink(temporary, dir_fd=self._folder(digest))
            raise
        folder = self._folder(digest)
        self._calls.rename(temporary, digest[2:], src_dir_fd=folder, dst_dir_fd=folder)

    def make_durable(self) -> None:
        """Whatever was taken so far survives a power cut."""
        self._calls.sync_file_system(self._state.fd)

    def _written(self, folder: int, name: str, pieces: Iterable[bytes]) -> str:
        hasher = blake3()
        fd = self._calls.open(name, _NEW, 0o600, dir_fd=folder)
        try:
            for piece in pieces:
                hasher.update(piece)
                put_piece(self._calls, fd, piece)
            end_pieces(self._calls, fd)
        finally:
            self._calls.close(fd)
        return str(hasher.hexdigest())


def carry(digests: Iterable[str], source: Stock, target: Stock) -> int:
    """Copy what the target does not have; how many that were."""
    carried = 0
    for digest in digests:
        if not target.has(digest):
            target.take(digest, source.pieces(digest))
            carried += 1
    return carried


def checked_digest(text: str) -> str:
    """A digest becomes a file name: nothing else may."""
    if not _DIGEST.fullmatch(text):
        raise InvalidInput(f"{text[:80]!r} is no digest")
    return text
