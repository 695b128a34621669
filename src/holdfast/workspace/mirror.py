"""A mirror: a private directory that is made equal to a tree, again and again, for work that must not be disturbed.

    Mirror.at(path) ──bring_to(base, …)──▶ the tree of the manifest, exactly ──▶ a workspace like any other
                          ▲                          │
                          └── a newer base, damage ──┘   only what differs is written

Landings change the workspace; whoever works over a mirror of it has the same tree until the end.
Its state (`.holdfast`) is its own, and can be thrown away with it at any time.

Invariants
  I1  After `bring_to` the tree digest is the manifest's, measured by a snapshot, or an error was raised.
  I2  Interrupted anywhere, the next call finishes; damaged by anybody, the next call repairs. Nothing is remembered
      about what was written: what differs is found by looking.
  I3  Objects are made in full, hashed on the way, and then named, by the code that stages them for a workspace.
  I4  One at a time: whoever holds a mirror holds its lock, which the kernel takes back when they die.
  I5  Nothing outside the mirror is written; what bytes come from is only read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import NamedTuple

from holdfast.disk.calls import CALLS
from holdfast.disk.lock import Lock
from holdfast.errors import Blocked, Conflict, InvalidInput, Locked
from holdfast.model.changeset import Change, change_set
from holdfast.model.image import Image
from holdfast.model.path import STATE_DIRECTORY, ancestors_of, parent_of, printable
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.state import create_state
from holdfast.workspace.borrowed import borrow
from holdfast.workspace.filling import Bench, Filling
from holdfast.workspace.index import INDEX_NAME
from holdfast.workspace.manifest import Manifest
from holdfast.workspace.origins import Depot, Origin
from holdfast.workspace.removal import remove, remove_whole
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, Source
from holdfast.workspace.tree import Snapshot, snapshot

# A directory that was closed to us shows what is in it only after it was opened, level by level.
_ROUNDS = 16
_PLACE = "mirror"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Brought(NamedTuple):
    """What it took: paths written or removed, and the tree that stands there now."""

    changed: int
    tree: str


def looked_at(tree: str, place: str) -> Snapshot:
    """A tree that is no workspace, as it stands; `place` is a directory of ours for its index."""
    os.makedirs(place, 0o700, exist_ok=True)
    return snapshot(tree, place)


class Mirror:
    """Made by `at`; use as a context manager, or close it."""

    def __init__(self, site: Site, lock: Lock) -> None:
        self.site = site
        self.path = site.path
        self.stock = LargeBlobs(site.state)
        self._lock = lock

    @classmethod
    def at(cls, path: str, *, wait: float = 0.0, fresh: bool = False) -> Mirror:
        """The mirror at a path, made where there is none; Locked when somebody works over it.

        A directory that holds something and is no mirror is refused: everything in it would go.
        `fresh`: what earlier work left in its state goes; the files and what is known of them stay.
        """
        _require_ours(path)
        os.makedirs(path, 0o700, exist_ok=True)
        create_state(path)
        place = os.path.join(path, STATE_DIRECTORY, _PLACE)
        os.makedirs(place, 0o700, exist_ok=True)
        lock = Lock(os.path.join(place, "lock"), wait=wait)
        try:
            lock.__enter__()
        except Locked as error:
            raise Locked(f"somebody works over this mirror: {error.message}") from None
        try:
            if fresh:
                _forget_work(path)
            return cls(Site(path), lock)
        except BaseException:
            lock.__exit__(None, None, None)
            raise

    def bring_to(self, base: Manifest, *origins: Origin, thorough: bool = False) -> Brought:
        """Make the tree exactly the base's, with bytes from the first origin that has them.

        Conflict when an origin changed since the manifest was made; Blocked when bytes are nowhere to be had.
        `thorough`: read every file, also those whose stamps say that nobody wrote to them.
        """
        changed = 0
        with self._workbench() as bench:
            for _ in range(_ROUNDS):
                found = snapshot(self.path, None if thorough else self.site.state.path)
                if found.digest == base.tree:
                    return Brought(changed, found.digest)
                changed += self._approach(found, dict(base.entries), origins, bench)
        raise Blocked(f"the mirror does not become what it shall be: {printable(self.path)} keeps changing")

    def borrow_git(self, base: Manifest, work_tree: str, commit: str = "") -> None:
        """Repositories for the tree, like those of a work tree on this machine (see `borrowed`); others go.

        With `commit`, the work tree is a clone that has it; only the outermost repository is made from it.
        """
        wanted = ("",) if commit and base.repositories else base.repositories
        with self._workbench() as bench:
            for path in self._repositories() - set(wanted):
                self._clear(bench, f"{path}/.git" if path else ".git")
            for path in wanted:
                if not borrow(os.path.join(work_tree, path), self.site.workspace, path, bench.slots, commit):
                    raise Conflict(f"{printable(path) or 'the work tree'} has no repository any more")

    def close(self) -> None:
        self.site.close()
        self._lock.__exit__(None, None, None)

    def __enter__(self) -> Mirror:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── one round ──

    def _approach(self, found: Snapshot, wanted: dict[str, Image], origins: tuple[Origin, ...], bench: Bench) -> int:
        """Make everything that is seen to differ what it shall be; what a closed directory hid is seen next time."""
        specials = [path for path, _ in found.specials()]
        for path in specials:
            self._clear(bench, path)
        standing = dict(found.entries())
        changes = _difference(standing, wanted)
        self._open_doors(standing, [change.path for change in changes])
        wanted_files = {c.path: c.post for c in changes if c.post is not None and _needs_bytes(c, c.post)}
        sources = self._sources(wanted_files, origins, bench)
        filling = Filling(self.site, self.site.workspace, bench, 0, over=False)
        try:
            filling.put(change_set(changes), {}, sources)
        except FileNotFoundError as error:
            raise Conflict(f"the base changed while it was copied: {printable(str(error.filename))} is gone") from error
        return len(specials) + len(changes)

    def _sources(self, wanted: Mapping[str, Image], origins: tuple[Origin, ...], bench: Bench) -> dict[str, Source]:
        """Each file's bytes from the first origin that has them."""
        found: dict[str, Source] = {path: Bytes(b"") for path, image in wanted.items() if not image.size}
        for origin in origins:
            rest = {path: image for path, image in wanted.items() if path not in found}
            found.update(origin.sources(rest, Depot(self.stock, bench.slots)) if rest else {})
        missing = next((path for path in wanted if path not in found), None)
        if missing is not None:
            hint = "The base has to be sent again."
            raise Blocked(f"the bytes of {printable(missing)} are nowhere to be had", hint=hint)
        return found

    def _open_doors(self, standing: dict[str, Image], changing: list[str]) -> None:
        """Directories that are closed to us cannot be worked in; what they shall be in the end, the next round sees."""
        above = {directory for path in changing for directory in (*ancestors_of(path), path)}
        closed = [p for p, image in standing.items() if image.kind == "directory" and image.mode & 0o700 != 0o700]
        for path in closed:
            if path in above:
                directory = self.site.workspace.directory(parent_of(path))
                os.chmod(path.rpartition("/")[2], standing[path].mode | 0o700, dir_fd=directory)

    def _clear(self, bench: Bench, path: str) -> None:
        directory = self.site.workspace.open_directory(parent_of(path))
        try:
            remove(bench.slots, directory, path.rpartition("/")[2])
        finally:
            os.close(directory)
        self.site.workspace.forget()

    def _repositories(self) -> set[str]:
        """Every directory that has a `.git`, without looking into one."""
        found = snapshot(self.path, self.site.state.path)
        places = ["", *(path for path, image in found.entries() if image.kind == "directory")]
        return {path for path in places if os.path.lexists(os.path.join(self.path, path, ".git"))}

    @contextmanager
    def _workbench(self) -> Iterator[Bench]:
        """A place of ours to make objects in; what a dead one left is removed first."""
        with ExitStack() as stack:
            place = os.path.join(self.site.state.path, _PLACE)
            folder = os.open(place, _DIRECTORY)
            stack.callback(os.close, folder)
            for name in CALLS.names(folder):
                if name != "lock":
                    remove_whole(folder, name)
            os.mkdir("bench", 0o700, dir_fd=folder)
            stack.callback(remove_whole, folder, "bench")
            bench = Bench(self.site, os.path.join(place, "bench"))
            stack.callback(bench.close)
            self.site.workspace.forget()
            yield bench


def _difference(standing: dict[str, Image], wanted: dict[str, Image]) -> list[Change]:
    """Whatever is there and shall be otherwise, by path. What goes with a directory is named too: it is looked at."""
    gone = [Change(path, image, None) for path, image in standing.items() if path not in wanted]
    other = (Change(path, standing.get(path), image) for path, image in wanted.items())
    return [*gone, *(change for change in other if change.pre != change.post)]


def _needs_bytes(change: Change, post: Image) -> bool:
    """Where only the mode or the attributes differ, the file that stands there has them."""
    return post.kind == "file" and (change.pre is None or change.pre.digest != post.digest)


def _forget_work(path: str) -> None:
    """A state that knows nothing, under another identity; interrupted, it is completed by the next call."""
    state = os.open(os.path.join(path, STATE_DIRECTORY), _DIRECTORY)
    try:
        for name in set(CALLS.names(state)) - {_PLACE, INDEX_NAME}:
            remove(state, state, name)
    finally:
        os.close(state)
    create_state(path)


def _require_ours(path: str) -> None:
    try:
        names = os.listdir(os.fspath(path))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise InvalidInput(f"{printable(path)} is no directory") from None
    if set(names) - {STATE_DIRECTORY} and not os.path.isdir(os.path.join(path, STATE_DIRECTORY, _PLACE)):
        raise InvalidInput(f"{printable(path)} is no mirror, and everything in it would be lost")
