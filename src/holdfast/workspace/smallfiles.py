"""Copy small plain files, many at a time: what most of a tree is made of, and most of the time it takes.

Run twice at once: by the process that copies a tree, and in a second one beside it, which is this file and nothing
else (so it imports nothing of Holdfast). Both take the next pieces of work from one queue until it is empty:
a pipe, so that the kernel gives each row to one of them only. (A file whose position they share is not enough:
one in memory gives the same row to both.)
Not by threads: each call would wait for the interpreter that the other thread has, longer than the call itself takes.

Invariants
  F1  What is not small, not plain, not ours or in any way surprising is left to whoever can do everything,
      and then nothing of it stands at its name.
  F2  No link is followed: a directory is opened name by name, and must be on the file system that was looked at.
  F3  A piece that was not reported may be half done; whoever asked for it makes it anew.
"""

from __future__ import annotations

import marshal
import os
import stat
import sys

TYPE_CHECKING = False  # as typing's, whose import takes as long as hundreds of files
if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = 1 << 17
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROW, _ROWS = 4, 16_000

# Inode and change time.
Note = tuple[int, int]
# A directory, and names of files in it.
Piece = tuple[str, list[str]]
# Of one piece: notes about the files that were copied, and the names that were left (F1).
Done = tuple[dict[str, Note], list[str]]
# Two roots as descriptors and their devices; our user and group, how much higher owners are in the copy,
# and what an open leaves of a mode.
Terms = tuple[int, int, int, int, int, int, int, int]


def queue(pieces: int) -> int:
    """A descriptor to take the numbers of so many pieces from, some at a time. What does not fit in is not there."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)
    try:
        # Pipes are filled by the page, and a page holds a whole number of rows.
        os.write(writing, b"".join(row.to_bytes(_ROW, sys.byteorder) for row in range(-(-pieces // _together(pieces)))))
    except BlockingIOError:
        pass
    finally:
        os.close(writing)
    return reading


def _together(pieces: int) -> int:
    """How many pieces a row stands for, so that all rows fit into a pipe."""
    return -(-pieces // _ROWS) or 1


def copy_queued(waiting: int, pieces: list[Piece], terms: Terms) -> Iterator[tuple[int, Done]]:
    """Every piece that can be got from the queue, with its number, as soon as it is done."""
    many = _together(len(pieces))
    while row := os.read(waiting, _ROW):
        first = int.from_bytes(row, sys.byteorder) * many
        for number in range(first, min(first + many, len(pieces))):
            yield number, _copy_piece(*pieces[number], terms)


def _copy_piece(path: str, names: list[str], terms: Terms) -> Done:
    reading = writing = -1
    try:
        reading = _opened(path, terms[0], terms[2])
        writing = _opened(path, terms[1], terms[3])
        return _copy_names(reading, writing, names, terms)
    except OSError:
        return {}, names
    finally:
        for fd in (reading, writing):
            if fd >= 0:
                os.close(fd)


def _opened(path: str, root: int, device: int) -> int:
    fd = os.open(".", _DIRECTORY, dir_fd=root)
    for name in path.split("/") if path else ():
        try:
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    if os.fstat(fd).st_dev != device:
        os.close(fd)
        raise OSError
    return fd


def _copy_names(source: int, target: int, names: list[str], terms: Terms) -> Done:
    notes: dict[str, Note] = {}
    left = []
    for name in names:
        try:
            note = _copied(source, target, name, terms)
        except OSError:
            clear(target, name)
            note = None
        if note is None:
            left.append(name)
        else:
            notes[name] = note
    return notes, left


def _copied(source: int, target: int, name: str, terms: Terms) -> Note | None:
    """None where it is not for us, and nothing was made."""
    _, _, _, _, uid, gid, shift, open_modes = terms
    reading = os.open(name, READ, dir_fd=source)
    try:
        found = os.fstat(reading)
        mode, size, owner = found.st_mode, found.st_size, (found.st_uid, found.st_gid)
        if size >= SMALL or not stat.S_ISREG(mode) or os.listxattr(reading) or (uid and owner != (uid, gid)):
            return None
        data = os.read(reading, size + 1)
        if len(data) != size:
            return None
        writing = os.open(name, NEW, mode & 0o777, dir_fd=target)
        try:
            if data and os.write(writing, data) != size:
                raise OSError
            # Before the mode: an owner clears bits of it.
            if not uid and (shift or owner != (0, gid)):
                os.fchown(writing, owner[0] + shift, owner[1] + shift)
            if mode & 0o7777 & ~open_modes:
                os.fchmod(writing, mode & 0o7777)
            os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))
            made = os.fstat(writing)
            return made.st_ino, made.st_ctime_ns
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def clear(target: int, name: str) -> None:
    """Nothing stands at the name any more."""
    try:
        os.unlink(name, dir_fd=target)
    except FileNotFoundError:
        pass


def _put(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def main() -> None:
    """The second process: its input is pieces and terms, what it did goes to `report`."""
    waiting, report = int(sys.argv[1]), int(sys.argv[2])
    raw = b""
    while more := os.read(0, 1 << 26):
        raw += more
    _put(report, marshal.dumps(dict(copy_queued(waiting, *marshal.loads(raw)))))


if __name__ == "__main__":
    main()
