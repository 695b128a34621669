"""Where the bytes of a base come from when a mirror is made: another tree here, a stock, or objects of a repository.

Nothing here is believed: whoever stages a file hashes what comes, and a file with other bytes never gets its name.

Invariant W1: memory does not grow with the size of a file, wherever it comes from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.image import Image
from holdfast.model.path import parent_of, printable
from holdfast.store.large_blobs import LargeBlobs, Stock
from holdfast.workspace.borrowed import objects_of
from holdfast.workspace.observe import look
from holdfast.workspace.staging import CopyOf, Source, write_all

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Depot(NamedTuple):
    """What a mirror has for bytes on their way: a stock that stays, and a directory that goes when it was brought."""

    stock: LargeBlobs
    scratch: int


class Origin(Protocol):
    def sources(self, wanted: Mapping[str, Image], depot: Depot) -> dict[str, Source]:
        """The bytes of those files that it has, by path."""
        ...


class FromTree:
    """A tree on the same machine, such as the workspace; files keep their times, so that builds are not made anew.

    `only`: no other paths are taken from there."""

    def __init__(self, root: Root, only: Collection[str] | None = None) -> None:
        self._root, self._only = root, only

    def sources(self, wanted: Mapping[str, Image], depot: Depot) -> dict[str, Source]:
        self._root.forget()
        asked = wanted if self._only is None else [path for path in wanted if path in self._only]
        found = ((path, self._copy_of(path)) for path in asked)
        return {path: source for path, source in found if source is not None}

    def _copy_of(self, path: str) -> CopyOf | None:
        root = self._root
        try:
            found = look(root.calls, root.directory(parent_of(path)), path.rpartition("/")[2])
        except OSError:
            return None  # whatever is in the way, the file is not here
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        return CopyOf(lambda: root.calls.open_beneath(path, _READ, root.fd), found.st_mtime_ns)


class FromStock:
    """A stock that machines share; what was needed once stays in the mirror's own."""

    def __init__(self, shared: Stock) -> None:
        self._shared = shared

    def sources(self, wanted: Mapping[str, Image], depot: Depot) -> dict[str, Source]:
        found: dict[str, Source] = {}
        own = depot.stock
        for path, image in wanted.items():
            if not own.has(image.digest):
                if not self._shared.has(image.digest):
                    continue
                own.take(image.digest, self._shared.pieces(image.digest))
            found[path] = CopyOf(lambda digest=image.digest: own.open(digest))  # type: ignore[misc]
        return found


class FromGit:
    """Objects of a repository on this machine, by the names that a manifest gives."""

    def __init__(self, work_tree: str, names: Mapping[str, str]) -> None:
        self._work_tree, self._names = work_tree, names

    def sources(self, wanted: Mapping[str, Image], depot: Depot) -> dict[str, Source]:
        named = {path: self._names[image.digest] for path, image in wanted.items() if image.digest in self._names}
        if not named:
            return {}
        fetched = _Fetched(depot.scratch)
        try:
            objects_of(self._work_tree, sorted(set(named.values())), fetched.take)
        finally:
            fetched.close()
        return {path: fetched.source(name) for path, name in named.items() if name in fetched.whole}


class _Fetched:
    """What `git cat-file --batch` says, cut into files: `name type size`, the bytes, a line end, and again."""

    def __init__(self, scratch: int) -> None:
        self._scratch = scratch
        self._prefix = f"git-{os.urandom(6).hex()}"
        self._head = b""
        self._name = ""
        self._left = 0
        self._fd = -1
        self.whole: set[str] = set()

    def take(self, data: bytes) -> None:
        while data:
            data = self._body(data) if self._fd >= 0 else self._header(data)

    def source(self, name: str) -> Source:
        return CopyOf(lambda: os.open(f"{self._prefix}-{name}", _READ, dir_fd=self._scratch))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _header(self, data: bytes) -> bytes:
        line, end, rest = data.partition(b"\n")
        self._head += line
        if len(self._head) > 1000:
            raise Blocked("git tells something else than objects")
        if not end:
            return b""
        words, self._head = self._head.split(), b""
        if len(words) == 2 and words[1] == b"missing":
            return rest  # another origin may have it
        if not words:
            return rest  # the line end behind the bytes before
        if len(words) != 3 or words[1] != b"blob" or not words[2].isdigit() or not words[0].isalnum():
            raise Blocked(f"git tells something else than objects: {printable(b' '.join(words).decode('latin-1'))}")
        self._name, self._left = words[0].decode("ascii"), int(words[2])
        self._fd = os.open(f"{self._prefix}-{self._name}", _NEW, 0o600, dir_fd=self._scratch)
        return rest if self._left else self._ended(rest)

    def _body(self, data: bytes) -> bytes:
        part, rest = data[: self._left], data[self._left :]
        write_all(CALLS, self._fd, part)
        self._left -= len(part)
        return self._ended(rest) if not self._left else rest

    def _ended(self, rest: bytes) -> bytes:
        self.close()
        self.whole.add(self._name)
        return rest
