"""Blobs: bytes by digest, each stored once.

    objects/ab/cdef…    file name is the BLAKE3 of the content

Invariants
  B1  A blob's name is the digest of its bytes; every read proves it.
  B2  A name appears only when its bytes are complete: written aside, then renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.disk.confined import Root
from holdfast.disk.holes import pieces
from holdfast.errors import Tampering

OBJECTS = "objects"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Blobs:
    def __init__(self, state: Root) -> None:
        self._state = state
        self._calls: Calls = state.calls

    def put(self, data: bytes) -> str:
        """Store bytes; the digest is returned. Durable when `sync` of the store was called, or at the next barrier."""
        digest = blake3(data).hexdigest()
        directory = self._folder(digest)
        if self._has(directory, digest):
            return digest
        temporary = f"new-{os.getpid()}-{digest[2:10]}"
        fd = self._calls.open(temporary, _NEW, 0o600, dir_fd=directory)
        try:
            rest = data
            while rest:
                rest = rest[self._calls.write(fd, rest) :]
        finally:
            self._calls.close(fd)
        self._calls.rename(temporary, digest[2:], src_dir_fd=directory, dst_dir_fd=directory)
        return digest

    def adopt(self, directory: int, name: str, digest: str) -> None:
        """Move a file whose bytes were checked into the store, or drop it where the store has them already."""
        folder = self._folder(digest)
        if self._has(folder, digest) and self._is_sound(digest):
            self._calls.unlink(name, dir_fd=directory)
        else:
            self._calls.rename(name, digest[2:], src_dir_fd=directory, dst_dir_fd=folder)

    def open(self, digest: str) -> int:
        """A descriptor for reading; FileNotFoundError when it is not here. The reader checks the digest."""
        directory = self._state.directory(f"{OBJECTS}/{digest[:2]}")
        return self._calls.open(digest[2:], _READ, dir_fd=directory)

    def get(self, digest: str) -> bytes:
        data = b"".join(self._pieces(digest))
        if blake3(data).hexdigest() != digest:
            raise Tampering(f"blob {digest[:12]} does not hold what its name says")
        return data

    def digests(self) -> list[str]:
        """Every blob in the store."""
        found = []
        for folder in self._calls.names(self._state.directory(OBJECTS)):
            names = self._calls.names(self._state.directory(f"{OBJECTS}/{folder}"))
            found += [folder + name for name in names if not name.startswith("new-")]
        return found

    def written_ns(self, digest: str) -> int:
        """When it came here: a rename keeps the file's own times, but moves its change time."""
        directory = self._state.directory(f"{OBJECTS}/{digest[:2]}")
        return self._calls.stat(digest[2:], dir_fd=directory, follow_symlinks=False).st_ctime_ns

    def remove(self, digest: str) -> int:
        """Forget a blob; the bytes freed."""
        directory = self._state.directory(f"{OBJECTS}/{digest[:2]}")
        size = self._calls.stat(digest[2:], dir_fd=directory, follow_symlinks=False).st_size
        self._calls.unlink(digest[2:], dir_fd=directory)
        return size

    def _folder(self, digest: str) -> int:
        path = f"{OBJECTS}/{digest[:2]}"
        try:
            return self._state.directory(path)
        except FileNotFoundError:
            try:
                self._calls.mkdir(digest[:2], 0o700, dir_fd=self._state.directory(OBJECTS))
            except FileExistsError:
                pass  # another reader's log made it between our look and our mkdir
            return self._state.directory(path)

    def _is_sound(self, digest: str) -> bool:
        """Blobs are written without a sync; after a power cut a name may have lost its bytes."""
        hasher = blake3()
        for piece in self._pieces(digest):
            hasher.update(piece)
        return bool(hasher.hexdigest() == digest)

    def _pieces(self, digest: str) -> Iterator[bytes]:
        fd = self.open(digest)
        try:
            yield from pieces(self._calls, fd)
        finally:
            self._calls.close(fd)

    def _has(self, directory: int, digest: str) -> bool:
        try:
            self._calls.stat(digest[2:], dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True
