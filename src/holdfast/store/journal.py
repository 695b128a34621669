"""The journal: what a transaction intends, written so that recovery needs nothing else.

    journal/head            one 512-byte sector: the state of the newest prepared transaction
    journal/<txn>/log       records of what it will do; complete and durable before the head says PREPARED
    journal/<txn>/<n>       slots: before a flip the new object, after it the old one
    journal/<txn>/          its sticky bit is a mark that goes just before the head says PREPARED (see workspace.folder)

    head:  PREPARED ──commit──▶ COMMITTED
              ├─────rollback──▶ ABORTED
              └──a person says▶ LEFT      rolled back but for what others changed since; the old objects are kept

Invariants
  J1  The head names a transaction PREPARED only after its log and its slots are durable.
  J2  Nothing in the workspace changes before the head says PREPARED, durably.
  J3  One sector write moves the head; that write, synced, is the commit point.
  J4  A log is never larger than LOG_LIMIT: what would be is refused before the head names it.
  J5  A log is accepted only whole: lengths, checksums and the hash chain agree with the head's root.
      Anything else under a PREPARED head is damage, and damage is refused, never guessed at.

Log format, version 1: b"HFLOG001", then records [u32 length][u32 crc32][JSON], where the JSON is one of
  ["begin", {header}]  ["ops", [[action, path, slot, pre, post]…]]  ["parents", [[path, inode, mtime]…]]
The root is SHA-256 over all record bytes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Blocked, Tampering
from holdfast.model.canonical import Json, canonical_rows, quoted
from holdfast.model.image import Image, Kind, Seen, Stamp, seen_text
from holdfast.store.private import create_in

HeadState = Literal["PREPARED", "COMMITTED", "ABORTED", "LEFT"]
Action = Literal["flip", "mode"]

SECTOR = 512
LOG_LIMIT = 1 << 30
_HEAD_MAGIC = b"HFHEAD01"
_LOG_MAGIC = b"HFLOG001"
_FRAME = struct.Struct("<II")
_OPS_A_RECORD = 512
# What is read gets our own strings: 100,000 copies of four words would be megabytes.
_ACTIONS: dict[str, Action] = {"flip": "flip", "mode": "mode"}
_KINDS: dict[str, Kind] = {"file": "file", "directory": "directory", "symlink": "symlink"}
_TXN = re.compile(r"[a-z]-[a-z0-9]{4,32}")


class Head(NamedTuple):
    state: HeadState
    txn: str
    root: str


class Op(NamedTuple):
    """One atomic move of the namespace. A flip swaps a path with its slot; `mode` sets permission bits in place."""

    action: Action
    path: str
    slot: str
    pre: Seen | None
    post: Seen | None


class Parent(NamedTuple):
    """A directory whose modification time the transaction will disturb."""

    path: str
    inode: int
    mtime_ns: int


class Log(NamedTuple):
    header: dict[str, Json]
    ops: tuple[Op, ...]
    parents: tuple[Parent, ...]
    root: str


def log_chunks(
    header: dict[str, Json], ops: Sequence[Op], parents: Sequence[Parent], limit: int = LOG_LIMIT
) -> Iterator[bytes]:
    """The bytes of a log, piece by piece, so that 100,000 operations need little memory; Blocked past `limit` (J4)."""
    size = 0
    for chunk in _log_chunks(header, ops, parents):
        size += len(chunk)
        if size > limit:
            raise Blocked(
                f"the change is too large to be taken back after a crash: its journal would be over {limit:,} bytes",
                hint="Nothing was changed. Make it in several smaller ones.",
            )
        yield chunk


def _log_chunks(header: dict[str, Json], ops: Sequence[Op], parents: Sequence[Parent]) -> Iterator[bytes]:
    yield _LOG_MAGIC
    yield _record(["begin", header])
    for start in range(0, len(ops), _OPS_A_RECORD):
        rows = ",".join([_op_text(op) for op in ops[start : start + _OPS_A_RECORD]])
        yield _framed(f'["ops",[{rows}]]'.encode("ascii"))
    yield _record(["parents", parents])


def parse_log(data: bytes) -> Log:
    """The log, or Tampering when it is not whole."""
    try:
        return _parse_log(data)
    except (ValueError, TypeError, LookupError) as error:
        raise Tampering(f"the journal holds something that is not a journal record: {error}") from error


def _parse_log(data: bytes) -> Log:
    if data[:8] != _LOG_MAGIC:
        raise Tampering("the journal does not start as a journal")
    header: dict[str, Json] | None = None
    ops: list[Op] = []
    parents: tuple[Parent, ...] | None = None
    for record in _records(data):
        kind, body = record[0], record[1]
        if kind == "begin" and header is None:
            header = body
        elif kind == "ops" and header is not None and parents is None:
            ops.extend(_op(row) for row in body)
        elif kind == "parents" and header is not None and parents is None:
            parents = tuple(Parent(*row) for row in body)
        else:
            raise Tampering(f"the journal has a record out of place: {kind!r}")
    if header is None or parents is None:
        raise Tampering("the journal ends too early")
    return Log(header, tuple(ops), parents, hashlib.sha256(data).hexdigest())


def read_head(calls: Calls, journal: int) -> Head | None:
    """The head sector; None when no transaction was ever prepared here. Tampering when it is missing or damaged."""
    fd = _open_head(calls, journal, os.O_RDONLY)
    try:
        sector = calls.pread(fd, SECTOR + 1, 0)
    finally:
        calls.close(fd)
    return _parse_head(sector)


def _open_head(calls: Calls, journal: int, flags: int) -> int:
    """Regular or not at all, and without blocking: a planted FIFO must not hang us."""
    try:
        fd = calls.open("head", flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=journal)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        # A workspace is complete only with its head; without it nobody knows what was going on.
        raise Tampering(f"the journal head is missing or no file: {error.strerror}", hint=_DAMAGE_HINT) from error
    if stat.S_ISREG(calls.fstat(fd).st_mode):
        return fd
    calls.close(fd)
    raise Tampering("the journal head is not a regular file", hint=_DAMAGE_HINT)


def create_head(calls: Calls, journal: int, aside: int | None = None) -> None:
    """Allocate the sector once, durably, so that later writes change no metadata.

    It appears whole and never replaces one: whoever creates the same state at that moment may be at work already.
    It is written in `aside`: what a kill leaves in the journal would be taken for planted.
    """
    create_in(journal, "head", bytes(SECTOR), calls, aside)
    calls.fsync(journal)


def write_head(calls: Calls, journal: int, head: Head) -> None:
    """One sector, one sync. When the sync fails the state is in doubt: the caller must not acknowledge."""
    body = canonical_rows([head.state, head.txn, head.root])
    sector = _HEAD_MAGIC + _FRAME.pack(len(body), zlib.crc32(body)) + body
    fd = _open_head(calls, journal, os.O_WRONLY)
    try:
        if calls.pwrite(fd, sector.ljust(SECTOR, b"\0"), 0) != SECTOR:
            raise OSError(5, "the journal head was written only in part")
        calls.fdatasync(fd)
    finally:
        calls.close(fd)


def _parse_head(sector: bytes) -> Head | None:
    if sector == bytes(SECTOR):
        return None
    if len(sector) != SECTOR:
        raise Tampering("the journal head was cut off or extended", hint=_DAMAGE_HINT)
    length, crc = _FRAME.unpack_from(sector, 8)
    body = sector[16 : 16 + length]
    intact = sector[:8] == _HEAD_MAGIC and len(body) == length and zlib.crc32(body) == crc
    if not intact or any(sector[16 + length :]):
        raise Tampering("the journal head is damaged", hint=_DAMAGE_HINT)
    match json.loads(body or b"null"):
        case [("PREPARED" | "COMMITTED" | "ABORTED" | "LEFT") as state, str(txn), str(root)] if _TXN.fullmatch(txn):
            return Head(state, txn, root)
    raise Tampering("the journal head does not say what a head says", hint=_DAMAGE_HINT)


_DAMAGE_HINT = (
    "Nothing was changed. The old files of an open transaction are in .holdfast/journal/; look before you delete it."
)


def _record(value: object) -> bytes:
    return _framed(canonical_rows(value))


def _framed(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _op_text(op: Op) -> str:
    action, path, slot, pre, post = op
    return f'["{action}",{quoted(path)},{quoted(slot)},{seen_text(pre)},{seen_text(post)}]'


def _records(data: bytes) -> Iterator[list[Any]]:
    at = len(_LOG_MAGIC)
    while at < len(data):
        if at + _FRAME.size > len(data):
            raise Tampering("the journal ends inside a record")
        length, crc = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) != length or zlib.crc32(payload) != crc:
            raise Tampering(f"the journal is damaged at byte {at}")
        yield json.loads(payload)
        at += _FRAME.size + length


def _op(row: list[Any]) -> Op:
    action, path, slot, pre, post = row
    if action not in _ACTIONS:
        raise Tampering(f"the journal names an unknown action: {action!r}")
    return Op(_ACTIONS[action], path, slot, _seen(pre), _seen(post))


def _seen(row: list[Any] | None) -> Seen | None:
    if row is None:
        return None
    image, stamp = row
    image[0] = _KINDS[image[0]]
    image[7] = tuple((name, value) for name, value in image[7]) if image[7] else ()
    return Seen(Image._make(image), Stamp._make(stamp))
