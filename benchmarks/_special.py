"""Undo, recovery, flush counts and memory: the measurements that are not simply 'bring N files to a version'."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

from _contestants import MOVES, Command, Library, Work, patch_of
from _measure import clocked, peak_of, run

import holdfast
from holdfast.disk.calls import Calls
from holdfast.workspace.folder import keep
from holdfast.workspace.transaction import Transaction, new_txn
from holdfast.workspace.undo import plan_undo, read_past

UPDATE = MOVES[1]


def command_is_there() -> bool:
    return importlib.util.find_spec("holdfast.__main__") is not None


def quiet(folder: str) -> None:
    run(["sync", "-f", folder])


class UndoPair:
    """An update of every file, taken back by both."""

    def __init__(self, work: Work) -> None:
        self.work = work
        os.makedirs(work.place)
        self._ours, self._theirs = os.path.join(work.place, "ours"), os.path.join(work.place, "theirs")
        work.write(self._ours, "a")
        work.write(self._theirs, "a")
        self._library = Library(work, self._ours)
        run(["git", "init", "-q", self._theirs])
        self._patch = patch_of(work, UPDATE)

    def ours(self) -> float:
        hf = self._library.hf
        return self._timed(lambda id: hf.undo(id, approved_by="bench"))

    def transaction(self) -> float:
        """What `hf.undo` does without lock, ledger and records: read the log, plan the way back, flip, commit."""
        seconds = self._timed(self._flip_back)
        keep(self._library.hf.site, self._txn)
        self._library.empty_kept()
        return seconds

    def _timed(self, undo: Callable[[str], object]) -> float:
        hf = self._library.hf
        done = hf.execute(hf.simulate(self._library.plan(UPDATE)), approved_by="bench")
        quiet(self._ours)
        seconds = clocked(lambda: undo(done.id))
        self.work.require(self._ours, "a")
        return seconds

    def _flip_back(self, id: str) -> None:
        site = self._library.hf.site
        way = plan_undo(site, [read_past(site, id)])
        self._txn = new_txn()
        transaction = Transaction(site, self._txn, {"version": 1, "intent": "undo"})
        transaction.prepare(way.change_set, way.seen, way.sources)
        transaction.apply()
        transaction.verify()
        transaction.commit()

    def close(self) -> None:
        self._library.close()
        shutil.rmtree(self.work.place)

    def theirs(self) -> float:
        run(["git", "apply", "--whitespace=nowarn", self._patch], cwd=self._theirs)
        quiet(self._theirs)
        seconds = clocked(lambda: run(["git", "apply", "--whitespace=nowarn", "-R", self._patch], cwd=self._theirs))
        self.work.require(self._theirs, "a")
        return seconds


class DiesHalfway(Calls):
    """Kills its own process in the middle of the flips."""

    def __init__(self, after: int) -> None:
        self._left = after

    def exchange(self, name: str, directory: int, other: str, other_directory: int) -> None:  # type: ignore[override]
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        super().exchange(name, directory, other, other_directory)


class RecoveryPair:
    """Half of the files changed when the power to go on was lost."""

    def __init__(self, work: Work) -> None:
        self.work = work
        os.makedirs(work.place)
        self._ours, self._theirs = os.path.join(work.place, "ours"), os.path.join(work.place, "theirs")
        work.write(self._ours, "a")
        work.write(self._theirs, "a")
        self._library = Library(work, self._ours)
        for words in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "a"],
        ):
            run(["git", *words], cwd=self._theirs)

    def ours(self) -> float:
        self._half_applied()
        quiet(self._ours)
        with holdfast.open(self._ours) as hf:
            seconds = clocked(hf.recover)
        self.work.require(self._ours, "a")
        return seconds

    def theirs(self) -> float:
        time.sleep(0.02)  # so that no file is racily clean in git's index
        for number, path in list(enumerate(self.work.paths))[: self.work.files // 2]:
            with open(os.path.join(self._theirs, path), "wb") as file:
                file.write(self.work.text(number, "b"))
        quiet(self._theirs)
        seconds = clocked(lambda: run(["git", "reset", "-q", "--hard"], cwd=self._theirs))
        self.work.require(self._theirs, "a")
        return seconds

    def close(self) -> None:
        self._library.close()
        shutil.rmtree(self.work.place)

    def _half_applied(self) -> None:
        child = os.fork()
        if not child:
            try:
                with holdfast.open(self._ours, calls=DiesHalfway(self.work.files // 2)) as hf:
                    hf.execute(hf.simulate(self._library.plan(UPDATE)), approved_by="bench")
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit("the child that should have died halfway did not")


class CountingCalls(Calls):
    """Counts what reaches the device."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self.counted["fsync"] += 1
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self.counted["fdatasync"] += 1
        super().fdatasync(fd)

    def sync_file_system(self, fd: int) -> None:  # type: ignore[override]
        self.counted["syncfs"] += 1
        super().sync_file_system(fd)


def flushes(work: Work) -> dict[str, int]:
    """The landing of an update of N files, decided and approved before (each of those is one flush of the ledger more).

    SQLite's own flushes, if it checkpoints, go past Python and are not seen.
    """
    folder = os.path.join(work.place, "workspace")
    work.write(folder, "a")
    library = Library(work, folder)
    calls = CountingCalls()
    with holdfast.open(folder, calls=calls) as hf:
        simulated = hf.simulate(library.plan(UPDATE))
        decision = hf.evaluate(simulated)
        approval = hf.approve(decision, by="bench") if decision.verdict == "NEED_APPROVAL" else None
        calls.counted.clear()
        hf.execute(simulated, approval, approved_by="bench", decision=decision)
    library.close()
    shutil.rmtree(work.place)
    return dict(calls.counted)


def peak_memory(work: Work) -> float:
    """Bytes: the largest resident set of one `holdfast apply` of many small files."""
    folder = os.path.join(work.place, "workspace")
    os.makedirs(work.place)
    command = Command(work, folder)
    command.ready(MOVES[0])
    peak = peak_of([sys.executable, "-m", "holdfast", "-C", folder, "apply", command.file, "--yes"])
    work.require(folder, "a")
    command.close()
    shutil.rmtree(work.place)
    return peak
