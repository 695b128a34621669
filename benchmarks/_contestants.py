"""The contestants: each brings a tree of N small text files from one version to another, in its own way.

    none ──create──▶ a ──update──▶ b ──delete──▶ none

`ready` is not timed (it writes the patch, the change file, the rehearsal); `go` is; `tidy` is not timed.
Every directory holds a file that stays, so that no contestant has to make or remove directories.
An update gives each file new text, since that is what a change file and a copy carry; with `edited` it changes
four lines of each, which only a patch can profit from.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from _measure import environment, run

import holdfast
from holdfast.disk.calls import CALLS
from holdfast.model.plan import Delete, Inline, Plan, Write
from holdfast.simulation.rehearsal import rehearse
from holdfast.workspace.folder import keep
from holdfast.workspace.transaction import Transaction, new_txn

SIZE = 4096
_A_DIRECTORY = 100
_LINE = 43  # at least the length of a line
_STAYS = "stays.txt"


class Move(NamedTuple):
    name: str
    before: str
    after: str


MOVES = (Move("create", "none", "a"), Move("update", "a", "b"), Move("delete", "b", "none"))


class Work(NamedTuple):
    """N files, the same for everybody; `place` is a folder that contestants share for reading."""

    place: str
    files: int
    size: int = SIZE
    edited: bool = False

    @property
    def paths(self) -> list[str]:
        return [f"d{n // _A_DIRECTORY:04d}/f{n:06d}.txt" for n in range(self.files)]

    @property
    def directories(self) -> list[str]:
        return [f"d{n:04d}" for n in range((self.files + _A_DIRECTORY - 1) // _A_DIRECTORY)]

    def text(self, number: int, version: str) -> bytes:
        lines = self.size // _LINE + 1
        changing = 4 if self.edited else lines
        words = [version if n < changing else "all" for n in range(lines)]
        text = "".join(f"{n:04d} of file {number:06d} in version {word:<12}\n" for n, word in enumerate(words))
        return text[: self.size - 1].encode() + b"\n"

    def write(self, folder: str, version: str) -> None:
        """The tree in a version, made plainly."""
        for directory in self.directories:
            os.makedirs(os.path.join(folder, directory), exist_ok=True)
            _put(os.path.join(folder, directory, _STAYS), b"stays\n")
        for number, path in enumerate(self.paths):
            if version != "none":
                _put(os.path.join(folder, path), self.text(number, version))

    def tree(self, version: str) -> str:
        """A read-only copy of the tree in a version, made once."""
        folder = os.path.join(self.place, f"tree-{version}")
        if not os.path.isdir(folder):
            self.write(folder, version)
        return folder

    def require(self, folder: str, version: str) -> None:
        """The contestant must really have done it."""
        for number, path in _some(self.paths):
            try:
                with open(os.path.join(folder, path), "rb") as file:
                    found: bytes | None = file.read()
            except FileNotFoundError:
                found = None
            if found != (None if version == "none" else self.text(number, version)):
                raise SystemExit(f"{folder}: {path} is not in version {version}")


def _some(paths: list[str]) -> Iterator[tuple[int, str]]:
    return (item for item in enumerate(paths) if item[0] % 97 == 0 or item[0] == len(paths) - 1)


def _put(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


class Contestant:
    """One way to change files. `folder` is its own; it starts in version none."""

    name = ""

    def __init__(self, work: Work, folder: str) -> None:
        self.work = work
        self.folder = folder
        work.write(folder, "none")

    def ready(self, move: Move) -> None:
        """What is given: not timed."""

    def go(self, move: Move) -> None:
        raise NotImplementedError

    def tidy(self) -> None:
        """Not timed."""

    def close(self) -> None:
        """Nothing may stay open when the arena is taken down."""


class Library(Contestant):
    """`Transaction` alone: stage, log, flip, verify, commit, from a ready change set."""

    name = "Holdfast: Transaction"

    def __init__(self, work: Work, folder: str) -> None:
        super().__init__(work, folder)
        holdfast.init(folder)
        self.hf = holdfast.open(folder)
        self._turn = 0

    def plan(self, move: Move) -> Plan:
        self._turn += 1
        return Plan(f"{move.name} {self._turn}", tuple(self._steps(move)))

    def ready(self, move: Move) -> None:
        self._rehearsal = rehearse(self.hf.pipeline.site, self.plan(move))
        self._transaction = Transaction(self.hf.pipeline.site, new_txn(), {"version": 1, "intent": move.name})

    def go(self, move: Move) -> None:
        self._transaction.prepare(self._rehearsal.change_set, self._rehearsal.seen, self._rehearsal.sources)
        self._transaction.apply()
        self._transaction.verify()
        self._transaction.commit()

    def tidy(self) -> None:
        keep(self.hf.pipeline.site, self._transaction.txn)
        self.empty_kept()

    def close(self) -> None:
        self.hf.close()

    def empty_kept(self) -> None:
        kept = os.path.join(self.folder, ".holdfast", "kept")
        self.hf.pipeline.site.state.forget()
        for txn in os.listdir(kept):
            shutil.rmtree(os.path.join(kept, txn))

    def _steps(self, move: Move) -> Iterator[Write | Delete]:
        for number, path in enumerate(self.work.paths):
            if move.after == "none":
                yield Delete(path)
            else:
                yield Write(path, Inline(self.work.text(number, move.after)))


class Executed(Library):
    """`hf.execute(rehearsal)`: the same with lock, recovery, ledger, undo texts and records."""

    name = "Holdfast: hf.execute"

    def ready(self, move: Move) -> None:
        self.hf.pipeline.site.workspace.forget()
        self._rehearsal = self.hf.simulate(self.plan(move))

    def go(self, move: Move) -> None:
        self.hf.execute(self._rehearsal, approved_by="bench")

    def tidy(self) -> None:
        self.empty_kept()


class Command(Library):
    """`holdfast apply FILE.json --yes`: start-up, parsing, hashing, ledger and all."""

    name = "Holdfast: whole command"

    def ready(self, move: Move) -> None:
        self._turn += 1
        key = "delete" if move.after == "none" else "write"
        steps = [{key: path} for path in self.work.paths]
        if move.after != "none":
            for number, step in enumerate(steps):
                step["content"] = self.work.text(number, move.after).decode()
        with open(self.file, "w") as file:
            json.dump({"intent": f"{move.name} {self._turn}", "steps": steps}, file)

    @property
    def file(self) -> str:
        return os.path.join(self.work.place, "change.json")

    def go(self, move: Move) -> None:
        run([sys.executable, "-m", "holdfast", "apply", self.file, "--yes"], cwd=self.folder)

    def tidy(self) -> None:
        self.empty_kept()


class Floor(Contestant):
    """The least a careful program can do: stage, sync, intent, exchange, sync, commit. It checks nothing."""

    name = "floor (no checks)"

    def __init__(self, work: Work, folder: str) -> None:
        super().__init__(work, folder)
        self.stage = folder + ".stage"
        os.makedirs(self.stage, exist_ok=True)
        self.log = os.open(os.path.join(self.work.place, "floor.log"), os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self.log, bytes(512), 0)
        os.fsync(self.log)

    def ready(self, move: Move) -> None:
        self.texts = [self.work.text(n, move.after) if move.after != "none" else b"" for n in range(self.work.files)]

    def go(self, move: Move) -> None:
        stage = os.open(self.stage, os.O_RDONLY | os.O_DIRECTORY)
        if move.after != "none":
            for number, text in enumerate(self.texts):
                fd = os.open(str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=stage)
                os.write(fd, text)
                os.close(fd)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=stage)
        os.write(log, "\n".join(self.work.paths).encode())
        os.close(log)
        self._mark(b"PREPARED", stage)
        self._flip(move, stage)
        self._mark(b"COMMITTED", stage)
        os.close(stage)

    def tidy(self) -> None:
        shutil.rmtree(self.stage)
        os.mkdir(self.stage)

    def close(self) -> None:
        os.close(self.log)

    def _flip(self, move: Move, stage: int) -> None:
        last, directory = "", -1
        for number, path in enumerate(self.work.paths):
            parent, _, name = path.rpartition("/")
            if parent != last:
                if directory >= 0:
                    os.close(directory)
                last, directory = parent, os.open(os.path.join(self.folder, parent), os.O_RDONLY | os.O_DIRECTORY)
            if move.before == "none":
                CALLS.move(str(number), stage, name, directory)
            elif move.after == "none":
                CALLS.move(name, directory, str(number), stage)
            else:
                CALLS.exchange(name, directory, str(number), stage)
        os.close(directory)

    def _mark(self, word: bytes, stage: int) -> None:
        CALLS.sync_file_system(stage)
        os.pwrite(self.log, word.ljust(512), 0)
        os.fdatasync(self.log)


class FsyncRename(Contestant):
    """The usual habit, file by file: temporary, fsync, rename. The new name itself may be lost."""

    name = "temp+fsync+rename a file"
    whole = False

    def ready(self, move: Move) -> None:
        self.texts = [self.work.text(n, move.after) if move.after != "none" else b"" for n in range(self.work.files)]

    def go(self, move: Move) -> None:
        for path, text in zip(self.work.paths, self.texts, strict=True):
            target = os.path.join(self.folder, path)
            if move.after == "none":
                os.unlink(target)
            else:
                fd = os.open(target + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                os.write(fd, text)
                os.fsync(fd)
                os.close(fd)
                os.rename(target + ".tmp", target)
            if self.whole:
                directory = os.open(os.path.dirname(target), os.O_RDONLY)
                os.fsync(directory)
                os.close(directory)


class FsyncRenameFsync(FsyncRename):
    """The usual advice: the directory is synced too."""

    name = "temp+fsync+rename+fsync(dir) a file"
    whole = True


class Copy(Contestant):
    """cp -a over it, and one sync."""

    name = "cp -a + syncfs"

    def ready(self, move: Move) -> None:
        self.work.tree(move.after)

    def go(self, move: Move) -> None:
        if move.after == "none":
            paths = "\0".join(self.work.paths).encode()
            subprocess.run(["xargs", "-0", "rm"], cwd=self.folder, input=paths, check=True)
        else:
            run(["cp", "-a", self.work.tree(move.after) + "/.", self.folder])
        run(["sync", "-f", self.folder])


class GitApply(Contestant):
    """git apply of a patch, without any sync."""

    name = "git apply"
    durable = False

    def ready(self, move: Move) -> None:
        self.patch = patch_of(self.work, move)

    def go(self, move: Move) -> None:
        # Inside a repository, and without --directory, names are taken as they stand.
        run(["git", "apply", "--whitespace=nowarn", self.patch], cwd=self.folder)
        if self.durable:
            run(["sync", "-f", self.folder])

    def __init__(self, work: Work, folder: str) -> None:
        super().__init__(work, folder)
        run(["git", "init", "-q", folder])


class GitApplyDurable(GitApply):
    """git has no setting that syncs work-tree files (core.fsync is about objects), so one sync follows."""

    name = "git apply + syncfs"
    durable = True


class GitCheckout(Contestant):
    """git checkout of a commit; objects and index durable (core.fsync=all), then one sync for the work tree."""

    name = "git checkout, core.fsync=all, syncfs"

    def __init__(self, work: Work, folder: str) -> None:
        super().__init__(work, folder)
        self._git("init", "-q")
        for version in ("a", "b", "none"):
            for path in work.paths if version == "none" else ():
                os.unlink(os.path.join(folder, path))
            work.write(folder, version)
            self._git("add", "-A")
            self._git("-c", "user.name=b", "-c", "user.email=b@b", "commit", "-q", "--no-verify", "-m", version)
            self._git("tag", version)

    def go(self, move: Move) -> None:
        self._git("-c", "core.fsync=all", "-c", "advice.detachedHead=false", "checkout", "-q", move.after)
        run(["sync", "-f", self.folder])

    def _git(self, *words: str) -> None:
        run(["git", "-c", "gc.auto=0", *words], cwd=self.folder)


class Rsync(Contestant):
    """rsync with backups, each file's data synced."""

    name = "rsync --backup --fsync"

    def ready(self, move: Move) -> None:
        self.work.tree(move.after)

    def go(self, move: Move) -> None:
        options = ["-a", "--delete", "--backup", f"--backup-dir={self.folder}.backup", "--fsync"]
        # By time and size alone two versions of one size, written in one second, would look alike.
        run(["rsync", *options, "--ignore-times", self.work.tree(move.after) + "/", self.folder])

    def tidy(self) -> None:
        shutil.rmtree(self.folder + ".backup", ignore_errors=True)


def patch_of(work: Work, move: Move) -> str:
    """The patch between two versions, made once."""
    patch = os.path.join(work.place, f"{move.name}.patch")
    if not os.path.exists(patch):
        old, new = work.tree(move.before), work.tree(move.after)
        diff = ["git", "diff", "--no-index", "--no-prefix", os.path.basename(old), os.path.basename(new)]
        text = subprocess.run(diff, cwd=work.place, capture_output=True, env=environment(), check=False).stdout
        # The two trees' names become the a/ and b/ that git apply takes off.
        for tree, letter in ((old, b"a/"), (new, b"b/")):
            text = text.replace(os.path.basename(tree).encode() + b"/", letter)
        _put(patch, text)
    return patch


PEERS: tuple[type[Contestant], ...] = (
    Floor,
    Copy,
    FsyncRename,
    FsyncRenameFsync,
    GitApply,
    GitApplyDurable,
    GitCheckout,
    Rsync,
)
OURS: tuple[type[Contestant], ...] = (Library, Executed, Command)
SLOW = (FsyncRename, FsyncRenameFsync, Rsync)  # by the file, at many files
