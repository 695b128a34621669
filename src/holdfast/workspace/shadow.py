"""Shadows: a workspace as programs may change it, while the workspace itself stays as it is.

    .holdfast/shadows/<id>/        locked as long as its owner lives; swept after that
      journal/bench/               where objects are made before they get their name
      <n>/upper, <n>/work          an overlay's layer: what was written, and the kernel's workbench
      <n>/copy                     or a copy of everything, where there is no overlay
      <n>/home                     the HOME of an agent that works in it
      <n>/repository               what programs over a branch see as its repository

Nothing is mounted here: a shadow is directories and a `View`, and the sandbox mounts a view for each program it runs,
in a namespace that ends with it.

Invariants
  Z1  The workspace is only read.
  Z2  A shadow is removed when its block ends, whatever programs left in it; one whose owner died is removed by `sweep`.
      The lock is the kernel's and on the directory itself, so no shadow in use is ever taken for a left-over.
  Z3  Checks get a layer of their own over workspace and landable change: they see no by-products, and leave nothing.
  Z4  `.holdfast` and hidden paths are masked in every view, and so is what a change set makes of them (see `withheld`).
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from typing import Literal, NamedTuple

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.errors import Blocked, Unsupported
from holdfast.model.changeset import ChangeSet
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.sandbox.view import Layer, Repository, View
from holdfast.workspace.branch_repository import GIT, has_branch_repository, lend_repository
from holdfast.workspace.capture import Captured, Rules, capture
from holdfast.workspace.copying import Copy
from holdfast.workspace.filling import Bench, Filling
from holdfast.workspace.hidden import Roots, masked_paths, topmost
from holdfast.workspace.home import Home
from holdfast.workspace.observe import read_xattrs
from holdfast.workspace.overlay import Upper, why_not
from holdfast.workspace.removal import remove_whole
from holdfast.workspace.shifting import is_mapped, our_shift
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source
from holdfast.workspace.tree import Snapshot
from holdfast.workspace.withheld import masks_with, shown

Kind = Literal["overlay", "copy"]
SHADOWS = "shadows"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Whose files a workspace holds is guessed from so many at its top; the rest would cost a walk.
_OWNERS_LOOKED_AT = 32


class _Ground(NamedTuple):
    """One place for programs to write in: what they left is read from `touched`."""

    touched: Upper | Copy
    view: View
    filling: Filling


class Shadow:
    """Made by `open_shadow`; `why` says why it is a copy where an overlay was preferred."""

    def __init__(self, site: Site, place: _Place, kind: Kind, why: str, hidden: Sequence[str]) -> None:
        self.id = place.id
        self.kind = kind
        self.why = why
        self._site, self._place, self._patterns = site, place, hidden
        self._masked = masked_paths(site.workspace, hidden)
        self._shift = our_shift()
        self._repository = None
        if has_branch_repository(site, hidden):
            self._repository = place.new_repository(site, hidden, 0 if kind == "overlay" else self._shift)
            self._masked = topmost((*self._masked, GIT))
        # What plans named themselves, and what of it is hidden and gone: capture has no say in that.
        self._planned: set[str] = set()
        self._gone: set[str] = set()
        self._ground = self._fresh_ground()

    @property
    def view(self) -> View:
        """For programs whose changes count."""
        return self._ground.view

    def put(self, change_set: ChangeSet, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> None:
        """Bring every path of a change set on the workspace to where it leads; can be repeated.

        Hidden paths of it are covered in the view, and nobody captures them: whoever put them here still has them.
        """
        self._ground = self._filled(self._ground, change_set, seen, sources)
        hidden = Roots(self._ground.view.masked)
        self._planned.update(change_set.paths)
        self._gone.difference_update(change_set.paths)
        self._gone.update(c.path for c in change_set.changes if c.post is None and hidden.cover(c.path))
        self._site.calls.point("shadow-filled")

    def capture(self, keep: Sequence[str] = (), base: Snapshot | None = None) -> Captured:
        """What differs from the workspace now. `keep`: patterns of ignored paths that land all the same.

        `base`, a look at the workspace, spares reading what still stands as it was then.
        """
        self._site.calls.point("capture")
        touched, view, _ = self._ground
        rules = Rules(
            masked=Roots(view.masked),
            gone=Roots(self._gone),
            keep=keep,
            planned=self._planned,
            since_ns=self._place.since_ns,
            shift=self._shift,
            foreign=touched.foreign if isinstance(touched, Copy) else {},
        )
        captured = capture(self._site, touched, rules, base)
        self._site.calls.point("captured")
        return captured

    @contextmanager
    def layer(self, change_set: ChangeSet, seen: Mapping[str, Seen], sources: Mapping[str, Source]) -> Iterator[View]:
        """The workspace with this change set and nothing else, for checks; gone at the end of the block (Z3)."""
        ground = self._fresh_ground()
        try:
            yield self._filled(ground, change_set, seen, sources).view
        finally:
            self._place.discard(ground.touched.root)

    def _filled(
        self, ground: _Ground, changes: ChangeSet, seen: Mapping[str, Seen], sources: Mapping[str, Source]
    ) -> _Ground:
        masked = masks_with(ground.view.masked, self._patterns, changes)
        visible = shown(changes, sources, masked)
        ground.filling.put(visible.change_set, seen, visible.sources)
        return ground._replace(view=ground.view._replace(masked=masked))

    def new_home(self) -> Home:
        """An empty HOME for an agent; gone with the shadow."""
        return Home(self._place.opened(self._place.new_folder("home")), self._shift)

    def _fresh_ground(self) -> _Ground:
        return self._fresh_upper() if self.kind == "overlay" else self._fresh_copy()

    def _fresh_upper(self) -> _Ground:
        layer = self._place.new_layer(self._site, self._shift)
        root = self._place.opened(layer.upper)
        view = View(self._site.seen_at, self._site.path, (layer,), self._masked, self._shift, self._repository)
        filling = Filling(self._site, root, self._place.bench, self._shift, over=True)
        return _Ground(Upper(root), view, filling)

    def _fresh_copy(self) -> _Ground:
        root = self._place.opened(self._place.new_folder("copy"))
        copy = Copy(self._site.workspace, root, frozenset(self._masked), self._shift)
        try:
            copy.make()
        except OSError as error:
            name = printable(str(error.filename or "the workspace"))
            raise Blocked(f"a copy of the workspace cannot be made: {name}: {error.strerror}") from error
        masked = tuple(sorted({*self._masked, *copy.unreadable}))
        view = View(self._site.seen_at, root.path, (), masked, self._shift, self._repository)
        filling = Filling(self._site, root, self._place.bench, self._shift, over=False)
        return _Ground(copy, view, filling)


@contextmanager
def open_shadow(
    site: Site, kind: Literal["auto", "overlay", "copy"] = "auto", hidden: Sequence[str] = (), *, trouble: str = ""
) -> Iterator[Shadow]:
    """A shadow of the workspace as it is now; removed at the end.

    `trouble` is why this host cannot mount overlays, as the sandbox found out; empty when it can.
    Unsupported when an overlay is demanded and cannot be had.
    """
    with ExitStack() as stack:
        place = _Place(site)
        stack.callback(place.remove)
        why = "" if kind == "copy" else trouble or _why_no_overlay(site, place)
        if kind == "overlay" and why:
            raise Unsupported(f"a shadow cannot be an overlay here: {why}")
        chosen: Kind = "copy" if kind == "copy" or why else "overlay"
        yield Shadow(site, place, chosen, why, hidden)


def sweep_shadows(site: Site) -> int:
    """Remove the shadows whose owners died; how many there were."""
    try:
        folder = os.open(SHADOWS, _DIRECTORY, dir_fd=site.state.fd)
    except FileNotFoundError:
        return 0
    try:
        return sum(_swept(folder, name) for name in CALLS.names(folder))
    finally:
        os.close(folder)


def _swept(folder: int, name: str) -> bool:
    # Whoever makes a shadow holds the folder until the new directory is locked.
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        return False
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_whole(folder, name)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return False  # its owner removed it between our listing and our lock
    finally:
        os.close(fd)
    return True


class _Place:
    """The shadow's directory, locked."""

    def __init__(self, site: Site) -> None:
        self.id = f"h-{os.urandom(6).hex()}"
        self._folder = _shadows(site)
        self._path = os.path.join(site.state.path, SHADOWS, self.id)
        self._roots: list[Root] = []
        self._count = count(1)
        fcntl.flock(self._folder, fcntl.LOCK_EX)
        try:
            os.mkdir(self.id, 0o700, dir_fd=self._folder)
            self._fd = os.open(self.id, _DIRECTORY, dir_fd=self._folder)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            fcntl.flock(self._folder, fcntl.LOCK_UN)
        # The file system's own clock, which the workspace's change times come from too.
        self.since_ns = os.fstat(self._fd).st_ctime_ns
        self.bench = Bench(site, self._path)

    def new_folder(self, name: str) -> str:
        number = str(next(self._count))
        os.mkdir(number, 0o700, dir_fd=self._fd)
        os.mkdir(f"{number}/{name}", 0o700, dir_fd=self._fd)
        return os.path.join(self._path, number, name)

    def new_layer(self, site: Site, shift: int) -> Layer:
        """An empty layer whose root looks like the workspace's, since it is what programs see as its root."""
        upper = self.new_folder("upper")
        work = os.path.join(os.path.dirname(upper), "work")
        os.mkdir(work, 0o700)
        fd = os.open(upper, _DIRECTORY)
        try:
            about = os.fstat(site.workspace.fd)
            if shift:
                os.fchown(fd, about.st_uid + shift, about.st_gid + shift)
                os.chown(work, shift, shift)
            for name, value in read_xattrs(site.calls, site.workspace.fd):
                if name.startswith("user."):
                    os.setxattr(fd, name, bytes.fromhex(value))
            os.fchmod(fd, stat.S_IMODE(about.st_mode) | 0o700)
        finally:
            os.close(fd)
        return Layer(upper, work)

    def new_repository(self, site: Site, hidden: Sequence[str], owner: int) -> Repository:
        root = self.opened(self.new_folder("repository"))
        return lend_repository(site, root, self.bench.slots, hidden, owner)

    def opened(self, path: str) -> Root:
        root = Root(path)
        self._roots.append(root)
        return root

    def discard(self, root: Root) -> None:
        """Remove one layer or copy."""
        root.close()
        self._roots.remove(root)
        remove_whole(self._fd, os.path.basename(os.path.dirname(root.path)))

    def trial(self) -> str:
        return why_not(self.bench.slots)

    def remove(self) -> None:
        for root in self._roots:
            root.close()
        self.bench.close()
        try:
            remove_whole(self._folder, self.id)
        finally:
            # The lock goes last.
            os.close(self._fd)
            os.close(self._folder)


def _shadows(site: Site) -> int:
    try:
        os.mkdir(SHADOWS, 0o700, dir_fd=site.state.fd)
    except FileExistsError:
        pass
    return os.open(SHADOWS, _DIRECTORY, dir_fd=site.state.fd)


def _why_no_overlay(site: Site, place: _Place) -> str:
    """Only what is cheap to find out: the cost of a shadow must not grow with the tree."""
    shift = our_shift()
    with CALLS.entries(site.workspace.fd) as entries:
        names = [".", *(entry.name for entry in islice(entries, _OWNERS_LOOKED_AT))]
    for name in names:
        found = os.stat(name, dir_fd=site.workspace.fd, follow_symlinks=False)
        if not is_mapped(found.st_uid, found.st_gid, shift):
            return f"{printable(name)} belongs to {found.st_uid}:{found.st_gid}, whom programs in a shadow cannot be"
    return place.trial()
