"""Transcripts: what agents asked their models and did, a JSON line each, kept as a blob when the work is over.

    transcripts/<name>.jsonl      while it is written; gone when it was kept, or swept when its writer died

Invariants
  R1  A line is whole or absent for every reader that stops at the last newline; lines of several threads never mix.
  R2  Only this user reads it: 0600, in a directory of our own, opened without following a link, never an old file.
  R3  It grows to LIMIT bytes at most; the last line then says how many were left out.
  R4  Lines are not synced one by one: a power cut may take the last ones. What was kept is synced, and named by its
      digest.
  R5  A transcript is locked by the kernel as long as its writer lives, so none in use is taken for a left-over.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from blake3 import blake3

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.store.blobs import Blobs
from holdfast.store.sockets import clear_place

FOLDER = "transcripts"
LIMIT = 128 << 20
# Room for the last line.
_RESERVE = 200
_SUFFIX = ".jsonl"
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Lines:
    """A new private file of JSON lines; `path` must not exist. Used for tapes too."""

    def __init__(self, path: str, calls: Calls = CALLS, directory: int | None = None, limit: int = LIMIT) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._room = limit - _RESERVE
        self._hash = blake3()
        self.left_out = 0
        try:
            self._fd = calls.open(path, _NEW, 0o600, dir_fd=directory)
        except FileExistsError:
            raise InvalidInput(f"{printable(path)} exists already, and is not written over") from None

    def write(self, value: Mapping[str, object]) -> None:
        """Append one line, or count it as left out (R3). ValueError when it was closed."""
        line = json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
        with self._lock:
            if self._fd < 0:
                raise ValueError("this file is closed")
            if len(line) > self._room:
                self.left_out += 1
            else:
                self._room -= len(line)
                self._append(line)

    def close(self) -> str:
        """Complete and durable; the BLAKE3 of its bytes. Further calls give the same."""
        with self._lock:
            if self._fd >= 0:
                try:
                    if self.left_out:
                        self._append(json.dumps({"kind": "left_out", "lines": self.left_out}).encode("ascii") + b"\n")
                    self._calls.fsync(self._fd)
                finally:
                    self._calls.close(self._fd)
                    self._fd = -1
            return self._hash.hexdigest()

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        rest = line
        while rest:
            rest = rest[self._calls.write(self._fd, rest) :]
        self._hash.update(line)


class Transcript(Lines):
    """One under way. `keep` ends it. A socket of the same name is swept with it (see `sockets`)."""

    def __init__(self, state: Root, name: str) -> None:
        self._state, self._name = state, f"{name}{_SUFFIX}"
        _make_folder(state)
        with _alone(state) as folder:
            super().__init__(self._name, state.calls, folder)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def keep(self, blobs: Blobs) -> str:
        """Close it and move it among the blobs; its digest."""
        with _alone(self._state) as folder:
            digest = self.close()
            blobs.adopt(folder, self._name, digest)
        return digest


def sweep_transcripts(state: Root) -> int:
    """Remove what was being written by those who died, with their sockets; how many there were."""
    try:
        names = [name for name in state.calls.names(state.directory(FOLDER)) if name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return 0
    if not names:
        return 0
    with _alone(state) as folder:
        return sum(_swept(folder, name) for name in names)


@contextmanager
def _alone(state: Root) -> Iterator[int]:
    """The folder, while nobody else begins, keeps or sweeps: what is there and not locked then belongs to nobody."""
    folder = state.open_directory(FOLDER)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield folder
    finally:
        state.calls.close(folder)


def _swept(folder: int, name: str) -> bool:
    try:
        fd = os.open(name, _LOOK, dir_fd=folder)
    except FileNotFoundError:
        return False  # it was kept between our listing and now
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        # The transcript goes last: as long as it is there, the next sweep finds the socket too.
        clear_place(name.removesuffix(_SUFFIX))
        os.unlink(name, dir_fd=folder)
        return True
    finally:
        os.close(fd)


def _make_folder(state: Root) -> None:
    try:
        state.calls.mkdir(FOLDER, 0o700, dir_fd=state.fd)
    except FileExistsError:
        pass
