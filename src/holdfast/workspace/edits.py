"""Edits of ordinary files, a directory at a time: what nearly all captures are made of.

An edit is a path with a plain file in the shadow and a plain file in the workspace that a look at the workspace has
read and that still stands as it was then. Nothing of the workspace is read for it again.
Everything else is left to the long way of `capture`, which gives the same answers and asks about everything.

Invariant E3: what is called an edit here has one name on both sides, an ordinary path, no power in its mode,
and no attributes but those the kernel notes on whatever an overlay copies up.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.disk.confined import Root
from holdfast.model.image import Seen
from holdfast.model.path import is_ordinary
from holdfast.workspace.touched import Touch
from holdfast.workspace.tree import Snapshot

_FORM = stat.S_IFMT(0xFFFF) | stat.S_ISUID | stat.S_ISGID
_PLAIN = stat.S_IFREG


class Edit(NamedTuple):
    """What the shadow has at a path, and what the workspace has."""

    path: str
    found: os.stat_result
    before: Seen


def edits_among(workspace: Root, base: Snapshot, touches: Iterable[Touch]) -> tuple[list[Edit], list[Touch]]:
    """Those that are edits, and the others."""
    left: list[Touch] = []
    by_directory: dict[str, list[tuple[str, os.stat_result]]] = {}
    for touch in touches:
        path, found, _, _ = touch
        if found is None or found.st_nlink != 1 or found.st_mode & _FORM != _PLAIN or not is_ordinary(path):
            left.append(touch)
        else:
            directory, _, name = path.rpartition("/")
            by_directory.setdefault(directory, []).append((name, found))
    edits: list[Edit] = []
    for directory, files in by_directory.items():
        left += _compared(workspace, base, directory, files, edits)
    return edits, left


def _compared(
    workspace: Root, base: Snapshot, directory: str, files: Sequence[tuple[str, os.stat_result]], edits: list[Edit]
) -> list[Touch]:
    """Adds the edits in one directory; returns what is none."""
    start, known = f"{directory}/" if directory else "", base.folder(directory)
    try:
        folder = workspace.directory(directory)
    except OSError:
        known = None  # whatever is in the way, the long way finds the words for it
    if known is None:
        return [Touch(start + name, found) for name, found in files]
    look, left = workspace.calls.stat, []
    for name, found in files:
        try:
            standing = look(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            left.append(Touch(start + name, found))
            continue
        before = known.seen(name, standing)
        if before is None or standing.st_nlink != 1 or standing.st_mode & _FORM != _PLAIN or before.image.xattrs:
            left.append(Touch(start + name, found))
        else:
            edits.append(Edit(start + name, found, before))
    return left
