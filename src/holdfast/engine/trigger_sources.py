"""Where triggers look for what happened in the workspace: files that changed, and files put into a queue.

Both look again and again instead of asking the kernel to be told: a look costs one stat for each watched file, needs no
library and no limit of the kernel's, works on every file system, and sees what changed while nobody watched.

Invariants
  O1  A look reads the directories that its patterns begin with, and nothing else of the tree.
  O2  No link is followed, and nothing but a regular file is opened; every open is beneath the workspace.
  O3  A file is read only when its stat row is new: an unchanged tree costs stats and no reads. What counts is what
      files hold: one that was only touched fires nothing.
  O4  A queue file is read once, whole, after it was left alone for `settle`; what is read is what is taken (see `Box`).
  O5  What cannot be a queue file is left where it is and told once; what is one and is malformed is put aside, with the
      reason beside it.
  O6  A file that git tracks came with the repository, and one that Holdfast put there was landed: neither starts
      anything, whether it was committed or not, and whether there is a repository or not.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from holdfast.disk.confined import Root
from holdfast.engine.queue_box import LANDED, Box, Identity
from holdfast.engine.triggers import Triggers
from holdfast.errors import Blocked, HoldfastError, InvalidPath
from holdfast.intake.roadmap import parse
from holdfast.model.path import checked_path, is_protected, printable
from holdfast.model.patterns import PatternIndex, covers
from holdfast.model.trigger import Firing, Happened, Told
from holdfast.model.trigger_settings import TriggerSettings

MOST_FILES = 20_000
MOST_QUEUED = 1_000
MOST_BYTES = 4 << 20
_READ_WHOLE = 16 << 20
_PIECE = 1 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WILD = frozenset("*?")
_SHOWN = 3
_TRACKED = "git tracks it, and what comes with a repository starts no run"
_TICK_NS = 2_000_000_000


class Source(Protocol):
    """One trigger's eyes."""

    @property
    def trigger(self) -> str: ...

    def look(self, triggers: Triggers, now: datetime) -> Iterator[Told]:
        """Tell the triggers what is there now; yield what a person should hear."""
        ...

    def take(self, firing: Firing) -> str:
        """Make sure that nobody else gets what the firing is about; why it cannot be had any more, or empty."""
        ...


class _Seen(NamedTuple):
    """A file at a look: its stat row, and what it holds.

    Not `sure`: it had just been changed, and a second change in the same tick of the clock would leave the same row.
    """

    row: tuple[int, ...]
    digest: str
    sure: bool


class _Pattern(NamedTuple):
    """Where to begin to look, and what counts there; without `wanted` the start itself counts, and all below it."""

    start: str
    wanted: PatternIndex | None


class ChangedFiles:
    """The files of one trigger."""

    def __init__(self, root: Root, settings: TriggerSettings) -> None:
        self.trigger = settings.name
        self._root = root
        self._patterns = tuple(map(_pattern, settings.changed))
        self._known: dict[str, _Seen] = {}
        self._like = ""
        # As they were when the trigger fired last, to say which ones changed.
        self._before: dict[str, _Seen] | None = None

    def look(self, triggers: Triggers, now: datetime) -> Iterator[Told]:
        found = self._found()
        if found != self._known or not self._like:
            self._known, self._like = found, _like(found)
        if self._before is None:
            self._before = found
        if triggers.saw(self.trigger, self._like, now, _changed(self._before, found)):
            self._before = found
        yield from ()

    def take(self, firing: Firing) -> str:
        return ""

    def _found(self) -> dict[str, _Seen]:
        found: dict[str, _Seen] = {}
        for pattern in self._patterns:
            for path, row in _files(self._root, pattern):
                if path not in found:
                    found[path] = self._seen(path, row)
                if len(found) > MOST_FILES:
                    raise Blocked(
                        f"[triggers.{self.trigger}] changed watches more than {MOST_FILES:,} files",
                        hint="Name a smaller part of the workspace.",
                    )
        return found

    def _seen(self, path: str, row: tuple[int, ...]) -> _Seen:
        known = self._known.get(path)
        if known is not None and known.row == row and known.sure:
            return known
        sure = time.time_ns() - max(row[2:]) > _TICK_NS
        return _Seen(row, _digest(self._root, path, row), sure)


class Queue:
    """The directory of one trigger into which task queues are dropped."""

    def __init__(self, root: Root, settings: TriggerSettings, box: Box) -> None:
        self.trigger = settings.name
        self._root, self._settings, self._box = root, settings, box
        self._resting: dict[str, tuple[Identity, datetime]] = {}
        # What was told, or read, and need not be again while it stays as it is.
        self._settled: dict[str, Identity] = {}

    def look(self, triggers: Triggers, now: datetime) -> Iterator[Told]:
        rows = dict(_rows(self._root, self._settings.queue, MOST_QUEUED))
        self._resting = {name: rest for name, rest in self._resting.items() if name in rows}
        self._settled = {name: known for name, known in self._settled.items() if name in rows}
        for name in sorted(rows):
            about = rows[name]
            if stat.S_ISDIR(about.st_mode) or name.startswith(".") or self._settled.get(name) == _identity(about):
                continue
            if why := _no_queue_file(self._settings.queue, name, about):
                self._settled[name] = _identity(about)
                yield Told("left", self.trigger, f"{printable(name)} is left where it is: {why}")
            elif self._rests(name, _identity(about), now):
                yield from self._offered(triggers, name, _identity(about))

    def take(self, firing: Firing) -> str:
        return self._box.take(firing, self._root)

    def _rests(self, name: str, identity: Identity, now: datetime) -> bool:
        """Was it left alone for long enough? Somebody may still be writing it."""
        known = self._resting.get(name)
        if known is None or known[0] != identity or known[1] > now:
            known = self._resting[name] = (identity, now)
        return now - known[1] >= timedelta(milliseconds=self._settings.settle_ms)

    def _offered(self, triggers: Triggers, name: str, identity: Identity) -> Iterator[Told]:
        path = f"{self._settings.queue}/{name}"
        if nobodys := self._nobodys_wish(path):
            self._settled[name] = identity
            yield Told("left", self.trigger, f"{printable(name)} is left where it is: {nobodys}")
            return
        data = _whole(self._root, path, identity)
        if data is None:
            return  # it moved under our eyes; the next look sees what it is now
        why = _malformed(data)
        if not why:
            digest = hashlib.sha256(data).hexdigest()
            noted = triggers.happened(
                Happened(self.trigger, "queue", f"{name}\0{identity}\0{digest}", path, identity.packed())
            )
            if noted == "noted":
                self._settled[name] = identity
                return
            # Known, and still here: it was begun and whoever began it was killed before the file was moved.
            why = "" if noted == "full" else "it was about to be taken when the watcher was killed; put it in again"
        if why:
            yield self._put_aside(name, path, identity, why)

    def _nobodys_wish(self, path: str) -> str:
        """Why nobody asks for a run by this file; empty when somebody does (O6)."""
        if self._box.is_tracked(path):
            return _TRACKED
        return LANDED if self._box.is_landed(path, self._root) else ""

    def _put_aside(self, name: str, path: str, identity: Identity, why: str) -> Told:
        try:
            place = self._box.refuse(self._settings, path, why)
        except HoldfastError as error:
            self._settled[name] = identity
            return Told("left", self.trigger, f"{printable(name)} is left where it is: {why}; and {error.message}")
        return Told("refused", self.trigger, f"{printable(name)} was put aside as {place}: {why}")


def sources_of(settings: tuple[TriggerSettings, ...], root: Root, box: Box) -> tuple[Source, ...]:
    """The eyes of every trigger that looks into the workspace."""
    found: list[Source] = []
    for trigger in settings:
        if trigger.kind == "changed":
            found.append(ChangedFiles(root, trigger))
        elif trigger.kind == "queue":
            found.append(Queue(root, trigger, box))
    return tuple(found)


# ── files by pattern ──


def _pattern(text: str) -> _Pattern:
    """InvalidInput for one that could keep the matcher busy."""
    names, index = text.split("/"), covers([text])
    while len(names) > 1 and names[-1] == "**":
        names.pop()  # all below, which is what a directory alone means
    plain = next((n for n, name in enumerate(names) if _WILD & set(name)), len(names))
    return _Pattern("/".join(names[:plain]), None if plain == len(names) else index)


def _files(root: Root, pattern: _Pattern) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every regular file that a pattern covers, with its stat row (O1, O2)."""
    if pattern.wanted is None:
        yield from _literal(root, pattern.start)
    else:
        yield from _below(root, pattern.start, pattern.wanted, deep=bool(pattern.start))


def _literal(root: Root, path: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """One file; or, where it is a directory, everything in it."""
    above, _, name = path.rpartition("/")
    try:
        folder = root.calls.open_beneath(above, _FOLDER, root.fd)
    except OSError:
        return  # a directory that is not there, or is none, holds no file
    try:
        about = root.calls.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    finally:
        root.calls.close(folder)
    if stat.S_ISREG(about.st_mode):
        yield path, _row(about)
    elif stat.S_ISDIR(about.st_mode):
        yield from _below(root, path, None, deep=True)


def _below(root: Root, start: str, wanted: PatternIndex | None, *, deep: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        for name, about in _rows(root, folder, MOST_FILES):
            path = f"{folder}/{name}" if folder else name
            if is_protected(name):
                continue
            if stat.S_ISDIR(about.st_mode) and deep:
                waiting.append(path)
            elif stat.S_ISREG(about.st_mode) and (wanted is None or wanted.owners_of(path)):
                yield path, _row(about)


def _rows(root: Root, folder: str, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """The names in a directory with their stat; none where there is no directory, or it cannot be read."""
    try:
        fd = root.calls.open_beneath(folder, _FOLDER, root.fd)
    except OSError:
        return
    try:
        with root.calls.entries(fd) as entries:
            for number, entry in enumerate(entries):
                if number >= most:
                    raise Blocked(f"{printable(folder)} holds more than {most:,} names", hint="Clear it up.")
                try:
                    yield entry.name, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone between two looks
    finally:
        root.calls.close(fd)


def _row(about: os.stat_result) -> tuple[int, ...]:
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _digest(root: Root, path: str, row: tuple[int, ...]) -> str:
    """What it holds; for one that is very large, or cannot be read, its row has to do."""
    data = _whole(root, path, None) if row[1] <= _READ_WHOLE else None
    return f"row {row}" if data is None else hashlib.sha256(data).hexdigest()


def _like(found: dict[str, _Seen]) -> str:
    whole = hashlib.sha256()
    for path in sorted(found):
        whole.update(f"{path}\0{found[path].digest}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _changed(before: dict[str, _Seen], found: dict[str, _Seen]) -> str:
    held, holds = ({path: seen.digest for path, seen in files.items()} for files in (before, found))
    paths = sorted(path for path in {*held, *holds} if held.get(path) != holds.get(path))
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(printable, paths[:_SHOWN])) + more


# ── one file ──


def _identity(about: os.stat_result) -> Identity:
    return Identity(about.st_ino, about.st_size, about.st_mtime_ns)


def _no_queue_file(folder: str, name: str, about: os.stat_result) -> str:
    """Why this cannot be a queue file; empty when it may be one."""
    if not stat.S_ISREG(about.st_mode):
        return "it is no regular file"
    if not name.endswith(".json") or printable(name) != name:
        return "only plain names that end in .json are taken"
    try:
        checked_path(f"{folder}/{name}")
    except InvalidPath as error:
        return error.message
    return ""


def _whole(root: Root, path: str, identity: Identity | None) -> bytes | None:
    """All its bytes (at most one more than MOST_BYTES of a queue file), if it is what was looked at; None otherwise."""
    most = MOST_BYTES + 1 if identity is not None else _READ_WHOLE
    try:
        fd = root.calls.open_beneath(path, _FILE, root.fd)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(root.calls.fstat(fd).st_mode):
            return None
        data = bytearray()
        while len(data) < most and (piece := root.calls.read(fd, min(_PIECE, most - len(data)))):
            data += piece
        same = identity is None or _identity(root.calls.fstat(fd)) == identity
        return bytes(data) if same else None
    except OSError:
        return None
    finally:
        root.calls.close(fd)


def _malformed(data: bytes) -> str:
    """Why these bytes are no task queue; empty when they are one."""
    if len(data) > MOST_BYTES:
        return f"it is larger than {MOST_BYTES >> 20} MiB"
    roadmap = parse(data, "task_queue.json")
    if roadmap.format not in ("queue", "task-master"):
        return "it is no task queue: a JSON list of tasks, or an object with such a list under tasks"
    if not roadmap.tasks:
        said = "; ".join(f"line {remark.line}: {remark.text}" for remark in roadmap.remarks[:_SHOWN])
        return f"it holds no task{': ' + printable(said) if said else ''}"
    return ""
