"""Staging: every new object made in full, in its slot, before anything in the workspace moves.

Invariants
  G1  A slot holds the final bytes, owner, mode and attributes; a flip changes only where it is named.
  G2  Bytes that are copied are hashed on the way and must be the bytes that were simulated.
  G3  A directory is closed to its owner only after everything inside it is done, inner ones first.
  G4  An object that already exists is named anew only if it is exactly the planned one;
      a directory is never exchanged for another one, because what is inside belongs to its name.
  G5  Paths move in the order of the plan's steps: `order` gives the step of each change. Within one step removals
      come first, deepest first; then everything else, parents first. What a flip needs goes before it, whichever step
      it belongs to: the directory that it moves into, the objects in a directory that goes, the first half of a move.
      Each path moves once, so several steps on one path are one flip, at the last of them, or earlier where another
      path needs it. Going backwards is the mirror image.
  G6  Before all of them, directories closed to their owner are opened where they go or shall be open:
      without that an ordinary user can neither empty nor rename a directory of their own.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.disk.holes import end_pieces, pieces, put_piece
from holdfast.disk.mounts import file_system_kind
from holdfast.errors import Blocked, Conflict
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.image import Image, Seen
from holdfast.model.path import printable
from holdfast.store.journal import Op, Parent
from holdfast.workspace.flip import DISPLACED, Diverged
from holdfast.workspace.observe import read_xattrs, stamp_of
from holdfast.workspace.site import JOURNAL, Site

FEW = 8
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


# The journal's log, its folder, the entry in the ledger: what landed must be told too.
_FOR_THE_RECORD = 1 << 16


class Bytes(NamedTuple):
    """Content that is in memory. A file that comes back, or only moves, brings its modification time.

    So does a symbolic link that is made again; it has no content, its target is in the image.
    """

    data: bytes
    mtime_ns: int | None = None


class CopyOf(NamedTuple):
    """Content to be copied from an opened file; the opener returns a descriptor that staging closes."""

    open: Callable[[], int]
    mtime_ns: int | None = None


class Held(NamedTuple):
    """A slot of a finished transaction. Undo flips back what lies in it, or uses it again when it is empty.

    Going back through the same slot is what lets undo, redo and undo again find every object where its log says.
    """

    slot: str
    seen: Seen | None


Source: TypeAlias = Bytes | CopyOf | Held


def source_pieces(calls: Calls, source: Bytes | CopyOf) -> Iterator[bytes]:
    """All of its bytes, piece by piece."""
    if isinstance(source, Bytes):
        yield source.data
        return
    fd = source.open()
    try:
        yield from pieces(calls, fd)
    finally:
        calls.close(fd)


class Staged(NamedTuple):
    ops: tuple[Op, ...]
    parents: tuple[Parent, ...]


class Stage:
    """Fills the slots of one transaction and lists its operations."""

    def __init__(self, site: Site, txn: str, *, few: bool) -> None:
        self._site = site
        self._calls: Calls = site.calls
        self._txn = txn
        # Of our own: while slots are filled, old objects are read from directories without number.
        self._directory = site.state.open_directory(f"{JOURNAL}/{txn}")
        self._few = few
        self._count = 0
        self._slot_of_removed: dict[str, str] = {}
        self._late_modes: list[Op] = []
        self.unsynced: list[int] = []

    def build(
        self,
        change_set: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        order: Sequence[int] = (),
    ) -> Staged:
        """Stage every change; raises Blocked or Conflict with the workspace untouched. `order`: see `in_order`."""
        refuse_shared_inodes(change_set, seen)
        refuse_layered_directories(self._site, change_set)
        refuse_forbidden(self._site, change_set, sources)
        self._reserve(change_set, sources)
        openings: list[Op] = []
        ops: list[Op] = []
        for change in in_order(change_set.changes, order):
            op = self._op(change, seen, sources)
            if op.action == "mode" and _is_closed(op.post):
                self._late_modes.append(op)
            elif op.action == "mode" and _is_closed(op.pre):
                openings.append(op)
            elif op.pre is not None and _is_closed(op.pre):
                opened = Seen(op.pre.image._replace(mode=op.pre.image.mode | 0o700), op.pre.stamp)
                openings.append(Op("mode", op.path, "", op.pre, opened))
                ops.append(op._replace(pre=opened))
            else:
                ops.append(op)
        openings.sort(key=lambda op: op.path)
        late = sorted(self._late_modes, key=lambda op: op.path, reverse=True)  # G3: inner ones first
        return Staged((*openings, *ops, *late), self._parents(change_set))

    def close(self) -> None:
        try:
            while self.unsynced:
                self._calls.close(self.unsynced.pop())
        finally:
            self._calls.close(self._directory)

    def _op(self, change: Change, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> Op:
        path, expected, post, origin = change
        pre = seen.get(path) if expected is not None else None
        if expected is not None and (pre is None or pre.image != expected):
            raise Conflict(f"{printable(path)} is not what was simulated")
        source = sources.get(path)
        if post is None:
            slot = source.slot if isinstance(source, Held) else f"{self._txn}/{self._next_name()}"
            self._slot_of_removed[path] = slot
            return Op("flip", path, slot, pre, None)
        if pre is not None and _same_but_for_mode(pre.image, post):
            return Op("mode", path, "", pre, Seen(post, pre.stamp))
        if pre is not None and pre.image.kind == post.kind == "directory":
            raise Blocked(
                f"the owner or attributes of the directory {printable(path)} differ; only its mode can change"
            )
        if origin is not None:
            return Op("flip", path, self._slot_of_removed[origin], pre, _exactly(path, seen[origin], post))
        if isinstance(source, Held):
            return Op("flip", path, source.slot, pre, _exactly(path, source.seen, post))
        name = self._next_name()
        return Op("flip", path, f"{self._txn}/{name}", pre, self._make(path, name, post, source))

    def _reserve(self, change_set: ChangeSet, sources: Mapping[str, Source]) -> None:
        """Refuse early what cannot fit; a disk that fills up later is still caught when a write fails."""
        new = (c.post.size for c in change_set.changes if c.post is not None and _needs_space(c, sources))
        free = os.fstatvfs(self._directory)
        needed = sum(new) + len(change_set.changes) * 1024 + _FOR_THE_RECORD
        if needed > free.f_bavail * free.f_frsize:
            cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise Blocked(
                f"the change needs {needed:,} bytes, the disk has {free.f_bavail * free.f_frsize:,} free"
            ) from cause

    def _next_name(self) -> str:
        self._count += 1
        return str(self._count)

    def _make(self, path: str, name: str, image: Image, source: Source | None) -> Seen:
        if image.kind == "file":
            return self._make_file(path, name, image, source)
        if image.kind == "directory":
            return self._make_directory(path, name, image)
        return self._make_link(name, image, source)

    def _make_link(self, name: str, image: Image, source: Source | None) -> Seen:
        self._calls.symlink(image.target, name, dir_fd=self._directory)
        if (image.uid, image.gid) != (os.geteuid(), os.getegid()):
            self._calls.chown(name, image.uid, image.gid, dir_fd=self._directory, follow_symlinks=False)
        if isinstance(source, Bytes) and source.mtime_ns is not None:
            times = (source.mtime_ns, source.mtime_ns)
            self._calls.utime(name, ns=times, dir_fd=self._directory, follow_symlinks=False)
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
            self._late_modes.append(Op("mode", path, "", seen, Seen(image, seen.stamp)))
        return seen

    def _make_file(self, path: str, name: str, image: Image, source: Source | None) -> Seen:
        # Nobody else can look into the slot's directory, so the file may have its mode from the start.
        fd = self._calls.open(name, _NEW, image.mode & 0o777, dir_fd=self._directory)
        try:
            if isinstance(source, Bytes):
                write_all(self._calls, fd, source.data)
            elif isinstance(source, CopyOf):
                self._copy(path, fd, image, source)
            elif image.size:
                raise Blocked(f"the new content of {printable(path)} is missing")
            if isinstance(source, (Bytes, CopyOf)) and source.mtime_ns is not None:
                self._calls.utime(fd, ns=(source.mtime_ns, source.mtime_ns))
            found = self._calls.fstat(fd)
            if image.xattrs or not _is_dressed(found, image):
                self._dress(fd, image)
                found = self._calls.fstat(fd)
            seen = Seen(image, stamp_of(found))
            if seen.stamp.size != image.size:
                raise Blocked(
                    f"the new content of {printable(path)} has {seen.stamp.size} bytes instead of {image.size}"
                )
            if self._few:
                self._calls.start_write_back(fd)
        except BaseException:
            # No `finally`: where all goes well, few files stay open until they are synced together.
            self._calls.close(fd)
            raise
        if self._few:
            self.unsynced.append(fd)
        else:
            self._calls.close(fd)
        return seen

    def _dress(self, fd: int, image: Image) -> None:
        # Order matters: chown clears set-id bits, and an ACL may widen the mode again.
        found = self._calls.fstat(fd)
        if found.st_uid != image.uid or found.st_gid != image.gid:
            self._calls.fchown(fd, image.uid, image.gid)
        for key, value in image.xattrs:
            self._calls.setxattr(fd, key, bytes.fromhex(value))
        self._calls.fchmod(fd, image.mode)
        if image.xattrs and read_xattrs(self._calls, fd) != image.xattrs:
            raise Blocked("extended attributes of a file cannot be reproduced on this file system")

    def _copy(self, path: str, fd: int, image: Image, source: CopyOf) -> None:
        reading = source.open()
        hasher, size = blake3(), 0
        try:
            for chunk in pieces(self._calls, reading):
                size += len(chunk)
                if size > image.size:
                    break  # it grew; the digest will say so
                hasher.update(chunk)
                put_piece(self._calls, fd, chunk)
            end_pieces(self._calls, fd)
        finally:
            self._calls.close(reading)
        if size != image.size or hasher.hexdigest() != image.digest:
            raise Conflict(f"the source of {printable(path)} changed after it was simulated")

    def _parents(self, change_set: ChangeSet) -> tuple[Parent, ...]:
        parents = {change.path.rpartition("/")[0] for change in change_set.changes}
        inside = (change for change in change_set.changes if change.path in parents)
        made = {change.path for change in inside if change.pre is None or change.pre.kind != "directory"}
        rows = []
        for path in sorted(parents - made):
            found = self._calls.fstat(_directory(self._site, path))
            rows.append(Parent(path, found.st_ino, found.st_mtime_ns))
        return tuple(rows)


def _exactly(path: str, there: Seen | None, wanted: Image) -> Seen:
    """An object that already exists may only be named anew if it is the planned one."""
    if there is None or there.image != wanted:
        raise Conflict(f"the object that shall stand at {printable(path)} is not the one that was planned")
    return there


def _needs_space(change: Change, sources: Mapping[str, Source]) -> bool:
    """Whatever is renamed, or only gets another mode, is on the disk already."""
    if change.post is None or change.origin is not None or isinstance(sources.get(change.path), Held):
        return False
    return change.pre is None or not _same_but_for_mode(change.pre, change.post)


def _same_but_for_mode(old: Image, new: Image) -> bool:
    # The digests settle nearly every case without making a copy.
    return old.digest == new.digest and old._replace(mode=new.mode) == new


def _is_dressed(found: os.stat_result, image: Image) -> bool:
    return found.st_mode & 0o7777 == image.mode and found.st_uid == image.uid and found.st_gid == image.gid


def write_all(calls: Calls, fd: int, data: bytes) -> None:
    """Write everything or raise; the kernel may take less than it was given."""
    written = calls.write(fd, data)
    while written < len(data):
        data = data[written:]
        written = calls.write(fd, data)


def refuse_shared_inodes(change_set: ChangeSet, seen: Mapping[str, Seen]) -> None:
    """Blocked when a change would separate the names of one file; asked in the rehearsal, and again just before."""
    for path, pre, _, _ in change_set.changes:
        there = seen.get(path) if pre is not None else None
        if there is not None and there.stamp.links > 1 and there.image.kind == "file":
            raise Blocked(
                f"{printable(path)} has {there.stamp.links} hard links; changing it would separate them",
                hint="Copy the file over itself first (cp -p x x.new && mv x.new x) if that is what you want.",
            )


def refuse_layered_directories(site: Site, change_set: ChangeSet) -> None:
    """Blocked when a directory goes that overlayfs cannot rename; asked in the rehearsal, and again just before.

    Without `redirect_dir` it renames no directory that stands in a lower layer. Whether it would is asked by a rename
    that always fails: onto our journal, a directory that is never empty.
    """
    going = [change.path for change in change_set.changes if _is_directory_that_goes(change)]
    if not going or file_system_kind(site.path) != "overlay":
        return
    journal = site.journal()
    site.calls.stat("head", dir_fd=journal)  # never empty
    for path in going:
        parent, _, name = path.rpartition("/")
        try:
            site.calls.rename(name, JOURNAL, src_dir_fd=site.workspace.directory(parent), dst_dir_fd=site.state.fd)
        except OSError as error:
            if error.errno != errno.EXDEV:
                continue  # ENOTEMPTY: it could be renamed; whatever else is wrong is met and told later
            shown = shlex.quote(printable(path))
            raise Blocked(
                f"{printable(path)} is a directory of a lower layer of this overlay file system, and cannot be renamed",
                hint="Nothing was changed. Make it a directory of the upper layer first: "
                f"cp -a {shown} {shown}.new && rm -r {shown} && mv {shown}.new {shown}",
            ) from error


def refuse_forbidden(site: Site, change_set: ChangeSet, sources: Mapping[str, Source]) -> None:
    """Blocked where this user has no right to make a change; asked in the rehearsal, and again just before.

    Every flip needs the right to write in its directory, which the kernel is asked about. Only root makes an object
    that belongs to somebody else, or changes the mode of one. Directories that are opened first (G6) are ours.
    """
    me = os.geteuid()
    if not me:
        return
    # A new object may get the group of the directory that it is made in.
    mine = {os.getegid(), *os.getgroups()}
    groups = mine | {site.calls.fstat(site.journal()).st_gid}
    changed = {change.path: change for change in change_set.changes}
    rights: dict[str, _Rights] = {}
    for change in change_set.changes:
        path, pre, post, origin = change
        made = post is not None and origin is None and not isinstance(sources.get(path), Held)
        if made and post is not None and post.mode & stat.S_ISGID and post.gid not in mine:
            # For anybody else the kernel drops that bit without a word.
            raise _forbidden(path, f"passes group {post.gid} on, and only a member of it can set that")
        if pre is not None and post is not None and _same_but_for_mode(pre, post):
            if pre.uid != me:
                raise _forbidden(path, f"belongs to {_user(pre.uid)}; only its owner can change its mode")
            continue
        parent = path.rpartition("/")[0]
        if parent not in rights:
            rights[parent] = _rights_in(site, parent, changed.get(parent))
        if made and post is not None and (post.uid != me or post.gid not in groups):
            whose = _user(post.uid) if post.uid != me else f"group {post.gid}"
            if pre is None or pre.kind != "file":
                raise _forbidden(path, f"would belong to {whose}, and only root can make it so")
            way = _to_own(site, path, rights[parent])
            raise _forbidden(path, f"belongs to {whose}; only root can make another that does", way)
        where = f"the directory {printable(parent) or '.'}"
        if not rights[parent].may_write:
            way = _to_write_in(site, parent)
            raise _forbidden(path, f"cannot change: this user may not write in {where}", way)
        if pre is not None and pre.uid != me and rights[parent].owners_only:
            raise _forbidden(path, f"belongs to {_user(pre.uid)}, and in {where} only owners remove anything")
        if _is_directory_that_goes(change) and pre is not None and pre.uid != me and not _may_write(site, path):
            raise _forbidden(path, f"belongs to {_user(pre.uid)}; this user may not move it")


def _directory(site: Site, path: str) -> int:
    """A directory that was there in the rehearsal, or Diverged."""
    try:
        return site.workspace.directory(path)
    except OSError as error:
        if error.errno in DISPLACED:
            raise Diverged(path, "is gone or was replaced") from error
        raise


class _Rights(NamedTuple):
    """What this user may do in a directory; `owners_only`: its sticky bit keeps the objects of others in place."""

    may_write: bool
    owners_only: bool = False


def _rights_in(site: Site, directory: str, change: Change | None) -> _Rights:
    if change is not None:
        if change.pre is None or change.pre.kind != "directory":
            return _Rights(may_write=True)  # the plan makes it
        opens = change.post is None or change.post.kind != "directory" or change.post.mode & 0o700 == 0o700
        if opens and change.pre.uid == os.geteuid():
            return _Rights(may_write=True)
    found = site.calls.fstat(_directory(site, directory))
    return _Rights(_may_write(site, directory), bool(found.st_mode & stat.S_ISVTX) and found.st_uid != os.geteuid())


def _may_write(site: Site, directory: str) -> bool:
    # By its descriptor: the kernel looks at access lists too, and no path is resolved again.
    there = f"/proc/self/fd/{site.workspace.directory(directory)}"
    return os.access(there, os.W_OK | os.X_OK, effective_ids=True)


def _to_own(site: Site, path: str, rights: _Rights) -> str:
    """How this user gets a file that is the same and their own; nothing where they cannot read or replace it."""
    parent, _, name = path.rpartition("/")
    there = f"/proc/self/fd/{site.workspace.directory(parent)}/{name}"
    if not rights.may_write or rights.owners_only or not os.access(there, os.R_OK, effective_ids=True):
        return ""
    shown = shlex.quote(printable(path))
    return f"make it your own: cp {shown} {shown}.new && mv {shown}.new {shown}"


def _to_write_in(site: Site, directory: str) -> str:
    """How this user gets the right to write in a directory: only its owner can change that, and root."""
    owner = site.calls.fstat(site.workspace.directory(directory)).st_uid
    if owner == os.geteuid():
        return f"take that right: chmod u+wx {shlex.quote(printable(directory) or '.')}"
    run_as_root = "run it as root" if owner else "run it as that user"
    return f"ask {_user(owner)}, who owns that directory, to let you write there, or {run_as_root}."


def _forbidden(path: str, why: str, way: str = "") -> Blocked:
    hint = "Nothing was changed. Have it applied by whoever may."
    return Blocked(f"{printable(path)} {why}", hint=f"{hint} Or {way}" if way else hint)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _is_directory_that_goes(change: Change) -> bool:
    if change.pre is None or change.pre.kind != "directory":
        return False
    return change.post is None or change.post.kind != "directory"


def _is_closed(seen: Seen | None) -> bool:
    return seen is not None and seen.image.kind == "directory" and seen.image.mode & 0o700 != 0o700


def in_order(changes: Sequence[Change], order: Sequence[int] = ()) -> list[Change]:
    """The changes as they are carried out (G5). `order` has the number of the step of each; without it there is one."""
    last = len(changes) - 1
    first_removals = [last - place for place, change in enumerate(reversed(changes)) if change.post is None]
    first_removals += [place for place, change in enumerate(changes) if change.post is not None]
    if not order:
        return [changes[place] for place in first_removals]
    return _with_needs_first(changes, sorted(first_removals, key=order.__getitem__))


def _with_needs_first(changes: Sequence[Change], wanted: Iterable[int]) -> list[Change]:
    place_of = {change.path: place for place, change in enumerate(changes)}
    emitted = bytearray(len(changes))
    ordered: list[Change] = []

    def needs(change: Change) -> Iterator[int]:
        if change.post is not None:
            above = place_of.get(change.path.rpartition("/")[0])
            if above is not None and not _stays_directory(changes[above]):
                yield above
        if change.origin is not None:
            yield place_of[change.origin]
        if change.pre is not None and change.pre.kind == "directory" and not _stays_directory(change):
            # Sorted by path, everything below a directory stands together, behind names that sort before its slash.
            length = len(change.path)
            for place in range(place_of[change.path] + 1, len(changes)):
                path = changes[place].path
                if not path.startswith(change.path) or path[length] > "/":
                    return
                if path[length] == "/" and changes[place].pre is not None:
                    yield place

    for start in wanted:
        waiting = [start]
        while waiting:
            place = waiting[-1]
            missing = [] if emitted[place] else [need for need in needs(changes[place]) if not emitted[need]]
            if missing:
                waiting += missing  # the last one is taken first: deepest first
                continue
            waiting.pop()
            if not emitted[place]:
                emitted[place] = 1
                ordered.append(changes[place])
    return ordered


def _stays_directory(change: Change) -> bool:
    return (
        change.pre is not None
        and change.post is not None
        and change.pre.kind == "directory"
        and change.post.kind == "directory"
    )
