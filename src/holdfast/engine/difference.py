"""What a change does to each path, with the bytes of both sides where they are at hand.

    planned (rehearsal, undo)   old: the workspace                  new: where the transaction would take them from
    past (an execution)         old and new: its slots, the workspace, the blob store, the texts kept beside its log

Invariant: bytes are given out only when their digest is the one in the image; otherwise the side says why it has none.
Nothing larger than a text of 1 MiB is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from blake3 import blake3

from holdfast.model.changeset import Change
from holdfast.model.image import Image
from holdfast.store.blobs import Blobs
from holdfast.store.contents import TEXT_LIMIT, is_text, read_contents
from holdfast.store.journal import Op
from holdfast.workspace.site import KEPT, Site
from holdfast.workspace.staging import Bytes, CopyOf, Held, Source
from holdfast.workspace.undo import read_past, require_intact

_BATCH = 256
# The bytes of one place where a content may be; OSError where there is nothing.
_Reader = Callable[[], bytes]


class Side(NamedTuple):
    """A file's text, or (`data` is None) why there is none to show; what is binary is there to be searched."""

    data: bytes | None
    why_not: str = ""
    binary: bytes = b""


NOTHING = Side(b"")
_LARGE = Side(None, "larger than 1 MiB")
_GONE = Side(None, "no longer kept")


class Compared(NamedTuple):
    change: Change
    old: Side
    new: Side


class Difference(Protocol):
    @property
    def changes(self) -> Sequence[Change]: ...

    @property
    def notes(self) -> Sequence[str]:
        """What to know about it besides the paths (`Plan.notes`)."""

    def compared(self, changes: Sequence[Change]) -> Iterator[Compared]: ...


class PlannedDifference:
    """A change that has not happened."""

    def __init__(
        self, site: Site, changes: Sequence[Change], sources: Mapping[str, Source], notes: Sequence[str] = ()
    ) -> None:
        self._site = site
        self._sources = sources
        self.changes = changes
        self.notes = notes

    def compared(self, changes: Sequence[Change]) -> Iterator[Compared]:
        for change in changes:
            here = _in_workspace(self._site, change.path)
            yield Compared(change, _first_match(change.pre, (here,)), _first_match(change.post, (self._ahead(change),)))

    def _ahead(self, change: Change) -> _Reader:
        source = self._sources.get(change.path)
        if isinstance(source, Bytes):
            data = source.data
            return lambda: data
        if isinstance(source, CopyOf):
            opener = source.open
            return lambda: _read(self._site, opener())
        if isinstance(source, Held):
            return _in_slot(self._site, source.slot)
        return _in_workspace(self._site, change.origin or change.path)


class PastDifference:
    """An execution that is over."""

    def __init__(self, site: Site, txn: str, ops: Sequence[Op]) -> None:
        self._site = site
        self._txn = txn
        self._slots = {op.path: op.slot for op in ops if op.slot}
        self._blobs = Blobs(site.state)
        self.changes = _changes_of(ops)
        self.notes: Sequence[str] = ()

    def compared(self, changes: Sequence[Change]) -> Iterator[Compared]:
        for start in range(0, len(changes), _BATCH):
            batch = changes[start : start + _BATCH]
            wanted = {image.digest for c in batch for image in (c.pre, c.post) if image is not None and image.digest}
            texts = read_contents(self._site.calls, self._site.state.directory(f"{KEPT}/{self._txn}"), wanted)
            for change in batch:
                yield Compared(change, self._side(change, change.pre, texts), self._side(change, change.post, texts))

    def _side(self, change: Change, image: Image | None, texts: Mapping[str, bytes]) -> Side:
        if image is None or image.kind != "file":
            return NOTHING
        places: list[_Reader] = [lambda: texts[image.digest]] if image.digest in texts else []
        if change.path in self._slots:
            places.append(_in_slot(self._site, self._slots[change.path]))
        places += (_in_workspace(self._site, change.path), lambda: self._blobs.get(image.digest))
        if change.origin is not None:
            places.append(_in_workspace(self._site, change.origin))
        return _first_match(image, places)


def past_difference(site: Site, txn: str, root: str) -> PastDifference:
    """What an execution did, from the log that the ledger vouches for."""
    past = read_past(site, txn)
    require_intact(past, root)
    return PastDifference(site, txn, past.log.ops)


def _changes_of(ops: Sequence[Op]) -> tuple[Change, ...]:
    """One change a path: what stood there before the first operation, and what after the last."""
    first: dict[str, Op] = {}
    last: dict[str, Op] = {}
    for op in ops:
        first.setdefault(op.path, op)
        last[op.path] = op
    left = {op.slot: op.path for op in ops if op.pre is not None and op.post is None}
    changes = []
    for path in sorted(first):
        before, after = first[path].pre, last[path].post
        origin = left.get(first[path].slot) if before is None and first[path].slot else None
        pre, post = before.image if before is not None else None, after.image if after is not None else None
        if pre != post:
            changes.append(Change(path, pre, post, origin))
    return tuple(changes)


def _first_match(image: Image | None, places: Sequence[_Reader]) -> Side:
    if image is None or image.kind != "file" or not image.size:
        return NOTHING
    if image.size > TEXT_LIMIT:
        return _LARGE
    for place in places:
        try:
            data = place()
        except OSError:
            continue  # gone, replaced or closed to us: the next place may have it, or the side says that none has
        if len(data) == image.size and blake3(data).hexdigest() == image.digest:
            return Side(data) if is_text(data) else Side(None, "binary", data)
    return _GONE


def _read(site: Site, fd: int) -> bytes:
    try:
        return site.calls.pread(fd, TEXT_LIMIT + 1, 0)
    finally:
        site.calls.close(fd)


def _in_workspace(site: Site, path: str) -> _Reader:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    return lambda: _read(site, site.calls.open_beneath(path, flags, site.workspace.fd))


def _in_slot(site: Site, slot: str) -> _Reader:
    def read() -> bytes:
        directory, name = site.slot_directory(slot, own="")
        fd = site.calls.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        return _read(site, fd)

    return read
