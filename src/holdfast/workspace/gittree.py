"""A tree of git with some paths changed: thought out here, without git and without an index.

Cost grows with the folders that hold a changed path, not with the repository.

Invariants
  B1  What is not named stays as it is, whatever it is: files, links, submodules.
  B2  A folder in which nothing is left is gone, as git has no empty folders.
  B3  A path inside a submodule is refused: it belongs to another repository.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import Blocked
from holdfast.model.path import ancestors_of, parent_of, printable

TREE, LINK, SUBMODULE = "40000", "120000", "160000"


class Entry(NamedTuple):
    """What git holds at a path: its mode in octal, and an object."""

    mode: str
    id: str


Folder = Mapping[bytes, Entry]


class NewTree(NamedTuple):
    """The root's id, and the text of every tree that is new, by id."""

    root: str
    texts: Mapping[str, bytes]


def object_id(hashing: str, kind: str, data: bytes) -> str:
    """The name git gives to an object."""
    return hashlib.new(hashing, f"{kind} {len(data)}\0".encode("ascii") + data, usedforsecurity=False).hexdigest()


def folders_of(paths: Mapping[str, Entry | None]) -> list[str]:
    """Every folder above these paths, the root first, each after the one that holds it."""
    found = {""}
    for path in paths:
        found.update(ancestors_of(path))
    return sorted(found, key=lambda folder: (folder.count("/") + bool(folder), folder))


def read_folder(text: bytes, hashing: str) -> dict[bytes, Entry]:
    """The entries of a tree object; Blocked for one that git did not make, since a part of it could be lost (B1)."""
    size = hashlib.new(hashing, usedforsecurity=False).digest_size
    entries: dict[bytes, Entry] = {}
    at = count = 0
    while at < len(text):
        end = text.find(b"\0", at)
        mode, blank, name = text[at:end].partition(b" ")
        id = text[end + 1 : end + 1 + size]
        if end < 0 or not blank or not mode.isdigit() or len(id) != size:
            raise Blocked("a folder in what is checked out is damaged", hint="`git fsck` tells more.")
        entries[name] = Entry(mode.decode("ascii"), id.hex())
        at, count = end + 1 + size, count + 1
    if len(entries) != count:
        raise Blocked("a folder in what is checked out has two entries of one name", hint="`git fsck` tells more.")
    return entries


def entry_at(folders: Mapping[str, Folder], path: str) -> Entry | None:
    return folders.get(parent_of(path), {}).get(_name(path))


def edited(folders: Mapping[str, Folder], changes: Mapping[str, Entry | None], hashing: str) -> NewTree:
    """The tree after these changes; None takes a file or link away. `folders` holds all that exist of `folders_of`."""
    work = {folder: dict(folders.get(folder, {})) for folder in folders_of(changes)}
    texts: dict[str, bytes] = {}
    own: dict[str, list[str]] = {}
    for path in changes:
        own.setdefault(parent_of(path), []).append(path)
    for folder in reversed(list(work)):
        for path in own.get(folder, ()):
            _put(work[folder], _name(path), changes[path])
        text = _text(work[folder])
        id = object_id(hashing, "tree", text)
        if folder:
            _hang(work[parent_of(folder)], folder, Entry(TREE, id) if text else None)
        if text or not folder:
            texts[id] = text
        if not folder:
            return NewTree(id, texts)
    raise AssertionError("the root is always among the folders")


def _put(entries: dict[bytes, Entry], name: bytes, entry: Entry | None) -> None:
    if entry is not None:
        entries[name] = entry
    elif name in entries and entries[name].mode not in (TREE, SUBMODULE):
        # Who empties a folder names what was in it; a submodule's place belongs to the user.
        del entries[name]


def _hang(above: dict[bytes, Entry], folder: str, entry: Entry | None) -> None:
    name = _name(folder)
    known = above.get(name)
    if known is not None and known.mode == SUBMODULE:
        raise Blocked(f"{printable(folder)} is a submodule; what is inside belongs to another repository")  # B3
    if entry is not None:
        above[name] = entry
    elif known is not None and known.mode == TREE:
        del above[name]


def _text(entries: Folder) -> bytes:
    # Git sorts a folder as if its name ended with a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].mode == TREE else item[0])
    return b"".join(entry.mode.encode() + b" " + name + b"\0" + bytes.fromhex(entry.id) for name, entry in ordered)


def _name(path: str) -> bytes:
    return os.fsencode(path.rsplit("/", 1)[-1])
