"""What of a change set programs must not see: hidden paths that it makes, and hidden bytes that it brings elsewhere.

    change set ──masks_with──▶ what a view covers besides what the workspace hides already
               ──shown────────▶ the change set for a shadow, where something empty stands under each cover

Invariants
  W1  A path that a hidden pattern names is hidden also where only the change set makes it.
  W2  What stands at a hidden path of the workspace is hidden wherever the change set puts it: a move shows nothing.
      It is told by its content, so it holds for a change set that was kept and read back as well.
  W3  No hidden byte is written into a shadow, not even below a cover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from blake3 import blake3

from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.image import Image
from holdfast.workspace.hidden import Roots, matches, topmost
from holdfast.workspace.staging import Bytes, Source

_NOTHING = blake3(b"").hexdigest()


class Shown(NamedTuple):
    """A change set as a shadow gets it."""

    change_set: ChangeSet
    sources: Mapping[str, Source]


def masks_with(masked: Sequence[str], patterns: Sequence[str], changes: ChangeSet) -> tuple[str, ...]:
    """The masks of the workspace, and those that these changes need besides; topmost paths only."""
    hidden = Roots(masked)
    secret = {_said(change.pre) for change in changes.changes if hidden.cover(change.path)} - {""}
    also = [change.path for change in changes.changes if _is_hidden(change, hidden, patterns, secret)]
    return topmost((*masked, *also)) if also else tuple(masked)


def shown(changes: ChangeSet, sources: Mapping[str, Source], masked: Sequence[str]) -> Shown:
    """The same paths, with empty stand-ins for what is covered (W3)."""
    hidden = Roots(masked)
    covered = {change.path for change in changes.changes if change.post is not None and hidden.cover(change.path)}
    if not covered:
        return Shown(changes, sources)
    # Not sealed anew: a stand-in may be as empty as what it stands for.
    stand_ins = tuple(_empty(change) if change.path in covered else change for change in changes.changes)
    return Shown(changes._replace(changes=stand_ins), {**sources, **dict.fromkeys(covered, Bytes(b""))})


def _is_hidden(change: Change, hidden: Roots, patterns: Sequence[str], secret: set[str]) -> bool:
    if change.post is None or hidden.cover(change.path):
        return False
    if _said(change.post) in secret:
        return True
    return change.pre is None and matches(change.path, patterns)


def _said(image: Image | None) -> str:
    """What an object says, whatever its mode and owner; empty for what says nothing."""
    if image is None:
        return ""
    return image.target if image.kind == "symlink" else image.digest if image.size else ""


def _empty(change: Change) -> Change:
    post = change.post
    assert post is not None
    if post.kind == "directory":
        return Change(change.path, change.pre, post._replace(xattrs=()))
    return Change(change.path, change.pre, Image("file", 0o600, post.uid, post.gid, 0, _NOTHING))
