"""The index: the last snapshot of a workspace, kept so that the next one need not read it all again.

    magic and version | stamp of the root | blocks, children before parents | BLAKE3 of all that

Invariants
  I1  A cache only. Missing, torn, foreign, of another version or otherwise odd: it is ignored and built anew.
  I2  It is replaced by rename, and it ends in a checksum: a torn file is noticed, so no sync is needed.
  I3  It is read only if it belongs to this user and nobody else may write it.
  I4  It is written only when it would spare the next look more than the writing costs; this process has it in memory,
      as long as the file is the one that it was read from or written to.
Deliberately absent: a device number. It may change at every boot; the walk compares devices by itself.
"""

from __future__ import annotations

import os
import stat
import struct
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.workspace.block import STAMP, Block, Malformed, restored

INDEX_NAME = "index"

_MAGIC = b"holdfast index 2\n"
_START = len(_MAGIC) + STAMP.size
_BLOCK = struct.Struct("<III32s")  # bytes of facts, bytes of stamps, number of children, digest
_CHECKSUM = 32
_CHUNK = 1 << 24
# In entries that the next look would have to read again: to write so many bytes of an index takes as long as reading
# one small file.
_WORTH_WRITING = 64
_LIKE_ONE_FILE = 1 << 13
# Larger ones are read again each time: memory is worth more then.
_MOST_REMEMBERED = 1 << 24
_MANY_REMEMBERED = 4


# By block, and by the place of the first name in it (see `glance`).
Glances = Mapping[tuple[Block, int], bytes]


class Index(NamedTuple):
    """A root block and the packed stamp of the root directory.

    The glances are of this process alone; None as long as it has not looked yet.
    """

    root: Block
    stamp: bytes
    glances: Glances | None = None


# Inode, size, modification and change time of the file.
_File = tuple[int, int, int, int]


class _Remembered(NamedTuple):
    """The newest index of a workspace in this process; `owed` is what a look from its file would have to read."""

    file: _File
    newest: Index
    owed: int


# By state directory, the one used longest ago first.
_remembered: dict[str, _Remembered] = {}


def load(calls: Calls, state: str) -> Index | None:
    """The index in the state directory, or None where there is none to be trusted."""
    remembered, file = _remembered.get(state), _file(calls, state)
    if remembered is not None and remembered.file == file:
        return remembered.newest
    data = _own_bytes(calls, os.path.join(state, INDEX_NAME))
    if data is None or not data.startswith(_MAGIC) or len(data) < _START + _CHECKSUM:
        return None
    end = len(data) - _CHECKSUM
    if blake3(memoryview(data)[:end]).digest() != data[end:]:
        return None
    try:
        found = Index(_last_block(data, _START, end), data[len(_MAGIC) : _START])
    except Malformed:
        return None
    _remember(state, file, found, 0)
    return found


def keep(calls: Calls, state: str, known: Index | None, found: Index, read: int) -> None:
    """Have the index for the next look, which `read` so many entries anew; OSError where it cannot be written (I4)."""
    before = _remembered.pop(state, None)
    is_newest = before is not None and before.newest is known
    if known is not None and found.root is known.root and found.stamp == known.stamp:
        if before is not None and is_newest:
            _remember(state, before.file, found, before.owed)
        return
    owed = read + (before.owed if before is not None and is_newest else 0)
    size = before.file[1] if before is not None else 0
    if known is None or owed >= max(_WORTH_WRITING, size // _LIKE_ONE_FILE):
        save(calls, state, found)
        owed = 0
    _remember(state, _file(calls, state), found, owed)


def _remember(state: str, file: _File | None, newest: Index, owed: int) -> None:
    """As the one used last."""
    _remembered.pop(state, None)
    if file is not None and file[1] <= _MOST_REMEMBERED:
        _remembered[state] = _Remembered(file, newest, owed)
    while len(_remembered) > _MANY_REMEMBERED:
        _remembered.pop(next(iter(_remembered)), None)


def _file(calls: Calls, state: str) -> _File | None:
    try:
        found = calls.stat(os.path.join(state, INDEX_NAME), follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def save(calls: Calls, state: str, index: Index) -> None:
    """Replace the index; OSError where that cannot be done."""
    temporary = os.path.join(state, f"{INDEX_NAME}.{os.urandom(6).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = calls.open(temporary, flags, 0o600)
    try:
        _write_all(calls, fd, _serialised(index))
        calls.rename(temporary, os.path.join(state, INDEX_NAME))
    except OSError:
        calls.unlink(temporary)
        raise
    finally:
        calls.close(fd)


def _own_bytes(calls: Calls, path: str) -> bytes | None:
    try:
        fd = calls.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # I1: whatever is wrong with it, the snapshot is made without
    try:
        found = calls.fstat(fd)
        ours = found.st_uid == os.geteuid() and not found.st_mode & 0o022  # I3
        if not ours or not stat.S_ISREG(found.st_mode):
            return None
        return _read_all(calls, fd, found.st_size)
    except OSError:
        return None  # I1 again: a bad sector under a cache
    finally:
        calls.close(fd)


def _read_all(calls: Calls, fd: int, size: int) -> bytes:
    data = calls.read(fd, size)
    if len(data) == size:
        return data
    parts = [data]
    while part := calls.read(fd, _CHUNK):
        parts.append(part)
    return b"".join(parts)


def _write_all(calls: Calls, fd: int, parts: list[bytes]) -> None:
    rest = memoryview(b"".join(parts))
    while rest:
        rest = rest[calls.write(fd, rest) :]


def _last_block(data: bytes, at: int, end: int) -> Block:
    blocks: list[Block] = []
    while at < end:
        if at + _BLOCK.size > end:
            raise Malformed("half a block at the end")
        facts, stamps, children, digest = _BLOCK.unpack_from(data, at)
        first = at + _BLOCK.size
        middle, last = first + facts, first + facts + stamps
        at = last + 4 * children
        if at > end:
            raise Malformed("a block longer than the index")
        below = _chosen(blocks, array("I", data[last:at]))
        blocks.append(restored(data[first:middle], data[middle:last], below, digest))
    if not blocks:
        raise Malformed("no block at all")
    return blocks[-1]


def _chosen(blocks: list[Block], numbers: array[int]) -> list[Block]:
    if numbers and max(numbers) >= len(blocks):
        raise Malformed("a block before its children")
    return [blocks[n] for n in numbers]


def _serialised(index: Index) -> list[bytes]:
    parts = [_MAGIC, index.stamp]
    numbers: dict[int, int] = {}
    for block in _children_first(index.root):
        below = array("I", [numbers[id(block.children[place])] for place in sorted(block.children)])
        parts += (
            _BLOCK.pack(len(block.facts), len(block.stamps), len(below), block.digest),
            block.facts,
            block.stamps,
            below.tobytes(),
        )
        numbers[id(block)] = len(numbers)
    checksum = blake3()
    for part in parts:
        checksum.update(part)
    parts.append(checksum.digest())
    return parts


def _children_first(root: Block) -> list[Block]:
    """Each block after all blocks below it, without recursion."""
    order = [root]
    for block in order:  # grows while it is read: parents before children
        order += block.children.values()
    order.reverse()
    return order
