"""Staging: every new object made in full, in its slot, before anything in the workspace moves.

Invariants
  G1  A slot holds the final bytes, owner, mode and attributes; a flip changes only where it is named.
  G2  Bytes that are copied are hashed on the way and must be the bytes that were simulated.
  G3  A directory is closed to its owner only after everything inside it is done, inner ones first.
  G4  Removals come first, deepest first; then everything else, parents first. Going backwards is the mirror image.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.errors import Blocked, Conflict
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.image import Image, Seen
from holdfast.model.path import parent_of, printable
from holdfast.store.journal import Op, Parent
from holdfast.workspace.observe import read_xattrs, stamp_of
from holdfast.workspace.site import Site

FEW = 8
_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Bytes(NamedTuple):
    """Content that is in memory."""

    data: bytes


class CopyOf(NamedTuple):
    """Content to be copied from an opened file; the opener returns a descriptor that staging closes."""

    open: Callable[[], int]


class Held(NamedTuple):
    """A slot of a finished transaction. Undo flips back what lies in it, or uses it again when it is empty.

    Going back through the same slot is what lets undo, redo and undo again find every object where its log says.
    """

    slot: str
    seen: Seen | None


Source: TypeAlias = Bytes | CopyOf | Held


class Staged(NamedTuple):
    ops: tuple[Op, ...]
    parents: tuple[Parent, ...]


class Stage:
    """Fills the slots of one transaction and lists its operations."""

    def __init__(self, site: Site, txn: str, directory: int, *, few: bool) -> None:
        self._site = site
        self._calls: Calls = site.calls
        self._txn = txn
        self._directory = directory
        self._few = few
        self._count = 0
        self._slot_of_removed: dict[str, str] = {}
        self._late_modes: list[Op] = []
        self.unsynced: list[int] = []

    def build(self, change_set: ChangeSet, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> Staged:
        """Stage every change; raises Blocked or Conflict with the workspace untouched."""
        for change in change_set.changes:
            _refuse_shared_inode(change, seen)
        self._reserve(change_set, sources)
        ops: list[Op] = []
        for change in _in_order(change_set):
            op = self._op(change, seen, sources)
            if op.action == "mode" and _closes_directory(op):
                self._late_modes.insert(0, op)
            else:
                ops.append(op)
        return Staged((*ops, *self._late_modes), self._parents(change_set))

    def close(self) -> None:
        while self.unsynced:
            self._calls.close(self.unsynced.pop())

    def _op(self, change: Change, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> Op:
        pre = seen.get(change.path) if change.pre is not None else None
        if change.pre is not None and (pre is None or pre.image != change.pre):
            raise Conflict(f"{printable(change.path)} is not what was simulated")
        post, source = change.post, sources.get(change.path)
        if post is None:
            slot = source.slot if isinstance(source, Held) else self._next_slot()
            self._slot_of_removed[change.path] = slot
            return Op("flip", change.path, slot, pre, None)
        if pre is not None and pre.image._replace(mode=post.mode) == post:
            return Op("mode", change.path, "", pre, Seen(post, pre.stamp))
        if change.origin is not None:
            return Op("flip", change.path, self._slot_of_removed[change.origin], pre, seen[change.origin])
        if isinstance(source, Held):
            return Op("flip", change.path, source.slot, pre, source.seen)
        slot = self._next_slot()
        return Op("flip", change.path, slot, pre, self._make(change, slot, source))

    def _reserve(self, change_set: ChangeSet, sources: Mapping[str, Source]) -> None:
        """Refuse early what cannot fit; a disk that fills up later is still caught when a write fails."""
        new = (c.post.size for c in change_set.changes if c.post is not None and not isinstance(sources.get(c.path), Held))
        free = os.fstatvfs(self._directory)
        needed = sum(new) + len(change_set.changes) * 1024
        if needed > free.f_bavail * free.f_frsize:
            raise Blocked(f"the change needs {needed:,} bytes, the disk has {free.f_bavail * free.f_frsize:,} free")

    def _next_slot(self) -> str:
        self._count += 1
        return f"{self._txn}/{self._count}"

    def _make(self, change: Change, slot: str, source: Source | None) -> Seen:
        name, image = slot.rpartition("/")[2], change.post
        assert image is not None
        if image.kind == "symlink":
            return self._make_link(name, image)
        if image.kind == "directory":
            return self._make_directory(change.path, name, image)
        return self._make_file(change.path, name, image, source)

    def _make_link(self, name: str, image: Image) -> Seen:
        self._calls.symlink(image.target, name, dir_fd=self._directory)
        if (image.uid, image.gid) != (os.geteuid(), os.getegid()):
            self._calls.chown(name, image.uid, image.gid, dir_fd=self._directory, follow_symlinks=False)
        return Seen(image, stamp_of(self._calls.stat(name, dir_fd=self._directory, follow_symlinks=False)))

    def _make_directory(self, path: str, name: str, image: Image) -> Seen:
        self._calls.mkdir(name, 0o700, dir_fd=self._directory)
        fd = self._calls.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)
        try:
            # A directory closed to its owner could not be filled; its last mode comes after its content.
            open_image = image._replace(mode=image.mode | 0o700)
            self._dress(fd, open_image)
            seen = Seen(open_image, stamp_of(self._calls.fstat(fd)))
            if self._few:
                self._calls.fsync(fd)
        finally:
            self._calls.close(fd)
        if open_image != image:
            self._late_modes.insert(0, Op("mode", path, "", seen, Seen(image, seen.stamp)))
        return seen

    def _make_file(self, path: str, name: str, image: Image, source: Source | None) -> Seen:
        fd = self._calls.open(name, _NEW, 0o600, dir_fd=self._directory)
        try:
            if isinstance(source, Bytes):
                write_all(self._calls, fd, source.data)
            elif isinstance(source, CopyOf):
                self._copy(path, fd, image, source)
            elif image.size:
                raise Blocked(f"the new content of {printable(path)} is missing")
            self._dress(fd, image)
            seen = Seen(image, stamp_of(self._calls.fstat(fd)))
        except BaseException:
            self._calls.close(fd)
            raise
        if seen.stamp.size != image.size:
            self._calls.close(fd)
            raise Blocked(f"the new content of {printable(path)} has {seen.stamp.size} bytes instead of {image.size}")
        if self._few:
            self._calls.start_write_back(fd)
            self.unsynced.append(fd)
        else:
            self._calls.close(fd)
        return seen

    def _dress(self, fd: int, image: Image) -> None:
        # Order matters: chown clears set-id bits, and an ACL may widen the mode again.
        if (image.uid, image.gid) != (os.geteuid(), os.getegid()):
            self._calls.fchown(fd, image.uid, image.gid)
        for key, value in image.xattrs:
            self._calls.setxattr(fd, key, bytes.fromhex(value))
        self._calls.fchmod(fd, image.mode)
        if image.xattrs and read_xattrs(self._calls, fd) != image.xattrs:
            raise Blocked("extended attributes of a file cannot be reproduced on this file system")

    def _copy(self, path: str, fd: int, image: Image, source: CopyOf) -> None:
        reading = source.open()
        hasher = blake3()
        try:
            while chunk := self._calls.read(reading, _CHUNK):
                hasher.update(chunk)
                if chunk.count(0) == len(chunk):
                    self._calls.lseek(fd, len(chunk), os.SEEK_CUR)  # keep the hole
                else:
                    write_all(self._calls, fd, chunk)
            self._calls.truncate(fd, self._calls.lseek(fd, 0, os.SEEK_CUR))
        finally:
            self._calls.close(reading)
        if hasher.hexdigest() != image.digest:
            raise Conflict(f"the source of {printable(path)} changed after it was simulated")

    def _parents(self, change_set: ChangeSet) -> tuple[Parent, ...]:
        made = {change.path for change in change_set.changes if change.pre is None}
        parents = {parent_of(path) for path in change_set.paths} - made
        rows = []
        for path in sorted(parents):
            found = self._calls.fstat(self._site.workspace.directory(path))
            rows.append(Parent(path, found.st_ino, found.st_mtime_ns))
        return tuple(rows)


def write_all(calls: Calls, fd: int, data: bytes) -> None:
    """Write everything or raise; the kernel may take less than it was given."""
    written = calls.write(fd, data)
    while written < len(data):
        data = data[written:]
        written = calls.write(fd, data)


def _refuse_shared_inode(change: Change, seen: Mapping[str, Seen]) -> None:
    there = seen.get(change.path)
    if change.pre is not None and there is not None and there.image.kind == "file" and there.stamp.links > 1:
        raise Blocked(
            f"{printable(change.path)} has {there.stamp.links} hard links; changing it would separate them",
            hint="Copy the file over itself first (cp -p x x.new && mv x.new x) if that is what you want.",
        )


def _closes_directory(op: Op) -> bool:
    return op.post is not None and op.post.image.kind == "directory" and op.post.image.mode & 0o300 != 0o300


def _in_order(change_set: ChangeSet) -> list[Change]:
    removed = [change for change in change_set.changes if change.post is None]
    others = [change for change in change_set.changes if change.post is not None]
    return [*reversed(removed), *others]
