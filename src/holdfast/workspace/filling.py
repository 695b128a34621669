"""Bring a shadow to where a change set leads, without any program: objects made by staging, then put into place.

    over the workspace   parents are copied up, deletions become whiteouts (see `overlay`)
    in a copy            everything is there already; a deletion is a deletion

Invariants
  F1  Objects are made by the code that stages them for the workspace (`staging`), in full, before they get their name.
  F2  What stands right already is left alone, so filling twice changes nothing.
  F3  A whiteout stands only where the workspace would show through.
  F4  Directories are closed last, inner ones first.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping

from holdfast.disk.confined import Root
from holdfast.errors import Conflict
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.image import Image, Seen
from holdfast.model.path import ancestors_of, parent_of, printable
from holdfast.workspace.observe import kind_of, look, read_xattrs
from holdfast.workspace.overlay import OPAQUE, is_opaque, is_whiteout, make_whiteout
from holdfast.workspace.postimage import Posts
from holdfast.workspace.removal import remove
from holdfast.workspace.shifting import OVERLAY_XATTRS, on_disk
from holdfast.workspace.site import JOURNAL, Site
from holdfast.workspace.staging import Bytes, CopyOf, Held, Source, Stage
from holdfast.workspace.touched import name_of

_SLOTS = "bench"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


class Bench(Site):
    """The workspace with a state directory of the shadow's own, for staging to fill slots in. Borrows the site."""

    def __init__(self, site: Site, place: str) -> None:
        self.calls, self.log_limit, self.path = site.calls, site.log_limit, site.path
        self.workspace = site.workspace
        self.state = Root(place, site.calls)
        for name in (JOURNAL, f"{JOURNAL}/{_SLOTS}"):
            os.mkdir(name, 0o700, dir_fd=self.state.fd)
        self.slots = self.state.open_directory(f"{JOURNAL}/{_SLOTS}")

    def close(self) -> None:
        os.close(self.slots)
        self.state.close()


class _Maker(Stage):
    """Staging without a transaction: objects in slots, to be renamed to where they belong."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench, _SLOTS, few=False)
        # A put that failed may have left objects behind.
        self._prefix = os.urandom(4).hex()

    def make(self, path: str, image: Image, source: Source | None) -> str:
        name = f"{self._prefix}-{self._next_name()}"
        self._make(path, name, image, source)
        return name

    def closed(self) -> list[tuple[str, int]]:
        """Directories made open that are closed in the end, the deepest first: a closed one cannot be entered."""
        late = [(op.path, op.post.image.mode) for op in self._late_modes if op.post is not None]
        return sorted(late, key=lambda row: row[0].count("/"), reverse=True)


class Filling:
    """One target. `over`: the workspace shows through where the target has nothing."""

    def __init__(self, site: Site, target: Root, bench: Bench, shift: int, *, over: bool) -> None:
        self._site, self._target, self._bench = site, target, bench
        self._shift, self._over = shift, over

    def put(self, changes: ChangeSet, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> None:
        """Make every path of the change set what it shall be; other paths stay as they are."""
        self._target.forget()
        self._site.workspace.forget()
        self._maker = _Maker(self._bench)
        try:
            self._put(changes, seen, sources)
        finally:
            self._maker.close()

    def _put(self, changes: ChangeSet, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> None:
        self._posts = Posts(self._target, self._shift, {})
        self._late: list[tuple[str, int]] = []
        self._shown: dict[str, bool] = {"": self._over}
        self._ready = {""}
        gone: set[str] = set()
        for change in changes.changes:
            if change.post is None:
                # What was inside went with the directory.
                if gone.isdisjoint(ancestors_of(change.path)):
                    self._remove(change.path)
                gone.add(change.path)
        for change in changes.changes:
            if change.post is not None:
                self._set(change, change.post, self._source(change, seen, sources))
        for path, mode in [*self._maker.closed(), *reversed(self._late)]:
            os.chmod(name_of(path), mode, dir_fd=self._target.directory(parent_of(path)))

    # ── what stands where ──

    def _standing(self, path: str) -> os.stat_result | None:
        """What the target itself has at a path."""
        try:
            return look(self._target.calls, self._target.directory(parent_of(path)), name_of(path))
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    def _below(self, path: str) -> os.stat_result | None:
        """What of the workspace would show at a path if the target had nothing there."""
        if not self._shows(parent_of(path)):
            return None
        return look(self._site.calls, self._site.workspace.directory(parent_of(path)), name_of(path))

    def _shows(self, directory: str) -> bool:
        """Whether the workspace's directory is part of what is seen in this one."""
        known = self._shown.get(directory)
        if known is None:
            known = self._shown[directory] = self._shows(parent_of(directory)) and self._is_merged(directory)
        return known

    def _is_merged(self, directory: str) -> bool:
        below, standing = self._below(directory), self._standing(directory)
        if below is None or not stat.S_ISDIR(below.st_mode):
            return False
        if standing is None:
            return True
        return stat.S_ISDIR(standing.st_mode) and not is_opaque(self._target.directory(directory), directory)

    # ── acts ──

    def _remove(self, path: str) -> None:
        standing, below = self._standing(path), self._below(path)
        if standing is not None and not is_whiteout(standing):
            self._clear(path)
            standing = None
        if standing is None and below is not None:
            self._prepare_parents(path)
            make_whiteout(name_of(path), self._target.directory(parent_of(path)))
            if stat.S_ISDIR(below.st_mode):
                self._forget(path)

    def _set(self, change: Change, post: Image, source: Source | None) -> None:
        path = change.path
        self._prepare_parents(path)
        if post.kind == "directory":
            self._set_directory(path, post)
            return
        standing = self._standing(path)
        if standing is not None and kind_of(standing) == post.kind and self._posts.image(path, standing) == post:
            return
        name = self._maker.make(path, on_disk(post, self._shift), source)
        if standing is not None and stat.S_ISDIR(standing.st_mode):
            self._clear(path)
        self._place(path, name)

    def _set_directory(self, path: str, post: Image) -> None:
        standing, below = self._standing(path), self._below(path)
        if standing is not None and stat.S_ISDIR(standing.st_mode):
            self._prepare(path)
            if self._posts.image(path, standing) != post:
                self._dress(path, post)
            return
        hides = standing is not None and below is not None and stat.S_ISDIR(below.st_mode)
        if standing is not None:
            self._clear(path)
        self._place(path, self._maker.make(path, on_disk(post, self._shift), None))
        if hides:
            os.setxattr(self._target.directory(path), OPAQUE, b"y")
        self._forget(path)

    def _prepare_parents(self, path: str) -> None:
        for directory in ancestors_of(path):
            if directory not in self._ready:
                self._prepare(directory)
                self._ready.add(directory)

    def _prepare(self, directory: str) -> None:
        """A directory of the target that can be written in; copied up from the workspace where it has none."""
        standing = self._standing(directory)
        if standing is not None and stat.S_ISDIR(standing.st_mode):
            mode = stat.S_IMODE(standing.st_mode)
            if mode & 0o700 != 0o700 and os.geteuid() != 0:
                os.chmod(name_of(directory), mode | 0o700, dir_fd=self._target.directory(parent_of(directory)))
                self._late.append((directory, mode))
            return
        below = self._below(directory)
        if standing is not None or below is None or not stat.S_ISDIR(below.st_mode):
            raise self._no_directory(directory)
        xattrs = read_xattrs(self._site.calls, self._site.workspace.directory(directory))
        mode = stat.S_IMODE(below.st_mode)
        image = Image("directory", mode, below.st_uid, below.st_gid, xattrs=xattrs)
        self._place(directory, self._maker.make(directory, on_disk(image, self._shift), None))

    def _no_directory(self, directory: str) -> Conflict:
        """A change needs one there. Unless a program took it away in the shadow, the workspace had one before."""
        try:
            self._site.workspace.directory(directory)
        except OSError as error:
            if error.errno in _NOT_THERE:
                said = f"the workspace changed: {printable(directory)} is no directory there any more"
                return Conflict(said, hint="Nothing was changed. Simulate again.")
            raise
        return Conflict(f"{printable(directory)} is no directory in the shadow")

    def _dress(self, path: str, post: Image) -> None:
        """Owner, attributes and mode of a directory that is there."""
        wanted = on_disk(post, self._shift)
        fd = self._target.directory(path)
        there = os.fstat(fd)
        if (there.st_uid, there.st_gid) != (wanted.uid, wanted.gid):
            os.fchown(fd, wanted.uid, wanted.gid)
        keys = {name for name, _ in wanted.xattrs}
        for name, _ in read_xattrs(self._target.calls, fd):
            if name not in keys and not name.startswith(OVERLAY_XATTRS):
                os.removexattr(fd, name)
        for name, value in wanted.xattrs:
            os.setxattr(fd, name, bytes.fromhex(value))
        # What is open for our work is closed in the end; what shall be open may be so at once.
        self._late = [item for item in self._late if item[0] != path]
        if wanted.mode & 0o700 != 0o700:
            self._late.append((path, wanted.mode))
        os.fchmod(fd, wanted.mode | 0o700)

    def _place(self, path: str, name: str) -> None:
        os.rename(name, name_of(path), src_dir_fd=self._bench.slots, dst_dir_fd=self._target.directory(parent_of(path)))

    def _clear(self, path: str) -> None:
        self._target.forget_below(path)
        remove(self._bench.slots, self._target.directory(parent_of(path)), name_of(path))
        self._forget(path)

    def _forget(self, path: str) -> None:
        inner = f"{path}/"
        self._shown = {known: v for known, v in self._shown.items() if known != path and not known.startswith(inner)}
        self._ready = {known for known in self._ready if known != path and not known.startswith(inner)}

    # ── where bytes come from ──

    def _source(self, change: Change, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> Source | None:
        """Bytes, or a copy: nothing of the workspace or of its kept objects is moved into a shadow."""
        path, pre, post, origin = change
        source = sources.get(path)
        if isinstance(source, Held):
            return Bytes(b"") if source.seen is None else CopyOf(self._opener_of_slot(source.slot))
        if source is not None or post is None or post.kind != "file":
            return source
        if origin is None and pre is not None and pre.digest == post.digest:
            origin = path
        if origin is None:
            return None
        known = seen.get(origin)
        return CopyOf(self._opener(origin), known.stamp.mtime_ns if known is not None else None)

    def _opener(self, path: str) -> Callable[[], int]:
        workspace = self._site.workspace
        return lambda: workspace.calls.open_beneath(path, _READ, workspace.fd)

    def _opener_of_slot(self, slot: str) -> Callable[[], int]:
        def opened() -> int:
            directory, name = self._site.slot_directory(slot, own="")
            return self._site.calls.open(name, _READ, dir_fd=directory)

        return opened
