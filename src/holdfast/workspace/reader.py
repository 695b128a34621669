"""Read one entry of a directory: a record, and a stamp that says whether it may be trusted next time.

Invariants
  R1  A record belongs to its stamp: the stat row was equal before and after the reading.
  R2  An entry is stamped NEVER when its times lie so close to the walk's start that a later write could leave them
      equal (coarse kernel clocks), and when it could not be read.
  R3  Nothing but regular files and directories is opened. If something else is swapped in, the open neither follows
      it nor blocks, and nothing is read from it.
  R4  No memory maps: a file cut short under a map is a SIGBUS.

What no stat cache sees: a store through a shared memory map into a page that was dirty already moves no time stamp
until the kernel has written that page back.
"""

from __future__ import annotations

import errno
import os
import stat
from operator import itemgetter

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.disk.holes import pieces
from holdfast.workspace.block import (
    BLOCK_DEVICE,
    CHARACTER_DEVICE,
    DIRECTORY,
    FIFO,
    FILE,
    LOCKED_FILE,
    MOUNT_RECORD,
    NEVER,
    SOCKET,
    STAMP,
    SYMLINK,
    Entry,
    Row,
    packed,
    packed_xattrs,
    row_of,
)
from holdfast.workspace.observe import RACY_NS, read_xattrs

# Rows that equal no real one, nor what NEVER stands for, and can be packed like any other.
GONE: Row = ((1 << 64) - 1, 0, 0, 0, 0, 0, 0)
MOUNTED: Row = ((1 << 64) - 1, 1, 0, 0, 0, 0, 0)
# What an open or a look says when somebody replaced, removed or leased the thing a moment ago.
MOVED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EAGAIN, errno.ENODATA))

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SMALL = 1 << 20
# Fits a processor's second-level cache; several threads need more to share.
_CHUNK, _SHARED_CHUNK = 1 << 18, 1 << 22
_SECOND = 1_000_000_000
_SPECIALS = {
    stat.S_IFIFO: FIFO,
    stat.S_IFSOCK: SOCKET,
    stat.S_IFCHR: CHARACTER_DEVICE,
    stat.S_IFBLK: BLOCK_DEVICE,
}
_device = itemgetter(2)


class Reader:
    """Reads entries of one file system as of one moment."""

    def __init__(self, calls: Calls, device: int, moment_ns: int, workers: int) -> None:
        self._calls = calls
        self._device = device
        self._moment = moment_ns
        self._workers = workers

    def rows(self, directory: int, names: list[bytes]) -> list[Row]:
        """The stat rows of some names; GONE and MOUNTED where there is nothing to compare."""
        look = self._calls.lstat  # a tenth faster than `stat`, and this is most of a look at a tree
        try:
            found = [look(name, dir_fd=directory) for name in names]
        except FileNotFoundError:
            return [self.row(directory, name) for name in names]
        if set(map(_device, found)) <= {self._device}:
            return list(map(row_of, found))
        return [self._own_row(one) for one in found]

    def row(self, directory: int, name: bytes) -> Row:
        try:
            return self._own_row(self._calls.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            return GONE

    def stamp(self, row: Row) -> bytes:
        """The row packed, or NEVER (R2)."""
        _, _, mtime, ctime, _, _, _ = row
        # Whole seconds betray a file system that keeps no fractions; FAT even counts in twos.
        window = RACY_NS if ctime % _SECOND else 2 * _SECOND + RACY_NS
        limit = self._moment - window
        if ctime >= limit or limit <= mtime <= self._moment or not -(1 << 63) <= mtime < 1 << 63:
            return NEVER
        return STAMP.pack(*row)

    def entry(self, directory: int, name: bytes, row: Row) -> Entry | None:
        """What is at a name, if it still is what the row says; None if that changed meanwhile.

        A directory's entry is provisional: its digest is known when it has been walked.
        """
        if row is MOUNTED:
            return Entry(MOUNT_RECORD, NEVER)
        kind = stat.S_IFMT(row[4])
        if kind == stat.S_IFREG:
            return self._file(directory, name, row)
        if kind == stat.S_IFDIR:
            return Entry(packed(DIRECTORY, row), NEVER)
        if kind == stat.S_IFLNK:
            return self._symlink(directory, name, row)
        return self._special(directory, name, row, _SPECIALS[kind])

    def xattrs(self, fd: int) -> bytes | None:
        """Packed extended attributes; None if they changed while they were read."""
        try:
            found = read_xattrs(self._calls, fd)
            return packed_xattrs(found) if found else b""
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise

    def _own_row(self, found: os.stat_result) -> Row:
        return row_of(found) if found.st_dev == self._device else MOUNTED

    def _file(self, directory: int, name: bytes, row: Row) -> Entry | None:
        try:
            fd = self._calls.open(name, _OPEN, dir_fd=directory)
        except PermissionError:
            return Entry(packed(LOCKED_FILE, row, size=row[1]), NEVER)
        except OSError as error:
            if error.errno in MOVED:
                return None
            raise
        look = self._calls.fstat
        try:
            if row_of(look(fd)) != row:
                return None
            digest = self._content(fd, row[1])
            extra = self.xattrs(fd)
            if digest is None or extra is None or row_of(look(fd)) != row:  # R1
                return None
            return Entry(packed(FILE, row, size=row[1], digest=digest), self.stamp(row), extra)
        finally:
            self._calls.close(fd)

    def _content(self, fd: int, size: int) -> bytes | None:
        """BLAKE3 of exactly `size` bytes; None if there are more or fewer."""
        if size < _SMALL:
            data = self._calls.read(fd, size + 1)
            if len(data) == size:
                return blake3(data).digest()
            if len(data) > size:
                return None
            hasher = blake3(data)  # a short read; some file systems give them
            total, chunk = len(data), _CHUNK
        else:
            hasher = blake3(max_threads=self._workers)
            if self._calls.fstat(fd).st_blocks * 512 < size:
                return self._with_holes(fd, size, hasher)
            total, chunk = 0, _CHUNK if self._workers == 1 else _SHARED_CHUNK
        # Somebody may append faster than we read: no more than one chunk beyond the size is looked at.
        while total <= size and (data := self._calls.read(fd, chunk)):
            hasher.update(data)
            total += len(data)
        return hasher.digest() if total == size else None

    def _with_holes(self, fd: int, size: int, hasher: blake3) -> bytes | None:
        """The same of a sparse file: its holes are hashed without being read."""
        total = 0
        for piece in pieces(self._calls, fd):
            hasher.update(piece)
            total += len(piece)
            if total > size:
                return None
        return hasher.digest() if total == size else None

    def _symlink(self, directory: int, name: bytes, row: Row) -> Entry | None:
        try:
            target = self._calls.readlink(name, dir_fd=directory)
        except OSError as error:
            if error.errno in MOVED or error.errno == errno.EINVAL:  # EINVAL: no longer a link
                return None
            raise
        if self.row(directory, name) != row:
            return None
        return Entry(packed(SYMLINK, row), self.stamp(row), target)

    def _special(self, directory: int, name: bytes, row: Row, kind: bytes) -> Entry | None:
        try:
            found = self._calls.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if row_of(found) != row:
            return None
        return Entry(packed(kind, row, size=found.st_rdev), self.stamp(row))
