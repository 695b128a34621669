"""One directory of a snapshot, packed into bytes: names, records and extras in columns.

    facts    header | names, NUL between | one record a name | extras     -> covered by the digest
    stamps   one stat row a name                                           -> cache only, never in a digest
    children the blocks of the readable directories in it

A record is kind, permission bits, owner, size and a digest: of the bytes for a file, of the block for a directory.
An extra is what few entries have: a link's text, extended attributes.

| kind | meaning                                        | size   | digest |
|------|------------------------------------------------|--------|--------|
| f    | regular file                                   | bytes  | BLAKE3 |
| d    | directory                                      | 0      | block  |
| l    | symbolic link                                  | 0      | none   |
| F D  | a file or directory that this user cannot read | bytes  | none   |
| p s  | FIFO, socket                                   | 0      | none   |
| c b  | character or block device                      | rdev   | none   |
| m    | another file system is mounted here            | 0      | none   |

Invariants
  B1  Names are sorted by their bytes; equal content gives equal facts, so equal digests.
  B2  A block is never changed; an unchanged directory keeps the very same object.
  B3  The stamp NEVER matches no inode: the entry must be read again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from blake3 import blake3

from holdfast.model.image import Image, Kind, Xattrs

Row: TypeAlias = tuple[int, ...]

FILE, DIRECTORY, SYMLINK = b"f", b"d", b"l"
LOCKED_FILE, LOCKED_DIRECTORY = b"F", b"D"
FIFO, SOCKET, CHARACTER_DEVICE, BLOCK_DEVICE, MOUNT = b"p", b"s", b"c", b"b", b"m"
SPECIAL_NAMES = {
    FIFO: "FIFO",
    SOCKET: "socket",
    CHARACTER_DEVICE: "character device",
    BLOCK_DEVICE: "block device",
    MOUNT: "other file system",
}

STAMP = struct.Struct("<QQqqIII")
NEVER = bytes(STAMP.size)
# One C call makes the tuple that STAMP unpacks to.
row_of: Callable[[os.stat_result], Row] = attrgetter(
    "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_uid", "st_gid"
)

_HEADER = struct.Struct("<III")  # entries, bytes of names, bytes of extras
_RECORD = struct.Struct("<cHIIQ32s")
_SIZES = struct.Struct("<c10xQ32x")
_EXTRA = struct.Struct("<II")  # position, bytes
_XATTR = struct.Struct("<II")  # bytes of name, bytes of value
_NO_DIGEST = bytes(32)
_FILE_BYTE = FILE[0]
_KINDS: dict[bytes, Kind] = {
    FILE: "file",
    LOCKED_FILE: "file",
    DIRECTORY: "directory",
    LOCKED_DIRECTORY: "directory",
    SYMLINK: "symlink",
}


class Malformed(ValueError):
    """Bytes that are no block."""


class Entry(NamedTuple):
    """One name in a directory as the walk found it; `stamp` is packed, `record` too."""

    record: bytes
    stamp: bytes
    extra: bytes = b""


class Special(NamedTuple):
    """Something that is recorded and never opened; `device` holds the device numbers, if it has any."""

    what: str
    mode: int
    uid: int
    gid: int
    device: int


class Block:
    """Equal to nothing but itself (B2); a plain class, because every `status` would pay for the making of another."""

    __slots__ = ("children", "digest", "facts", "stamps")

    def __init__(self, facts: bytes, stamps: bytes, children: dict[int, Block], digest: bytes) -> None:
        self.facts: Final = facts
        self.stamps: Final = stamps
        self.children: Final = children
        self.digest: Final = digest

    @property
    def count(self) -> int:
        return len(self.stamps) // STAMP.size

    @property
    def kinds(self) -> bytes:
        """One byte an entry."""
        start, end = self._records()
        return self.facts[start : end : _RECORD.size]

    def names(self) -> list[bytes]:
        start, _ = self._records()
        return self.facts[_HEADER.size : start].split(b"\0") if self.stamps else []

    def has_rows(self, start: int, rows: list[Row]) -> bool:
        """Are these the stat rows from `start` on? Packing the new ones costs half of unpacking the old ones."""
        at = start * STAMP.size
        try:
            return b"".join(starmap(STAMP.pack, rows)) == self.stamps[at : at + len(rows) * STAMP.size]
        except struct.error:
            return False  # a time after the year 2262, for which there is no stamp

    def differing(self, start: int, rows: list[Row]) -> list[int]:
        """Where, from `start` on, these are not the stat rows."""
        at = start * STAMP.size
        known = STAMP.iter_unpack(self.stamps[at : at + len(rows) * STAMP.size])
        return [start + n for n, (old, row) in enumerate(zip(known, rows, strict=True)) if old != row]

    def patched(self, changed: Mapping[int, Entry], children: dict[int, Block]) -> Block:
        """The same names, and other entries at some of them: what `sealed` would make of that."""
        start, end = self._records()
        facts, stamps = bytearray(self.facts), bytearray(self.stamps)
        for position, (record, stamp, _) in changed.items():
            at, place = start + position * _RECORD.size, position * STAMP.size
            facts[at : at + _RECORD.size], stamps[place : place + STAMP.size] = record, stamp
        if end < len(facts) or any(entry.extra for entry in changed.values()):
            extras = self.extras() | {position: entry.extra for position, entry in changed.items()}
            facts[end:] = _joined(extras)
            _HEADER.pack_into(facts, 0, self.count, start - _HEADER.size, len(facts) - end)
        return Block(bytes(facts), bytes(stamps), children, blake3(facts).digest())

    def row(self, position: int) -> Row:
        return STAMP.unpack_from(self.stamps, position * STAMP.size)

    def stamp(self, position: int) -> bytes:
        return self.stamps[position * STAMP.size : (position + 1) * STAMP.size]

    def record(self, position: int) -> bytes:
        start, _ = self._records()
        return self.facts[start + position * _RECORD.size : start + (position + 1) * _RECORD.size]

    def standing(self, position: int, row: Row) -> Image | None:
        """The image of an entry that has this stat row still; None for any other, and for specials."""
        at = position * STAMP.size
        try:
            if STAMP.pack(*row) != self.stamps[at : at + STAMP.size]:
                return None
        except struct.error:
            return None  # as above
        return self.image(position)

    def files_standing(self, positions: Sequence[int], rows: Sequence[Row]) -> list[Image | None]:
        """The same for many, and only for files without attributes."""
        _, names, extras = _HEADER.unpack_from(self.facts)
        facts, stamps, width, start = self.facts, self.stamps, STAMP.size, _HEADER.size + names
        pack, unpack = STAMP.pack, _RECORD.unpack_from
        with_attributes = self.extras() if extras else ()
        images: list[Image | None] = []
        for position, row in zip(positions, rows, strict=True):
            at, record = position * width, start + position * _RECORD.size
            try:
                stands = pack(*row) == stamps[at : at + width]
            except struct.error:
                stands = False  # as above
            if stands and facts[record] == _FILE_BYTE and position not in with_attributes:
                _, mode, uid, gid, size, digest = unpack(facts, record)
                images.append(tuple.__new__(Image, ("file", mode, uid, gid, size, digest.hex(), "", ())))
            else:
                images.append(None)
        return images

    def image(self, position: int) -> Image | None:
        _, names, extras = _HEADER.unpack_from(self.facts)
        at = _HEADER.size + names + position * _RECORD.size
        if not extras and self.facts[at] == _FILE_BYTE:  # nearly all
            _, mode, uid, gid, size, digest = _RECORD.unpack_from(self.facts, at)
            return Image("file", mode, uid, gid, size, digest.hex())
        return image_of(self.facts[at : at + _RECORD.size], self.extras().get(position, b""))

    def extras(self) -> dict[int, bytes]:
        _, at = self._records()
        found = {}
        while at < len(self.facts):
            position, size = _EXTRA.unpack_from(self.facts, at)
            at += _EXTRA.size
            found[position] = self.facts[at : at + size]
            at += size
        return found

    def content_bytes(self) -> int:
        """The bytes of the files in this directory itself."""
        start, end = self._records()
        rows = _SIZES.iter_unpack(self.facts[start:end])
        return sum(size for kind, size in rows if kind in (FILE, LOCKED_FILE))

    def records(self) -> list[tuple[bytes, bytes]]:
        """Record and extra of every entry."""
        extras = self.extras()
        start, end = self._records()
        places = range(start, end, _RECORD.size)
        return [(self.facts[at : at + _RECORD.size], extras.get(n, b"")) for n, at in enumerate(places)]

    def _records(self) -> tuple[int, int]:
        count, names, _ = _HEADER.unpack_from(self.facts)
        start = _HEADER.size + names
        return start, start + count * _RECORD.size


def sealed(names: list[bytes], entries: list[Entry], children: dict[int, Block]) -> Block:
    """Pack and digest one directory; `names` are sorted."""
    joined = b"\0".join(names)
    extras = _joined({position: entry.extra for position, entry in enumerate(entries) if entry.extra})
    parts = [_HEADER.pack(len(names), len(joined), len(extras)), joined, *(e.record for e in entries), extras]
    facts = b"".join(parts)
    return Block(facts, b"".join([e.stamp for e in entries]), children, blake3(facts).digest())


def _joined(extras: Mapping[int, bytes]) -> bytes:
    return b"".join(_EXTRA.pack(at, len(extras[at])) + extras[at] for at in sorted(extras) if extras[at])


def restored(facts: bytes, stamps: bytes, children: list[Block], digest: bytes) -> Block:
    """A block read back from the index, or Malformed."""
    if len(facts) < _HEADER.size:
        raise Malformed("a block without header")
    count, names, extras = _HEADER.unpack_from(facts)
    if len(facts) != _HEADER.size + names + count * _RECORD.size + extras or len(stamps) != count * STAMP.size:
        raise Malformed("the lengths of a block contradict each other")
    if count and facts.count(b"\0", _HEADER.size, _HEADER.size + names) != count - 1:
        raise Malformed("a block with too few or too many names")
    block = Block(facts, stamps, {}, digest)
    places = directories_in(block)
    if len(places) != len(children):
        raise Malformed("a block with too few or too many directories")
    block.children.update(zip(places, children, strict=True))
    return block


def packed(kind: bytes, row: Row, *, size: int = 0, digest: bytes = _NO_DIGEST) -> bytes:
    """The record of one entry. A link has no permissions of its own; all count as 0777."""
    _, _, _, _, mode, uid, gid = row
    return _RECORD.pack(kind, 0o777 if kind == SYMLINK else mode & 0o7777, uid, gid, size, digest)


# A mount point says nothing of what is mounted there, not even its owner.
MOUNT_RECORD = _RECORD.pack(MOUNT, 0, 0, 0, 0, _NO_DIGEST)


def image_of(record: bytes, extra: bytes) -> Image | None:
    """The image of an entry; None for specials. An unreadable file has an empty digest."""
    kind, mode, uid, gid, size, digest = _RECORD.unpack(record)
    word = _KINDS.get(kind)
    if word is None:
        return None
    if kind == SYMLINK:
        return Image(word, mode, uid, gid, target=os.fsdecode(extra))
    content = digest.hex() if kind == FILE else ""
    return Image(word, mode, uid, gid, size, content, xattrs=_unpacked_xattrs(extra))


def special_of(record: bytes) -> Special | None:
    kind, mode, uid, gid, size, _ = _RECORD.unpack(record)
    what = SPECIAL_NAMES.get(kind)
    return None if what is None else Special(what, mode, uid, gid, size)


def packed_xattrs(xattrs: Xattrs) -> bytes:
    return b"".join(_xattr_bytes(xattrs))


def _xattr_bytes(xattrs: Xattrs) -> Iterable[bytes]:
    for name, value in xattrs:
        raw_name, raw_value = os.fsencode(name), bytes.fromhex(value)
        yield _XATTR.pack(len(raw_name), len(raw_value)) + raw_name + raw_value


def _unpacked_xattrs(extra: bytes) -> Xattrs:
    found = []
    at = 0
    while at < len(extra):
        names, values = _XATTR.unpack_from(extra, at)
        at += _XATTR.size
        found.append((os.fsdecode(extra[at : at + names]), extra[at + names : at + names + values].hex()))
        at += names + values
    return tuple(found)


def _positions(kinds: bytes, wanted: bytes) -> list[int]:
    found = []
    at = kinds.find(wanted)
    while at >= 0:
        found.append(at)
        at = kinds.find(wanted, at + 1)
    return found


def directories_in(block: Block) -> list[int]:
    """Where the readable directories are."""
    return _positions(block.kinds, DIRECTORY)
