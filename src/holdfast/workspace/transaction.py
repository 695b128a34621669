"""Transactions: make many changes to the workspace, or none.

    OPEN ──prepare──▶ PREPARED ──apply──▶ APPLIED ──verify──▶ VERIFIED ──commit──▶ COMMITTING ──▶ COMMITTED
      │                   │                  │                    │
      │                   └────roll_back─────┴────────────────────┴──▶ ABORTED
      └──abandon──▶ (gone)

Invariants
  T1  Before PREPARED nothing in the workspace has changed.
  T2  In PREPARED every slot, the log and the head are durable (barrier 1); only then does the first path move.
  T3  In APPLIED every operation was performed and the directories are durable (barrier 2);
      in VERIFIED every path was looked up afresh and holds its planned object.
  T4  COMMITTED begins with one synced sector (barrier 3). Before it, recovery rolls back; after it, never.
      While that sector is being written (COMMITTING) the outcome belongs to the disk: nothing here rolls back any more.
  T5  ABORTED is written only when every operation stands on its old side, or was never performed.
      Somebody else's change to what we moved keeps the transaction PREPARED, with all material, until a person decides.
  T6  A failed sync is never retried: before the commit sector it aborts, at the commit sector the outcome is in doubt.

Deliberately absent: policy, network, any knowledge of who asked.
"""

from __future__ import annotations

import hashlib
import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from holdfast.errors import Blocked, HoldfastError, NeedsHuman
from holdfast.model.canonical import Json
from holdfast.model.changeset import ChangeSet
from holdfast.model.execution import Divergence
from holdfast.model.image import Image, Seen
from holdfast.model.path import parent_of, printable
from holdfast.store.journal import Head, Log, Op, Parent, log_chunks, write_head
from holdfast.workspace.collector import without_collector
from holdfast.workspace.flip import DISPLACED, Flipper
from holdfast.workspace.folder import make_stage, remove_stage, take_mark_away
from holdfast.workspace.observe import observe
from holdfast.workspace.rollback import RolledBack, barrier, roll_back, set_time, sync_object, why_not_restorable
from holdfast.workspace.site import JOURNAL, KEPT, Site
from holdfast.workspace.staging import FEW, Source, Stage, write_all

State = Literal["OPEN", "PREPARED", "APPLIED", "VERIFIED", "COMMITTING", "COMMITTED", "ABORTED"]
Progress = Callable[[str, int, int], None]
_NEW_LOG = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PROGRESS_EVERY = 256


def _silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


class Transaction:
    """One change set on its way into the workspace. The caller holds the workspace lock."""

    def __init__(
        self,
        site: Site,
        txn: str,
        header: dict[str, Json],
        progress: Progress = _silent,
        times: Mapping[str, int] | None = None,
    ) -> None:
        """`times`: modification times that directories get once everything is in place."""
        self._site = site
        self._calls = site.calls
        self.txn = txn
        self._header = header
        self._progress = progress
        self._times = times or {}
        self.state: State = "OPEN"
        self._log: Log | None = None
        self._reads: tuple[tuple[str, Seen], ...] = ()
        self.times_ns = array("q")
        self._flipped_ns = 0
        self.untouched: frozenset[str] = frozenset()
        self.divergence: tuple[Divergence, ...] = ()

    @property
    def root(self) -> str:
        """The digest of the log, which head and ledger both name."""
        return self._log.root if self._log is not None else ""

    @property
    def ops(self) -> tuple[Op, ...]:
        return self._log.ops if self._log is not None else ()

    @property
    def finished(self) -> int:
        """How many operations were done, whatever became of them later; the last one begun may have failed."""
        return len(self.times_ns) if self._flipped_ns else max(0, len(self.times_ns) - 1)

    @property
    def reads(self) -> dict[str, Image]:
        """Paths that must stand as they were found, and what was found there."""
        return {path: seen.image for path, seen in self._reads}

    @without_collector
    def prepare(
        self,
        change_set: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        order: Sequence[int] = (),
    ) -> None:
        """OPEN to PREPARED: stage, write the log, barrier 1. On any failure the stage is removed.

        `order` has the number of the plan's step for each change: paths move in that order (G5 of `staging`).
        """
        assert self.state == "OPEN"
        few = len(change_set.changes) <= FEW
        self._reads = tuple((read.path, seen[read.path]) for read in change_set.reads)
        try:
            self._stage(change_set, seen, sources, order, few=few)
            self._check()
            take_mark_away(self._site, self.txn)
        except OSError as error:
            self.abandon()
            raise Blocked(f"the change could not be prepared: {error}", hint=_hint_for(error)) from error
        except BaseException:
            # Ctrl-C too: nothing has moved, and a stage that stays takes the space of the whole change.
            self.abandon()
            raise
        self.state = "PREPARED"
        assert self._log is not None
        try:
            write_head(self._calls, self._site.state.directory(JOURNAL), Head("PREPARED", self.txn, self._log.root))
        except OSError as error:
            # The head may or may not say PREPARED; nothing moved, so rolling back only has to say so durably.
            self._roll_back_because(error)
            raise Blocked(f"the change could not be prepared: {error}", hint=_hint_for(error)) from error
        self._calls.point("prepared")

    @without_collector
    def apply(self) -> None:
        """PREPARED to APPLIED. On any failure everything is rolled back before the error is raised."""
        assert self.state == "PREPARED" and self._log is not None
        try:
            flipper = Flipper(self._site, self.txn)
            for number, op in enumerate(self._log.ops):
                self.times_ns.append(time.time_ns())
                flipper.forward(op)
                if not number % _PROGRESS_EVERY:
                    self._progress("apply", number, len(self._log.ops))
            for path, mtime_ns in self._times.items():
                set_time(self._site, path, mtime_ns)
            self._flipped_ns = time.time_ns()
            self._calls.point("flipped")
            barrier(self._site, self.txn, self._log.ops)
        except (OSError, HoldfastError) as error:
            self._roll_back_because(error)
            raise
        self.state = "APPLIED"
        self._calls.point("applied")

    @without_collector
    def verify(self) -> None:
        """APPLIED to VERIFIED: every path, looked up afresh, holds what was planned, or all is rolled back."""
        assert self.state in ("APPLIED", "VERIFIED") and self._log is not None
        try:
            self._site.workspace.forget()
            flipper = Flipper(self._site, self.txn)
            # The last operation on a path says what must stand there: a new directory may get its mode late.
            last = {op.path: op for op in self._log.ops}
            gone = {op.path for op in last.values() if _is_directory(op.pre) and not _is_directory(op.post)}
            for op in last.values():
                flipper.verify(op, self._flipped_ns, gone)
        except (OSError, HoldfastError) as error:
            self._roll_back_because(error)
            raise
        self.state = "VERIFIED"

    def commit(self) -> None:
        """VERIFIED to COMMITTED. An OSError here leaves the outcome in doubt; recovery decides it from the disk."""
        assert self.state == "VERIFIED" and self._log is not None
        self._calls.point("commit")
        self.state = "COMMITTING"
        write_head(self._calls, self._site.state.directory(JOURNAL), Head("COMMITTED", self.txn, self._log.root))
        self.state = "COMMITTED"
        self._calls.point("committed")

    def roll_back(self) -> RolledBack:
        """PREPARED, APPLIED or VERIFIED to ABORTED; with divergence it stays PREPARED on disk (T5)."""
        assert self.state in ("PREPARED", "APPLIED", "VERIFIED") and self._log is not None
        outcome = roll_back(self._site, self.txn, self._log)
        self.untouched, self.divergence = outcome.untouched, outcome.divergence
        if not outcome.divergence:
            self.state = "ABORTED"
        return outcome

    def image_now(self, path: str) -> Image | None:
        """What stands at a path, content read; None for nothing."""
        try:
            directory = self._site.workspace.directory(parent_of(path))
        except OSError as error:
            if error.errno in DISPLACED:
                return None
            raise
        seen = observe(self._calls, directory, path.rpartition("/")[2], wait=False)
        return seen.image if seen is not None else None

    def abandon(self) -> None:
        """OPEN to gone: the stage is removed; nothing else existed."""
        assert self.state == "OPEN"
        remove_stage(self._site, self.txn)

    def _stage(
        self,
        change_set: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        order: Sequence[int],
        *,
        few: bool,
    ) -> None:
        make_stage(self._site, self.txn)
        stage = Stage(self._site, self.txn, few=few)
        try:
            self._progress("stage", 0, len(change_set.changes))
            staged = stage.build(change_set, seen, sources, order)
            self._calls.point("staged")
            why_not = why_not_restorable(staged.ops)
            if why_not:
                raise Blocked(f"the change could not be taken back after a crash: {why_not}")
            self._write_log(staged.ops, staged.parents, stage.unsynced, few=few)
        finally:
            stage.close()

    def _write_log(self, ops: tuple[Op, ...], parents: tuple[Parent, ...], unsynced: list[int], *, few: bool) -> None:
        directory = self._site.state.directory(f"{JOURNAL}/{self.txn}")
        digest = hashlib.sha256()
        fd = self._calls.open("log", _NEW_LOG, 0o600, dir_fd=directory)
        try:
            for chunk in log_chunks(self._header, ops, parents, self._site.log_limit):
                digest.update(chunk)
                write_all(self._calls, fd, chunk)
            self._log = Log(self._header, ops, parents, digest.hexdigest())
            self._calls.point("logged")
            if few:
                self._calls.start_write_back(fd)
                for staged in (*unsynced, fd):
                    self._calls.fsync(staged)
                self._sync_old_files(ops)
        finally:
            self._calls.close(fd)
        if few:
            for path in (f"{JOURNAL}/{self.txn}", JOURNAL, KEPT):
                self._calls.fsync(self._site.state.directory(path))
        else:
            self._calls.sync_file_system(self._site.state.fd)

    def _sync_old_files(self, ops: tuple[Op, ...]) -> None:
        """The object a flip displaces is the backup, so its own bytes must be durable too, whoever wrote them last."""
        for op in ops:
            if op.pre is not None and op.pre.image.kind == "file":
                sync_object(self._site, op.path)

    def _check(self) -> None:
        """Nothing has moved yet; everything must still be as it was simulated. Later each flip looks for itself."""
        flipper = Flipper(self._site, self.txn)
        self._site.workspace.forget()
        assert self._log is not None
        made: set[str] = set()
        seen_paths: set[str] = set()
        for op in self._log.ops:
            if op.post is not None and op.post.image.kind == "directory" and not _is_directory(op.pre):
                made.add(op.path)
            if op.path not in seen_paths and not (made and parent_of(op.path) in made):
                flipper.check(op)
            seen_paths.add(op.path)
        for op in self._brought_back():
            flipper.check_held(op)
        for path, seen in self._reads:
            flipper.check(Op("flip", path, "", seen, seen))

    def _brought_back(self) -> Iterator[Op]:
        """Operations that take an object from a finished transaction; the second half of a move takes what it moved."""
        assert self._log is not None
        moving = {op.slot for op in self._log.ops if op.post is None}
        own = self.txn + "/"
        for op in self._log.ops:
            if op.post is not None and op.slot and not op.slot.startswith(own) and op.slot not in moving:
                yield op

    def _roll_back_because(self, error: Exception) -> None:
        try:
            outcome = self.roll_back()
        except OSError as second:
            raise NeedsHuman(f"{error}; and rolling back could not finish: {second}", changed=True) from second
        if outcome.divergence:
            raise NeedsHuman(
                f"{error}; rolling back met files that somebody else changed: "
                + ", ".join(printable(item.path) for item in outcome.divergence),
                changed=True,
            ) from error


def new_txn(letter: str = "e") -> str:
    """A fresh id, time-free and unguessable."""
    from base64 import b32encode

    return f"{letter}-" + b32encode(os.urandom(5)).decode("ascii").lower()


def _hint_for(error: OSError) -> str:
    if error.errno in (28, 122):
        return "Free some space and apply again; nothing was changed."
    return "Nothing was changed."


def _is_directory(seen: Seen | None) -> bool:
    return seen is not None and seen.image.kind == "directory"
