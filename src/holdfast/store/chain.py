"""The chain: how one record becomes one line, and how lines are checked.

    {"at":1700000000000000000,"body":{…},"kind":"execution","seq":12,"v":1, "mac": "<64 hex>"}\\n
    └──────────────────────── stem: canonical form, no newline ───────────┘└─ trailer ───────┘

    mac(n) = keyed BLAKE2b-256 over the hex of mac(n-1), `"}` and newline, and the stem of line n.
    mac(0) is the workspace's seed. So mac(n) covers the file from the mac before it up to its own trailer.

Invariants
  H1  Every byte of a line is hashed or compared, and nothing is parsed before its mac is right.
  H2  A mac fixes all records before it, their order and their workspace.
  H3  Lines are ASCII: a name with control or bidi characters is stored escaped.
  H4  The blanks in the trailer occur nowhere else outside a string, and inside one a quote is escaped:
      splitting at `, "mac": "` finds the trailers and nothing else, so whole chunks are checked without a parser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Unsupported
from holdfast.model.canonical import Json, canonical

VERSION = 1
_MAC = b', "mac": "'
_END = b'"}\n'
TRAILER = len(_MAC) + 64 + len(_END) - 1
_CHUNK = 1 << 17  # stays in the second-level cache: splitting 30 MB at once costs twice as much
_PERSON = b"holdfast-ledger1"
_SEED_PERSON = b"holdfast-seed-01"


class Record(NamedTuple):
    """What a caller wants remembered. Never put a secret in `body`: a ledger cannot forget."""

    kind: str
    body: dict[str, Json]
    at_ns: int


class Entry(NamedTuple):
    """A record in the ledger."""

    seq: int
    kind: str
    body: dict[str, Json]
    at_ns: int
    mac: str


class Walk(NamedTuple):
    """How many lines of a stretch are good, up to which `offset`; `rest` is what follows there.

    `rest` is empty at the end of the stretch, otherwise the first bad line:
    with its newline, or without one when the file ends inside the line.
    """

    good: int
    mac: bytes
    offset: int
    rest: bytes


def trailer(mac: bytes) -> bytes:
    return b'%b%b"}' % (_MAC, mac)


class Chain:
    """The arithmetic of one workspace's ledger."""

    def __init__(self, key: bytes, workspace_id: str) -> None:
        seed = blake2b(workspace_id.encode(), key=key, digest_size=32, person=_SEED_PERSON)
        self.seed = seed.hexdigest().encode("ascii")
        # The newline makes BLAKE2 digest the key's block now, once, and not again for each record.
        self._keyed = blake2b(b"\n", key=key, digest_size=32, person=_PERSON)

    def mac(self, previous: bytes, stem: bytes) -> bytes:
        state = self._keyed.copy()
        state.update(previous + _END + stem)
        return state.hexdigest().encode("ascii")

    def follows(self, line: bytes, previous: bytes) -> bool:
        """True when the line (without newline) is the record after the one with mac `previous`."""
        return line[-TRAILER:] == trailer(self.mac(previous, line[:-TRAILER]))

    def seal(self, record: Record, seq: int, previous: bytes) -> tuple[bytes, bytes]:
        """The line with its newline, and its mac."""
        kind, body, at_ns = record
        stem = canonical({"at": at_ns, "body": body, "kind": kind, "seq": seq, "v": VERSION})[:-1]
        mac = self.mac(previous, stem)
        return stem + trailer(mac) + b"\n", mac

    def walk(self, calls: Calls, fd: int, start: int, end: int, previous: bytes) -> Walk:
        """Check the lines from `start` to `end`; `previous` is the mac before them."""
        count, offset, rest = 0, start, b""
        while offset + len(rest) < end:
            chunk = calls.pread(fd, min(_CHUNK, end - offset - len(rest)), offset + len(rest))
            if not chunk:
                break
            cut = chunk.rfind(b"\n") + 1
            text, rest = (rest + chunk[:cut], chunk[cut:]) if cut else (b"", rest + chunk)
            last = self._last_mac(text, previous)
            if last is None:
                return self._first_bad(text, count, offset, previous)
            count, offset, previous = count + text.count(b"\n"), offset + len(text), last
        return Walk(count, previous, offset, rest)

    def _last_mac(self, lines: bytes, previous: bytes) -> bytes | None:
        """The mac of the last of some whole lines, None unless all of them follow from `previous` (H4)."""
        pieces = lines.split(_MAC)
        pieces[0] = previous + _END + pieces[0]
        last = pieces.pop()
        fresh, macs = self._keyed.copy, []
        for piece in pieces:
            state = fresh()
            state.update(piece)
            macs.append(state.hexdigest())
        found = b"".join([piece[:64] for piece in pieces]) + last
        expected = previous + "".join(macs).encode("ascii") + _END
        return found[-67:-3] if found == expected else None

    def _first_bad(self, text: bytes, count: int, offset: int, previous: bytes) -> Walk:
        for line in text[:-1].split(b"\n"):
            if not self.follows(line, previous):
                return Walk(count, previous, offset, line + b"\n")
            count, offset, previous = count + 1, offset + len(line) + 1, mac_of(line)
        raise AssertionError("the quick check found a fault that the slow one cannot find")


def mac_of(line: bytes) -> bytes:
    """The mac a line claims to have."""
    return line[-66:-2]


def claimed_seq(line: bytes) -> int | None:
    """The sequence number a line claims, None when it does not look like one record."""
    if line.count(_MAC) != 1:  # two records whose newline was taken away are no record
        return None
    number, found, version = line[:-TRAILER].rpartition(b',"seq":')[2].partition(b',"v":')
    return int(number) if found and number.isdigit() and version.isdigit() else None


def decoded(line: bytes) -> Entry:
    """The entry in a line whose mac was checked."""
    fields = json.loads(line)
    if fields["v"] != VERSION:
        raise Unsupported(f"a ledger record has version {fields['v']}; this Holdfast knows version {VERSION}")
    return Entry(fields["seq"], fields["kind"], fields["body"], fields["at"], fields["mac"])


def is_torn(line: bytes) -> bool:
    """True for what a crash in the middle of a write can leave where a line should be."""
    return not line.endswith(b"\n") or b"\0" in line


def lines_backwards(calls: Calls, fd: int, end: int) -> Iterator[bytes]:
    """The lines (without newlines) that end at `end`, newest first; the file is read as far as asked for."""
    tail, end = b"", end - 1  # without the newline that ends the newest line
    while end > 0:
        start = max(0, end - _CHUNK)
        first, *whole = (calls.pread(fd, end - start, start) + tail).split(b"\n")
        yield from reversed(whole)
        tail, end = first, start  # `first` may begin in an earlier chunk
    if tail:
        yield tail
