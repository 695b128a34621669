"""The short way of a capture, a directory at a time: what nearly all captures are made of.

An edit is a path with a plain file in the shadow and a plain file in the workspace that a look at the workspace has
read and that still stands as it was then. Nothing of the workspace is read for it again.
A directory that was only passed through on the way to one, and stands as it was, is no change at all.
Everything else is left to the long way of `capture`, which gives the same answers and asks about everything.

Invariants
  E3  What is called an edit here has one name on both sides, an ordinary path that no rule can ignore, no power in
      its mode, and no attributes but those the kernel notes on whatever an overlay copies up.
  E5  Directories are taken as the walk finds them, some at a time (`AT_ONCE`): fewer than the descriptors of
      directories that are kept, so that each is opened once on each side; and not many files at once are open.

One kind of work is done for all of them before the next begins: that was a fifth faster than path by path.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TypeAlias

from holdfast.disk.confined import CACHE, Root
from holdfast.model.image import Image, Seen, Stamp
from holdfast.model.path import MAX_NAME_BYTES, MAX_PATH_BYTES, is_ordinary
from holdfast.workspace.block import Block, row_of
from holdfast.workspace.gitrules import Rulebook
from holdfast.workspace.postimage import Posts
from holdfast.workspace.staging import Bytes
from holdfast.workspace.touched import Found, Touch, Touched, is_plain, made
from holdfast.workspace.tree import Snapshot

AT_ONCE = CACHE - 8
# Of a directory, so that what is in it has a path that is not too long.
_LONGEST = MAX_PATH_BYTES - MAX_NAME_BYTES - 1
_RULES = ".gitignore"
# What the shadow has in one directory, what the look has of it, and where.
_Places: TypeAlias = "tuple[list[Found], _Known, list[int]]"
# A path, what the workspace has there, what the shadow has instead, and its bytes.
Edit: TypeAlias = tuple[str, Seen, Image, Bytes]


class _Known:
    """One directory of the look. Few of its names are asked for, so they are found by halving."""

    __slots__ = ("_extras", "_names", "block")

    def __init__(self, block: Block) -> None:
        self.block, self._names = block, block.names()
        self._extras: Mapping[int, bytes] | None = None

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
        if self._extras is None:
            self._extras = self.block.extras()
        if block is None or position in self._extras:
            return None
        return _Known(block) if self.block.has_rows(position, [row_of(standing)]) else None


class Edits:
    """What was found on the short way: `paths` went it to the end, `changed` are the edits that differ."""

    def __init__(self, workspace: Root, base: Snapshot | None, posts: Posts, rules: Rulebook) -> None:
        """Without a look there is no short way."""
        self._workspace, self._posts, self._rules = workspace, posts, rules
        root = base.folder("") if base is not None else None
        self._known: dict[str, _Known | None] = {"": None if root is None else _Known(root.block)}
        self.changed: list[Edit] = []
        self.paths: set[str] = set()
        # Directories that hold an edit, or one that was passed through.
        self.holders: set[str] = set()

    def others(self, some: Sequence[Touched]) -> list[Touch]:
        """What of a few directories must go the long way, in their order."""
        passed: dict[str, list[Found]] = {}
        for touched in some:
            for path, found, opaque, bare in touched.others:
                if bare and not opaque and found is not None:
                    above, _, name = path.rpartition("/")
                    passed.setdefault(above, []).append((above, name, path, found))
        if passed:
            self._pass_through(self._places(passed.items()))
        if places := self._places([(directory, files) for directory, files, _ in some if files]):
            self._note(self._standing(places))
        return [touch for touched in some for touch in self._left_of(touched)]

    def _left_of(self, touched: Touched) -> list[Touch]:
        done = self.paths
        left = [touch for touch in touched.others if touch[0] not in done]
        left += [Touch(path, found) for _, _, path, found in touched.files if path not in done]
        return left

    def _pass_through(self, places: list[_Places]) -> None:
        """Directories without attributes that stand in the workspace as they do in the shadow."""
        open_directory, look = self._workspace.directory, self._workspace.calls.fstat
        standing = []
        for directories, known, positions in places:
            for directory, position in zip(directories, positions, strict=True):
                try:
                    standing.append((directory, known, position, look(open_directory(directory[2]))))
                except OSError:
                    continue  # whatever is in the way, the long way finds the words for it
        for (above, _, path, found), known, position, about in standing:
            below = known.below(position, about)
            if below is not None and self._posts.is_like(found, about):
                self.paths.add(path)
                self.holders.add(above)
                self._known[path] = below
                # A directory that stands has the names that the look saw, and so the rules or none.
                self._rules.enter(path, has_rules=below.has_rules())

    def _places(self, groups: Iterable[tuple[str, list[Found]]]) -> list[_Places]:
        """What the look has read of some paths: of those with ordinary names that no rule can ignore."""
        return [places for directory, found in groups if (places := self._known_in(directory, found)) is not None]

    def _known_in(self, directory: str, found: list[Found]) -> _Places | None:
        known, names = self._look_at(directory), [name for _, name, _, _ in found]
        if known is None or len(directory) > _LONGEST:
            return None
        if not is_ordinary("/".join(names)):  # or they are too long for all at once
            found = [one for one in found if is_ordinary(one[1])]
            names = [name for _, name, _, _ in found]
            if not names:
                return None
        doubtful, positions = self._rules.here(directory).may(names), known.positions(names)
        if doubtful or min(positions) < 0:
            kept = [n for n, at in enumerate(positions) if at >= 0 and names[n] not in doubtful]
            found, positions = [found[n] for n in kept], [positions[n] for n in kept]
        return found, known, positions

    def _standing(self, places: list[_Places]) -> list[tuple[Found, Seen]]:
        """What the look has read and still stands."""
        looked = [(found, known, positions, self._looks(found)) for found, known, positions in places if found]
        return [pair for one in looked for pair in _still(*one)]

    def _looks(self, found: list[Found]) -> list[os.stat_result | None]:
        """What the workspace has at some paths of one directory; None for whatever cannot be seen."""
        look = self._workspace.calls.stat
        abouts: list[os.stat_result | None] = []
        try:
            folder = self._workspace.directory(found[0][0])
            for _, name, _, _ in found:
                abouts.append(look(name, dir_fd=folder, follow_symlinks=False))
        except OSError:
            # It, and what comes behind it: the long way asks again.
            abouts += [None] * (len(found) - len(abouts))
        return abouts

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


def _still(
    found: list[Found], known: _Known, positions: list[int], abouts: list[os.stat_result | None]
) -> Iterator[tuple[Found, Seen]]:
    """What the look has read of plain files without attributes, of those that have their stat rows still."""
    plain = [about for about in abouts if about is not None and is_plain(about)]
    if len(plain) < len(abouts):
        kept = [about is not None and is_plain(about) for about in abouts]
        found, positions = list(compress(found, kept)), list(compress(positions, kept))
    rows = list(map(row_of, plain))
    for one, row, image in zip(found, rows, known.block.files_standing(positions, rows), strict=True):
        if image is not None:
            inode, size, mtime_ns, ctime_ns, _, _, _ = row
            # As `stamp_of`: one number for two that are alike.
            stamp = made(Stamp, (inode, size, mtime_ns, mtime_ns if mtime_ns == ctime_ns else ctime_ns, 1))
            yield one, made(Seen, (image, stamp))


def batches(all_touched: Iterator[Touched]) -> Iterator[list[Touched]]:
    """Some at a time (E5): of directories and files together no more than `AT_ONCE`."""
    batch: list[Touched] = []
    amount = 0
    for touched in all_touched:
        for part in _parts(touched) if len(touched.files) >= AT_ONCE else (touched,):
            size = 1 + len(part.files)
            if batch and amount + size > AT_ONCE:
                yield batch
                batch, amount = [], 0
            batch.append(part)
            amount += size
    if batch:
        yield batch


def _parts(touched: Touched) -> Iterator[Touched]:
    directory, files, others = touched
    most = AT_ONCE - 1
    yield Touched(directory, files[:most], others)
    for start in range(most, len(files), most):
        yield Touched(directory, files[start : start + most], [])
