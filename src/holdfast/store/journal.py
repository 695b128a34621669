"""The journal: what a transaction intends, written so that recovery needs nothing else.

    journal/head            one 512-byte sector: the state of the newest prepared transaction
    journal/<txn>/log       records of what it will do; complete and durable before the head says PREPARED
    journal/<txn>/<n>       slots: before a flip the new object, after it the old one

    head:  PREPARED ──commit──▶ COMMITTED
              └─────rollback──▶ ABORTED

Invariants
  J1  The head names a transaction PREPARED only after its log and its slots are durable.
  J2  Nothing in the workspace changes before the head says PREPARED, durably.
  J3  One sector write moves the head; that write, synced, is the commit point.
  J4  A log is accepted only whole: lengths, checksums and the hash chain agree with the head's root.
      Anything else under a PREPARED head is damage, and damage is refused, never guessed at.

Log format, version 1: b"HFLOG001", then records [u32 length][u32 crc32][JSON], where the JSON is one of
  ["begin", {header}]  ["ops", [[action, path, slot, pre, post]…]]  ["parents", [[path, inode, mtime]…]]
The root is SHA-256 over all record bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Tampering
from holdfast.model.canonical import Json, canonical_rows
from holdfast.model.image import Image, Seen, Stamp

HeadState = Literal["PREPARED", "COMMITTED", "ABORTED"]
Action = Literal["flip", "mode"]

SECTOR = 512
_HEAD_MAGIC = b"HFHEAD01"
_LOG_MAGIC = b"HFLOG001"
_FRAME = struct.Struct("<II")
_OPS_A_RECORD = 512
_STATES: tuple[HeadState, ...] = ("PREPARED", "COMMITTED", "ABORTED")


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


def log_chunks(header: dict[str, Json], ops: Sequence[Op], parents: Sequence[Parent]) -> Iterator[bytes]:
    """The bytes of a log, piece by piece, so that 100,000 operations need little memory."""
    yield _LOG_MAGIC
    yield _record(["begin", header])
    for start in range(0, len(ops), _OPS_A_RECORD):
        yield _record(["ops", ops[start : start + _OPS_A_RECORD]])
    yield _record(["parents", parents])


def parse_log(data: bytes) -> Log:
    """The log, or Tampering when it is not whole."""
    try:
        return _parse_log(data)
    except (ValueError, TypeError, IndexError) as error:
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
    """The head sector; None when no transaction was ever prepared here."""
    try:
        fd = calls.open("head", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=journal)
    except FileNotFoundError:
        return None
    try:
        sector = calls.pread(fd, SECTOR + 1, 0)
    finally:
        calls.close(fd)
    return _parse_head(sector)


def create_head(calls: Calls, journal: int) -> None:
    """Allocate the sector once, durably, so that later writes change no metadata."""
    fd = calls.open("head", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=journal)
    try:
        if calls.fstat(fd).st_size == 0:
            calls.pwrite(fd, bytes(SECTOR), 0)
        calls.fsync(fd)
    finally:
        calls.close(fd)
    calls.fsync(journal)


def write_head(calls: Calls, journal: int, head: Head) -> None:
    """One sector, one sync. When the sync fails the state is in doubt: the caller must not acknowledge."""
    body = canonical_rows([head.state, head.txn, head.root])
    sector = _HEAD_MAGIC + _FRAME.pack(len(body), zlib.crc32(body)) + body
    fd = calls.open("head", os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=journal)
    try:
        if calls.pwrite(fd, sector.ljust(SECTOR, b"\0"), 0) != SECTOR:
            raise OSError(5, "the journal head was written only in part")
        calls.fdatasync(fd)
    finally:
        calls.close(fd)


def _parse_head(sector: bytes) -> Head | None:
    if sector == bytes(SECTOR) or not sector:
        return None
    length, crc = _FRAME.unpack_from(sector, 8) if len(sector) == SECTOR else (0, 0)
    body = sector[16 : 16 + length]
    intact = sector[:8] == _HEAD_MAGIC and len(body) == length and zlib.crc32(body) == crc
    if not intact or any(sector[16 + length :]):
        raise Tampering("the journal head is damaged", hint=_DAMAGE_HINT)
    state, txn, root = json.loads(body)
    if state not in _STATES:
        raise Tampering("the journal head names an unknown state", hint=_DAMAGE_HINT)
    return Head(state, txn, root)


_DAMAGE_HINT = "Nothing was changed. The old files of an open transaction are in .holdfast/journal/; ask for help before deleting it."


def _record(value: object) -> bytes:
    payload = canonical_rows(value)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


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
    return Op(action, path, slot, _seen(pre), _seen(post))


def _seen(row: list[Any] | None) -> Seen | None:
    if row is None:
        return None
    image, stamp = row
    image[7] = tuple((name, value) for name, value in image[7])
    return Seen(Image(*image), Stamp(*stamp))
