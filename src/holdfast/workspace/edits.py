"""The short way of a capture, a directory at a time: what nearly all captures are made of.

An edit is a path with a plain file in the shadow and a plain file in the workspace that a look at the workspace has
read and that still stands as it was then. Nothing of the workspace is read for it again.
A directory that was only passed through on the way to one, and stands as it was, is no change at all.
Everything else is left to the long way of `capture`, which gives the same answers and asks about everything.

Invariants
  E3  What is called an edit here has one name on both sides, an ordinary path that no rule can ignore, no power in
      its mode, and no attributes but those the kernel notes on whatever an overlay copies up.
  E5  Touches are taken as the walk finds them, some at a time (`AT_ONCE`): fewer than the descriptors of directories
      that are kept, so that each directory is opened once on each side.

One kind of work is done for all of them before the next begins: that was a fifth faster than path by path.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

from holdfast.disk.confined import CACHE, Root
from holdfast.model.image import Image, Seen, Stamp
from holdfast.model.path import MAX_NAME_BYTES, MAX_PATH_BYTES, is_ordinary
from holdfast.workspace.block import Block, row_of
from holdfast.workspace.gitrules import Rulebook
from holdfast.workspace.postimage import Found, Posts
from holdfast.workspace.staging import Bytes
from holdfast.workspace.touched import Touch, made
from holdfast.workspace.tree import Snapshot

AT_ONCE = CACHE - 8
# Of a directory, so that what is in it has a path that is not too long.
_LONGEST = MAX_PATH_BYTES - MAX_NAME_BYTES - 1
_FORM = stat.S_IFMT(0xFFFF) | stat.S_ISUID | stat.S_ISGID
_PLAIN = stat.S_IFREG
_RULES = ".gitignore"
# What the shadow has, and where the look has it.
_Place: TypeAlias = "tuple[Found, _Known, int]"
# A path, what the workspace has there, what the shadow has instead, and its bytes.
Edit: TypeAlias = tuple[str, Seen, Image, Bytes]


class _Known:
    """One directory of the look. Few of its names are asked for, so they are found by halving."""

    __slots__ = ("_names", "block")

    def __init__(self, block: Block) -> None:
        self.block, self._names = block, block.names()

    def positions(self, names: list[str]) -> list[int]:
        """Where names in ASCII are; negative for nowhere."""
        known, most = self._names, len(self._names)
        places = []
        for name in "/".join(names).encode("ascii").split(b"/"):
            at = bisect_left(known, name)
            places.append(at if at < most and known[at] == name else -1)
        return places

    def has_rules(self) -> bool:
        return self.positions([_RULES])[0] >= 0

    def below(self, position: int, standing: os.stat_result) -> _Known | None:
        """A directory in it that still stands as the look has read it, without attributes; None for any other."""
        block = self.block.children.get(position)
        if block is None or position in self.block.extras():
            return None
        return _Known(block) if self.block.has_rows(position, [row_of(standing)]) else None


class Edits:
    """What was found on the short way: `paths` went it to the end, `changed` are the edits that differ."""

    def __init__(self, workspace: Root, base: Snapshot, posts: Posts, rules: Rulebook) -> None:
        self._workspace, self._posts, self._rules = workspace, posts, rules
        root = base.folder("")
        self._known: dict[str, _Known | None] = {"": None if root is None else _Known(root.block)}
        self.changed: list[Edit] = []
        self.paths: set[str] = set()
        # Directories that hold an edit, or one that was passed through.
        self.holders: set[str] = set()

    def others(self, touches: Sequence[Touch]) -> list[Touch]:
        """Those of a few touches that must go the long way, in their order."""
        files: dict[str, list[Found]] = {}
        directories: dict[str, list[Found]] = {}
        for path, found, opaque, bare in touches:
            if found is None:
                continue
            above, _, name = path.rpartition("/")
            if found.st_mode & _FORM == _PLAIN and found.st_nlink == 1:
                files.setdefault(above, []).append((above, name, path, found))
            elif bare and not opaque:
                directories.setdefault(above, []).append((above, name, path, found))
        if directories:
            self._pass_through(self._places(directories))
        if files:
            self._note(self._standing(self._places(files)))
        return [touch for touch in touches if touch[0] not in self.paths]

    def _places(self, groups: dict[str, list[Found]]) -> list[_Place]:
        """What the look has read of some paths: of those with ordinary names that no rule can ignore."""
        return [place for directory, group in groups.items() for place in self._known_in(directory, group)]

    def _pass_through(self, places: list[_Place]) -> None:
        """Directories without attributes that stand in the workspace as they do in the shadow."""
        open_directory, look = self._workspace.directory, self._workspace.calls.fstat
        standing = []
        for place in places:
            try:
                standing.append((place, look(open_directory(place[0][2]))))
            except OSError:
                continue  # whatever is in the way, the long way finds the words for it
        for ((above, _, path, found), known, position), about in standing:
            below = known.below(position, about)
            if below is not None and self._posts.is_like(found, about):
                self.paths.add(path)
                self.holders.add(above)
                self._known[path] = below
                # A directory that stands has the names that the look saw, and so the rules or none.
                self._rules.enter(path, has_rules=below.has_rules())

    def _known_in(self, directory: str, files: list[Found]) -> list[_Place]:
        known, names = self._look_at(directory), [name for _, name, _, _ in files]
        if known is None or len(directory) > _LONGEST:
            return []
        if not is_ordinary("/".join(names)):  # or they are too long for all at once
            files = [found for found in files if is_ordinary(found[1])]
            names = [name for _, name, _, _ in files]
            if not names:
                return []
        doubtful = self._rules.here(directory).may(names)
        places = zip(files, known.positions(names), strict=True)
        return [(found, known, at) for found, at in places if at >= 0 and found[1] not in doubtful]

    def _standing(self, places: list[_Place]) -> list[tuple[Found, Seen]]:
        """What the look has read and still stands."""
        look, directory = self._workspace.calls.stat, self._workspace.directory
        standing = []
        at, folder = "", self._workspace.fd
        for place in places:
            above, name, _, _ = place[0]
            try:
                if above != at:
                    at, folder = above, directory(above)
                standing.append((place, look(name, dir_fd=folder, follow_symlinks=False)))
            except OSError:
                at, folder = "", self._workspace.fd
        return [(found, seen) for found, seen in map(_still, standing) if seen is not None]

    def _note(self, files: list[tuple[Found, Seen]]) -> None:
        read = self._posts.plain([found for found, _ in files])
        for ((directory, _, path, _), before), plain in zip(files, read, strict=True):
            if plain is not None:
                self.paths.add(path)
                self.holders.add(directory)
                image, data = plain
                if image != before[0]:
                    self.changed.append((path, before, image, data))

    def _look_at(self, directory: str) -> _Known | None:
        """What is known of a directory with an ordinary path; None where there was none that could be read."""
        if directory in self._known:
            return self._known[directory]
        if not is_ordinary(directory):
            return None
        known, path = self._known[""], ""
        for name in directory.split("/"):
            path = f"{path}/{name}" if path else name
            if path not in self._known:
                block = None if known is None else known.block.children.get(known.positions([name])[0])
                self._known[path] = None if block is None else _Known(block)
            known = self._known[path]
        return known


def _still(standing: tuple[_Place, os.stat_result]) -> tuple[Found, Seen | None]:
    """What the look has read of a plain file with one name and without attributes, if it has that stat row still."""
    (found, known, position), about = standing
    row = row_of(about)
    inode, size, mtime_ns, ctime_ns, mode, _, _ = row
    if mode & _FORM != _PLAIN or about.st_nlink != 1:
        return found, None
    image = known.block.standing(position, row)
    if image is None or image.xattrs:
        return found, None
    # As `stamp_of`: one number for two that are alike.
    stamp = made(Stamp, (inode, size, mtime_ns, mtime_ns if mtime_ns == ctime_ns else ctime_ns, 1))
    return found, made(Seen, (image, stamp))
