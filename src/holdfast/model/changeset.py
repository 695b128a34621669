"""The change set: the exact difference between a workspace and what it shall become.

Invariants
  S1  One change a path, sorted by the path's bytes; `pre != post`.
  S2  The digest covers every image of every change and of every read; tampering shows.
  S3  Nothing here says who asked, or how the difference was made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import add, itemgetter
from typing import NamedTuple, TypeVar

from holdfast.model.canonical import canonical_rows, quoted
from holdfast.model.image import Image, image_text

_ROWS_AT_ONCE = 512
# What stands in a canonical text as it is.
_UNESCAPED = bytes(n for n in range(32, 127) if chr(n) not in '"\\')


class Change(NamedTuple):
    """One path: what must be there (`pre`), what will be there (`post`); None is nothing.

    `origin` names the path whose inode moves here, when the change is half of a move.
    """

    path: str
    pre: Image | None
    post: Image | None
    origin: str | None = None


def files_in(changes: Sequence[Change]) -> int:
    """How many files and links: a folder is none, and one that moves is one, whatever its name."""
    left = {change.origin for change in changes if change.origin is not None}
    images = ((change.path, change.post or change.pre) for change in changes)
    return sum(image is not None and image.kind != "directory" and path not in left for path, image in images)


class Observation(NamedTuple):
    """A path the plan relied on without changing it."""

    path: str
    image: Image


class ChangeSet(NamedTuple):
    changes: tuple[Change, ...]
    reads: tuple[Observation, ...]
    digest: str
    base: str

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def paths(self) -> Iterator[str]:
        return (change.path for change in self.changes)


_Item = TypeVar("_Item", Change, Observation)


def change_set(changes: Iterable[Change], reads: Iterable[Observation] = ()) -> ChangeSet:
    """Sort, check and seal."""
    ordered = tuple(_by_path(changes))
    seen_reads = tuple(_by_path(set(reads)))
    if len({change[0] for change in ordered}) != len(ordered):
        twice = next(after[0] for before, after in pairwise(ordered) if before[0] == after[0])
        raise ValueError(f"two changes for one path: {twice!r}")
    for path, pre, post, _ in ordered:
        if pre == post:
            raise ValueError(f"a change that changes nothing: {path!r}")
    return ChangeSet(ordered, seen_reads, *_digests(ordered, seen_reads))


def differing_paths(before: ChangeSet, after: ChangeSet) -> tuple[str, ...]:
    """The paths that end otherwise in one than in the other; both stand on one base."""
    old = {change.path: change.post for change in before.changes}
    new = {change.path: change.post for change in after.changes}
    nothing = object()
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path, nothing) != new.get(path, nothing)))


def images_digest(images: Iterable[tuple[str, Image | None]]) -> str:
    """One digest over what stands at some paths: the proof that a rollback restored them."""
    ordered = sorted(images, key=lambda row: _path_bytes(row[0]))
    digest = _Listed("[")
    for start in range(0, len(ordered), _ROWS_AT_ONCE):
        some = ordered[start : start + _ROWS_AT_ONCE]
        digest.add(",".join([f"[{quoted(path)},{_text(image)}]" for path, image in some]))
    return digest.closed("]")


def _digests(changes: tuple[Change, ...], reads: tuple[Observation, ...]) -> tuple[str, str]:
    """Over `[changes, reads]`, and over the same without what will be; each image is spelled once."""
    whole, base = _Listed("[["), _Listed("[[")
    for start in range(0, len(changes), _ROWS_AT_ONCE):
        some = changes[start : start + _ROWS_AT_ONCE]
        known, rest = _edit_texts(some) or _texts(some)
        base.add("],".join(known) + "]")
        whole.add(",".join(map(add, known, rest)))
    seen = canonical_rows(reads).decode("ascii")
    return whole.closed(f"],{seen}]"), base.closed(f"],{seen}]")


def _texts(changes: Sequence[Change]) -> tuple[list[str], list[str]]:
    """The rows of changes without their ends, and the ends."""
    known = [f"[{quoted(path)},{_text(pre)}" for path, pre, _, _ in changes]
    ends = [f",{_text(post)},{'null' if origin is None else quoted(origin)}]" for _, _, post, origin in changes]
    return known, ends


def _edit_texts(changes: Sequence[Change]) -> tuple[list[str], list[str]] | None:
    """The same, where all are edits of files without attributes, and nothing needs to be escaped; else None."""
    spelled: list[str] = []
    known: list[str] = []
    ends: list[str] = []
    for path, pre, post, origin in changes:
        if pre is None or post is None or origin is not None:
            return None
        kind, mode, uid, gid, size, digest, target, xattrs = pre
        to_kind, to_mode, to_uid, to_gid, to_size, to_digest, to_target, to_xattrs = post
        if kind != "file" or to_kind != "file" or target or to_target or xattrs or to_xattrs:
            return None
        spelled += path, digest, to_digest
        known.append(f'["{path}",["file",{mode},{uid},{gid},{size},"{digest}","",[]]')
        ends.append(f',["file",{to_mode},{to_uid},{to_gid},{to_size},"{to_digest}","",[]],null]')
    # Seen of all at once: to look for it in each takes as long as the rest.
    escaped = "".join(spelled).encode("utf-8", "surrogatepass").translate(None, _UNESCAPED)
    return (known, ends) if not escaped else None


def _text(image: Image | None) -> str:
    """`image_text`, spelled out for what nearly all are: a file without attributes."""
    if image is None:
        return "null"
    kind, mode, uid, gid, size, digest, target, xattrs = image
    if kind == "file" and not target and not xattrs:
        return f'["file",{mode},{uid},{gid},{size},{quoted(digest)},"",[]]'
    return image_text(image)


class _Listed:
    """SHA-256 over rows with commas between, some at a time: the text of 100,000 of them would be 40 MB."""

    def __init__(self, opening: str) -> None:
        self._sha256 = hashlib.sha256(opening.encode("ascii"))
        self._comma = ""

    def add(self, rows: str) -> None:
        self._sha256.update((self._comma + rows).encode("ascii"))
        self._comma = ","

    def closed(self, ending: str) -> str:
        self._sha256.update(ending.encode("ascii"))
        return self._sha256.hexdigest()


def _by_path(items: Iterable[_Item]) -> list[_Item]:
    """S1. In ASCII the order of characters is the order of bytes."""
    known = list(items)
    if "".join([item[0] for item in known]).isascii():
        return sorted(known, key=itemgetter(0))
    return sorted(known, key=lambda item: _path_bytes(item[0]))


def _path_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
