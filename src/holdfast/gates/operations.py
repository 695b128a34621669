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

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from holdfast.model.changeset import Change
from holdfast.model.image import Image
from holdfast.model.path import TOOL_DIRECTORIES

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


def removed_files(changes: Sequence[Change]) -> tuple[str, ...]:
    """The files and links whose content is gone afterwards: deleted, emptied, or replaced by something else.

    A move keeps the content. A program's moves are captured as a deletion and a creation, so the content decides:
    each new path accounts for one old path with the same content. `TOOL_DIRECTORIES` do not count.
    """
    origins = origins_of(changes)
    arrived = Counter(_content(change.post) for change in changes if change.pre is None and change.origin is None)
    gone: list[str] = []
    for change in changes:
        if not loses_content(change) or change.path in origins or not TOOL_DIRECTORIES.isdisjoint(_above(change.path)):
            continue
        content = _content(change.pre)
        if change.post is None and arrived[content] > 0:
            arrived[content] -= 1
        else:
            gone.append(change.path)
    return tuple(gone)


def loses_content(change: Change) -> bool:
    """Whether what stood at this path is deleted, emptied, or replaced by another kind of object."""
    pre, post = change.pre, change.post
    if pre is None or pre.kind == "directory":
        return False
    return post is None or post.kind != pre.kind or (pre.size > 0 and post.size == 0)


def _content(image: Image | None) -> tuple[str, ...]:
    return () if image is None else (image.kind, image.digest, image.target)


def _above(path: str) -> list[str]:
    return path.split("/")[:-1]


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
