"""A change set laid over a workspace that moved on since it was made: three-way, path by path, or not at all.

For each path, with what stood there when the work began (before), what stands there now, and what the work leaves:

    now as before ........................ as proposed
    now as proposed ...................... somebody did just that; nothing to do
    files, changed on both sides ......... content merged by lines, mode, owner and attributes each by itself
    directories, changed on both sides ... the same without content
    everything else ...................... a collision, which says why, and shows the lines where texts meet

Invariants
  Y1  Laying changes nothing; it reads the workspace, and returns what would have to change, on what stands now.
  Y2  All collisions are found and named. With one of them there is no change set to land.
  Y3  A directory goes only if everything in it goes; what stays because the repository ignores it keeps it.
  Y4  Bytes that are merged were checked against their digests, all three of them.
  Y5  Landing two change sets that do not collide gives the same tree in both orders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from blake3 import blake3

from holdfast.errors import Blocked, Conflict, Tampering
from holdfast.model.changeset import Change, ChangeSet, Observation, change_set
from holdfast.model.image import Image, Seen
from holdfast.model.path import parent_of, printable
from holdfast.store.contents import TEXT_LIMIT, is_text
from holdfast.workspace.flip import DISPLACED
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.marking import marked_hunks
from holdfast.workspace.merge import Merge, by_lines
from holdfast.workspace.observe import observe
from holdfast.workspace.shelf import checked_bytes
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, CopyOf, Source
from holdfast.workspace.tree import Snapshot

# From a digest to a descriptor of the proposed bytes, which the reader closes.
Contents = Callable[[str], int]
MOST_HUNKS = 4_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# What a merge treats each by itself besides the content, and what a person calls it.
_FIELDS = (("mode", "mode"), ("uid", "owner"), ("gid", "group"), ("xattrs", "attributes"))


class Collision(NamedTuple):
    """A path where two people's work cannot both stand. `hunks` are the lines where they meet, bounded."""

    path: str
    why: str
    hunks: str = ""


class Laid(NamedTuple):
    """`already`: paths that stand as proposed. `stays`: directories that were to go, and hold something ignored."""

    change_set: ChangeSet
    seen: dict[str, Seen]
    sources: dict[str, Source]
    merged: tuple[str, ...]
    already: tuple[str, ...]
    stays: tuple[str, ...]
    collisions: tuple[Collision, ...]


def lay(
    site: Site,
    proposed: ChangeSet,
    contents: Contents,
    base: Snapshot,
    said: Callable[[str], str] = str,
    merge: Merge = by_lines,
) -> Laid:
    """What must change in the workspace as `base` saw it; Conflict when it is not that any more.

    `said` gives the lines that are shown of a collision their last form, such as a masked one.
    """
    return _Laying(site, contents, base, said, merge).run(proposed)


class _Laying:
    def __init__(
        self, site: Site, contents: Contents, base: Snapshot, said: Callable[[str], str], merge: Merge
    ) -> None:
        self._site, self._contents, self._base, self._said, self._merge_of = site, contents, base, said, merge
        self._changes: dict[str, Change] = {}
        self._seen: dict[str, Seen] = {}
        self._sources: dict[str, Source] = {}
        self._merged: list[str] = []
        self._already: list[str] = []
        self._stays: list[str] = []
        self._collisions: dict[str, Collision] = {}

    def run(self, proposed: ChangeSet) -> Laid:
        self._site.workspace.forget()
        for change in proposed.changes:
            self._lay(change)
        reads = [self._read(read) for read in proposed.reads]
        self._empty_what_goes()
        self._require_parents()
        changes = () if self._collisions else self._changes.values()
        return Laid(
            change_set(changes, [read for read in reads if read is not None]),
            self._seen,
            self._sources,
            tuple(self._merged),
            tuple(self._already),
            tuple(self._stays),
            tuple(self._collisions[path] for path in sorted(self._collisions)),
        )

    # ── what stands ──

    def _now(self, path: str) -> Image | None:
        """What stands there, if the snapshot saw the same."""
        try:
            directory = self._site.workspace.directory(parent_of(path))
            seen = observe(self._site.calls, directory, path.rpartition("/")[2])
        except OSError as error:
            if error.errno not in DISPLACED:
                raise
            seen = None
        image = seen.image if seen is not None else None
        if image != self._base.get(path):
            raise Conflict(f"{printable(path)} changes while it is looked at", hint="Nothing was changed.")
        if seen is not None:
            self._seen[path] = seen
        return image

    def _lay(self, change: Change) -> None:
        path = change.path
        try:
            now = self._now(path)
        except PermissionError as error:
            self._collide(path, f"cannot be read: {error.strerror}")
            return
        except Blocked as error:  # a device, a FIFO or a socket stands there
            self._collide(path, error.message)
            return
        if now == change.post:
            self._already.append(path)
        elif now == change.pre:
            self._take(path, now, change.post)
        else:
            self._both(change, now)

    def _read(self, read: Observation) -> Observation | None:
        if read.path in self._changes:
            return None
        if self._now(read.path) == read.image:
            return read
        self._collide(read.path, "was relied on, and changed since")
        return None

    # ── one side, or both ──

    def _take(self, path: str, now: Image | None, post: Image | None) -> None:
        self._changes[path] = Change(path, now, post)
        if post is None or post.kind != "file":
            return
        if now is not None and now.digest == post.digest:
            self._sources[path] = CopyOf(lambda: self._opened(path))
        elif post.size == 0:
            self._sources[path] = Bytes(b"")
        else:
            self._sources[path] = CopyOf(lambda digest=post.digest: self._contents(digest))  # type: ignore[misc]

    def _both(self, change: Change, now: Image | None) -> None:
        path, before, post, _ = change
        if now is None:
            self._collide(path, "was deleted since, and is changed by the proposal")
        elif post is None:
            self._collide(path, "was changed since, and is deleted by the proposal")
        elif before is None:
            hunks = self._hunks(path, None, now, post)
            self._collide(path, f"was made since, as another {now.kind} than the proposal makes", hunks)
        elif before.kind == now.kind == post.kind != "symlink":
            self._merge(path, before, now, post)
        elif before.kind == now.kind == post.kind:
            self._collide(path, f"is a link that leads to {printable(now.target)} now, and was changed by both")
        else:
            self._collide(path, f"was a {before.kind}, is a {now.kind} now, and the proposal makes it a {post.kind}")

    def _merge(self, path: str, before: Image, now: Image, post: Image) -> None:
        dressed = now
        for field, word in _FIELDS:
            old, mine, theirs = (getattr(image, field) for image in (before, now, post))
            if mine not in (old, theirs) and theirs != old:
                self._collide(path, f"its {word} was changed by both")
                return
            if mine == old:
                dressed = dressed._replace(**{field: theirs})
        if post.digest in (before.digest, now.digest):
            self._take_merged(path, now, dressed)
        elif now.digest == before.digest:
            self._take_merged(path, now, dressed._replace(digest=post.digest, size=post.size))
        else:
            self._merge_texts(path, (before, now, post), dressed)

    def _take_merged(self, path: str, now: Image, image: Image) -> None:
        if image == now:
            self._already.append(path)
            return
        self._take(path, now, image)
        self._merged.append(path)

    def _merge_texts(self, path: str, three: tuple[Image, Image, Image], dressed: Image) -> None:
        texts = self._texts(path, *three)
        data = self._merge_of(path, *texts) if texts is not None else None
        if data is None:
            why = "was edited since, in the same place" if texts is not None else "was changed by both, and is no text"
            self._collide(path, why, self._hunks(path, *three) if texts is not None else "")
            return
        image = dressed._replace(size=len(data), digest=blake3(data).hexdigest())
        self._take_merged(path, three[1], image)
        if path in self._changes:
            self._sources[path] = Bytes(data)

    # ── bytes ──

    def _texts(self, path: str, before: Image | None, now: Image, post: Image) -> tuple[bytes, bytes, bytes] | None:
        """All three, checked (Y4); None where one is no text of ordinary size."""
        images = [image for image in (before, now, post) if image is not None]
        if any(image.kind != "file" or image.size > TEXT_LIMIT for image in images):
            return None
        old = self._proposed(before) if before is not None else b""
        mine = checked_bytes(self._site.calls, self._opened(path), now)
        if mine is None:
            raise Conflict(f"{printable(path)} changes while it is read", hint="Nothing was changed.")
        texts = old, mine, self._proposed(post)
        return texts if all(map(is_text, texts)) else None

    def _proposed(self, image: Image) -> bytes:
        if image.size == 0:
            return b""
        data = checked_bytes(self._site.calls, self._contents(image.digest), image)
        if data is None:
            raise Tampering(f"blob {image.digest[:12]} does not hold what its name says")
        return data

    def _hunks(self, path: str, before: Image | None, now: Image, post: Image) -> str:
        texts = self._texts(path, before, now, post)
        return marked_hunks(*texts, MOST_HUNKS, self._said) if texts is not None else ""

    def _opened(self, path: str) -> int:
        return self._site.calls.open_beneath(path, _READ, self._site.workspace.fd)

    # ── what the changes need around them ──

    def _empty_what_goes(self) -> None:
        """Y3, deepest first."""
        for path in sorted(self._changes, reverse=True):
            change = self._changes[path]
            if change.pre is None or change.pre.kind != "directory" or _is_directory(change.post):
                continue
            staying = [name for name in self._names(path) if not self._goes(f"{path}/{name}")]
            if not staying:
                continue
            if change.post is None and self._are_ignored([f"{path}/{name}" for name in staying]):
                del self._changes[path]
                self._stays.append(path)
            else:
                self._collide(path, f"holds {printable(staying[0])}, which the proposal does not know")

    def _names(self, path: str) -> list[str]:
        return sorted(self._site.calls.names(self._site.workspace.directory(path)))

    def _goes(self, path: str) -> bool:
        change = self._changes.get(path)
        return change is not None and change.post is None

    def _are_ignored(self, paths: list[str]) -> bool:
        """A directory that stays for what is ignored in it counts as ignored itself."""
        asked = [path for path in paths if path not in self._stays]
        images = {path: self._base.get(path) for path in asked}
        spelled = [f"{path}/" if _is_directory(images[path]) else path for path in asked]
        return ignored_paths(self._site, spelled) >= set(asked)

    def _require_parents(self) -> None:
        for path, change in self._changes.items():
            above = parent_of(path)
            if change.post is None or not above:
                continue
            there = self._changes[above].post if above in self._changes else self._base.get(above)
            if not _is_directory(there):
                self._collide(path, f"{printable(above)}, where it shall stand, is no directory any more")

    def _collide(self, path: str, why: str, hunks: str = "") -> None:
        self._collisions.setdefault(path, Collision(path, why, hunks))


def _is_directory(image: Image | None) -> bool:
    return image is not None and image.kind == "directory"
