"""logs/resilience.jsonl: what happened to the breakers and what was escalated, one JSON object a line.

Invariants
  W1  A line is written by one call and ends with a newline: two processes never mix theirs, and a line that a kill
      cut short is the last one and is not JSON.
  W2  Every line has `version`, `at_ns` and `kind`. Text in it is bounded, and URLs in it show no password.

For people and for other tools. Nothing is decided from it, so it may be removed at any time.
A log that has grown long is put aside as `resilience.jsonl.1`; the one put aside before goes.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping

from holdfast.disk.confined import Root
from holdfast.model.canonical import Json, whole_characters
from holdfast.model.check import masked_words

VERSION = 1
FOLDER = "logs"
FILE = "resilience.jsonl"
LONGEST = 8 << 20
_TEXT_LIMIT = 500
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ResilienceLog:
    """`state` is the state directory; the folder in it is made when it is first needed."""

    def __init__(self, state: Root) -> None:
        self._state = state
        self._calls = state.calls

    def append(self, at_ns: int, kind: str, fields: Mapping[str, Json]) -> None:
        row = {"version": VERSION, "at_ns": at_ns, "kind": kind, **{name: _bounded(fields[name]) for name in fields}}
        line = json.dumps(row, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        fd = self._opened()
        try:
            if self._calls.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{FOLDER}/{FILE}")
        finally:
            self._calls.close(fd)

    def _opened(self) -> int:
        folder = self._folder()
        fd = self._calls.open(FILE, _APPEND, 0o600, dir_fd=folder)
        if self._calls.fstat(fd).st_size <= LONGEST:
            return fd
        self._calls.close(fd)
        self._calls.rename(FILE, f"{FILE}.1", src_dir_fd=folder, dst_dir_fd=folder)
        return self._calls.open(FILE, _APPEND, 0o600, dir_fd=folder)

    def _folder(self) -> int:
        try:
            return self._state.directory(FOLDER)
        except FileNotFoundError:
            try:
                self._calls.mkdir(FOLDER, 0o700, dir_fd=self._state.fd)
            except FileExistsError:
                pass  # somebody else needed it first at the same moment
            return self._state.directory(FOLDER)


def _bounded(value: Json) -> Json:
    """No line grows with what an agent says (W2)."""
    if not isinstance(value, str):
        return value
    text = masked_words(whole_characters(value))
    return text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…"
