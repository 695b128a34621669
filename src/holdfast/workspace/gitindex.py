"""What git surely does not track, looked up in its index without reading it all.

    DIRC, version, count │ entry, entry, … sorted by path │ extensions │ checksum

Git loads and unfolds its whole index to answer that about a single path, which costs what the repository is large.
The entries are sorted, so a path is looked for by halving: at each place the next beginning of an entry is found,
since a file's mode, its path's length and the zeros after it stand where they must, three entries in a row.

Invariant J1: "surely" is said only where the two neighbours of the path were read, one before it and one after,
and everything between them. What is not understood is left to git: an index of another version than 2 (3 knows
paths that are left out of the work tree, 4 shortens names), one that is split in two, has other digests, is behind
a link, or is not sorted; and more paths than are looked up faster than git reads.
An index that somebody forged, so that the bytes of one entry look like another, can fool this: a tracked path that
the rules ignore is then taken for a by-product, which is told and does not land.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.disk.confined import Root

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_HEAD = b"DIRC\0\0\0\x02"
_FIRST = 12  # where entries begin, all of them a multiple of eight further on
_CHECKSUM = 20
# Of an entry: its mode, the length of its path with some flags, and the path.
_MODE, _LENGTH, _PATH = 24, 60, 62
_MODES = frozenset(mode.to_bytes(4, "big") for mode in (0o100644, 0o100755, 0o120000, 0o160000))
_EXTENDED, _LONGEST = 0x4000, 0xFFF
# At least the longest entry, and three ordinary ones.
_WINDOW = 1 << 13
_IN_A_ROW = 3
# As long as git takes for so many bytes, one path can be looked up.
_BYTES_A_PATH = 200_000
_FEW_PATHS = 4
_MOST_READ = 1000


class _Unclear(Exception):
    """Only git can tell."""


class _Index(NamedTuple):
    calls: Calls
    fd: int
    size: int

    def read(self, start: int, size: int) -> bytes:
        """Nothing of the checksum."""
        return self.calls.pread(self.fd, max(0, min(size, self.size - _CHECKSUM - start)), start)


def surely_untracked(workspace: Root, repository: str, paths: Iterable[str]) -> bool:
    """Whether none of `paths`, relative to the repository, is tracked, nor anything below one; False is "maybe"."""
    wanted = _topmost(paths)
    try:
        folder = workspace.directory(f"{repository}/.git" if repository else ".git")
        names = workspace.calls.names(folder)
        if "index" not in names:
            return True
        if any(name.startswith("sharedindex.") for name in names):
            return False
        fd = workspace.calls.open_beneath("index", _READ, folder)
    except OSError:
        return False
    try:
        return _holds_none(_Index(workspace.calls, fd, _size(workspace.calls, fd)), wanted)
    except (_Unclear, OSError):
        return False
    finally:
        workspace.calls.close(fd)


def _topmost(paths: Iterable[str]) -> set[str]:
    """The directories, and what is in none of them: with a directory, everything below it is answered for."""
    known = set(paths)
    directories = {path for path in known if path.endswith("/")}
    return {path.rstrip("/") for path in known if not _is_below(path, directories)}


def _is_below(path: str, directories: set[str]) -> bool:
    end = path.find("/")
    while 0 <= end < len(path) - 1:
        if path[: end + 1] in directories:
            return True
        end = path.find("/", end + 1)
    return False


def _size(calls: Calls, fd: int) -> int:
    about = calls.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_size < _FIRST + _CHECKSUM or calls.pread(fd, 8, 0) != _HEAD:
        raise _Unclear
    return about.st_size


def _holds_none(index: _Index, paths: set[str]) -> bool:
    if len(paths) > max(_FEW_PATHS, index.size // _BYTES_A_PATH):
        raise _Unclear
    return not any(_holds(index, os.fsencode(path)) for path in paths)


def _holds(index: _Index, path: bytes) -> bool:
    """Whether an entry is this path, or below it: those come right after it, but for names like `path-1`."""
    below = path + b"/"
    for number, name in enumerate(_entries_from(index, _shortly_before(index, path))):
        if name == path or name.startswith(below):
            return True
        if name > below:
            return False
        if number == _MOST_READ:
            raise _Unclear
    return False


def _shortly_before(index: _Index, path: bytes) -> int:
    """Where an entry begins that comes before the path, or the first of all."""
    start, end = _FIRST, index.size - _CHECKSUM
    while end - start > 2 * _WINDOW:
        middle = start + (end - start) // 16 * 8
        found = _next_entry(index.read(middle, _WINDOW))
        if found is not None and found[1] < path:
            start = middle + found[0]
        else:  # it comes after the path, or there is none: the reading from `start` on will tell
            end = middle
    return start


def _next_entry(window: bytes) -> tuple[int, bytes] | None:
    """The first place where so many entries follow each other, and the path of the first."""
    for place in range(0, len(window) - _PATH, 8):
        if window[place + _MODE : place + _MODE + 4] in _MODES:
            names = [name for name, _ in zip(_chain(window, place), range(_IN_A_ROW), strict=False)]
            if len(names) == _IN_A_ROW and names == sorted(names):
                return place, names[0]
    return None


def _chain(window: bytes, place: int) -> Iterator[bytes]:
    """The paths of the entries from here on, as long as they are some."""
    entry = _entry(window, place)
    while entry is not None:
        yield entry[0]
        entry = _entry(window, entry[1])


def _entry(window: bytes, place: int) -> tuple[bytes, int] | None:
    """The path of the entry that begins here, and where the next one begins; None when there cannot be one."""
    flags = int.from_bytes(window[place + _LENGTH : place + _PATH], "big")
    length = flags & _LONGEST
    path = window[place + _PATH : place + _PATH + length]
    end = place + (_PATH + length + 8) // 8 * 8
    zeros = window[place + _PATH + length : end]
    if flags & _EXTENDED or not 0 < length < _LONGEST or b"\0" in path or zeros.strip(b"\0"):
        return None
    if len(window) < end or window[place + _MODE : place + _MODE + 4] not in _MODES:
        return None
    return path, end


def _entries_from(index: _Index, start: int) -> Iterator[bytes]:
    """The paths of all entries from a place on, in order; Unclear where neither one follows nor the end."""
    before = b""
    place, window = start, index.read(start, 3 * _WINDOW)
    while True:
        entry = _entry(window, place - start)
        if entry is None:
            start, window = place, index.read(place, 3 * _WINDOW)
            entry = _entry(window, 0)
        if entry is None and _is_the_end(index, place):
            return
        if entry is None or entry[0] < before:
            raise _Unclear
        before, place = entry[0], start + entry[1]
        yield before


def _is_the_end(index: _Index, place: int) -> bool:
    """Whether nothing but whole extensions follow: four letters, a length, so many bytes."""
    end = index.size - _CHECKSUM
    while place < end:
        head = index.read(place, 8)
        if len(head) < 8 or not head[:4].isalpha():
            return False
        place += 8 + int.from_bytes(head[4:], "big")
    return place == end
