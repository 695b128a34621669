"""The change set: the exact difference between a workspace and what it shall become.

Invariants
  S1  One change a path, sorted by the path's bytes; `pre != post`.
  S2  The digest covers every image of every change and of every read; tampering shows.
  S3  Nothing here says who asked, or how the difference was made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.model.canonical import canonical_rows, quoted
from holdfast.model.image import Image, image_text

_ROWS_AT_ONCE = 512


class Change(NamedTuple):
    """One path: what must be there (`pre`), what will be there (`post`); None is nothing.

    `origin` names the path whose inode moves here, when the change is half of a move.
    """

    path: str
    pre: Image | None
    post: Image | None
    origin: str | None = None


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


def change_set(changes: Iterable[Change], reads: Iterable[Observation] = ()) -> ChangeSet:
    """Sort, check and seal."""
    ordered = tuple(sorted(changes, key=_path_bytes))
    seen_reads = tuple(sorted(set(reads), key=_path_bytes))
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.path == after.path:
            raise ValueError(f"two changes for one path: {before.path!r}")
    for change in ordered:
        if change.pre == change.post:
            raise ValueError(f"a change that changes nothing: {change.path!r}")
    return ChangeSet(ordered, seen_reads, *_digests(ordered, seen_reads))


def differing_paths(before: ChangeSet, after: ChangeSet) -> tuple[str, ...]:
    """The paths that end otherwise in one than in the other; both stand on one base."""
    old = {change.path: change.post for change in before.changes}
    new = {change.path: change.post for change in after.changes}
    nothing = object()
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path, nothing) != new.get(path, nothing)))


def images_digest(images: Iterable[tuple[str, Image | None]]) -> str:
    """One digest over what stands at some paths: the proof that a rollback restored them."""
    ordered = sorted(images, key=lambda row: row[0].encode("utf-8", "surrogateescape"))
    digest = _Listed("[")
    for path, image in ordered:
        digest.add(f"[{quoted(path)},{image_text(image)}]")
    return digest.closed("]")


def _digests(changes: tuple[Change, ...], reads: tuple[Observation, ...]) -> tuple[str, str]:
    """Over `[changes, reads]`, and over the same without what will be; each image is spelled once."""
    whole, base = _Listed("[["), _Listed("[[")
    for path, pre, post, origin in changes:
        known = f"[{quoted(path)},{image_text(pre)}"
        base.add(known + "]")
        whole.add(f"{known},{image_text(post)},{'null' if origin is None else quoted(origin)}]")
    seen = canonical_rows(reads).decode("ascii")
    return whole.closed(f"],{seen}]"), base.closed(f"],{seen}]")


class _Listed:
    """SHA-256 over rows with commas between, some at a time: the text of 100,000 of them would be 40 MB."""

    def __init__(self, opening: str) -> None:
        self._sha256 = hashlib.sha256(opening.encode("ascii"))
        self._rows: list[str] = []
        self._comma = ""

    def add(self, row: str) -> None:
        self._rows.append(row)
        if len(self._rows) == _ROWS_AT_ONCE:
            self._digest_rows()

    def closed(self, ending: str) -> str:
        self._digest_rows()
        self._sha256.update(ending.encode("ascii"))
        return self._sha256.hexdigest()

    def _digest_rows(self) -> None:
        if self._rows:
            self._sha256.update((self._comma + ",".join(self._rows)).encode("ascii"))
            self._rows.clear()
            self._comma = ","


def _path_bytes(item: Change | Observation) -> bytes:
    return item.path.encode("utf-8", "surrogateescape")
