"""Copy a file piece by piece: its holes are not read, and stay holes in the copy.

A hole reads as zeros, at a tenth of the speed at which zeros can be hashed:
without this, a sparse file of 100 GiB costs minutes before anything happens to it.

Invariant E1: the pieces joined are the bytes of the file, as long as nobody writes to it.
Whoever needs proof compares stamps or digests afterwards, as with any other read.
Invariant E2: a copy made with `put_piece` and `end_pieces` has the same bytes, and takes no more room.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from holdfast.disk.calls import Calls

CHUNK = 1 << 20
# A piece that is this very object is a hole.
ZEROS = bytes(CHUNK)
_PAGE = 4096  # less is not worth a hole


def pieces(calls: Calls, fd: int) -> Iterator[bytes]:
    """The whole file from its start; no piece is longer than CHUNK."""
    found = calls.fstat(fd)
    if found.st_blocks * 512 >= found.st_size:
        while chunk := calls.read(fd, CHUNK):
            yield chunk
        return
    at = 0
    while at < found.st_size:
        start = _next(calls, fd, at, os.SEEK_DATA, found.st_size)
        for length in _lengths(start - at):
            yield ZEROS if length == CHUNK else ZEROS[:length]
        at = start
        # Somebody may have cut it off just now; the read below says so.
        end = _next(calls, fd, at, os.SEEK_HOLE, found.st_size) if at < found.st_size else at
        calls.lseek(fd, at, os.SEEK_SET)
        while at < end:
            chunk = calls.read(fd, min(CHUNK, end - at))
            if not chunk:
                return  # somebody cut it off
            yield chunk
            at += len(chunk)


def put_piece(calls: Calls, fd: int, piece: bytes) -> None:
    """Write a piece at the current place, or go past it where it is nothing but zeros."""
    if piece is ZEROS or (len(piece) >= _PAGE and piece == ZEROS[: len(piece)]):
        calls.lseek(fd, len(piece), os.SEEK_CUR)
        return
    written = calls.write(fd, piece)
    while written < len(piece):
        piece = piece[written:]
        written = calls.write(fd, piece)


def end_pieces(calls: Calls, fd: int) -> None:
    """Give the file its length, also where it ends with a hole."""
    calls.truncate(fd, calls.lseek(fd, 0, os.SEEK_CUR))


def copy_pieces(calls: Calls, reading: int, writing: int) -> None:
    """All of a file that was just opened, into a new one."""
    for piece in pieces(calls, reading):
        put_piece(calls, writing, piece)
    end_pieces(calls, writing)


def _next(calls: Calls, fd: int, at: int, what: int, size: int) -> int:
    try:
        return calls.lseek(fd, at, what)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size  # nothing but a hole from here to the end, or no such place any more


def _lengths(total: int) -> Iterator[int]:
    while total > 0:
        yield min(CHUNK, total)
        total -= CHUNK
