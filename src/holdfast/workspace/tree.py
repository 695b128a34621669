"""The snapshot of a tree: everything in a workspace at one time, and one digest over it.

The digest covers path, type, permission bits, owner, extended attributes, link target and content
of everything below the root, except what is named `.git` at any depth and the root's own `.holdfast`.
It covers no times and no inode numbers, and not the root directory itself, which no change can touch.

It is a Merkle tree of directories (see `block`), kept in an index (see `index`),
so that the next snapshot costs one `lstat` a path and reads only what changed (see `walk`, `glance` and `reader`).

Invariants
  N1  A snapshot with an index equals one without, whatever state the index is in.
  N2  What could not be read is in `problems`; its digest stands for type, mode, owner and size only.
  N3  Each directory is consistent in itself; the tree as a whole is as consistent as the absence of other writers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from blake3 import blake3

from holdfast.disk.calls import CALLS, Calls
from holdfast.model.changeset import Change
from holdfast.model.image import Image, Seen
from holdfast.workspace.block import (
    FILE,
    LOCKED_DIRECTORY,
    LOCKED_FILE,
    NEVER,
    STAMP,
    SYMLINK,
    Block,
    Special,
    image_of,
    row_of,
    special_of,
)
from holdfast.workspace.collector import without_collector
from holdfast.workspace.index import keep, load
from holdfast.workspace.observe import stamp_of
from holdfast.workspace.walk import Walk

# Inside the class, `bytes` is the property.
_Name: TypeAlias = bytes
_DOMAIN = b"holdfast tree 1\n"
_MOST_LINKS = 8
_FILES = (FILE, LOCKED_FILE, SYMLINK)
# Of a stat row (see `block.row_of`).
_CTIME = 3
_UNREADABLE = {
    LOCKED_FILE: "permission denied: the file cannot be read",
    LOCKED_DIRECTORY: "permission denied: the directory cannot be listed",
}


class Problem(NamedTuple):
    """A path whose content is not in the digest, and why."""

    path: str
    detail: str


class _Item(NamedTuple):
    """An entry with its record and extra, or (`below`) all that is under a directory, whose path ends in a slash."""

    path: bytes
    record: bytes
    extra: bytes
    below: Block | None


@without_collector
def snapshot(root: str, state: str | None, *, calls: Calls = CALLS, workers: int = 1) -> Snapshot:
    """Look at everything under `root`; `state` is the directory that keeps the index, None for no index.

    `workers` threads share the hashing of a large file.
    One is the default: a single core hashes faster than most disks read.
    Raises Conflict when a path keeps changing, Blocked when one cannot be read for another reason than permissions.
    """
    known = load(calls, state) if state is not None else None
    walk = Walk(calls, workers)
    found = walk.run(root, known)
    note = ""
    if state is not None:
        try:
            keep(calls, state, known, found, walk.read)
        except OSError as error:
            # Only speed is lost; whoever wonders why can see it.
            note = f"the index could not be saved: {error.strerror}"
    return Snapshot(found.root, note)


class Snapshot:
    """A tree as it was. Paths are relative to the root, sorted by their bytes, surrogate escapes where not UTF-8."""

    __slots__ = ("_directories", "_lookup", "_root", "digest", "index_note")

    def __init__(self, root: Block, index_note: str = "") -> None:
        self._root = root
        self._lookup: dict[Block, dict[str, int]] = {}
        self._directories: dict[str, Block | None] = {"": root}
        self.digest = _tree_digest(root)
        self.index_note = index_note

    @property
    def count(self) -> int:
        """Entries of any kind."""
        return sum(block.count for block in self._blocks())

    @property
    def bytes(self) -> int:
        """The sizes of all files together; a file with two names counts twice."""
        return sum(block.content_bytes() for block in self._blocks())

    def files_outside(
        self, names: frozenset[str], ignored: Callable[[list[str]], Collection[str]] | None = None
    ) -> int:
        """How many files and links there are, without directories of these names and what is below them.

        `ignored` says which paths are left out besides; it is asked once for each depth, directories with a slash.
        """
        left_out = {os.fsencode(name) for name in names}
        found, level = 0, [(b"", self._root)]
        while level:
            files: list[str] = []
            below: dict[str, tuple[bytes, Block]] = {}
            for prefix, block in level:
                count = sum(map(block.kinds.count, _FILES))
                found += count
                own = block.names() if block.children or (count and ignored is not None) else []
                for place, child in block.children.items():
                    if own[place] not in left_out:
                        path = prefix + own[place]
                        below[os.fsdecode(path)] = path + b"/", child
                if ignored is not None:
                    files += [
                        os.fsdecode(prefix + own[place])
                        for place, kind in enumerate(block.kinds if count else b"")
                        if bytes((kind,)) in _FILES
                    ]
            gone = frozenset(ignored([*files, *(f"{path}/" for path in below)])) if ignored is not None else frozenset()
            found -= sum(path in gone for path in files)
            level = [item for path, item in below.items() if path not in gone]
        return found

    def entries(self) -> Iterator[tuple[str, Image]]:
        """Files, directories and links. An unreadable file has an empty digest."""
        for item in self._items():
            image = image_of(item.record, item.extra)
            if image is not None:
                yield os.fsdecode(item.path), image

    def links(self) -> Iterator[tuple[str, str]]:
        """Symbolic links and what they say; only directories that have some are looked at."""
        waiting = [(self._root, b"")]
        while waiting:
            block, prefix = waiting.pop()
            names = block.names() if block.children or SYMLINK in block.kinds else []
            waiting += [(child, prefix + names[place] + b"/") for place, child in block.children.items()]
            if SYMLINK in block.kinds:
                for name, (record, extra) in zip(names, block.records(), strict=True):
                    if record[:1] == SYMLINK:
                        yield os.fsdecode(prefix + name), os.fsdecode(extra)

    def files_named(self, names: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Files with one of these names, at any depth, and the digests of their contents; in no order.

        A link of such a name counts with the content that it leads to inside of the tree.
        """
        wanted = {os.fsencode(name) for name in names}
        waiting = [(self._root, b"")]
        while waiting:
            block, prefix = waiting.pop()
            here = any(name in block.facts for name in wanted)
            found = block.names() if block.children or here else []
            waiting += [(child, prefix + found[place] + b"/") for place, child in block.children.items()]
            for place, name in enumerate(found if here else ()):
                image = block.image(place) if name in wanted else None
                path = os.fsdecode(prefix + name)
                if image is not None and image.kind == "symlink":
                    image = self._led_to(path, image)
                if image is not None and image.kind == "file":
                    yield path, image.digest

    def _led_to(self, path: str, image: Image | None) -> Image | None:
        """What stands at the end of links, where that is in the tree."""
        for _ in range(_MOST_LINKS):
            if image is None or image.kind != "symlink":
                return image
            path = os.path.normpath(os.path.join(os.path.dirname(path), image.target))
            image = self._image_at(os.fsencode(path))
        return None

    def _image_at(self, path: _Name) -> Image | None:
        block, (*above, last) = self._root, path.split(b"/")
        for name in above:
            names = block.names()
            child = block.children.get(names.index(name)) if name in names else None
            if child is None:
                return None
            block = child
        names = block.names()
        return block.image(names.index(last)) if last in names else None

    def specials(self) -> Iterator[tuple[str, Special]]:
        """Devices, FIFOs, sockets and mount points: seen, never opened."""
        for item in self._items():
            special = special_of(item.record)
            if special is not None:
                yield os.fsdecode(item.path), special

    def problems(self) -> list[Problem]:
        """What could not be read with this user's permissions."""
        if not any(kind in block.kinds for block in self._blocks() for kind in _UNREADABLE):
            return []
        found = ((item.path, _UNREADABLE.get(item.record[:1])) for item in self._items())
        return [Problem(os.fsdecode(path), detail) for path, detail in found if detail is not None]

    def get(self, path: str) -> Image | None:
        """The image at a path; None for nothing there and for specials."""
        block, position = self._place(path)
        return None if block is None or position < 0 else block.image(position)

    def folder(self, path: str) -> Folder | None:
        """One directory of it, for who asks about many names there; None where there was none that could be read."""
        block = self._directory(path)
        return None if block is None else Folder(block, self._places(block))

    def digest_after(self, changes: Iterable[Change]) -> str:
        """The digest this tree will have when the changes, and nothing else, have been made."""
        from holdfast.workspace.prediction import block_after

        return _tree_digest(block_after(self._root, changes))

    def was_touched_since(self, earlier: Snapshot, moment_ns: int) -> bool:
        """Was anything written between two looks, also where it was put back meanwhile? The first began at `moment_ns`.

        Stamps tell: a change time moves with every write and cannot be set. Where the first look could not stamp
        an entry, because it was written just before, the time alone decides, which is as coarse as the kernel's clock.
        """
        if self.digest != earlier.digest:
            return True
        pairs = [(earlier._root, self._root)]
        while pairs:
            before, after = pairs.pop()
            pairs += [(before.children[place], child) for place, child in after.children.items()]
            if before.stamps != after.stamps and any(
                _is_later(before.stamp(place), after.stamp(place), moment_ns) for place in range(after.count)
            ):
                return True
        return False

    def changed_since(self, earlier: Snapshot) -> Iterator[tuple[str, str]]:
        """Every path that differs between two looks, and how: created, changed or removed. Equal directories are
        passed over by their digests.
        """
        pairs: list[tuple[Block | None, Block | None, _Name]] = [(earlier._root, self._root, b"")]
        while pairs:
            before, after, prefix = pairs.pop()
            if before is not None and after is not None and before.digest == after.digest:
                continue
            old, new = _rows_of(before), _rows_of(after)
            for name in sorted(old.keys() | new.keys()):
                was, now = old.get(name), new.get(name)
                if was is None or now is None or was[0] != now[0]:
                    how = "created" if was is None else "removed" if now is None else "changed"
                    yield os.fsdecode(prefix + name), how
                below = (was[1] if was is not None else None), (now[1] if now is not None else None)
                if below != (None, None):
                    pairs.append((*below, prefix + name + b"/"))

    def _place(self, path: str) -> tuple[Block | None, int]:
        above, _, name = path.rpartition("/")
        block = self._directory(above)
        return block, -1 if block is None else self._places(block).get(name, -1)

    def _directory(self, path: str) -> Block | None:
        """Without recursion: a tree may be deeper than that."""
        known, names = path, []
        while known not in self._directories:
            known, _, name = known.rpartition("/")
            names.append(name)
        block = self._directories[known]
        for name in reversed(names):
            known = f"{known}/{name}" if known else name
            block = None if block is None else block.children.get(self._places(block).get(name, -1))
            self._directories[known] = block
        return block

    def _places(self, block: Block) -> dict[str, int]:
        places = self._lookup.get(block)
        if places is None:
            names = os.fsdecode(b"\0".join(block.names())).split("\0")
            places = self._lookup[block] = {name: place for place, name in enumerate(names)}
        return places

    def _blocks(self) -> Iterator[Block]:
        waiting = [self._root]
        while waiting:
            block = waiting.pop()
            waiting += block.children.values()
            yield block

    def _items(self) -> Iterator[_Item]:
        """Every entry in the order of path bytes, without recursion."""
        waiting = [_items_of(self._root, b"")]
        while waiting:
            for item in waiting[-1]:
                if item.below is not None:
                    waiting.append(_items_of(item.below, item.path))
                    break
                yield item
            else:
                waiting.pop()


class Folder(NamedTuple):
    """One directory of a snapshot, and where its names are."""

    block: Block
    places: dict[str, int]

    def seen(self, name: str, found: os.stat_result) -> Seen | None:
        """What was read at a name, if `found`, which was looked up just now, says that it still stands there.

        None as well for what could not be stamped (R2 of `reader`), and for all but files, directories and links.
        """
        position = self.places.get(name, -1)
        image = self.block.standing(position, row_of(found)) if position >= 0 else None
        return None if image is None else Seen(image, stamp_of(found))


def _is_later(before: bytes, after: bytes, moment_ns: int) -> bool:
    """Was the entry written between these stamps? One that can never be stamped is told by its content alone."""
    if before == after:
        return False
    if before != NEVER or after == NEVER:
        return True
    return bool(STAMP.unpack(after)[_CTIME] >= moment_ns)


def _rows_of(block: Block | None) -> dict[bytes, tuple[Image | bytes, Block | None]]:
    """By name: what it is, and what is below. The record of a directory has the digest of that, its image has not."""
    if block is None:
        return {}
    rows = enumerate(zip(block.names(), block.records(), strict=True))
    return {
        name: (image_of(record, extra) or record, block.children.get(place)) for place, (name, (record, extra)) in rows
    }


def _tree_digest(root: Block) -> str:
    return blake3(_DOMAIN + root.digest).hexdigest()


def _items_of(block: Block, prefix: bytes) -> Iterator[_Item]:
    """One directory. What is under `a` comes where `a/` sorts: after `a.b`, before `a0`."""
    names = block.names()
    keys = [(name, place, False) for place, name in enumerate(names)]
    keys += [(names[place] + b"/", place, True) for place in block.children]
    records = block.records()
    for key, place, is_below in sorted(keys):
        if is_below:
            yield _Item(prefix + key, b"", b"", block.children[place])
        else:
            yield _Item(prefix + key, *records[place], None)
