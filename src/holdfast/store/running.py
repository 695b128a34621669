"""Which process is which service: remembered by identity, beside the logs of what was launched.

services/<name>.json      {"pid": …, "started": …, "boot": …, "mark": …}
services/<name>.log       what it said; `.log.1` what it said before that, when that was much

A program that a plan launched has no name of its own: its action gives it one (`launched_name`), which no change file
can spell.
What is remembered need not survive a power cut, for neither does the process; it must only never be half.
"""

from __future__ import annotations

import errno
import json
import os
from typing import NamedTuple

from holdfast.disk.confined import Root
from holdfast.errors import Tampering
from holdfast.sandbox.daemon import Daemon, Identity
from holdfast.store.private import READ, open_regular

FOLDER = "services"
LOG_LIMIT = 1 << 20
_LAUNCHED = "launched+"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RECORD_LIMIT = 4096
_LAST_WORDS = 4096


class Log(NamedTuple):
    """A descriptor to append to, which the caller closes, and where what comes now begins."""

    fd: int
    start: int


class Running:
    """`state` is the state directory; the folder in it is made for the first thing that is written there."""

    def __init__(self, state: Root) -> None:
        self._state = state
        self._calls = state.calls

    def open_log(self, name: str) -> Log:
        """A log that has grown long is put aside first; the one put aside before goes."""
        folder, file = self._folder(), f"{name}.log"
        fd = self._calls.open(file, _APPEND, 0o600, dir_fd=folder)
        if self._calls.fstat(fd).st_size > LOG_LIMIT:
            self._calls.close(fd)
            self._calls.rename(file, f"{file}.1", src_dir_fd=folder, dst_dir_fd=folder)
            fd = self._calls.open(file, _APPEND, 0o600, dir_fd=folder)
        return Log(fd, self._calls.fstat(fd).st_size)

    def last_line(self, name: str, start: int) -> str:
        """What it said last since then; empty when it said nothing."""
        fd = open_regular(f"{name}.log", READ, self._calls, self._state.directory(FOLDER)).fd
        try:
            end = self._calls.fstat(fd).st_size
            said = self._calls.pread(fd, _LAST_WORDS, max(start, end - _LAST_WORDS))
        finally:
            self._calls.close(fd)
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def remember(self, name: str, daemon: Daemon) -> None:
        folder, file = self._folder(), f"{name}.json"
        data = json.dumps({**daemon.identity._asdict(), "mark": daemon.mark}).encode("ascii")
        fd = self._calls.open(f"{file}.new", _NEW, 0o600, dir_fd=folder)
        try:
            if self._calls.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, "no room to remember which process was launched")
            self._calls.fsync(fd)
        finally:
            self._calls.close(fd)
        self._calls.rename(f"{file}.new", file, src_dir_fd=folder, dst_dir_fd=folder)

    def recall(self, name: str) -> Daemon | None:
        """Who was launched under this name last; whether it still runs is another question."""
        try:
            fd = open_regular(f"{name}.json", READ, self._calls, self._state.directory(FOLDER)).fd
        except FileNotFoundError:
            return None
        try:
            return _daemon(json.loads(self._calls.read(fd, _RECORD_LIMIT)))
        except (ValueError, RecursionError) as error:
            raise Tampering(
                f"what is known of the service {name} is damaged: {error}",
                hint=f"See that it does not run, and remove .holdfast/{FOLDER}/{name}.json",
            ) from error
        finally:
            self._calls.close(fd)

    def forget(self, name: str) -> None:
        """It was ended; its log stays."""
        self._remove(f"{name}.json")

    def tidy(self, kept: set[str]) -> None:
        """Remove what launched programs of transactions that are not kept any more said, where none runs."""
        try:
            files = sorted(self._calls.names(self._state.directory(FOLDER)))
        except FileNotFoundError:
            return  # nothing was ever launched; whoever makes room makes no folder
        for file in files:
            name, dot, ending = file.partition(".")
            origin = name.removeprefix(_LAUNCHED)
            if origin == name or origin.rpartition("-")[0] in kept or not dot or ending == "json":
                continue
            if self.recall(name) is None:
                self._remove(file)

    def _remove(self, file: str) -> None:
        try:
            self._calls.unlink(file, dir_fd=self._state.directory(FOLDER))
        except FileNotFoundError:
            return

    def _folder(self) -> int:
        try:
            return self._state.directory(FOLDER)
        except FileNotFoundError:
            self._calls.mkdir(FOLDER, 0o700, dir_fd=self._state.fd)
            return self._state.directory(FOLDER)


def launched_name(origin: str) -> str:
    """The name of what an action launched; `origin` names the action."""
    return _LAUNCHED + origin


def _daemon(found: object) -> Daemon:
    match found:
        case {"pid": int(pid), "started": int(started), "boot": str(boot), "mark": str(mark)} if mark:
            return Daemon(Identity(pid, started, boot), mark)
    raise ValueError("this names no process")
