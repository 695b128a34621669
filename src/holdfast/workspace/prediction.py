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


def _sealed_after(block: Block | None, branch: _Branch) -> Block:
    """Depth is bounded by the length of a path."""
    names = block.names() if block is not None else []
    extras = block.extras() if block is not None else {}
    found = [(name, _place(names, name)) for name in branch.below]
    after = {name: _after(block if place >= 0 else None, place, extras, branch.below[name]) for name, place in found}
    if block is None or any(place < 0 or after[name] is None for name, place in found):
        return _put_together(block, names, after)
    # The names stay, as nearly everywhere: only what differs is put in.
    places = {place: one for name, place in found if (one := after[name]) is not None}
    children = {place: child for place, child in block.children.items() if place not in places}
    children.update((place, child) for place, (_, child) in places.items() if child is not None)
    return block.patched({place: entry for place, (entry, _) in places.items()}, children)


def _after(known: Block | None, place: int, extras: Mapping[int, bytes], below: _Branch) -> _One | None:
    """What is at one name then, and below it; None for nothing."""
    image = below.image
    if not below.is_changed and known is not None:
        image = image_of(known.record(place), extras.get(place, b""))
    if image is None:
        return None
    if image.kind != "directory":
        return _entry(image, bytes.fromhex(image.digest) if image.digest else bytes(32)), None
    child = _sealed_after(known.children.get(place) if known is not None else None, below)
    return _entry(image, child.digest), child


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
