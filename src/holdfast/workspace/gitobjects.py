"""Objects of a repository: folders and contents read, new ones written, each under the name that we computed ourselves.

Invariants
  Q1  What is written is what was given: git's name for it must be ours, or nothing is built upon it.
  Q2  Contents come from descriptors that are already open, never from a path that could lead elsewhere by now.
  Q3  When `write_objects` returns, they are durable: a reference must never outlive what it names.
  Q4  Memory does not grow with the size of contents: they are digested as they pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from blake3 import blake3

from holdfast.errors import Blocked, Conflict
from holdfast.model.path import parent_of, printable
from holdfast.workspace.gittree import TREE, Entry, Folder, entry_at, folders_of, read_folder
from holdfast.workspace.plumbing import Git, refusal

_AT_ONCE = 64
_FEW = 20


class Written(NamedTuple):
    """Something to be written: the name it must get, and how to open it (the caller closes)."""

    id: str
    opened: Callable[[], int]
    what: str


def write_objects(git: Git, kind: str, wanted: Sequence[Written]) -> None:
    """Write all of these, durably; Conflict when one is not what it was when its name was computed (Q1)."""
    # One by one a few are quicker; a thousand are made durable together.
    few = len(wanted) <= _FEW
    writing = git if few else git._replace(words=(*git.words, "-c", "core.fsync=none"))
    for start in range(0, len(wanted), _AT_ONCE):
        batch = wanted[start : start + _AT_ONCE]
        with ExitStack() as stack:
            fds = tuple(stack.enter_context(_held(each.opened)) for each in batch)
            names = "".join(f"/proc/self/fd/{fd}\n" for fd in fds).encode("ascii")
            words = ("hash-object", "-t", kind, "-w", "--no-filters", "--stdin-paths")
            answer = writing.asked(*words, stdin=names, pass_fds=fds).decode("ascii", "replace").split("\n")[:-1]
        if len(answer) != len(batch):
            raise Blocked("git hash-object gave an answer that is not understood")
        for each, id in zip(batch, answer, strict=True):
            if each.id != id:
                raise Conflict(f"{printable(each.what)} changed while it was read; nothing was committed")
    if not few:
        _sync(git)


def _sync(git: Git) -> None:
    fd = git.calls.open(dict(git.variables)["GIT_OBJECT_DIRECTORY"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        git.calls.sync_file_system(fd)
    finally:
        git.calls.close(fd)


def of_bytes(data: bytes) -> Callable[[], int]:
    """Bytes as a file in memory."""

    def opened() -> int:
        fd = os.memfd_create("object", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    return opened


@contextmanager
def _held(opened: Callable[[], int]) -> Iterator[int]:
    fd = opened()
    try:
        yield fd
    finally:
        os.close(fd)


def read_folders(git: Git, tree: str, paths: dict[str, Entry | None], hashing: str) -> dict[str, Folder]:
    """The folders of a tree that hold these paths, one question to git for each level."""
    if not tree:
        return {}
    found: dict[str, Folder] = {}
    wanted = [("", tree)]
    levels = _levels(folders_of(paths))
    for below in [*levels[1:], []]:
        texts = _contents(git, [id for _, id in wanted], "tree")
        for (folder, _), text in zip(wanted, texts, strict=True):
            found[folder] = read_folder(text, hashing)
        entries = [(folder, entry_at(found, folder)) for folder in below if parent_of(folder) in found]
        wanted = [(folder, entry.id) for folder, entry in entries if entry is not None and entry.mode == TREE]
    return found


def _levels(folders: Sequence[str]) -> list[list[str]]:
    levels: dict[int, list[str]] = {}
    for folder in folders:
        levels.setdefault(folder.count("/") + bool(folder), []).append(folder)
    return [levels[depth] for depth in sorted(levels)]


def _contents(git: Git, ids: Sequence[str], kind: str) -> list[bytes]:
    kept = [bytearray() for _ in ids]
    here = _answers(git, ids, kind, [each.extend for each in kept])
    if not all(here):
        raise Blocked(
            f"the repository does not hold {ids[here.index(False)]}, a {kind} of what is checked out",
            hint="A partial or damaged clone: `git fsck` tells more.",
        )
    return [bytes(each) for each in kept]


class Digests(NamedTuple):
    """BLAKE3 of a content, and of the same with each line end turned into CR LF, as git may have checked it out."""

    plain: str
    with_crlf: str


def content_digests(git: Git, ids: Sequence[str]) -> list[Digests | None]:
    """For each blob; None where the repository does not hold it."""
    plain, turned = [blake3() for _ in ids], [blake3() for _ in ids]

    def sink(number: int) -> Callable[[bytes], None]:
        def take(piece: bytes) -> None:
            plain[number].update(piece)
            turned[number].update(piece.replace(b"\n", b"\r\n"))

        return take

    here = _answers(git, ids, "blob", [sink(number) for number in range(len(ids))])
    return [
        Digests(one.hexdigest(), other.hexdigest()) if there else None
        for one, other, there in zip(plain, turned, here, strict=True)
    ]


def commit_text(git: Git, id: str) -> bytes:
    return _contents(git, [id], "commit")[0]


def _answers(git: Git, ids: Sequence[str], kind: str, sinks: Sequence[Callable[[bytes], object]]) -> list[bool]:
    """Have each object's bytes given to its sink; which of them are there."""
    if not ids:
        return []
    reading = _Reading(ids, kind, sinks)
    asked = "".join(f"{id}\n" for id in ids).encode("ascii")
    done = git.finished("cat-file", "--batch", stdin=asked, on_output=reading.feed)
    if not done.succeeded:
        raise refusal(("cat-file",), done)
    return reading.closed()


class _Reading:
    """`git cat-file --batch`: a line that says what comes, its bytes, a line end."""

    def __init__(self, ids: Sequence[str], kind: str, sinks: Sequence[Callable[[bytes], object]]) -> None:
        self._ids, self._kind, self._sinks = ids, kind.encode("ascii"), sinks
        self._line = bytearray()
        self._left = 0
        self._here: list[bool] = []

    def feed(self, chunk: bytes) -> None:
        at = 0
        while at < len(chunk):
            if self._left > 1:
                piece = chunk[at : at + self._left - 1]
                self._sinks[len(self._here) - 1](piece)
                self._left -= len(piece)
                at += len(piece)
            elif self._left == 1:
                self._left, at = 0, at + 1  # the line end after the bytes
            else:
                end = chunk.find(b"\n", at)
                self._line += chunk[at : end if end >= 0 else len(chunk)]
                at = end + 1 if end >= 0 else len(chunk)
                if end >= 0:
                    self._begin(bytes(self._line))
                    self._line.clear()

    def _begin(self, line: bytes) -> None:
        words = line.split(b" ")
        known = len(self._here) < len(self._ids) and words[0].decode("ascii", "replace") == self._ids[len(self._here)]
        if known and words[1:] == [b"missing"]:
            self._here.append(False)
        elif known and len(words) == 3 and words[1] == self._kind and words[2].isdigit():
            self._here.append(True)
            self._left = int(words[2]) + 1
        else:
            raise Blocked(f"git cat-file gave an answer that is not understood: {printable(repr(line[:200]))}")

    def closed(self) -> list[bool]:
        if self._left or self._line or len(self._here) != len(self._ids):
            raise Blocked("git cat-file ended in the middle of an answer")
        return self._here
