"""The draft: the workspace as it will be, kept in memory over the workspace as it is.

Invariants
  F1  The workspace is only read. Whatever was looked at is remembered with its stamp,
      so that the transaction can tell later whether it is still the same.
  F2  Whatever the plan found as it wants it is part of the base, like what it reads and what it changes.
  F3  No path is planned that the transaction could not take back after a crash: length counts here too.
  F4  No path is ever resolved through a symbolic link, neither one on disk nor one the plan itself makes.
  F5  What a step asked for is never lost to a capture: every path that was planned is captured, or kept as it was
      planned where programs could not see it, or it stands as the workspace has it, and is part of the base then.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.errors import Blocked, Conflict, InvalidPath
from holdfast.model.changeset import Change, ChangeSet, Observation, change_set
from holdfast.model.image import Image, Seen
from holdfast.model.path import MAX_PATH_BYTES, ancestors_of, checked_path, is_protected, parent_of, printable
from holdfast.workspace.observe import observe
from holdfast.workspace.site import Site
from holdfast.workspace.staging import CopyOf, Source

NEW_DIRECTORY_MODE = 0o755
_SET_GROUP = 0o2000
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# What opening says when something else, or nothing, stands at a path now; a socket is ENXIO.
_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENXIO)
_SURELY_SHORT = MAX_PATH_BYTES // 4  # no character takes more than four bytes


class Node(NamedTuple):
    """A future object. `came_from` is the path in the workspace whose bytes these are, when no step wrote new ones."""

    image: Image
    source: Source | None = None
    came_from: str | None = None


class Draft:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._future: dict[str, Node | None] = {}
        self._seen: dict[str, Seen | None] = {}
        # Planned names by directory; made when somebody first looks into a directory, which most plans never do.
        self._children: dict[str, set[str]] | None = None
        self._reads: set[str] = set()
        self._directories: set[str] = {""}

    @property
    def seen(self) -> dict[str, Seen]:
        return {path: seen for path, seen in self._seen.items() if seen is not None}

    def get(self, path: str) -> Node | None:
        """What stands at a path in the draft."""
        if path in self._future:
            return self._future[path]
        self._require_plain_ancestors(path)
        seen = self._look(path)
        return None if seen is None else Node(seen.image, came_from=path)

    def put(self, path: str, node: Node) -> None:
        """Place an object; missing parents are created."""
        self._make_parents(path)
        self._plan(path, node)

    def remove(self, path: str) -> None:
        self._plan(path, None)

    def note_read(self, path: str) -> None:
        """The plan relies on this path although it does not change it."""
        if self._seen.get(path) is not None:
            self._reads.add(path)

    def inside(self, path: str) -> Iterator[str]:
        """Everything below a directory in the draft, parents first."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            for name in self._names(directory):
                child = f"{directory}/{name}"
                if is_protected(child):
                    raise Blocked(f"{printable(directory)} contains {printable(name)}, which is protected")
                yield child
                node = self.get(child)
                if node is not None and node.image.kind == "directory":
                    waiting.append(child)

    def owner_below(self, path: str) -> tuple[int, int]:
        """Owner of a new object: this user, and the parent's group where the parent passes it on."""
        uid, gid, _ = self._heritage(path)
        return uid, gid

    def _heritage(self, path: str) -> tuple[int, int, int]:
        """Owner, group, and the set-group bit that a new directory gets, as the kernel would give them."""
        above = parent_of(path)
        while above and (parent := self.get(above)) is None:
            above = parent_of(above)  # it will be made, and inherit in turn
        if above and parent is not None:
            mode, group = parent.image.mode, parent.image.gid
        else:
            found = self._site.calls.fstat(self._site.workspace.fd)
            mode, group = found.st_mode, found.st_gid
        if mode & _SET_GROUP:
            return os.geteuid(), group, _SET_GROUP
        return os.geteuid(), os.getegid(), 0

    def new_directory(self, path: str, mode: int) -> Node:
        """A directory that is made here, or made again: one that the workspace has keeps its owner and attributes."""
        before = self._look(path)
        if before is not None and before.image.kind == "directory":
            return Node(before.image._replace(mode=mode))
        uid, gid, passed_on = self._heritage(path)
        return Node(Image("directory", mode | passed_on, uid, gid))

    def difference(self) -> ChangeSet:
        """The exact difference between the workspace and the draft."""
        changes = []
        reads = set(self._reads)
        for path, node in self._future.items():
            change = self._change(path, node)
            if change is not None:
                changes.append(change)
                reads.discard(path)
            else:
                reads.add(path)
        return change_set(changes, [Observation(path, seen.image) for path in reads if (seen := self._seen[path])])

    def adopt(
        self,
        found: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        is_hidden: Callable[[str], bool],
    ) -> None:
        """From here on the draft is what was captured, and what it had at paths that are hidden from a capture (F5)."""
        kept = {path: node for path, node in self._future.items() if is_hidden(path)}
        captured = {change.path: self._captured(change, sources.get(change.path)) for change in found.changes}
        as_before = self._future.keys() - captured.keys() - kept.keys()
        self._reads.update(path for path in as_before if self._seen.get(path) is not None)
        self._future = captured | kept
        self._seen.update(seen)
        for change in found.changes:
            if change.pre is None:
                self._seen[change.path] = None
        self._children = None
        self._directories = {""}
        self._require_room(kept)

    def _captured(self, change: Change, source: Source | None) -> Node | None:
        """What a step moved, and no program touched there, is moved still: to a capture it would be new content."""
        if change.post is None:
            return None
        planned = self._future.get(change.path)
        if planned is None or planned.came_from in (None, change.path):
            return Node(change.post, source)
        return planned if planned.source is None and planned.image == change.post else Node(change.post, source)

    def _require_room(self, kept: Mapping[str, Node | None]) -> None:
        """A program may have taken away the directory of a path that it could not see."""
        for path, node in kept.items():
            above = parent_of(path)
            if node is None or not above:
                continue
            parent = self.get(above)
            if parent is None or parent.image.kind != "directory":
                raise Blocked(f"a program removed {printable(above)}, where the plan has {printable(path)}")

    def base_image(self, path: str) -> Image | None:
        """What the workspace has at a path, whatever the plan makes of it."""
        seen = self._look(path)
        return seen.image if seen is not None else None

    def sources_with(self, also: Iterable[str]) -> dict[str, Source]:
        """The sources, and for some paths more the workspace itself."""
        return {**{path: self._copy_of(path) for path in also if path not in self._future}, **self.sources()}

    def sources(self) -> dict[str, Source]:
        """Where the bytes of each new file come from."""
        found: dict[str, Source] = {}
        for path, node in self._future.items():
            if node is None or node.image.kind != "file":
                continue
            if node.source is not None:
                found[path] = node.source
            elif node.came_from is not None and node.came_from != path:
                found[path] = self._copy_of(node.came_from)
        return found

    def _change(self, path: str, node: Node | None) -> Change | None:
        seen = self._seen.get(path) if path in self._seen else self._look(path)
        pre = seen.image if seen is not None else None
        post = node.image if node is not None else None
        if pre == post:
            return None
        return Change(path, pre, post, self._origin(path, node) if pre is None else None)

    def _origin(self, path: str, node: Node | None) -> str | None:
        """The removed path whose very inode can simply be renamed here."""
        if node is None or node.source is not None or node.came_from in (None, path) or node.image.kind == "directory":
            return None
        old = self._seen.get(node.came_from or "")
        gone = node.came_from in self._future and self._future[node.came_from or ""] is None
        return node.came_from if gone and old is not None and old.image == node.image else None

    def _copy_of(self, path: str) -> CopyOf:
        seen = self._seen.get(path)
        return CopyOf(lambda: _opened(self._site, path), seen.stamp.mtime_ns if seen else None)

    def _look(self, path: str) -> Seen | None:
        if path in self._seen:
            return self._seen[path]
        parent = parent_of(path)
        try:
            directory = self._site.workspace.directory(parent)
            seen = observe(self._site.calls, directory, path[len(parent) + 1 if parent else 0 :])
        except OSError as error:
            if error.errno != errno.ELOOP or not self._replaces_a_link(path):
                _refuse_unless_absent(path, error)
            seen = None
        self._seen[path] = seen
        return seen

    def _replaces_a_link(self, path: str) -> bool:
        """Is the link on the way one that the plan itself removes, or puts a directory in place of?"""
        planned = (self._seen.get(above) for above in ancestors_of(path) if above in self._future)
        return any(seen is not None and seen.image.kind == "symlink" for seen in planned)

    def _require_plain_ancestors(self, path: str) -> None:
        """F4, for what the plan itself made; the kernel refuses what is on disk."""
        parent = parent_of(path)
        if parent in self._directories:
            return
        for ancestor in ancestors_of(path):
            node = self._future.get(ancestor)
            if node is not None and node.image.kind != "directory":
                raise Blocked(f"{printable(path)} would go through {printable(ancestor)}, which is not a directory")
        if not self._future.keys() & set(ancestors_of(path)):
            self._directories.add(parent)

    def _make_parents(self, path: str) -> None:
        parent = parent_of(path)
        if parent in self._directories and parent not in self._future and self._seen.get(path):
            return
        missing: list[str] = []
        while parent and (node := self.get(parent)) is None:
            missing.append(parent)
            parent = parent_of(parent)
        if parent and node is not None and node.image.kind != "directory":
            raise Blocked(f"{printable(path)} would go through {printable(parent)}, which is not a directory")
        for directory in reversed(missing):
            self._plan(directory, self.new_directory(directory, NEW_DIRECTORY_MODE))

    def _names(self, path: str) -> list[str]:
        names: set[str] = set()
        if self._seen.get(path) is not None or path not in self._future:
            try:
                names.update(self._site.calls.names(self._site.workspace.directory(path)))
            except OSError as error:
                if error.errno != errno.ELOOP or not self._replaces_a_link(f"{path}/"):
                    _refuse_unless_absent(path, error)
        for name in self._planned_names().get(path, ()):
            if self._future[f"{path}/{name}"] is None:
                names.discard(name)
            else:
                names.add(name)
        return sorted(names)

    def _plan(self, path: str, node: Node | None) -> None:
        if len(path) > _SURELY_SHORT:
            _refuse_too_long(path)
        self._future[path] = node
        if self._children is not None:
            _add_child(self._children, path)

    def _planned_names(self) -> dict[str, set[str]]:
        if self._children is None:
            self._children = {}
            for path in self._future:
                _add_child(self._children, path)
        return self._children


def _add_child(children: dict[str, set[str]], path: str) -> None:
    parent, _, name = path.rpartition("/")
    children.setdefault(parent, set()).add(name)


def _refuse_too_long(path: str) -> None:
    try:
        checked_path(path)
    except InvalidPath as error:
        raise Blocked(error.message) from error


def _refuse_unless_absent(path: str, error: OSError) -> None:
    if error.errno in _ABSENT:
        return
    if error.errno == errno.ELOOP:
        raise Blocked(f"{printable(path)} goes through a symbolic link; Holdfast follows none") from error
    if error.errno == errno.EXDEV:
        raise Blocked(f"{printable(path)} is on another file system than the workspace") from error
    raise Blocked(f"{printable(path)} cannot be read: {os.strerror(error.errno or 0)}") from error


def _opened(site: Site, path: str) -> int:
    """A file whose bytes are copied when the change is staged; Conflict when it is not there, or no file, by then."""
    moved = Conflict(f"{printable(path)} changed after it was simulated", hint="Nothing was changed. Simulate again.")
    try:
        fd = site.calls.open_beneath(path, _READ, site.workspace.fd)
    except OSError as error:
        if error.errno in _REPLACED:
            raise moved from error
        raise
    if not stat.S_ISREG(site.calls.fstat(fd).st_mode):
        site.calls.close(fd)
        raise moved
    return fd
