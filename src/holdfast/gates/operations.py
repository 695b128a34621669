"""What a change does to its path, in the words of policy.

    create   something new stands there (also when it was moved there)
    edit     other content, or another link target
    delete   it is no longer there (also when it was moved away)
    move     one half of a move: a rule about deleting or creating sees both halves
    mode     other permission bits
    owner    another user or group
    attributes   other extended attributes
    link     what stands there afterwards is a symbolic link

The words come from the images alone: a step that calls itself "write" and replaces a directory is delete and create.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from holdfast.model.changeset import Change
from holdfast.model.image import Image

Operation = Literal["create", "edit", "delete", "move", "mode", "owner", "attributes", "link"]
OPERATIONS: tuple[Operation, ...] = ("create", "edit", "delete", "move", "mode", "owner", "attributes", "link")


def origins_of(changes: Iterable[Change]) -> frozenset[str]:
    """The paths that move away."""
    return frozenset([change.origin for change in changes if change.origin is not None])


def operations_of(change: Change, origins: frozenset[str]) -> tuple[Operation, ...]:
    """Every word that fits one change; `origins` are the paths that move away in the same change set."""
    path, pre, post, origin = change
    found: list[Operation] = []
    if post is None:
        found.append("delete")
    elif pre is None:
        found.append("create")
    elif pre.kind != post.kind:
        found += ("delete", "create")
    else:
        found += _edits(pre, post)
    if origin is not None or path in origins:
        found.append("move")
    if post is not None and post.kind == "symlink":
        found.append("link")
    return tuple(found)


def _edits(pre: Image, post: Image) -> list[Operation]:
    found: list[Operation] = []
    if pre.digest != post.digest or pre.target != post.target or pre.size != post.size:
        found.append("edit")
    if pre.mode != post.mode:
        found.append("mode")
    if (pre.uid, pre.gid) != (post.uid, post.gid):
        found.append("owner")
    if pre.xattrs != post.xattrs:
        found.append("attributes")
    return found
