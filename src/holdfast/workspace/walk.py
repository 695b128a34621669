"""The walk over a tree: one directory at a time, depth first, guided by what was known before.

A directory is looked at (its own entries are read), then its subdirectories are walked, then it is sealed.

    LOOK ──same before and after──▶ WAITING (for subdirectories) ──none left──▶ SEALED
      ▲                                │
      └── something moved: look again ─┘   at most ATTEMPTS times, then Conflict names the path

Invariants
  W1  Every directory is opened from its parent's descriptor, never through a link, never on another file system.
  W2  The list of names belongs to the directory's own stat row: that row was equal before and after the look.
  W3  At most OPEN_DIRECTORIES descriptors are held. An ancestor parked for that is reopened as `..`
      and must prove to be the same inode.
  W4  A directory with equal rows everywhere keeps its known block, the very same object (see `frame`).
"""

from __future__ import annotations

import os
import stat
import time

from holdfast.disk.calls import Calls
from holdfast.errors import Blocked, Conflict
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.workspace.block import DIRECTORY, LOCKED_DIRECTORY, NEVER, STAMP, Block, Entry, Row, packed, row_of
from holdfast.workspace.frame import Frame, Known
from holdfast.workspace.glance import glancing
from holdfast.workspace.index import Index
from holdfast.workspace.reader import GONE, MOUNTED, MOVED, Reader

ATTEMPTS = 6
OPEN_DIRECTORIES = 64

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PAUSE_S = 0.002
# For `Walk.read`: so many entries are put together, so many compared, and so many bytes hashed, while one small file
# is read.
_GATHERED, _COMPARED, _SMALL_FILE = 16, 128, 1 << 14
# Bounds the memory for one huge directory: a stat result is ten times as large as what is kept of it.
_BATCH = 1024
# By name, whatever it is: a linked work tree's `.git` is a file.
_LEFT_OUT = frozenset((b".git",))
_LEFT_OUT_OF_ROOT = _LEFT_OUT | {os.fsencode(STATE_DIRECTORY)}


class Walk:
    """One pass over one tree.

    `read` is what it did besides looking, in small files read: a large file counts for many of them,
    and so does a large directory in which something was looked for, or that was put together anew.
    """

    def __init__(self, calls: Calls, workers: int) -> None:
        self.read = 0
        self._calls = calls
        self._workers = workers
        self._stack: list[Frame] = []

    def run(self, root: str, index: Index | None) -> Index:
        # The clock is read before anything else: what is written from now on is never taken for old.
        moment = time.time_ns()
        try:
            fd = self._calls.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Blocked(f"{printable(root)}: {error.strerror}") from None
        self._stack = [Frame(fd, b"", 0)]
        try:
            self._device = self._calls.fstat(fd).st_dev
            self._reader = Reader(self._calls, self._device, moment, self._workers)
            self._glancing = glancing(self._calls, index.glances if index else None)
            known = Known(index.root, STAMP.unpack(index.stamp)) if index else Known()
            self._look(self._stack[0], known)
            return self._walked()
        except OSError as error:
            name = os.fsencode(error.filename) if isinstance(error.filename, (bytes, str)) else b""
            raise Blocked(f"{self._path(name)}: cannot be read: {error.strerror}") from error
        finally:
            for frame in self._stack:
                self._close(frame)

    def _walked(self) -> Index:
        while True:
            frame = self._stack[-1]
            if frame.waiting:
                self._descend(frame, frame.waiting[-1])
                continue
            block = frame.block()
            if len(self._stack) == 1:
                seen = self._glancing.seen if self._glancing is not None else {}
                return Index(block, self._reader.stamp(frame.row), seen)
            self._ascend(frame, block)

    def _descend(self, parent: Frame, place: int) -> None:
        name = parent.names[place]
        try:
            fd = self._calls.open(name, _DIRECTORY, dir_fd=parent.fd)
        except PermissionError:
            self._lock(parent, place)
            return
        except OSError as error:
            if error.errno not in MOVED:
                raise
            self._look_again(parent)
            return
        frame = Frame(fd, name, place)
        self._stack.append(frame)
        self._park()
        try:
            self._look(frame, parent.known_child(place))
        except PermissionError:
            self._close(self._stack.pop())
            self._lock(parent, place)

    def _ascend(self, frame: Frame, block: Block) -> None:
        parent = self._stack[-2]
        if parent.fd < 0:
            self._reopen(parent, frame)
        self._close(frame)
        self._stack.pop()
        if frame.unmoved and block is frame.known:
            parent.waiting.pop()  # what the parent has of it is right already
            return
        record = packed(DIRECTORY, frame.row, digest=block.digest)
        parent.settle(frame.place, Entry(record, self._reader.stamp(frame.row), frame.xattrs), block)

    def _lock(self, parent: Frame, place: int) -> None:
        """Record a directory that cannot be listed or searched, by what its parent shows of it."""
        row = self._reader.row(parent.fd, parent.names[place])
        if row is GONE or row is MOUNTED or not stat.S_ISDIR(row[4]):
            self._look_again(parent)
        else:
            parent.settle(place, Entry(packed(LOCKED_DIRECTORY, row), NEVER), None)

    def _look_again(self, frame: Frame) -> None:
        """A subdirectory was no longer there; what has been read so far is not read again."""
        frame.attempts += 1
        if frame.attempts > ATTEMPTS:
            raise Conflict(f"{self._path()} keeps changing while it is read")
        _pause(frame.attempts)
        self._look(frame, Known(frame.block()))

    def _look(self, frame: Frame, known: Known) -> None:
        """Read the directory's own entries so that they belong together (W2)."""
        for attempt in range(ATTEMPTS):
            _pause(attempt)
            found = self._calls.fstat(frame.fd)
            if found.st_dev != self._device:
                raise Conflict(f"{self._path()}: another file system was mounted here while it was read")
            frame.begin(known, row_of(found))
            whole = self._survey(frame)
            # Where nothing was listed or read, all is as it was known when the row was taken.
            untouched = frame.unmoved and not frame.differs
            if whole and (untouched or row_of(self._calls.fstat(frame.fd)) == frame.row):
                return
            # The next attempt lists again, and reads again only what differs from this one.
            known = Known(frame.block())
        raise Conflict(f"{self._path()} keeps changing while it is read")

    def _survey(self, frame: Frame) -> bool:
        """Read every entry that differs from the known ones; False if something was gone when its turn came."""
        known, whole = frame.known, True
        names = known.names() if known is not None else []
        if frame.unmoved:
            frame.names = names
        else:
            frame.names = self._listed(frame.fd)
            xattrs = self._reader.xattrs(frame.fd)
            frame.xattrs, whole = xattrs or b"", xattrs is not None
        if known is None or frame.names != names:
            whole &= self._gather(frame, names)
        else:
            whole &= self._compare(frame, known)
        frame.wait()
        return whole

    def _compare(self, frame: Frame, known: Block) -> bool:
        """Of the names that are known, those that differ are read anew."""
        whole = True
        for start in range(0, len(frame.names), _BATCH):
            part = frame.names[start : start + _BATCH]
            rows = self._glancing.differing(frame.fd, known, start, part, self._device) if self._glancing else None
            if rows is None:
                rows = self._reader.rows(frame.fd, part)
                if known.has_rows(start, rows):
                    continue
            self.read += len(rows) // _COMPARED
            for place in known.differing(start, rows):
                entry = self._fresh(frame.fd, frame.names[place], rows[place - start])
                if entry is None:
                    whole = False
                else:
                    frame.change(place, entry)
        return whole

    def _gather(self, frame: Frame, old: list[bytes]) -> bool:
        """Other names than the known ones: all entries are put together anew, as known where they still are."""
        names, known = frame.names, frame.known
        places = {name: place for place, name in enumerate(old)}
        frame.start_afresh()
        self.read += len(names) // _GATHERED
        whole = True
        for at in range(0, len(names), _BATCH):
            part = names[at : at + _BATCH]
            for name, row in zip(part, self._reader.rows(frame.fd, part), strict=True):
                place = places.get(name, -1)
                kept = place >= 0 and known is not None and known.row(place) == row
                entry = frame.known_entry(place) if kept else self._fresh(frame.fd, name, row)
                if entry is None:
                    whole = False
                else:
                    frame.add(name, entry, place)
        return whole

    def _fresh(self, fd: int, name: bytes, row: Row) -> Entry | None:
        """An entry read anew; None if it is gone."""
        for attempt in range(ATTEMPTS):
            if attempt:
                _pause(attempt)
                row = self._reader.row(fd, name)
            if row is GONE:
                return None
            self.read += 1 + row[1] // _SMALL_FILE
            entry = self._reader.entry(fd, name, row)
            if entry is not None:
                return entry
        raise Conflict(f"{self._path(name)} keeps changing while it is read")

    def _listed(self, fd: int) -> list[bytes]:
        left_out = _LEFT_OUT_OF_ROOT if len(self._stack) == 1 else _LEFT_OUT
        names = os.fsencode("\0".join(self._calls.names(fd))).split(b"\0")  # all at once; a name holds no NUL
        return sorted(name for name in names if name and name not in left_out)

    def _park(self) -> None:
        """Close the descriptor of the ancestor that makes one too many (W3)."""
        if len(self._stack) > OPEN_DIRECTORIES:
            self._close(self._stack[-1 - OPEN_DIRECTORIES])

    def _reopen(self, parent: Frame, child: Frame) -> None:
        parent.fd = self._calls.open(b"..", _DIRECTORY, dir_fd=child.fd)
        found = self._calls.fstat(parent.fd)
        if (found.st_dev, found.st_ino) != (self._device, parent.row[0]):
            raise Conflict(f"{self._path()} was moved while it was read")

    def _close(self, frame: Frame) -> None:
        if frame.fd >= 0:
            self._calls.close(frame.fd)
            frame.fd = -1

    def _path(self, name: bytes = b"") -> str:
        names = [frame.name for frame in self._stack[1:]]
        return printable(os.fsdecode(b"/".join([*names, name] if name else names))) or "the workspace"


def _pause(attempt: int) -> None:
    """Longer and longer, none before the first attempt."""
    if attempt:
        time.sleep(_PAUSE_S * (1 << attempt))
