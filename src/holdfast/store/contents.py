"""Contents: what a transaction wrote, kept beside its slots, so that a later undo can merge instead of give up.

One file a transaction, records [32 bytes BLAKE3][u32 length][bytes], written after the commit under another name
and renamed when it is whole: a process that dies leaves all of it or none, and recovery writes it where there is none.
Its pages go to the device before that, without a sync of its own: the next one, which is the ledger's, takes its name
along on file systems with one journal (ext4, xfs). Where a power cut takes it nevertheless, undo of a file that
somebody edited since reports a conflict instead of merging.
Every read is checked against its digest, so a torn file can only be missed, never believed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

from blake3 import blake3

from holdfast.disk.calls import Calls

NAME = "contents"
_UNFINISHED = "contents.new"
TEXT_LIMIT = 1 << 20
_FRAME = struct.Struct("<32sI")
_BATCH = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def is_text(data: bytes) -> bool:
    """What a line merge or a diff makes sense for."""
    return len(data) <= TEXT_LIMIT and b"\0" not in data[:8000]


def write_contents(calls: Calls, directory: int, items: Iterable[tuple[str, bytes]]) -> None:
    """`items` are (digest, bytes); anything that is not text is left out. OSError: nothing is left behind."""
    fd = calls.open(_UNFINISHED, _NEW, 0o600, dir_fd=directory)
    try:
        for batch in _batches(items):
            while batch:
                batch = batch[calls.write(fd, batch) :]
        calls.start_write_back(fd)
        calls.rename(_UNFINISHED, NAME, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        # A disk that this filled must have room for the ledger, which comes next.
        calls.unlink(_UNFINISHED, dir_fd=directory)
        raise
    finally:
        calls.close(fd)


def read_contents(calls: Calls, directory: int, wanted: set[str]) -> dict[str, bytes]:
    """The wanted digests that are here."""
    try:
        fd = calls.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return {}
    found: dict[str, bytes] = {}
    try:
        at, size = 0, calls.fstat(fd).st_size
        while at + _FRAME.size <= size and len(found) < len(wanted):
            raw, length = _FRAME.unpack(calls.pread(fd, _FRAME.size, at))
            digest = raw.hex()
            if digest in wanted:
                data = calls.pread(fd, length, at + _FRAME.size)
                if blake3(data).hexdigest() == digest:
                    found[digest] = data
            at += _FRAME.size + length
    finally:
        calls.close(fd)
    return found


def _batches(items: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    pending: list[bytes] = []
    size = 0
    for digest, data in items:
        if not is_text(data):
            continue
        pending += (_FRAME.pack(bytes.fromhex(digest), len(data)), data)
        size += _FRAME.size + len(data)
        if size > _BATCH:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
