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


def images_digest(images: Iterable[tuple[str, Image | None]]) -> str:
    """One digest over what stands at some paths: the proof that a rollback restored them."""
    ordered = sorted(images, key=lambda row: row[0].encode("utf-8", "surrogateescape"))
    return _sha256(_listed([f"[{quoted(path)},{image_text(image)}]" for path, image in ordered]))


def _digests(changes: tuple[Change, ...], reads: tuple[Observation, ...]) -> tuple[str, str]:
    """Over `[changes, reads]`, and over the same without what will be; each image is spelled once."""
    whole, base = [], []
    for path, pre, post, origin in changes:
        known = f"[{quoted(path)},{image_text(pre)}"
        base.append(known + "]")
        whole.append(f"{known},{image_text(post)},{'null' if origin is None else quoted(origin)}]")
    seen = canonical_rows(reads).decode("ascii")
    return _sha256(f"[{_listed(whole)},{seen}]"), _sha256(f"[{_listed(base)},{seen}]")


def _listed(rows: list[str]) -> str:
    return f"[{','.join(rows)}]"


def _path_bytes(item: Change | Observation) -> bytes:
    return item.path.encode("utf-8", "surrogateescape")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()
