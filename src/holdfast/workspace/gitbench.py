"""One move of a reference and of the index that belongs to it, so that neither is seen without the other.

    READY ──hold──▶ HELD ──stage──▶ STAGED ──move──▶ MOVED ──finish──▶ READY
      ▲               └──────────────┴── leave ──▶ READY   (nothing moved)
      └── opened again after a crash: a move that was announced is finished, anything before is taken away

Everything of ours is in `holdfast/` inside the git directory, and gone afterwards:
  held      the same file as `index.lock` while we hold that: so nobody else's lock is ever taken for ours
  index     the index as it will be
  moving    which reference goes from where to where; written when all that it names is durable
  config…   an empty repository's skeleton: the settings under which git works for us

Invariants
  D1  `index.lock` is held from before the index is read until after the reference has moved and the index is in place:
      a commit that the user makes meanwhile waits or fails, and cannot revert the landing.
  D2  The reference moves by compare-and-swap, and only after `moving` says so.
  D3  Entries of the index that are not named stay as they are. The copy keeps its time, by which git knows
      which entries it must not trust.
  D4  One Holdfast at a time, by the kernel's lock on the git directory.
  D5  What stands in `holdfast/` when we come may be a stranger's: an archive can bring it along, lock and all.
      A move that is announced there is finished only for what is checked out, and any move is made only
      after it was looked at that git, on its way to this reference and its log, is not led elsewhere.
      Nothing there is waited for or followed, and what is taken away stands in that directory itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from holdfast.disk.confined import Root
from holdfast.disk.holes import CHUNK
from holdfast.errors import Blocked, Conflict, Locked
from holdfast.model.path import printable
from holdfast.workspace.gitplace import small
from holdfast.workspace.gitsettings import Person
from holdfast.workspace.gittree import Entry
from holdfast.workspace.plumbing import Git, inside
from holdfast.workspace.repository import Repository
from holdfast.workspace.staging import write_all

_POLL = 0.02
_NAMED_PATHS = 200
_LONGEST_MOVING = 1 << 13
_MOST_ATTRIBUTES = 1 << 24
_MOST_INDEX = 1 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOVING = re.compile(r"1 (\S+) ([0-9a-f]{40,64}|-) ([0-9a-f]{40,64}|-) (index|none)\n")


class Move(NamedTuple):
    """A reference from one commit to another; empty is none at all. `restaged`: the staged index belongs to it."""

    ref: str
    old: str
    new: str
    restaged: bool = True


class Bench:
    """The place where a checkpoint is made. Use as a context manager: entering finishes what a crash left."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._calls, self._wait = repository.calls, repository.wait
        self._place = os.path.join(repository.git_dir, "holdfast")
        self._index = os.path.join(repository.git_dir, "index")
        self._lock = self._index + ".lock"
        self._fd = -1
        self._move: Move | None = None

    @property
    def git(self) -> Git:
        objects = os.path.join(self.repository.common, "objects")
        return inside(self._place, objects, self.repository.top, self._calls)

    def __enter__(self) -> Bench:
        self._fd = self._calls.open(self.repository.git_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._acquire()
            self._recover()
        except BaseException:
            self._calls.close(self._fd)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # After a move that was not finished, everything stays for the next one who enters: it can still be told.
            if self._move is None:
                self.leave()
        finally:
            self._calls.close(self._fd)

    # ── the steps ──

    def open(self) -> None:
        """Git can be asked, over a directory of our own; nothing is held."""
        self._skeleton()

    def look(self) -> None:
        """Git can be asked about the index as it is now, in a copy; nothing is held."""
        self._skeleton()
        self._copy_index()

    def hold(self) -> None:
        """HELD: the index is ours, and its copy can be read and changed (D1)."""
        self._skeleton()
        self._create("held", f"held by holdfast, pid {os.getpid()}\n".encode("ascii"))
        deadline = time.monotonic() + self._wait
        while True:
            try:
                self._calls.link(os.path.join(self._place, "held"), self._lock)
                break
            except FileExistsError:
                if time.monotonic() >= deadline:
                    raise Locked(
                        f"another git is at work: {printable(self._lock)} exists",
                        hint="If no git is running there, it was left by one that was killed: remove that file.",
                    ) from None
                time.sleep(_POLL)
        self._calls.point("index.held")
        self._copy_index()

    def staged(self, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """What the index holds at and below these paths: for each path `mode id stage` of its entries."""
        words = ("ls-files", "-s", "-z")
        rows = self.git.listed(*words, "--", *paths) if len(paths) <= _NAMED_PATHS else self.git.listed(*words)
        found: dict[str, list[str]] = {}
        for row in rows:
            facts, _, path = row.partition(b"\t")
            found.setdefault(os.fsdecode(path), []).append(facts.decode("ascii", "replace"))
        return {path: tuple(entries) for path, entries in found.items()}

    def stage(self, updates: Mapping[str, Entry | None]) -> None:
        """STAGED: these entries of the copy, and no others."""
        if not updates:
            self._remove("index")
            return
        nothing = Entry("0", "0" * (64 if self.repository.hashing == "sha256" else 40))
        # First what goes, then what comes: a file may take the place of a folder.
        ordered = sorted(updates.items(), key=lambda item: item[1] is not None)
        rows = [(path, entry or nothing) for path, entry in ordered]
        asked = b"".join(f"{mode} {id}\t".encode("ascii") + os.fsencode(path) + b"\0" for path, (mode, id) in rows)
        split = ("--no-split-index",) if self._shared() else ()
        self.git.asked("update-index", *split, "-z", "--index-info", stdin=asked)

    def move(self, move: Move, note: str) -> None:
        """MOVED, or Conflict and nothing has moved (D2)."""
        self.repository.check_writable(move.ref)
        self._announce(move)
        if not self._swap(move, note):
            self._move = None
            self._remove("moving")
            raise Conflict(f"{printable(move.ref)} was moved by somebody else; nothing was committed")
        self._calls.point("ref.moved")

    @property
    def moved(self) -> bool:
        return self._move is not None

    def finish(self) -> None:
        """The index that belongs to the commit takes its place, and everything of ours goes."""
        self._install()
        self._move = None
        self.leave()

    def turn_back(self, note: str) -> bool:
        """After `move`: the reference back to where it was, the index as it is; False if somebody moved it since."""
        assert self._move is not None
        back = Move(self._move.ref, self._move.new, self._move.old, restaged=False)
        self._announce(back)
        turned = self._swap(back, note)
        self._move = None
        self.leave()
        return turned

    def leave(self) -> None:
        """READY: our lock and our directory go; what others hold stays."""
        if not os.path.lexists(self._place):
            return
        if self._holds():
            self._calls.unlink(self._lock)
        self._clear()

    # ── after a crash ──

    def _recover(self) -> None:
        if not os.path.lexists(self._place):
            return
        if not stat.S_ISDIR(os.lstat(self._place).st_mode):
            raise Blocked(f"{printable(self._place)} is not a directory of ours")
        move = self._announced()
        # Without the lock the index may have changed since: then it is the user's, and only the traces go.
        if (
            move is not None
            and self._holds()
            and self._is_checked_out(move)
            and self._swap(move, "holdfast: checkpoint, after a crash")
            and move.restaged
        ):
            self._install()
        self.leave()

    def _is_checked_out(self, move: Move) -> bool:
        """D5: with the lock held nobody has checked out something else, so another reference was never our move."""
        if move.ref != self.repository.head().ref:
            return False
        self.repository.check_writable(move.ref)
        return True

    def _announced(self) -> Move | None:
        with Root(self._place, self._calls) as root:
            text = small(root, "moving", _LONGEST_MOVING)
        found = _MOVING.fullmatch(os.fsdecode(text or b""))
        if found is None:
            return None
        ref, old, new, index = found.groups()
        return Move(ref, old.strip("-"), new.strip("-"), index == "index")

    def _holds(self) -> bool:
        """Whether `index.lock` is our own file, and not one that somebody else made."""
        try:
            ours, there = os.lstat(os.path.join(self._place, "held")), os.lstat(self._lock)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    # ── hands ──

    def _acquire(self) -> None:
        deadline = time.monotonic() + self._wait
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Locked(f"another holdfast is at work in {printable(self.repository.git_dir)}") from None
                time.sleep(_POLL)

    def _skeleton(self) -> None:
        self._calls.mkdir(self._place, 0o700)
        self._calls.mkdir(os.path.join(self._place, "refs"), 0o700)
        self._calls.mkdir(os.path.join(self._place, "info"), 0o700)
        self._create("HEAD", b"ref: refs/heads/none\n")
        self._create("config", _config(self.repository))
        with Root(self.repository.common, self._calls) as root:
            attributes = small(root, "info/attributes", _MOST_ATTRIBUTES)
        if attributes is not None:
            self._create("info/attributes", attributes)

    def _copy_index(self) -> None:
        try:
            source = self._calls.open(self._index, _READ)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Blocked(f"{printable(self._index)} cannot be read: {error.strerror}") from error
        try:
            found = self._calls.fstat(source)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_INDEX:
                raise Blocked(f"{printable(self._index)} is no index of git")
            self._create("index", *iter(lambda: self._calls.read(source, CHUNK), b""))
            mtime_ns = self._calls.fstat(source).st_mtime_ns
        finally:
            self._calls.close(source)
        self._calls.utime(os.path.join(self._place, "index"), ns=(mtime_ns, mtime_ns))  # D3
        for name in self._shared():
            self._calls.symlink(os.path.join(self.repository.git_dir, name), os.path.join(self._place, name))

    def _shared(self) -> list[str]:
        """The other half of an index that git keeps in two files."""
        return [name for name in self._calls.names(self._fd) if name.startswith("sharedindex.")]

    def _announce(self, move: Move) -> None:
        index = "index" if move.restaged else "none"
        self._create("next", os.fsencode(f"1 {move.ref} {move.old or '-'} {move.new or '-'} {index}\n"))
        # In one step: half an announcement, or none while one is taken back, would leave the index behind.
        self._calls.rename(os.path.join(self._place, "next"), os.path.join(self._place, "moving"))
        self._sync(self._place)
        self._calls.fsync(self._fd)
        self._move = move
        self._calls.point("move.announced")

    def _swap(self, move: Move, note: str) -> bool:
        """Compare and swap; True also when it had been done before."""
        person: Person = self.repository.settings.committer
        identity = (("GIT_COMMITTER_NAME", person.name), ("GIT_COMMITTER_EMAIL", person.email))
        git = self.repository.git._replace(variables=identity)
        plain = ("--no-deref",) if move.ref == "HEAD" else ()
        zero = "0" * (64 if self.repository.hashing == "sha256" else 40)
        words = (move.ref, move.new, move.old or zero) if move.new else ("-d", move.ref, move.old)
        done = git.finished("update-ref", "-m", note, *plain, *words, lasting=True)
        return done.succeeded or self.repository.value(move.ref) == move.new

    def _install(self) -> None:
        ready = os.path.join(self._place, "index")
        if os.path.lexists(ready):
            if not stat.S_ISREG(self._mode("index")):
                raise Blocked(f"{printable(ready)} is not an index of ours")
            self._calls.rename(ready, self._index)
            self._calls.point("index.installed")
            self._calls.fsync(self._fd)

    def _create(self, name: str, *data: bytes) -> None:
        fd = self._calls.open(os.path.join(self._place, name), _NEW, 0o600)
        try:
            for piece in data:
                write_all(self._calls, fd, piece)
            self._calls.fsync(fd)
        finally:
            self._calls.close(fd)

    def _remove(self, name: str) -> None:
        try:
            self._calls.unlink(os.path.join(self._place, name))
        except FileNotFoundError:
            pass  # there was no index to copy, or a crash came first

    def _sync(self, directory: str) -> None:
        fd = self._calls.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._calls.fsync(fd)
        finally:
            self._calls.close(fd)

    def _mode(self, name: str) -> int:
        """Of what stands there itself, not of what it leads to (D5); 0 for nothing."""
        try:
            return os.lstat(os.path.join(self._place, name)).st_mode
        except FileNotFoundError:
            return 0

    def _clear(self) -> None:
        """`held` goes last but the folder: as long as the lock is there, it must be provably ours."""
        try:
            if stat.S_ISDIR(self._mode("info")):
                self._remove("info/attributes")
            for name in sorted(os.listdir(os.fspath(self._place)), key=lambda name: name == "held"):
                is_folder = stat.S_ISDIR(self._mode(name))
                (self._calls.rmdir if is_folder else self._calls.unlink)(os.path.join(self._place, name))
            self._calls.rmdir(self._place)
        except OSError as error:
            raise Blocked(f"{printable(self._place)} cannot be taken away: {error.strerror}") from error


def _config(repository: Repository) -> bytes:
    """Settings under which git knows no program: only how objects are named, and what is carried over."""
    lines = ["[core]", "bare = false", "safecrlf = false"]
    for name, value in repository.settings.carried:
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'{name.removeprefix("core.")} = "{quoted}"')
    sha256 = repository.hashing == "sha256"
    lines.append(f"repositoryformatversion = {int(sha256)}")
    if sha256:
        lines += ["[extensions]", "objectformat = sha256"]
    return os.fsencode("\n".join(lines) + "\n")
