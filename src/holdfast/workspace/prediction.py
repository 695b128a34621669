"""The digest a tree will have: the known blocks of a snapshot, with the changed directories sealed anew.

Cost grows with the change: a directory without a change below it keeps its block, and one with the same names most of
its bytes. The stamps of changed entries are NEVER, since nothing of this stands on a disk; digests do not cover them.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from holdfast.model.changeset import Change
from holdfast.model.image import Image
from holdfast.workspace.block import (
    DIRECTORY,
    FILE,
    NEVER,
    SYMLINK,
    Block,
    Entry,
    image_of,
    packed,
    packed_xattrs,
    sealed,
)

_KINDS = {"file": FILE, "directory": DIRECTORY, "symlink": SYMLINK}
# One name: its entry, and the block of a directory.
_One: TypeAlias = "tuple[Entry, Block | None]"
_EMPTY = sealed([], [], {})


class _Branch:
    """The changes at and below one name."""

    __slots__ = ("below", "image", "is_changed")

    def __init__(self) -> None:
        self.is_changed = False
        self.image: Image | None = None
        self.below: dict[bytes, _Branch] = {}


def block_after(root: Block, changes: Iterable[Change]) -> Block:
    """The root's block as it will be."""
    tree = _Branch()
    for change in changes:
        branch = tree
        for name in os.fsencode(change.path).split(b"/"):
            branch = branch.below.setdefault(name, _Branch())
        branch.is_changed, branch.image = True, change.post
    return _sealed_after(root, tree)


class _Directory:
    """One directory with a change at or below it: what will be at each name, and the directories among that."""

    __slots__ = ("after", "below", "block", "images", "names", "places")

    def __init__(self, block: Block | None, branch: _Branch) -> None:
        self.block = block
        self.names = block.names() if block is not None else []
        self.places = {name: _place(self.names, name) for name in branch.below}
        extras = block.extras() if block is not None else {}
        self.images = {name: self._image(name, below, extras) for name, below in branch.below.items()}
        self.below: dict[bytes, _Directory] = {}
        self.after = _EMPTY

    def _image(self, name: bytes, below: _Branch, extras: Mapping[int, bytes]) -> Image | None:
        place = self.places[name]
        if below.is_changed or self.block is None or place < 0:
            return below.image
        return image_of(self.block.record(place), extras.get(place, b""))

    def open(self, branch: _Branch) -> list[tuple[_Directory, _Branch]]:
        """The directories in it, with what changes there."""
        known = self.block.children if self.block is not None else {}
        for name, image in self.images.items():
            if image is not None and image.kind == "directory":
                self.below[name] = _Directory(known.get(self.places[name]), branch.below[name])
        return [(directory, branch.below[name]) for name, directory in self.below.items()]

    def seal(self) -> None:
        """When all below it are sealed."""
        after = {name: self._one(name, image) for name, image in self.images.items()}
        if self.block is None or any(place < 0 or after[name] is None for name, place in self.places.items()):
            self.after = _put_together(self.block, self.names, after)
            return
        # The names stay, as nearly everywhere: only what differs is put in.
        places = {self.places[name]: one for name, one in after.items() if one is not None}
        children = {place: child for place, child in self.block.children.items() if place not in places}
        children.update((place, child) for place, (_, child) in places.items() if child is not None)
        self.after = self.block.patched({place: entry for place, (entry, _) in places.items()}, children)

    def _one(self, name: bytes, image: Image | None) -> _One | None:
        if image is None:
            return None
        if image.kind != "directory":
            return _entry(image, bytes.fromhex(image.digest) if image.digest else bytes(32)), None
        child = self.below[name].after
        return _entry(image, child.digest), child


def _sealed_after(block: Block, branch: _Branch) -> Block:
    """Without recursion: a path may be deeper than that."""
    root = _Directory(block, branch)
    order = [(root, branch)]
    for directory, changes in order:  # grows while it is read: parents before children
        order += directory.open(changes)
    for directory, _ in reversed(order):
        directory.seal()
    return root.after


def _put_together(block: Block | None, names: list[bytes], after: Mapping[bytes, _One | None]) -> Block:
    """A directory with other names than before."""
    records = block.records() if block is not None else []
    children = block.children if block is not None else {}
    there: dict[bytes, _One] = {
        name: (Entry(record, NEVER, extra), children.get(place))
        for place, (name, (record, extra)) in enumerate(zip(names, records, strict=True))
    }
    for name, one in after.items():
        if one is None:
            there.pop(name, None)
        else:
            there[name] = one
    ordered = sorted(there)
    kept = {place: child for place, name in enumerate(ordered) if (child := there[name][1]) is not None}
    return sealed(ordered, [there[name][0] for name in ordered], kept)


def _place(names: list[bytes], name: bytes) -> int:
    at = bisect_left(names, name)
    return at if at < len(names) and names[at] == name else -1


def _entry(image: Image, digest: bytes) -> Entry:
    row = (0, 0, 0, 0, image.mode, image.uid, image.gid)
    size = image.size if image.kind == "file" else 0
    extra = os.fsencode(image.target) if image.kind == "symlink" else packed_xattrs(image.xattrs)
    return Entry(packed(_KINDS[image.kind], row, size=size, digest=digest), NEVER, extra)
