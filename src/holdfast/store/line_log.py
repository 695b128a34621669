"""Logs for people and other tools: files beneath the state directory, one JSON object a line.

    logs/resilience.jsonl      ──longer than it may be──▶  logs/resilience.jsonl.1      (the one before that goes)

Invariants
  N1  A line is written by one call and ends with a newline: two processes never mix theirs. A line that a kill or a
      full disk cut short spoils itself alone: the next one begins on a line of its own.
  N2  Every line has `version`, `at_ns` and `kind`. Text in it is masked first and cut then, lists are cut: no line
      grows with what an agent says, and no cut leaves half of a secret that would have been masked whole.
  N3  Of several that find a log too long one puts it aside, and nobody waits for that.
  N4  A log is a regular file of ours that is not reached through a link; anything else in its place is an OSError.

Nothing is decided from a log, so it may be removed at any time. What cannot be written is an OSError for the caller.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping

from holdfast.disk.confined import Root
from holdfast.model.canonical import Json, whole_characters
from holdfast.model.check import masked_words

VERSION = 1
LONGEST = 8 << 20
TEXT_LIMIT = 500
MOST_ITEMS = 32
# Masked before it is cut, so what is looked at is longer than what is kept by more than any token is long (N2).
_AHEAD = 2_000
# Both ways, because of N1: the last byte tells whether the line before was cut short.
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20


class LineLog:
    """`path` is beneath the state directory; folders on the way are made when they are first needed.

    Threads may share one: it keeps no descriptor and no position.
    """

    def __init__(
        self,
        state: Root,
        path: str,
        *,
        longest: int = LONGEST,
        text_limit: int = TEXT_LIMIT,
        word: Callable[[str], str] = masked_words,
    ) -> None:
        self._state = state
        self._calls = state.calls
        self.path = path
        self._folder, _, self._file = path.rpartition("/")
        self._longest, self._text_limit, self._word = longest, text_limit, word

    def append(self, at_ns: int, kind: str, fields: Mapping[str, Json]) -> None:
        bounded = {name: self._bounded(value) for name, value in fields.items()}
        row = {"version": VERSION, "at_ns": at_ns, "kind": kind, **bounded}
        line = json.dumps(row, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        folder = open_folder(self._state, self._folder)
        try:
            self._write(line, folder)
        finally:
            self._calls.close(folder)

    def rows(self) -> Iterator[dict[str, Json]]:
        """What was written, oldest first, with what was put aside last; spoilt lines are left out."""
        try:
            folder = self._state.open_directory(self._folder)
        except FileNotFoundError:
            return
        try:
            data = [self._whole(name, folder) for name in (f"{self._file}.1", self._file)]
        finally:
            self._calls.close(folder)
        for line in b"\n".join(data).split(b"\n"):
            row = _row(line)
            if row is not None:
                yield row

    # ── the file ──

    def _write(self, line: bytes, folder: int) -> None:
        fd = self._regular(_APPEND, self._file, folder)
        try:
            if self._calls.fstat(fd).st_size <= self._longest or not self._put_aside(fd, folder):
                self._write_to(fd, line)
                return
        finally:
            self._calls.close(fd)
        fd = self._regular(_APPEND, self._file, folder)
        try:
            self._write_to(fd, line)
        finally:
            self._calls.close(fd)

    def _write_to(self, fd: int, line: bytes) -> None:
        """N1."""
        if self._is_torn(fd):
            line = b"\n" + line
        if self._calls.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def _put_aside(self, fd: int, folder: int) -> bool:
        """N3. False while somebody else does it: this line still goes into the old one."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Whoever had the lock before may have moved this file away; then the name is of a fresh one, or free.
        if self._inode(folder) == self._calls.fstat(fd).st_ino:
            self._calls.rename(self._file, f"{self._file}.1", src_dir_fd=folder, dst_dir_fd=folder)
        return True

    def _inode(self, folder: int) -> int | None:
        try:
            return self._calls.stat(self._file, dir_fd=folder, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None

    def _is_torn(self, fd: int) -> bool:
        size = self._calls.fstat(fd).st_size
        return size > 0 and self._calls.pread(fd, 1, size - 1) != b"\n"

    def _regular(self, flags: int, name: str, folder: int) -> int:
        """N4."""
        fd = self._calls.open(name, flags, 0o600, dir_fd=folder)
        try:
            if stat.S_ISREG(self._calls.fstat(fd).st_mode):
                return fd
            raise OSError(errno.EINVAL, "not a regular file", self.path)
        except BaseException:
            self._calls.close(fd)
            raise

    def _whole(self, name: str, folder: int) -> bytes:
        try:
            fd = self._regular(_READ, name, folder)
        except FileNotFoundError:
            return b""
        pieces = []
        try:
            while piece := self._calls.read(fd, _PIECE):
                pieces.append(piece)
        finally:
            self._calls.close(fd)
        return b"".join(pieces)

    # ── the line ──

    def _bounded(self, value: Json) -> Json:
        """N2."""
        if isinstance(value, str):
            return cut(value, self._text_limit, self._word)
        if isinstance(value, list):
            left = len(value) - MOST_ITEMS
            kept: list[Json] = [self._bounded(item) for item in value[:MOST_ITEMS]]
            return [*kept, f"… {left} more"] if left > 0 else kept
        if isinstance(value, dict):
            return {name: self._bounded(item) for name, item in value.items()}
        return value


def cut(text: str, limit: int, word: Callable[[str], str]) -> str:
    """The text as `word` makes it, `limit` characters at most and then a sign that there was more."""
    head = text[: limit + _AHEAD]
    if len(head) < len(text):
        # What stands at the edge may be the first half of a secret, which `word` would not know: whole words only.
        blank = max(head.rfind(" "), head.rfind("\n"), head.rfind("\t"))
        head = head[: blank + 1]
    shown = word(head if head.isascii() else whole_characters(head))
    return shown if len(head) == len(text) and len(shown) <= limit else shown[:limit] + "…"


def open_folder(state: Root, path: str) -> int:
    """A descriptor of a folder beneath the state directory, made where it is missing; the caller closes it."""
    try:
        return state.open_directory(path)
    except FileNotFoundError:
        above = open_folder(state, path.rpartition("/")[0])
        try:
            state.calls.mkdir(path.rpartition("/")[2], 0o700, dir_fd=above)
        except FileExistsError:
            pass  # somebody else needed it first at the same moment
        finally:
            state.calls.close(above)
        return state.open_directory(path)


def _row(line: bytes) -> dict[str, Json] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None  # cut short, or nobody's (N1)
    return found if isinstance(found, dict) and found.get("version") == VERSION else None
