"""Capture: what programs did in a shadow becomes a change set, exactly, whatever program did it.

    touches ──pairs──▶ what the shadow has, path by path, and what of the workspace is gone
            ──sorted─▶ hidden · git's own · refused · by-products · the rest
            ──compared with the workspace──▶ changes

Invariants
  A1  A path is changed only if its image differs: a touch, a copy-up or a rewrite with equal bytes is no change.
  A2  The pre-image is what stands in the workspace now. Where that is younger than the shadow, the path is in `moved`:
      the programs did not see it, and landing over it would lose somebody's work.
  A3  What must not land is named: in `refused` with a reason, in `by_products`, or in `suspicious`. Nothing is dropped
      silently but hidden paths, which programs cannot write, and what happens inside `.git` without consequence.
  A4  A directory goes only if everything in it goes; otherwise it stays, with what stays in it.
  A5  Nothing but regular files is opened.
  A6  A path that the plan itself named is no by-product, whatever the repository ignores: a step asked for it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple, TypeGuard, TypeVar

from holdfast.errors import Blocked, InvalidPath
from holdfast.model.changeset import Change, ChangeSet, change_set
from holdfast.model.image import Image, Seen
from holdfast.model.path import ancestors_of, checked_path, parent_of, printable
from holdfast.model.simulation import ByProduct
from holdfast.workspace.caches import cached_paths
from holdfast.workspace.collector import without_collector
from holdfast.workspace.edits import Edits, batches
from holdfast.workspace.gitrules import Rulebook
from holdfast.workspace.gitside import git_remark, is_git
from holdfast.workspace.hidden import Roots, matches
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.observe import look, observe
from holdfast.workspace.postimage import Posts
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source
from holdfast.workspace.touched import Ground, Remark, Touch, Touched, doors, joined, made
from holdfast.workspace.tree import Snapshot

T = TypeVar("T")
_ITS_DIRECTORY = "its directory is refused"
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NOT_SHOWN = (*_NOT_THERE, errno.EXDEV)  # another file system mounted in the workspace is not part of a shadow


class Captured(NamedTuple):
    """`sources` read from the shadow: it must stand until the change set has been staged."""

    change_set: ChangeSet
    seen: Mapping[str, Seen]
    sources: Mapping[str, Source]
    by_products: tuple[ByProduct, ...]
    suspicious: tuple[Remark, ...]
    refused: tuple[Remark, ...]
    moved: tuple[str, ...]


class Rules(NamedTuple):
    """What decides about a path besides its content."""

    masked: Roots
    gone: Roots  # hidden paths that the plan removes: they do not stay, and nothing may come in their place
    keep: Sequence[str]
    planned: Set[str]  # paths that steps of the plan named; they land although the repository ignores them
    since_ns: int  # changes of the workspace after this are `moved`
    shift: int
    foreign: Mapping[str, tuple[int, int]]  # owners that the shadow could not have


@without_collector
def capture(site: Site, ground: Ground, rules: Rules, base: Snapshot | None = None) -> Captured:
    """`base` is a look at the workspace: what it has read and still stands is not read again, and A2 holds."""
    site.workspace.forget()
    with doors(ground.root) as opened:
        return _Comparison(site, ground, rules, base).run(ground.touches(opened))


class _Comparison:
    def __init__(self, site: Site, ground: Ground, rules: Rules, base: Snapshot | None) -> None:
        self._site, self._rules, self._base = site, rules, base
        self._posts = Posts(ground.root, rules.shift, rules.foreign, ground.programs_own)
        self._ignoring = Rulebook(site.workspace, at_hand=True)
        self._edits = Edits(site.workspace, base, self._posts, self._ignoring)
        self._changes: dict[str, Change] = {}
        self._seen: dict[str, Seen] = {}
        self._sources: dict[str, Source] = {}
        self._suspicious: list[Remark] = []
        self._refused: dict[str, str] = {}
        self._moved: list[str] = []
        # What the workspace has at paths that were touched.
        self._standing: dict[str, os.stat_result | None] = {}
        # Paths of the workspace that the shadow lacks and that stay all the same.
        self._stay: set[str] = set()

    def run(self, all_touched: Iterator[Touched]) -> Captured:
        touches: list[Touch] = []
        for some in batches(map(self._shown, all_touched)):
            touches += self._edits.others(some)
        self._bare = {touch.path for touch in touches if touch.bare}
        # In the order of the walk, which opens each directory once.
        self._standing = {touch.path: self._look(touch.path) for touch in touches}
        pairs = self._sorted(dict(self._pairs(touches)))
        by_products = self._by_products(pairs)
        for path in sorted(pairs.keys() - by_products.keys()):  # a directory before what is in it
            self._compare(path, pairs[path])
        self._take_edits()
        self._keep_what_holds_something()
        return Captured(
            change_set(self._changes.values()),
            _still(self._seen, self._changes),
            _still(self._sources, self._changes),
            _summed(by_products),
            tuple(sorted(self._suspicious)),
            tuple(Remark(path, reason) for path, reason in sorted(self._refused.items())),
            tuple(sorted(path for path in self._moved if path in self._changes)),
        )

    # ── which paths ──

    def _shown(self, touched: Touched) -> Touched:
        """What is not masked. The masked paths that come back although the plan removes them are refused."""
        directory, files, others = touched
        masked, gone = self._rules.masked, self._rules.gone
        if not masked.reach_into(directory):
            return touched
        there = (*(path for _, _, path, _ in files), *(touch.path for touch in others if touch.found is not None))
        for path in there:
            if masked.cover(path) and gone.cover(path):
                self._refused[path] = "the plan removes this hidden path, and a program put something there"
        return Touched(
            directory,
            [found for found in files if not masked.cover(found[2])],
            [touch for touch in others if not masked.cover(touch.path)],
        )

    def _pairs(self, touches: Sequence[Touch]) -> Iterator[tuple[str, os.stat_result | None]]:
        """Every path to compare, with what the shadow has there. Later pairs win: what is there wins over gone."""
        # What went the short way was made again in a directory that was: it is there, and not gone.
        there = self._edits.paths
        replaced = {touch.path for touch in touches if _replaces(touch, self._standing[touch.path])}
        directories = {parent_of(path) for path in replaced}
        # Whatever is below a replaced path is gone with it, and need not be looked at by itself.
        inner = {path for path in directories if path in replaced or not replaced.isdisjoint(ancestors_of(path))}
        for path in replaced:
            if parent_of(path) not in inner:
                yield from ((below, None) for below in self._workspace_below(path) if below not in there)
        for touch in touches:
            if touch.found is not None or self._standing[touch.path] is not None:
                yield touch.path, touch.found

    def _workspace_below(self, path: str) -> Iterator[str]:
        """Everything the workspace has below a directory."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            try:
                folder = self._site.workspace.directory(directory)
                names = self._site.calls.names(folder)
                found = [look(self._site.calls, folder, name) for name in names]
            except OSError as error:
                self._refuse(directory, None, f"what it holds in the workspace cannot be read: {error.strerror}")
                continue
            for name, about in zip(names, found, strict=True):
                below = joined(directory, name)
                yield below
                if _is_directory(about) and not is_git(below):
                    waiting.append(below)

    def _stands(self, path: str) -> os.stat_result | None:
        return self._standing[path] if path in self._standing else self._look(path)

    def _is_there(self, path: str) -> bool:
        return self._stands(path) is not None

    def _look(self, path: str) -> os.stat_result | None:
        above, _, name = path.rpartition("/")
        try:
            return look(self._site.calls, self._site.workspace.directory(above), name)
        except OSError as error:
            if error.errno in _NOT_SHOWN:
                return None
            raise Blocked(
                f"what stands at {printable(path)} in the workspace cannot be seen: {error.strerror}",
                hint="Nothing was changed.",
            ) from error

    def _sorted(self, pairs: dict[str, os.stat_result | None]) -> dict[str, os.stat_result | None]:
        """What may land, by its name alone."""
        kept = {}
        for path, found in pairs.items():
            if self._rules.masked.cover(path):
                if not self._rules.gone.cover(path):
                    self._stay.add(path)
            elif (reason := _reason_of_name(path)) is None:  # so it is not git's
                kept[path] = found
            elif is_git(path):
                self._look_at_git(path, found)
            else:
                self._refuse(path, found, reason)
        return kept

    def _look_at_git(self, path: str, found: os.stat_result | None) -> None:
        if found is None:
            self._stay.add(path)
        what = git_remark(path)
        if what and self._differs(path, found):
            self._suspicious.append(Remark(path, what if found is not None else f"{what}, removed"))

    def _differs(self, path: str, found: os.stat_result | None) -> bool:
        before, reason = self._before(path)
        if found is None or reason:
            return True
        after = self._posts.image(path, found)
        if _is_directory(found) and before is not None and before.image.kind == "directory":
            return False  # what is in it tells
        return not isinstance(after, Image) or before is None or before.image != after

    def _by_products(self, pairs: Mapping[str, os.stat_result | None]) -> dict[str, int]:
        """Ignored paths and caches with their sizes, less what a pattern keeps and the directories that this needs."""
        asked = [f"{path}/" if _is_directory(found or self._stands(path)) else path for path, found in pairs.items()]
        dropped = ignored_paths(self._site, asked, self._ignoring) | cached_paths(pairs, self._is_there)
        ignored = {path for path in dropped if path not in self._rules.planned and not matches(path, self._rules.keep)}
        if not ignored:
            return {}
        needed = {above for path in pairs.keys() - ignored if pairs[path] is not None for above in ancestors_of(path)}
        needed.update(above for holder in self._edits.holders for above in (holder, *ancestors_of(holder)))
        ignored -= needed
        self._stay.update(path for path in ignored if pairs[path] is None)
        return {path: _size(pairs[path]) for path in ignored}

    # ── what changed ──

    def _compare(self, path: str, found: os.stat_result | None) -> None:
        if path in self._refused:
            return
        before, reason = self._before(path)
        bare = found if path in self._bare else None
        if bare is not None and before is not None and self._posts.is_bare(before.image, bare):
            return
        post: Image | None = None
        if found is not None and not reason:
            image = self._posts.image(path, found)
            if isinstance(image, str):
                reason = image
            elif before is not None and before.image == image:
                return
            else:
                post = image
        reason = reason or self._reason(path, before, post, found)
        if reason:
            self._refuse(path, found, reason)
        elif before is not None or post is not None:
            self._change(path, before, post)

    def _take_edits(self) -> None:
        since_ns = self._rules.since_ns
        for path, before, post, source in self._edits.changed:
            if self._refused and parent_of(path) in self._refused:
                self._refused[path] = _ITS_DIRECTORY
                continue
            image, stamp = before
            self._changes[path] = made(Change, (path, image, post, None))
            self._seen[path], self._sources[path] = before, source
            if stamp.ctime_ns > since_ns:
                self._moved.append(path)

    def _change(self, path: str, before: Seen | None, post: Image | None) -> None:
        self._changes[path] = Change(path, before.image if before is not None else None, post)
        if before is not None:
            self._seen[path] = before
            if before.stamp.ctime_ns > self._rules.since_ns:
                self._moved.append(path)
        if post is not None and post.kind == "file":
            self._sources[path] = self._posts.source(path)

    def _before(self, path: str) -> tuple[Seen | None, str]:
        """What the workspace has, or the reason why it cannot be told."""
        above, _, name = path.rpartition("/")
        found = self._standing.get(path)
        folder = self._base.folder(above) if self._base is not None and found is not None else None
        known = folder.seen(name, found) if folder is not None and found is not None else None
        if known is not None:
            return known, ""
        try:
            return observe(self._site.calls, self._site.workspace.directory(above), name), ""
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None, ""
            return None, f"what stands there in the workspace cannot be read: {error.strerror}"
        except Blocked as error:
            return None, error.message

    def _reason(self, path: str, before: Seen | None, post: Image | None, found: os.stat_result | None) -> str:
        """Why a change must not land; empty when nothing speaks against it."""
        old = before.image if before is not None else None
        if found is not None and parent_of(path) in self._refused:
            return _ITS_DIRECTORY
        if before is not None and before.image.kind == "file" and before.stamp.links > 1:
            return f"the workspace has it under {before.stamp.links} names; changing it would separate them"
        if post is None or found is None:
            return ""
        if old is not None and old.kind == post.kind == "directory" and old._replace(mode=post.mode) != post:
            return "the owner or attributes of a directory that exists cannot be changed"
        return self._posts.danger(old, post, found, lambda: self._is_set_gid(parent_of(path)))

    def _is_set_gid(self, directory: str) -> bool:
        """Whether what is made in a directory gets its group, and a directory the bit itself."""
        change = self._changes.get(directory)
        if change is not None and change.post is not None:
            return bool(change.post.mode & stat.S_ISGID)
        found = os.fstat(self._site.workspace.fd) if not directory else self._stands(directory)
        return found is not None and bool(found.st_mode & stat.S_ISGID)

    def _refuse(self, path: str, found: os.stat_result | None, reason: str) -> None:
        self._refused[path] = reason
        if found is None:
            self._stay.add(path)

    def _keep_what_holds_something(self) -> None:
        """A4."""
        for path in sorted(self._stay):
            for above in ancestors_of(path):
                change = self._changes.get(above)
                if change is None or change.pre is None or change.pre.kind != "directory":
                    continue
                if change.post is None:
                    del self._changes[above]
                elif change.post.kind != "directory":
                    del self._changes[above]
                    self._refused[above] = f"it is a directory that holds {printable(path)}, which stays"


def _still(noted: dict[str, T], changes: Mapping[str, Change]) -> dict[str, T]:
    """What was noted for changes that are still to be made."""
    if noted.keys() <= changes.keys():
        return noted
    return {path: value for path, value in noted.items() if path in changes}


def _replaces(touch: Touch, standing: os.stat_result | None) -> bool:
    """Whether what the workspace has below the path is gone, as far as the shadow has nothing there."""
    return _is_directory(standing) and (touch.opaque or not _is_directory(touch.found))


def _is_directory(found: os.stat_result | None) -> TypeGuard[os.stat_result]:
    return found is not None and stat.S_ISDIR(found.st_mode)


def _reason_of_name(path: str) -> str | None:
    try:
        checked_path(path)
    except InvalidPath as error:
        return error.message.rpartition(": ")[2]
    return None


def _size(found: os.stat_result | None) -> int:
    return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0


def _summed(sizes: Mapping[str, int]) -> tuple[ByProduct, ...]:
    """Topmost paths only, each with all that is below."""
    totals: dict[str, int] = {}
    for path, size in sizes.items():
        top = next((above for above in ancestors_of(path) if above in sizes), path)
        totals[top] = totals.get(top, 0) + size
    return tuple(ByProduct(path, size) for path, size in sorted(totals.items()))
