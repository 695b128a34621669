"""Undo: what must change so that the workspace is as if some past transactions had not happened.

For each path they touched:

    stands as they left it .............. goes back to what was there before
    stands already as before ............ left alone
    edited since, both texts, apart ..... three-way merge: their lines go, the later edit stays
    edited since, otherwise ............. conflict; nothing at all is undone
    edited between two of them .......... merged stretch by stretch in the same way, or a conflict

Invariants
  U1  Planning an undo changes nothing; carrying it out is an ordinary transaction that can itself be undone.
  U2  All conflicts are found and named before anything moves.
  U3  A directory of ours that now holds files of others is left standing, with a note.
  U4  An old object goes back only when its content was read and is what it was (see `proof`); otherwise it is
      restored from another copy, or it is a conflict. Where the state was copied or came from a backup, every
      object in it is another inode with the same content: then the content is copied.
  U5  Going back uses the same slots (see `Held`), so every log stays true after undo, redo and undo again.
  U6  Directories get the modification time back that they had, as after a rollback; one in which somebody else
      worked since keeps its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from blake3 import blake3

from holdfast.errors import Conflict, HoldfastError, Tampering, UnknownId
from holdfast.model.canonical import Json
from holdfast.model.changeset import Change, ChangeSet, Observation, change_set, images_digest
from holdfast.model.execution import Divergence
from holdfast.model.image import Image, Seen, Stamp
from holdfast.model.path import parent_of, printable
from holdfast.store.contents import TEXT_LIMIT, is_text
from holdfast.store.journal import Log, Op
from holdfast.workspace.collector import without_collector
from holdfast.workspace.flip import DISPLACED, Flipper
from holdfast.workspace.merge import Merge, by_lines, takes_too_long
from holdfast.workspace.observe import RACY_NS, is_same, look, observe, stamp_of
from holdfast.workspace.proof import proven
from holdfast.workspace.recovery import read_log
from holdfast.workspace.shelf import Shelf, checked_bytes
from holdfast.workspace.site import KEPT, Site
from holdfast.workspace.staging import Bytes, CopyOf, Held, Source
from holdfast.workspace.turns import Past, Turn, turns


class Undo(NamedTuple):
    change_set: ChangeSet
    seen: dict[str, Seen]
    sources: dict[str, Source]
    merged: tuple[str, ...]
    left: tuple[Divergence, ...]
    times: dict[str, int]


class _Unmerged(NamedTuple):
    """Why a later edit cannot be kept while an older one goes; it follows who edited when."""

    why: str


_SAME_PLACE = _Unmerged(", in the same place")
_WRITTEN_GONE = _Unmerged("; the text that this change wrote there is not kept, so nothing can be merged")
_OLD_GONE = _Unmerged("; its text from before is not kept, so nothing can be merged")
_NO_TEXT = _Unmerged("; only text can be merged")
_NO_FILE = _Unmerged("; only files can be merged")
_TOO_LARGE = _Unmerged("; more than 1 MiB is not merged")
_TOO_LONG = _Unmerged("; too many lines differ to compare them")
_RESTLESS = _Unmerged("; it is being written to now")


@without_collector
def read_past(site: Site, txn: str) -> Past:
    try:
        directory = site.state.directory(f"{KEPT}/{txn}")
    except FileNotFoundError:
        raise UnknownId(f"the old files of {txn} are no longer kept", hint="gc removed them.") from None
    return Past(txn, read_log(site.calls, directory), site.calls.fstat(directory).st_ctime_ns)


@without_collector
def plan_undo(site: Site, pasts: Sequence[Past], merge: Merge = by_lines) -> Undo:
    """What to change; `pasts` newest first. Raises Conflict naming every path in the way."""
    site.workspace.forget()
    return _Planner(site, pasts, merge).plan()


def described_reads(reads: Sequence[Observation]) -> dict[str, Json]:
    """What a transaction found as its plan wanted it, for the header of its log: the paths, and one digest."""
    return {"reads": [read.path for read in reads], "reads_digest": images_digest(reads)}


@without_collector
def stands_as_left(site: Site, txn: str, root: str, settled_ns: int, paths: Iterable[str]) -> bool:
    """Does the effect of this transaction, whose log has this root, stand on all `paths` that its plan names?

    What it put somewhere must be that very object, unchanged since `settled_ns`; what it found as it should be
    must look the same; everything else that the plan names was nothing, before and after, and must be nothing.
    """
    try:
        past = read_past(site, txn)
        require_intact(past, root)
    except (UnknownId, Tampering):
        return False
    log = past.log
    site.workspace.forget()
    flipper = Flipper(site, txn)
    last = {op.path: op for op in log.ops}
    if not all(_stands(site, flipper, op, settled_ns) for op in last.values()):
        return False
    reads = log.header.get("reads")
    if not isinstance(reads, list):
        return False
    try:
        found = [(path, _image_at(site, path)) for path in map(str, reads)]
        others = set(paths) - last.keys() - {path for path, _ in found}
        nothing = all(_image_at(site, path) is None for path in others)
    except (OSError, HoldfastError):
        return False  # what cannot be looked at proves nothing
    return nothing and images_digest(found) == log.header.get("reads_digest")


def _image_at(site: Site, path: str) -> Image | None:
    try:
        directory = site.workspace.directory(parent_of(path))
    except OSError as error:
        if error.errno in DISPLACED:
            return None
        raise
    seen = observe(site.calls, directory, path.rpartition("/")[2], wait=False)
    return seen.image if seen is not None else None


def _stands(site: Site, flipper: Flipper, op: Op, settled_ns: int) -> bool:
    found = flipper.found(op)
    if not is_same(found, op.post):
        return False
    if found is None or op.post is None or found.st_ctime_ns <= settled_ns - RACY_NS:
        return True
    # Something may have been written since, if only its times: the content decides.
    directory = site.workspace.directory(parent_of(op.path))
    return proven(site.calls, directory, op.path.rpartition("/")[2], op.post, settled_ns) is not None


class _Planner:
    def __init__(self, site: Site, pasts: Sequence[Past], merge: Merge) -> None:
        self._site, self._merge_of = site, merge
        self._calls = site.calls
        self._pasts = pasts
        self._settled_ns = max((past.settled_ns for past in pasts), default=0)
        self._shelf = Shelf(site, pasts, self._settled_ns)
        self._changes: dict[str, Change] = {}
        self._seen: dict[str, Seen] = {}
        self._sources: dict[str, Source] = {}
        self._merged: list[str] = []
        self._left: list[Divergence] = []
        self._conflicts: list[Divergence] = []

    def plan(self) -> Undo:
        turns_back = turns(self._pasts)
        clean = [turn for turn in turns_back if self._is_clean_or_handled(turn)]
        moving = self._moving(clean)
        for turn in clean:
            self._turn_back(turn, moving)
        self._keep_directories_in_use()
        self._require_parents()
        if self._conflicts:
            lines = "\n".join(f"  {printable(item.path)} {item.detail}" for item in self._conflicts)
            raise Conflict(f"cannot be undone without losing later changes:\n{lines}", hint="Nothing was changed.")
        changes = change_set(self._changes.values())
        return Undo(changes, self._seen, self._sources, tuple(self._merged), tuple(self._left), self._times())

    def _moving(self, clean: list[Turn]) -> dict[tuple[int, Image], str]:
        """Where the objects stand that are needed at another path; most undos need none."""
        needed = {t.target.stamp.inode for t in clean if t.target is not None and t.path not in self._seen}
        leaving = (t.path for t in clean if needed and t.target is None and t.path in self._seen)
        found = ((path, self._seen[path]) for path in leaving)
        return {(seen.stamp.inode, seen.image): path for path, seen in found if seen.stamp.inode in needed}

    def _is_clean_or_handled(self, turn: Turn) -> bool:
        """True when the path stands as the transactions left it; otherwise it is merged, left or in conflict now."""
        try:
            current = self._current(turn)
        except PermissionError as error:
            self._conflicts.append(Divergence(turn.path, f"cannot be read: {error.strerror}"))
            return False
        if current is not None:
            self._seen[turn.path] = current
        image = current.image if current is not None else None
        if turn.earlier is not None:
            self._merge_through(turn, image)
            return False
        expected = turn.expected.image if turn.expected is not None else None
        target = turn.target.image if turn.target is not None else None
        if image == target:
            return False
        if image == expected:
            return True
        self._merge(turn, image, expected, target)
        return False

    def _current(self, turn: Turn) -> Seen | None:
        name = turn.path.rpartition("/")[2]
        try:
            directory = self._site.workspace.directory(parent_of(turn.path))
        except OSError as error:
            if error.errno in DISPLACED:
                return None  # whoever replaced the directory took what was in it
            raise
        found = look(self._calls, directory, name)
        expected = turn.expected
        if (
            found is not None
            and expected is not None
            and is_same(found, expected)
            and self._is_settled(found, expected)
        ):
            return Seen(expected.image, _stamp_like(expected, found))
        # In the tick of the clock in which we finished, only the content can tell who wrote last.
        try:
            return observe(self._calls, directory, name, wait=found is None or found.st_ctime_ns > self._settled_ns)
        except PermissionError:
            if found is None or expected is None:
                raise
            if proven(self._calls, directory, name, expected, self._settled_ns) is None:
                raise
            return Seen(expected.image, _stamp_like(expected, found))

    def _is_settled(self, found: os.stat_result, expected: Seen) -> bool:
        """Nothing was written to it since, not even its times; directories change with what is in them."""
        return found.st_ctime_ns <= self._settled_ns - RACY_NS or expected.image.kind == "directory"

    def _turn_back(self, turn: Turn, moving: dict[tuple[int, Image], str]) -> None:
        current = self._seen.get(turn.path)
        pre = current.image if current is not None else None
        if turn.target is None:
            self._changes[turn.path] = Change(turn.path, pre, None)
            if turn.slot and self._shelf.held(turn.slot) is None:
                self._sources[turn.path] = Held(turn.slot, None)
            return
        # The very object moved away and stands elsewhere: rename it back. An inode number alone proves nothing.
        origin = moving.get((turn.target.stamp.inode, turn.target.image)) if pre is None else None
        self._changes[turn.path] = Change(turn.path, pre, turn.target.image, origin)
        if origin is None:
            self._find_object(turn, pre)

    def _find_object(self, turn: Turn, pre: Image | None) -> None:
        assert turn.target is not None
        image = turn.target.image
        source: Source | None = self._shelf.object_for(turn, turn.target)
        source = source or self._shelf.copy_for(turn, turn.target)
        if source is not None:
            self._sources[turn.path] = source
            return
        if image.kind == "symlink":
            self._sources[turn.path] = Bytes(b"", turn.target.stamp.mtime_ns)
            return
        if image.kind != "file" or (pre is not None and pre._replace(mode=image.mode) == image):
            return  # directories and modes are rebuilt from the image itself
        copy = self._shelf.stored(image.digest, image.size) or self._standing_elsewhere(image)
        if copy is not None:
            self._sources[turn.path] = copy._replace(mtime_ns=turn.target.stamp.mtime_ns)
            return
        why = "was changed by somebody" if self._shelf.held(turn.slot) is not None else "is no longer kept"
        self._conflicts.append(Divergence(turn.path, f"cannot come back: its old content {why}"))

    def _standing_elsewhere(self, image: Image) -> CopyOf | None:
        """The same bytes at another path that these transactions touched; staging copies before anything moves."""
        for path, seen in self._seen.items():
            if seen.image.kind == "file" and seen.image.digest == image.digest:
                return CopyOf(lambda path=path: self._open_workspace(path))  # type: ignore[misc]
        return None

    def _merge(self, turn: Turn, mine: Image | None, base: Image | None, theirs: Image | None) -> None:
        if mine is None or base is None or theirs is None or {mine.kind, base.kind, theirs.kind} != {"file"}:
            self._conflicts.append(Divergence(turn.path, _why_not(mine, base, theirs)))
            return
        mode = theirs.mode if mine.mode == base.mode else mine.mode
        if base.digest == theirs.digest:  # we changed only the mode, so the later content stays as it is
            self._note_merged(turn.path, mine, mine._replace(mode=mode))
            return
        data = self._merged_text(turn, mine, base, theirs)
        if isinstance(data, _Unmerged):
            self._conflicts.append(Divergence(turn.path, f"was edited since{data.why}"))
        else:
            self._take_text(turn.path, mine, data, mode)

    def _merge_through(self, turn: Turn, mine: Image | None) -> None:
        """Take out one stretch of transactions after the other, keeping the edits that were made between them."""
        data = self._text_now(turn.path, mine)
        stretch: Turn | None = turn
        mode = mine.mode if mine is not None else 0
        while stretch is not None and not isinstance(data, _Unmerged):
            wrote, old = stretch.expected, stretch.target
            if wrote is None or old is None or {wrote.image.kind, old.image.kind} != {"file"}:
                data = _NO_FILE
                break
            data = self._without(stretch, data, wrote.image, old.image)
            mode = old.image.mode if mode == wrote.image.mode else mode
            stretch = stretch.earlier
        if isinstance(data, _Unmerged) or mine is None:
            why = data.why if isinstance(data, _Unmerged) else ""
            self._conflicts.append(Divergence(turn.path, f"was edited between the changes that shall go{why}"))
        else:
            self._take_text(turn.path, mine, data, mode)

    def _merged_text(self, turn: Turn, mine: Image, base: Image, theirs: Image) -> bytes | _Unmerged:
        now = self._text_now(turn.path, mine)
        return now if isinstance(now, _Unmerged) else self._without(turn, now, base, theirs)

    def _text_now(self, path: str, image: Image | None) -> bytes | _Unmerged:
        if image is None or image.kind != "file":
            return _NO_FILE
        if image.size > TEXT_LIMIT:
            return _TOO_LARGE
        data = checked_bytes(self._calls, self._open_workspace(path), image)
        return data if data is not None else _RESTLESS

    def _without(self, turn: Turn, now: bytes, wrote: Image, old: Image) -> bytes | _Unmerged:
        """The text as it stands without what was written here: a merge, or why there is none."""
        if max(wrote.size, old.size) > TEXT_LIMIT:
            return _TOO_LARGE
        before = self._shelf.old_bytes(turn, old)
        if before is None:
            return _OLD_GONE
        if not (is_text(before) and is_text(now)):
            return _NO_TEXT
        written = now if blake3(now).hexdigest() == wrote.digest else self._shelf.text(wrote.digest)
        if written is None:
            return _WRITTEN_GONE
        merged = self._merge_of(turn.path, written, now, before)
        if merged is not None:
            return merged
        return _TOO_LONG if any(takes_too_long(written, text) for text in (now, before)) else _SAME_PLACE

    def _take_text(self, path: str, mine: Image, data: bytes, mode: int) -> None:
        image = mine._replace(size=len(data), digest=blake3(data).hexdigest(), mode=mode)
        self._note_merged(path, mine, image)
        if image != mine:
            self._sources[path] = Bytes(data)

    def _note_merged(self, path: str, mine: Image, image: Image) -> None:
        if image != mine:
            self._changes[path] = Change(path, mine, image)
            self._merged.append(path)

    def _open_workspace(self, path: str) -> int:
        return self._calls.open_beneath(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, self._site.workspace.fd)

    def _keep_directories_in_use(self) -> None:
        """U3: deepest first, a directory goes only when everything in it goes too."""
        for path in sorted(self._changes, reverse=True):
            change = self._changes[path]
            if change.post is not None or change.pre is None or change.pre.kind != "directory":
                continue
            try:
                names = self._calls.names(self._site.workspace.directory(path))
            except PermissionError:
                continue  # closed to us by its mode; it is opened before it goes, and goes only if it is empty
            staying = [name for name in names if not self._goes(f"{path}/{name}")]
            if staying:
                del self._changes[path]
                self._sources.pop(path, None)
                self._left.append(Divergence(path, f"stays: it holds {printable(staying[0])}, which is not ours"))

    def _goes(self, path: str) -> bool:
        return path in self._changes and self._changes[path].post is None

    def _times(self) -> dict[str, int]:
        """U6: the modification time that each directory had before."""
        times: dict[str, int] = {}
        foreign: set[str] = set()
        for past in self._pasts:
            for path, mtime_ns in _dated(past.log).items():
                later = times.get(path) if path in times else self._time_of(path)
                if later is not None and later > past.settled_ns:
                    foreign.add(path)
                times[path] = mtime_ns
        return {path: mtime_ns for path, mtime_ns in times.items() if path not in foreign}

    def _time_of(self, path: str) -> int | None:
        try:
            return self._calls.fstat(self._site.workspace.directory(path)).st_mtime_ns
        except OSError:
            return None

    def _require_parents(self) -> None:
        for path, change in self._changes.items():
            parent = parent_of(path)
            if change.pre is not None or not parent or parent in self._changes:
                continue
            try:
                self._site.workspace.directory(parent)
            except OSError:
                self._conflicts.append(Divergence(path, f"cannot come back: {printable(parent)} is gone"))


def _dated(log: Log) -> dict[str, int]:
    """When the directories that a transaction worked in, or removed, had been modified before it."""
    removed = {op.path: op.pre.stamp.mtime_ns for op in log.ops if op.pre is not None and _is_removed_directory(op)}
    return removed | {parent.path: parent.mtime_ns for parent in log.parents}


def _is_removed_directory(op: Op) -> bool:
    return _kind(op.pre) == "directory" and _kind(op.post) != "directory"


def _kind(seen: Seen | None) -> str:
    return seen.image.kind if seen is not None else ""


def _stamp_like(expected: Seen, found: os.stat_result) -> Stamp:
    """The stamp of an object that `is_same`; for a file with the numbers that are in memory already."""
    if expected.image.kind != "file":
        return stamp_of(found)
    return expected.stamp._replace(ctime_ns=found.st_ctime_ns, links=found.st_nlink)


def _why_not(mine: Image | None, base: Image | None, theirs: Image | None) -> str:
    if mine is None:
        return "was deleted since"
    if base is None:
        return "was created since, where this change had removed it"
    if theirs is None:
        return "was made by this change and edited since"
    return f"was replaced since by another {mine.kind}"


def require_intact(past: Past, root: str) -> None:
    """A log that is not the one the ledger knows must not steer anything."""
    if past.log.root != root:
        raise Tampering(f"the log of {past.txn} is not the one that was carried out", hint="Nothing was changed.")
