"""Differences as text, in the form that patch tools made familiar.

Names and content are escaped alike: what a file holds must not move the cursor of the person who reads it,
nor hide from them. Whoever needs the bytes as they are reads them from the JSON form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.cli.documents import action_of
from holdfast.cli.screen import Screen, shown
from holdfast.cli.words import size
from holdfast.model.path import printable

if TYPE_CHECKING:
    from holdfast.engine.difference import Compared
    from holdfast.model.image import Image

_MOST_LINES = 20_000
_CONTEXT = 3
# No bytes decode to this: surrogate escapes are U+DC80 to U+DCFF.
_NO_END = "\ud800"
_NO_NEWLINE = "\\ No newline at end of file"


def patch(compared: Compared) -> Iterator[str]:
    """One path, line by line, without line ends and not yet escaped but for the names."""
    change = compared.change
    pre, post = change.pre, change.post
    yield from _headline(compared)
    old_name = f"a/{printable(change.origin or change.path)}" if pre is not None else "/dev/null"
    new_name = f"b/{printable(change.path)}" if post is not None else "/dev/null"
    if not _differs(pre, post) or action_of(change) == "move":
        return
    reason = _why_not(compared)
    if reason:
        yield f"  {reason}: {_size(pre)} → {_size(post)}"
        return
    yield from _unified(compared.old.data or b"", compared.new.data or b"", old_name, new_name)


def _headline(compared: Compared) -> Iterator[str]:
    change = compared.change
    pre, post, name = change.pre, change.post, printable(change.path)
    match action_of(change):
        case "move":
            yield f"moved {printable(change.origin or '')} → {name}"
        case "create" if post is not None:
            yield f"new {post.kind} {name} (mode {post.mode:04o})" if post.kind != "symlink" else f"new link {name}"
        case "delete" if pre is not None:
            yield f"removed {pre.kind} {name}"
        case _:
            yield f"changed {name}"
    if pre is not None and post is not None and pre.mode != post.mode:
        yield f"  mode {pre.mode:04o} → {post.mode:04o}"
    for sign, image in (("-", pre), ("+", post)):
        if image is not None and image.kind == "symlink":
            yield f"{sign}→ {printable(image.target)}"


def _differs(pre: Image | None, post: Image | None) -> bool:
    """Is there a text that changed?"""
    kinds = {image.kind for image in (pre, post) if image is not None}
    digests = {image.digest if image is not None else "" for image in (pre, post)}
    return "file" in kinds and len(digests) > 1


def _why_not(compared: Compared) -> str:
    if compared.old.data is None:
        return f"old content {compared.old.why_not}"
    if compared.new.data is None:
        return f"new content {compared.new.why_not}"
    if max(side.count(b"\n") for side in (compared.old.data, compared.new.data)) > _MOST_LINES:
        return f"more than {_MOST_LINES:,} lines"
    return ""


def _size(image: Image | None) -> str:
    return size(image.size) if image is not None else "nothing"


def _unified(old: bytes, new: bytes, old_name: str, new_name: str) -> Iterator[str]:
    from difflib import unified_diff

    lines = unified_diff(_lines(old), _lines(new), old_name, new_name, n=_CONTEXT, lineterm="")
    for line in lines:
        yield line.removesuffix(_NO_END)
        if line.endswith(_NO_END):
            yield _NO_NEWLINE


def _lines(data: bytes) -> list[str]:
    """Lines without their ends; the last one is marked when it had none."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    last = lines.pop()
    return [*lines, last + _NO_END] if last else lines


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def painted(screen: Screen, lines: Iterable[str]) -> Iterator[str]:
    """Escaped for a terminal, in the colours people expect."""
    for line in lines:
        colour = _COLOURS.get(line[:1])
        yield screen.style(shown(line), colour) if colour is not None else shown(line)
