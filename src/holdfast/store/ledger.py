"""The ledger: everything that happened, one line each, append-only.

    where the file ends                          reading                append
    ─────────────────────────────────────────────────────────────────────────────────────────────────
    before the anchor                            Tampering              Tampering
    at the anchor, same mac                      fine                   writes, syncs, advances the anchor
    at the anchor, another mac                   Tampering              Tampering
    beyond it, lines that follow                 fine (a crash)         writes them again with the new ones
    beyond it, then a torn line                  fine, torn part unseen cuts it off first
    beyond it, then a whole line that is wrong   Tampering              Tampering

A torn line is one without a newline, or with a zero byte, which no record contains:
after a power loss a page that was never written reads as zeros.

Invariants
  L1  A record is durable when `append` returns; the anchor is advanced after that and only then.
  L2  One append is one write and one fdatasync; its cost does not grow with the ledger.
  L3  A failed write or sync is raised and never retried. What was written is cut off again, so that no later
      sync can be taken for proof of pages that the kernel has dropped; until then the record is in doubt.
      For the same reason lines beyond the anchor are written again before the anchor vouches for them.
  L4  Nothing is returned to a caller before its mac was checked, in either direction:
      backwards, the trusted mac of a line proves the mac that the line before it claims.

  L5  What the anchor cannot see, an edit of an older record, is found before anything else is changed:
      `require_whole` walks over all records, unless the file looks as it did when that was last done (`verified`).

The caller holds the workspace's lock while it appends; readers need none, because they read the anchor first.
Deliberately absent: any way to change or remove a record, but for `start_anew`, by which a person accepts that the
file is broken: it makes a new one of what can still be proven, and keeps the old. And space reserved ahead.
Reserved blocks (fallocate, size kept) were measured on ext4 and save nothing: each append still changes the size
and turns a reserved extent into a written one, which is the same journal commit as allocating a block.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Tampering
from holdfast.model.canonical import Json, canonical
from holdfast.store.anchor import Anchor, Anchored
from holdfast.store.chain import TRAILER, Chain, Entry, Record, decoded, is_torn, lines_backwards, mac_of, trailer
from holdfast.store.keys import KEY_BYTES
from holdfast.store.private import READ, READ_WRITE, Opened, open_regular
from holdfast.store.verified import Look, VerifiedMark, look_of

if TYPE_CHECKING:
    from holdfast.store.audit import Verification

LEDGER_NAME = "ledger.jsonl"
_CHUNK = 1 << 17
_HINT = "See where with: holdfast audit verify. Go on all the same with: holdfast audit accept"


class Head(NamedTuple):
    """The newest record: its number, its mac, and where its line ends."""

    seq: int
    mac: str
    length: int


class Tail(NamedTuple):
    """What stands at the end: the head, the good lines beyond the anchor, and whether a torn line follows."""

    head: Head
    beyond: bytes
    torn: bool


def _broken(message: str) -> Tampering:
    return Tampering(f"the ledger is broken: {message}", hint=_HINT)


class Ledger:
    """The ledger of one workspace. `state` is the state directory: its path, or an open descriptor of it."""

    def __init__(self, state: int | str, key: bytes, workspace_id: str, anchor_path: str, calls: Calls = CALLS) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes, not {KEY_BYTES}")
        self._directory = state if isinstance(state, int) else None
        self._path = LEDGER_NAME if isinstance(state, int) else os.path.join(state, LEDGER_NAME)
        self._calls = calls
        self._chain = Chain(key, workspace_id)
        self._anchor = Anchor(anchor_path, key, workspace_id, calls)
        self._verified = VerifiedMark(anchor_path, key, workspace_id, calls)

    def append(self, kind: str, body: dict[str, Json], at_ns: int) -> Entry:
        """Make one record durable. OSError: it is not recorded, or, after a failed sync, in doubt (L3)."""
        return self.append_many((Record(kind, body, at_ns),))[0]

    def append_many(self, records: Sequence[Record]) -> tuple[Entry, ...]:
        """Make several records durable with one write and one sync; after a crash a first part may be there."""
        if not records:
            return ()
        held = self._hold_anchor()
        try:
            return self._append_and_anchor(held, records)
        finally:
            self._calls.close(held)

    def confirm(self) -> None:
        """Make durable what a process wrote and did not live to sync (L3).

        Call it before relying on a record that was read and not appended: until then it may be in memory only.
        What the anchor vouches for was synced before the anchor moved, so usually there is nothing to do.
        """
        if not self._is_beyond_anchor():
            return
        held = self._hold_anchor()
        try:
            self._append_and_anchor(held, ())
        finally:
            self._calls.close(held)

    def _is_beyond_anchor(self) -> bool:
        fd, anchored = self._open_to_read()
        if fd is None or anchored is None:
            return False
        try:
            tail = self._tail(fd, self._calls.fstat(fd).st_size, anchored)
        finally:
            self._calls.close(fd)
        return bool(tail.beyond) or tail.torn

    def head(self) -> Head | None:
        """The newest record, from the tail alone; None when the ledger is empty."""
        fd, anchored = self._open_to_read()
        if fd is None or anchored is None:
            return None
        try:
            head = self._tail(fd, self._calls.fstat(fd).st_size, anchored).head
        finally:
            self._calls.close(fd)
        return head if head.seq else None

    def entries(self, *, reverse: bool = False) -> Iterator[Entry]:
        """All records, each checked before it is given out (L4); Tampering at the first that is not ours."""
        return (decoded(line) for line in (self._backwards() if reverse else self._forwards()))

    def find(self, kind: str, execution_id: str) -> Entry | None:
        """The newest record of this kind whose body has this `execution_id`."""
        wanted = b'"execution_id":' + canonical(execution_id)
        for line in self._backwards():
            if wanted in line:
                entry = decoded(line)
                if entry.kind == kind and entry.body.get("execution_id") == execution_id:
                    return entry
        return None

    def verify(self) -> Verification:
        """Check every byte against the chain and the anchor, and say what is wrong where."""
        from holdfast.store.audit import verification  # only `audit verify` pays for it

        return verification(self._calls, self._chain, self._anchor, self._open_if_there)

    def require_whole(self) -> None:
        """Tampering unless every record is what was written (L5); a few small reads where nobody touched the file."""
        fd, anchored = self._open_to_read()
        if fd is None or anchored is None:
            return
        try:
            about = self._calls.fstat(fd)
            if self._verified.load() == look_of(about) and about.st_nlink == 1:
                self._tail(fd, about.st_size, anchored)
                return
            looked = self._settled_look(fd)
        finally:
            self._calls.close(fd)
        found = self.verify()
        if not found.ok:
            raise _broken(found.message)
        # Of the time before the walk: what was written since then is not in the mark.
        if looked is not None:
            self._verified.save(looked)

    def _untrue(self, seen: str) -> Tampering:
        """What was `seen` first depends on where one looks: an edit of an old record moves the end. All records are
        read for the cause, so that every verb says the same of the same ledger."""
        try:
            found = self.verify()
        except OSError:
            return _broken(seen)
        return _broken(seen if found.ok else found.message)

    def _settled_look(self, fd: int) -> Look | None:
        """What the file looks like, once a page that somebody has mapped and written is on the disk (W4)."""
        try:
            self._calls.fdatasync(fd)
        except OSError:
            return None
        return self._look(fd)

    def newest(self, kind: str) -> Entry | None:
        """The newest record of this kind."""
        wanted = b'"kind":' + canonical(kind)
        return next(
            (entry for line in self._backwards() if wanted in line and (entry := decoded(line)).kind == kind), None
        )

    def proven(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """What a broken ledger can still prove: the records before the break, and those after it.

        The first follow from the seed, the others lead back from the anchor. Nothing between them is believed.
        """
        from holdfast.store.audit import proven_lines  # only `audit accept` pays for it

        before, after = proven_lines(self._calls, self._chain, self._anchor, self._open_if_there)
        return tuple(map(decoded, before)), tuple(map(decoded, after))

    def provable(self) -> tuple[Entry, ...]:
        """For looking: all records, and of a broken ledger those that can still be proven."""
        try:
            return tuple(self.entries())
        except Tampering:
            before, after = self.proven()
            return (*before, *after)

    def start_anew(self, records: Sequence[Record], aside: str) -> None:
        """A new file of these records in place of a broken one, which is kept under the name `aside`.

        Killed on the way, the ledger is the old one, or the new one without its anchor: broken either way, and to be
        accepted again. The exchange is one step, so that neither of the two is ever lost.
        """
        _, lines = self._sealed(records, Head(0, self._chain.seed.decode("ascii"), 0))
        folder = self._open_directory()
        try:
            fd = open_regular(aside, READ_WRITE | os.O_CREAT | os.O_TRUNC, self._calls, folder).fd
            try:
                if self._calls.pwrite(fd, lines, 0) != len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), aside)
                self._calls.fsync(fd)
            finally:
                self._calls.close(fd)
            try:
                self._calls.exchange(aside, folder, LEDGER_NAME, folder)
            except FileNotFoundError:
                self._calls.move(aside, folder, LEDGER_NAME, folder)
            self._calls.fsync(folder)
        finally:
            self._calls.close(folder)
        self._calls.point("ledger.anew")
        mac = mac_of(lines.rstrip(b"\n")).decode("ascii") if records else self._chain.seed.decode("ascii")
        self._anchor.replace(Anchored(1, len(records), len(lines), mac))

    def _append_and_anchor(self, held: int, records: Sequence[Record]) -> tuple[Entry, ...]:
        anchored = self._anchor.read(held)
        entries, head, look = self._append(anchored, records)
        self._calls.point("ledger.durable")
        self._anchor.advance(held, Anchored(anchored.generation + 1, head.seq, head.length, head.mac))
        if look is not None:
            self._verified.save(look)
        return entries

    def _append(self, anchored: Anchored, records: Sequence[Record]) -> tuple[tuple[Entry, ...], Head, Look | None]:
        """Write and sync, lines beyond the anchor included; the new entries, and the newest record.

        The last is what the file looks like then, if it was as last verified before: nobody else wrote to it.
        """
        mark = self._verified.load()
        fd, about = self._open_to_append(anchored)
        try:
            was_whole = not anchored.seq or mark == look_of(about)
            tail = self._tail(fd, about.st_size, anchored)
            entries, lines = self._sealed(records, tail.head)
            if tail.torn:
                self._calls.truncate(fd, tail.head.length)
                # Synced at once: otherwise a power loss could show new bytes followed by the old torn ones.
                self._calls.fdatasync(fd)
            written = self._write(fd, anchored, tail, lines)
        finally:
            self._calls.close(fd)
        look = written if was_whole else None
        if not entries:
            return (), tail.head, look
        return entries, Head(entries[-1].seq, entries[-1].mac, tail.head.length + len(lines)), look

    def _look(self, fd: int) -> Look | None:
        """For the mark alone: the record is durable, whatever becomes of this."""
        try:
            return look_of(self._calls.fstat(fd))
        except OSError:
            return None

    def _forwards(self) -> Iterator[bytes]:
        fd, anchored = self._open_to_read()
        if fd is None or anchored is None:
            return
        try:
            end = self._tail(fd, self._calls.fstat(fd).st_size, anchored).head.length
            offset, previous, rest = 0, self._chain.seed, b""
            while offset < end:
                chunk = self._calls.pread(fd, min(_CHUNK, end - offset), offset)
                if not chunk:
                    raise Tampering("the ledger became shorter while it was read", hint=_HINT)
                offset += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if not self._chain.follows(line, previous):
                        raise self._untrue("a record is not what was written")
                    previous = mac_of(line)
                    yield line
        finally:
            self._calls.close(fd)

    def _backwards(self) -> Iterator[bytes]:
        fd, anchored = self._open_to_read()
        if fd is None or anchored is None:
            return
        try:
            head = self._tail(fd, self._calls.fstat(fd).st_size, anchored).head
            mac, newer = head.mac.encode("ascii"), b""
            # Each line is given out when the one before it is known: that one's mac is part of the proof.
            for line in lines_backwards(self._calls, fd, head.length):
                if newer:
                    yield self._proven(newer, mac_of(line), mac)
                    mac = mac_of(line)
                newer = line
            if newer:
                yield self._proven(newer, self._chain.seed, mac)
        finally:
            self._calls.close(fd)

    def _proven(self, line: bytes, previous: bytes, mac: bytes) -> bytes:
        if mac_of(line) == mac and self._chain.follows(line, previous):
            return line
        raise self._untrue("a record is not what was written")

    def _open_if_there(self) -> int | None:
        try:
            return open_regular(self._path, READ, self._calls, self._directory).fd
        except FileNotFoundError:
            return None

    def _open_to_read(self) -> tuple[int | None, Anchored | None]:
        """The anchor is read first: a writer only ever makes the ledger longer than it was then."""
        anchored = self._anchor.load()
        fd = self._open_if_there()
        if fd is None:
            if anchored and anchored.seq:
                raise self._gone(anchored)
        elif anchored is None and self._calls.fstat(fd).st_size:
            self._calls.close(fd)
            raise self._anchor.missing()
        elif anchored is None:
            self._calls.close(fd)
            return None, None
        return fd, anchored

    def _gone(self, anchored: Anchored) -> Tampering:
        return Tampering(f"the ledger is gone; it had {anchored.seq} records", hint=_HINT)

    def _hold_anchor(self) -> int:
        """The anchor, open; made first where neither it nor any record exists."""
        held = self._anchor.open(READ_WRITE)
        if held is None:
            fd, _ = self._open_to_read()
            if fd is not None:
                self._calls.close(fd)
            self._anchor.create(self._chain.seed.decode("ascii"))
            held = self._anchor.open(READ_WRITE)
        if held is None:
            raise self._anchor.missing()
        return held

    def _open_to_append(self, anchored: Anchored) -> Opened:
        flags = READ_WRITE
        if not anchored.seq:
            flags |= os.O_CREAT
        try:
            fd, about = open_regular(self._path, flags, self._calls, self._directory)
        except FileNotFoundError:
            if not anchored.seq:
                raise
            raise self._gone(anchored) from None
        if about.st_nlink == 1:
            return Opened(fd, about)
        self._calls.close(fd)
        raise Tampering("the ledger has a second name (hard link), which could change it", hint=_HINT)

    def _tail(self, fd: int, size: int, anchored: Anchored) -> Tail:
        """Check the end of the file against the anchor; reads nothing before it but one trailer (L2)."""
        if size < anchored.length:
            raise self._untrue(f"it is shorter than its {anchored.seq} records were")
        mac = anchored.mac.encode("ascii")
        if anchored.length:
            wanted = trailer(mac) + b"\n"
            if self._calls.pread(fd, TRAILER + 1, anchored.length - TRAILER - 1) != wanted:
                raise self._untrue(f"record {anchored.seq} is not where its anchor has it")
        walk = self._chain.walk(self._calls, fd, anchored.length, size, mac)
        if walk.rest and not is_torn(walk.rest):
            raise self._untrue(f"record {anchored.seq + walk.good + 1} is not ours")
        good = walk.offset - anchored.length
        beyond = self._calls.pread(fd, good, anchored.length) if good else b""
        head = Head(anchored.seq + walk.good, walk.mac.decode("ascii"), walk.offset)
        return Tail(head, beyond, size > walk.offset)

    def _sealed(self, records: Sequence[Record], head: Head) -> tuple[tuple[Entry, ...], bytes]:
        entries, lines, mac = list[Entry](), list[bytes](), head.mac.encode("ascii")
        for seq, record in enumerate(records, head.seq + 1):
            line, mac = self._chain.seal(record, seq, mac)
            lines.append(line)
            entries.append(Entry(seq, record.kind, record.body, record.at_ns, mac.decode("ascii")))
        return tuple(entries), b"".join(lines)

    def _write(self, fd: int, anchored: Anchored, tail: Tail, lines: bytes) -> Look | None:
        """What the file looks like after our write, and before the sync: that takes long, and others may write then."""
        data = tail.beyond + lines
        try:
            if self._calls.pwrite(fd, data, anchored.length) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            look = self._look(fd)
            self._calls.fdatasync(fd)
            if not anchored.seq:
                self._sync_directory()
        except OSError as error:
            self._take_back(fd, tail.head.length, error)
            raise
        return look

    def _take_back(self, fd: int, end: int, error: OSError) -> None:
        try:
            self._calls.truncate(fd, end)
        except OSError as second:
            error.add_note(f"and the ledger could not be cut back to {end} bytes: {second}; the record is in doubt")

    def _sync_directory(self) -> None:
        """Until a first record is anchored, the file's name may not be durable."""
        fd = self._open_directory()
        try:
            self._calls.fsync(fd)
        finally:
            self._calls.close(fd)

    def _open_directory(self) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return self._calls.open(os.path.dirname(self._path) or ".", flags, dir_fd=self._directory)
