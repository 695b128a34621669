"""`audit verify`: is the ledger what was written, and if not, what was done to it and where?

The chain says at which line the trouble starts. What kind of trouble it is, the sequence numbers say,
with the next line as a witness:

    the first line that does not follow                                    problem
    ───────────────────────────────────────────────────────────────────────────────────────
    is an exact copy of an earlier line                                    duplicate
    has a later number; the expected one comes further down                reordered
    is nothing to the next line, which follows the line before it          inserted
    has a later number; the expected one is nowhere                        deleted
    anything else                                                          edited
    there is none, but the file ends before the anchor                     truncated
    there is none, but the anchor's record has another mac or place        rewritten
    there are records, and no anchor                                       anchor_missing
    the anchor is damaged, or made with another key                        anchor_invalid
    none of these, but the file has a second name (hard link)              linked

The first trouble is reported; what follows it is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Tampering
from holdfast.store.anchor import Anchor, Anchored
from holdfast.store.chain import Chain, Walk, claimed_seq, is_torn, lines_backwards, mac_of

Problem = Literal[
    "edited",
    "reordered",
    "deleted",
    "inserted",
    "duplicate",
    "truncated",
    "rewritten",
    "anchor_missing",
    "anchor_invalid",
    "linked",
]
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer. `line` and `seq` say where (0: nowhere in particular); `count` records before that are good.

    `unanchored` records follow the anchor, and `torn` bytes follow those: traces of a crash, and no problem.
    """

    ok: bool
    count: int
    message: str
    problem: Problem | None = None
    line: int = 0
    seq: int = 0
    hint: str = ""
    unanchored: int = 0
    torn: int = 0


class _File(NamedTuple):
    """The open ledger as it was when we looked."""

    calls: Calls
    chain: Chain
    fd: int
    size: int


def verification(calls: Calls, chain: Chain, anchor: Anchor, open_ledger: Callable[[], int | None]) -> Verification:
    """Check the whole ledger. The anchor is read first, so that a writer at work cannot look like tampering."""
    try:
        anchored = anchor.load()
    except Tampering as error:
        return Verification(False, 0, error.message, "anchor_invalid", hint=error.hint)
    fd = open_ledger()
    if fd is None:
        return _judged_absent(anchored)
    try:
        about = calls.fstat(fd)
        file = _File(calls, chain, fd, about.st_size)
        if anchored is not None:
            judged = _judged(file, anchored)
            return _linked(judged.count) if judged.ok and about.st_nlink != 1 else judged
        if not file.size:
            return Verification(True, 0, "the ledger is empty")
        missing = anchor.missing()
        return Verification(False, 0, missing.message, "anchor_missing", hint=missing.hint)
    finally:
        calls.close(fd)


def proven_lines(
    calls: Calls, chain: Chain, anchor: Anchor, open_ledger: Callable[[], int | None]
) -> tuple[list[bytes], list[bytes]]:
    """The lines that follow from the seed, and those after the break that lead back from the anchor; oldest first."""
    try:
        anchored = anchor.load()
    except Tampering:
        anchored = None
    try:
        fd = open_ledger()
    except Tampering:  # a link, or no file at all
        fd = None
    if fd is None:
        return [], []
    try:
        file = _File(calls, chain, fd, calls.fstat(fd).st_size)
        walk = chain.walk(calls, fd, 0, file.size, chain.seed)
        before = list(_lines(file, 0, walk.offset))
        if walk.offset == file.size:  # nothing is wrong with what stands in it
            return before, []
        mac = b"" if anchored is None else anchored.mac.encode("ascii")
        end = _end_of(file, walk.offset, mac)
        rest = chain.walk(calls, fd, end, file.size, mac)
        return before, [*reversed(_led_back(file, end, mac, walk.mac)), *_lines(file, end, rest.offset)]
    finally:
        calls.close(fd)


def _end_of(file: _File, start: int, mac: bytes) -> int:
    """Where the anchor's record ends, which moved if something before it was taken away; the end if it is gone."""
    offset = start
    for line in _lines(file, start):
        offset += len(line) + 1
        if mac and mac_of(line) == mac:
            return min(offset, file.size)
    return file.size


def _led_back(file: _File, end: int, mac: bytes, last_good: bytes) -> list[bytes]:
    """Newest first. The mac of each is in the proof of the line after it; that of the newest is in the anchor."""
    found: list[bytes] = []
    lines = lines_backwards(file.calls, file.fd, end)
    line = next(lines, b"")
    while line and mac and mac_of(line) == mac:
        older = next(lines, b"")
        follows = file.chain.follows(line, mac_of(older))
        # A line that somebody put in between is passed over: what follows it follows the one before it.
        if not follows and not file.chain.follows(line, last_good):
            break
        found.append(line)
        if not follows:
            break
        line, mac = older, mac_of(older)
    return found


def _linked(count: int) -> Verification:
    return Verification(False, count, "it has a second name (hard link), by which it could be changed", "linked")


def _judged_absent(anchored: Anchored | None) -> Verification:
    if anchored is None or not anchored.seq:
        return Verification(True, 0, "the ledger is empty")
    gone = f"the ledger is gone; it had {_records(anchored.seq)}"
    return Verification(False, 0, gone, "truncated", line=1, seq=1)


def _judged(file: _File, anchored: Anchored) -> Verification:
    walk = file.chain.walk(file.calls, file.fd, 0, min(anchored.length, file.size), file.chain.seed)
    if walk.rest and (file.size >= anchored.length or walk.rest.endswith(b"\n")):
        return _diagnosed(file, walk, anchored.seq)
    if file.size < anchored.length:
        return _truncated(walk, anchored)
    if (walk.good, walk.mac.decode("ascii")) != (anchored.seq, anchored.mac):
        place = f"the ledger has {_records(walk.good)} where its anchor has {anchored.seq}, or others"
        return Verification(False, 0, place, "rewritten", line=walk.good, seq=walk.good)
    return _judged_beyond(file, walk)


def _judged_beyond(file: _File, anchored: Walk) -> Verification:
    """Lines after the anchor: what a crash leaves is accepted, a whole line that is wrong is not."""
    walk = file.chain.walk(file.calls, file.fd, anchored.offset, file.size, anchored.mac)
    count = anchored.good + walk.good
    if walk.rest and not is_torn(walk.rest):
        return _diagnosed(file, walk._replace(good=count), 0)
    torn = file.size - walk.offset
    message = f"{_records(count)}, all as written"
    if walk.good:
        message += f"; the last {walk.good} newer than the anchor (a crash)"
    if torn:
        message += f"; {torn} bytes of an unfinished record at the end (a crash)"
    return Verification(True, count, message, unanchored=walk.good, torn=torn)


def _truncated(walk: Walk, anchored: Anchored) -> Verification:
    first = walk.good + 1
    missing = f"record {first} is" if first == anchored.seq else f"records {first} to {anchored.seq} are"
    message = f"the ledger was cut off after line {walk.good}: {missing} missing"
    return Verification(False, walk.good, message, "truncated", line=first, seq=first)


def _diagnosed(file: _File, walk: Walk, newest: int) -> Verification:
    """Name what was done at the first line that does not follow; `newest` is the anchor's record, 0 beyond it."""
    problem, what = _cause(file, walk, newest)
    expected = walk.good + 1  # good lines and their records have the same numbers
    return Verification(False, walk.good, f"line {expected}: {what}", problem, line=expected, seq=expected)


def _cause(file: _File, walk: Walk, newest: int) -> tuple[Problem, str]:
    expected, rest = walk.good + 1, _lines(file, walk.offset)
    bad, after = next(rest), next(rest, b"")
    seq, later = claimed_seq(bad), {claimed_seq(line) for line in (after, *rest)}
    # A record of ours that stands too early: its number is possible, and nowhere else.
    early = seq is not None and expected < seq <= (newest or seq) and seq not in later
    if _occurs_before(file, walk.offset, bad):
        return "duplicate", f"record {seq} is here a second time, where record {expected} should be"
    if early and expected in later:
        return "reordered", f"record {seq} stands where record {expected} should be"
    if file.chain.follows(after, walk.mac):
        return "inserted", f"a line that is no record of this ledger, before record {expected}"
    if early and claimed_seq(after) != expected + 1:
        missing = f"record {expected} is" if seq == expected + 1 else f"the records from {expected} on are"
        return "deleted", f"{missing} missing before record {seq}"
    return "edited", f"record {expected} is not what was written"


def _occurs_before(file: _File, end: int, wanted: bytes) -> bool:
    return any(line == wanted for line in _lines(file, 0, end))


def _lines(file: _File, start: int, end: int | None = None) -> Iterator[bytes]:
    """The lines from `start`, without newlines, whatever they are."""
    offset, limit, rest = start, file.size if end is None else end, b""
    while offset < limit:
        chunk = file.calls.pread(file.fd, min(_CHUNK, limit - offset), offset)
        if not chunk:
            break
        offset += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
