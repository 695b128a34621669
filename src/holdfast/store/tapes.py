"""Tapes on the disk: one file for each task that was recorded, in a folder that the user names.

    <folder>/<when, in nanoseconds>-<name>.jsonl

Invariants
  V1  A tape is a new file of this user alone (0600); none is written over, none is added to.
  V2  A folder is read in the order in which its tapes were made. What is no plain file there is refused, not followed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator

from holdfast.disk.calls import CALLS
from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.store.transcripts import LIMIT, Lines

_SUFFIX = ".jsonl"
_MOST_TAPES = 1_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def new_tape(folder: str, name: str) -> Lines:
    """An empty one; the folder is made where there is none yet. InvalidInput when it cannot be written."""
    path = os.path.join(folder, f"{time.time_ns():020d}-{name}{_SUFFIX}")
    try:
        try:
            CALLS.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        return Lines(path)
    except OSError as error:
        raise InvalidInput(f"nothing can be recorded in {printable(folder)}: {error.strerror}") from error


def tape_lines(place: str) -> Iterator[str]:
    """All lines of a tape, or of every tape in a folder, the oldest first; InvalidInput where there is none."""
    for path in _tapes_at(place):
        yield from _lines_of(path)


def _tapes_at(place: str) -> list[str]:
    try:
        if not stat.S_ISDIR(os.stat(place).st_mode):
            return [place]
        names = sorted(name for name in os.listdir(os.fspath(place)) if name.endswith(_SUFFIX))
    except OSError as error:
        raise InvalidInput(f"there is no tape at {printable(place)}: {error.strerror}") from error
    if not names:
        raise InvalidInput(f"there is no tape in {printable(place)}", hint="Record one first: record = …")
    if len(names) > _MOST_TAPES:
        raise InvalidInput(f"{printable(place)} holds more than {_MOST_TAPES} tapes", hint="Name one of them.")
    return [os.path.join(place, name) for name in names]


def _lines_of(path: str) -> list[str]:
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise InvalidInput(f"the tape {printable(path)} cannot be read: {why}") from error
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LIMIT:
            raise InvalidInput(f"the tape {printable(path)} is no file of at most {LIMIT >> 20} MiB")
        data = file.read(LIMIT)
    try:
        return data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InvalidInput(f"the tape {printable(path)} is not UTF-8 text") from None
