"""The patch ledger: where every patch stands and how it came there.

    patch_ledger.jsonl     one JSON line a move, appended and synced: the truth, and readable by other tools
    patch_history          a table of the same lines in the database: a projection, caught up whenever it is behind
    objects/               the bytes of each patch

    where the file ends                           meaning                            next append
    ─────────────────────────────────────────────────────────────────────────────────────────────
    in a whole line                               fine                               after it
    in a line without an end, or with zero bytes  a crash tore the last write        cuts it off first
    before the line that the table knows last     it was cut or replaced: Tampering  refused

Invariants
  I1  A move is durable when the call returns, and legal: every line is checked against the table of states when it is
      made and again whenever it is read from the file.
  I2  Lines of one call (a failure and the quarantine that follows it) go out in one write.
  I3  The table never knows a line that is not durable: it is written after the sync, also for lines that a killed
      process left behind.
  I4  One process at a time decides: the file is locked from the look at the present state to the end of the write.
  I5  The bytes of a patch are durable before its first line.

Deliberately absent: a keyed chain. What landed is in the ledger, which has one; whoever can write here can write there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.disk.confined import Root
from holdfast.errors import Blocked, Locked, Tampering, UnknownId
from holdfast.model.canonical import whole_characters
from holdfast.model.patch_state import MOVES, STATES, Stage, Standing, State, failed, moved, patch_id
from holdfast.store.blobs import OBJECTS, Blobs
from holdfast.store.database import Records, Tables, dependable
from holdfast.store.private import READ, READ_WRITE, open_regular

FILE = "patch_ledger.jsonl"
VERSION = 1
_SCHEMA = """CREATE TABLE IF NOT EXISTS patch_history(
  seq INTEGER PRIMARY KEY, patch TEXT NOT NULL, state TEXT NOT NULL, at_ns INTEGER NOT NULL, ends INTEGER NOT NULL,
  line BLOB NOT NULL)"""
_INDEX = "CREATE INDEX IF NOT EXISTS patch_history_by_patch ON patch_history(patch, seq)"
_PATIENCE_S = 10.0
_LONGEST_REASON = 2_000
_LONGEST_SOURCE = 200
_MOST_PATHS = 1_000
_HINT = (
    "Nothing was changed. See who wrote in .holdfast first. Then put the file back as it was, from a backup; or move "
    "it away together with .holdfast/holdfast.db, which is made again from the ledger: no patch is known then."
)
_LIST = "List them with: holdfast patches"


class Move(NamedTuple):
    """One line: the patch after the move. `ends` is where the line ends in the file."""

    seq: int
    standing: Standing
    line: bytes
    ends: int


class PatchHistory(Tables):
    """`state` is the state directory; `records` the database, whose connection is used."""

    def __init__(self, state: Root, records: Records) -> None:
        self._state = state
        self._calls: Calls = state.calls
        super().__init__(records)
        records.refill_with(lambda _: self._refill())
        self._blobs = Blobs(state)

    def create(
        self, text: bytes, digest: str, at_ns: int, *, source: str = "", paths: tuple[str, ...] = ()
    ) -> Standing:
        """Make a patch known. `digest` is the patch's own, or that of its text where it could not be read.

        Known already, it stands where it stood: nothing gets out of quarantine by being sent again.
        """
        patch = patch_id(digest)
        stored = self._keep(text)

        def decide(now: Standing | None) -> tuple[Standing, ...]:
            if now is None:
                shown = source[:_LONGEST_SOURCE], paths[:_MOST_PATHS]
                return (Standing(patch, digest, stored, source=shown[0], paths=shown[1], at_ns=at_ns),)
            if now.digest != digest:
                raise Tampering(f"two patches have the id {patch}", hint=_HINT)
            return ()

        return self._change(patch, decide)

    def move(
        self,
        patch: str,
        to: State,
        at_ns: int,
        *,
        reason: str = "",
        by: str = "",
        execution: str = "",
        plan: str = "",
    ) -> Standing:
        """One step on its way; Blocked where its state does not lead there."""

        def decide(now: Standing | None) -> tuple[Standing, ...]:
            before = _known(now, patch)
            return (moved(before, to, at_ns, reason=reason, by=by, execution=execution, plan=plan),)

        return self._change(patch, decide)

    def fail(
        self, patch: str, stage: Stage, reason: str, at_ns: int, *, grave: bool = False, execution: str = ""
    ) -> Standing:
        """Record a failure; a grave one, or one too many, is a quarantine too."""
        return self._change(
            patch, lambda now: failed(_known(now, patch), stage, reason, at_ns, grave=grave, execution=execution)
        )

    def release(self, patch: str, by: str, at_ns: int, *, reason: str = "") -> Standing:
        """A person lets a quarantined patch begin anew."""
        now = self.standing(patch)
        if now.state != "quarantined":
            raise Blocked(f"patch {patch} is {now.state}, not quarantined")
        return self.move(patch, "created", at_ns, reason=reason, by=by)

    def require_applicable(self, patch: str) -> Standing:
        """The patch, if it may be applied now; Blocked with the reason otherwise."""
        now = self.standing(patch)
        if not now.may_be_applied:
            why = f" ({now.reason})" if now.reason else ""
            raise Blocked(
                f"patch {patch} is {now.state}{why}; only a queued patch is applied", hint="Nothing was changed."
            )
        return now

    @dependable
    def standing(self, patch: str) -> Standing:
        self._look()
        return _known(self._newest(patch), patch)

    @dependable
    def standings(self, state: State | None = None) -> tuple[Standing, ...]:
        """Every patch where it stands now, or those in one state; in the order in which they last moved."""
        self._look()
        newest = "SELECT max(seq) FROM patch_history GROUP BY patch"
        every = self._moves(f"WHERE seq IN ({newest}) ORDER BY seq")
        return tuple(one.standing for one in every if state is None or one.standing.state == state)

    @dependable
    def history(self, patch: str) -> tuple[Standing, ...]:
        """All its moves, oldest first."""
        self._look()
        found = self._moves("WHERE patch=? ORDER BY seq", patch)
        if not found:
            raise UnknownId(f"there is no patch {patch}", hint=_LIST)
        return tuple(move.standing for move in found)

    def text(self, patch: str) -> bytes:
        """The bytes of a patch."""
        return self._blobs.get(self.standing(patch).text)

    def texts(self) -> set[str]:
        """The digests of the bytes that must stay in the store."""
        return {standing.text for standing in self.standings()}

    # ── the file ──

    def _change(self, patch: str, decide: Callable[[Standing | None], tuple[Standing, ...]]) -> Standing:
        with self._locked(READ_WRITE | os.O_CREAT) as fd:
            seq, end = self._caught_up(fd)
            now = self._newest(patch)
            after = decide(now)
            moves = _moves(after, seq, end)
            if moves:
                self._append(fd, end, b"".join(move.line for move in moves))
                self._calls.point("patch-ledger.durable")
                self._project(moves)
            return after[-1] if after else _known(now, patch)

    def _append(self, fd: int, end: int, data: bytes) -> None:
        if self._calls.fstat(fd).st_size > end:
            self._calls.truncate(fd, end)
            # Synced at once: otherwise a power cut could show new bytes followed by the old torn ones.
            self._calls.fdatasync(fd)
        try:
            if self._calls.pwrite(fd, data, end) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), FILE)
            self._calls.fdatasync(fd)
            if not end:
                self._calls.fsync(self._state.fd)
        except OSError as error:
            self._take_back(fd, end, error)
            raise

    def _take_back(self, fd: int, end: int, error: OSError) -> None:
        try:
            self._calls.truncate(fd, end)
        except OSError as second:
            error.add_note(f"and {FILE} could not be cut back to {end} bytes: {second}; the move is in doubt")

    @contextmanager
    def _locked(self, flags: int) -> Iterator[int]:
        fd = open_regular(FILE, flags, self._calls, self._state.fd).fd
        try:
            _lock(fd)
            yield fd
        finally:
            self._calls.close(fd)  # and with it the lock

    def _look(self) -> None:
        """Catch up, without making what is not there."""
        try:
            with self._locked(READ) as fd:
                self._caught_up(fd)
        except FileNotFoundError:
            if self._last() is not None:
                raise Tampering(f".holdfast/{FILE} is gone, and patches are known", hint=_HINT) from None

    @dependable
    def _caught_up(self, fd: int) -> tuple[int, int]:
        """The number of the last whole line and where it ends; the table knows it then (I3)."""
        last = self._last()
        seq, end = (last.seq, last.ends) if last is not None else (0, 0)
        if last is not None and self._calls.pread(fd, len(last.line), end - len(last.line)) != last.line:
            line = self._first_edited(fd)
            raise Tampering(f".holdfast/{FILE} does not hold line {line} as it was written", hint=_HINT)
        found = list(self._beyond(fd, seq, end))
        if found:
            self._calls.fdatasync(fd)
            self._project(found)
            return found[-1].seq, found[-1].ends
        return seq, end

    def _first_edited(self, fd: int) -> int:
        """Of the lines that the table knows, of which the last does not stand where it was written."""
        moves = self._moves("ORDER BY seq")
        stands = (self._calls.pread(fd, len(m.line), m.ends - len(m.line)) == m.line for m in moves)
        return next(m.seq for m, there in zip(moves, stands, strict=True) if not there)

    def _beyond(self, fd: int, seq: int, end: int) -> Iterator[Move]:
        """The whole lines after that place, each legal after those before it (I1)."""
        newest: dict[str, Standing | None] = {}
        for line in whole_lines(self._rest(fd, end)):
            seq, end = seq + 1, end + len(line)
            try:
                move = _read(line)
            except ValueError as error:
                raise Tampering(f"line {seq} of .holdfast/{FILE} is not one of ours: {error}", hint=_HINT) from error
            after = move.standing
            before = newest[after.patch] if after.patch in newest else self._newest(after.patch)
            if move.seq != seq or after.state not in (MOVES[before.state] if before is not None else ("created",)):
                raise Tampering(f"line {seq} of .holdfast/{FILE} does not follow from those before it", hint=_HINT)
            newest[after.patch] = after
            yield Move(seq, after, line, end)

    def _rest(self, fd: int, start: int) -> bytes:
        pieces: list[bytes] = []
        while piece := self._calls.pread(fd, 1 << 20, start):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    # ── the table ──

    def _refill(self) -> None:
        """The table in memory, which is empty, from the file. Without its lock, which may be held here already."""
        try:
            fd = open_regular(FILE, READ, self._calls, self._state.fd).fd
        except FileNotFoundError:
            return
        try:
            self._project(list(self._beyond(fd, 0, 0)))
        finally:
            self._calls.close(fd)

    @dependable
    def _project(self, moves: list[Move]) -> None:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(_SCHEMA)
            self._db.execute(_INDEX)
            self._db.executemany(
                "INSERT OR IGNORE INTO patch_history VALUES(?,?,?,?,?,?)",
                [(m.seq, m.standing.patch, m.standing.state, m.standing.at_ns, m.ends, m.line) for m in moves],
            )

    def _last(self) -> Move | None:
        return next(iter(self._moves("ORDER BY seq DESC LIMIT 1")), None)

    def _newest(self, patch: str) -> Standing | None:
        return next((move.standing for move in self._moves("WHERE patch=? ORDER BY seq DESC LIMIT 1", patch)), None)

    @dependable
    def _moves(self, which: str, *values: str) -> list[Move]:
        """Rows of the table. A look must not make it: the disk may be full or read-only."""
        if (
            self._db.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name='patch_history'").fetchone()
            is None
        ):
            return []
        found = self._db.execute(f"SELECT line, ends FROM patch_history {which}", values).fetchall()
        return [_read(line)._replace(ends=ends) for line, ends in found]

    def _keep(self, text: bytes) -> str:
        """I5."""
        digest = self._blobs.put(text)
        fd = self._blobs.open(digest)
        try:
            self._calls.fsync(fd)
        finally:
            self._calls.close(fd)
        self._calls.fsync(self._state.directory(f"{OBJECTS}/{digest[:2]}"))
        self._calls.fsync(self._state.directory(OBJECTS))
        return digest


def whole_lines(data: bytes) -> list[bytes]:
    """The lines up to the first that a crash tore: without an end, or holding pages that were never written."""
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    return lines[: next((n for n, line in enumerate(lines) if b"\0" in line), len(lines))]


def _moves(standings: tuple[Standing, ...], seq: int, end: int) -> list[Move]:
    moves: list[Move] = []
    for standing in standings:
        seq += 1
        line = _written(seq, standing)
        end += len(line)
        moves.append(Move(seq, _read(line).standing, line, end))
    return moves


def _written(seq: int, standing: Standing) -> bytes:
    bounded = standing._replace(reason=standing.reason[:_LONGEST_REASON])
    row = {"version": VERSION, "seq": seq, **bounded._asdict()}
    text = {key: whole_characters(value) if isinstance(value, str) else value for key, value in row.items()}
    return json.dumps(text, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def _read(line: bytes) -> Move:
    """ValueError for a line that is none of ours."""
    try:
        row = json.loads(line)
        version, seq = row.pop("version"), row.pop("seq")
        standing = Standing(**{**row, "paths": tuple(row["paths"])})
        sound = patch_id(standing.digest) == standing.patch and standing.failures >= 0 and seq > 0
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it lacks a field, or has one too many: {error}") from error
    if version != VERSION or standing.state not in STATES or not sound:
        raise ValueError("its version is unknown, or its fields contradict each other")
    return Move(seq, standing, line, 0)


def _known(standing: Standing | None, patch: str) -> Standing:
    if standing is None:
        raise UnknownId(f"there is no patch {patch}", hint=_LIST)
    return standing


def _lock(fd: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Locked(f"another holdfast is writing .holdfast/{FILE}") from None
            time.sleep(0.01)
