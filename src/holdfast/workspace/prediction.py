"""The digest a tree will have: the known blocks of a snapshot, with the changed directories sealed anew.

Cost grows with the change: a directory without a change below it keeps its block.
The stamps of changed entries are NEVER, since nothing of this stands on a disk; digests do not cover them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

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
    entries, children = _entries_of(block)
    for name, below in branch.below.items():
        image = below.image if below.is_changed else _image(entries.get(name))
        if image is None:
            entries.pop(name, None)
            children.pop(name, None)
            continue
        if image.kind == "directory":
            child = _sealed_after(children.get(name), below)
            children[name] = child
            entries[name] = _entry(image, child.digest)
        else:
            children.pop(name, None)
            entries[name] = _entry(image, bytes.fromhex(image.digest) if image.digest else bytes(32))
    names = sorted(entries)
    kept = {place: children[name] for place, name in enumerate(names) if name in children}
    return sealed(names, [entries[name] for name in names], kept)


def _entries_of(block: Block | None) -> tuple[dict[bytes, Entry], dict[bytes, Block]]:
    if block is None:
        return {}, {}
    names = block.names()
    rows = {name: Entry(record, NEVER, extra) for name, (record, extra) in zip(names, block.records(), strict=True)}
    return rows, {names[place]: child for place, child in block.children.items()}


def _image(entry: Entry | None) -> Image | None:
    return image_of(entry.record, entry.extra) if entry is not None else None


def _entry(image: Image, digest: bytes) -> Entry:
    row = (0, 0, 0, 0, image.mode, image.uid, image.gid)
    size = image.size if image.kind == "file" else 0
    extra = os.fsencode(image.target) if image.kind == "symlink" else packed_xattrs(image.xattrs)
    return Entry(packed(_KINDS[image.kind], row, size=size, digest=digest), NEVER, extra)
