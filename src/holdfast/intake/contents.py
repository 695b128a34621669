"""Where the bytes of a step come from: beside the key, as base64, or from a file next to the change file.

Invariants
  F1  A file named by content_from is opened beneath the change file's directory; no symbolic link, no `..`,
      no other file system lies on the way.
  F2  Only a regular file is opened for reading: a FIFO or device is recognised without opening it.
  F3  A file that changes while it is read is refused, so a digest is always that of one state.
  F4  Each file is read once a plan, and at most MAX_HELD bytes of them are kept in memory.
  F5  What is private is no content: Holdfast's own keys and configuration, and whatever the caller says.
"""

from __future__ import annotations

import binascii
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeAlias

from holdfast.disk.calls import CALLS
from holdfast.disk.homes import config_home, state_home
from holdfast.intake.fields import bytes_of, path_of, text_of
from holdfast.intake.values import Fault, Value, quoted
from holdfast.model.plan import Content, FromFile, Inline

MAX_INLINE = 1024 * 1024
MAX_HELD = 64 * 1024 * 1024
_CHUNK = 1024 * 1024
_SOURCES = ("content", "content_base64", "content_from")
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


# From an absolute path to the reason why it is private; empty for what is not.
Private: TypeAlias = Callable[[str], str]


def nothing_private(place: str) -> str:
    """Where nobody hides anything."""
    return ""


class Contents:
    """The bytes of one change file's steps; used as a context manager, since it may hold a directory open."""

    def __init__(self, directory: str, private: Private) -> None:
        self._directory = directory
        self._private = private
        self._root = -1
        self._read: dict[str, Content] = {}
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._root >= 0:
            CALLS.close(self._root)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read, by their names beside the change file."""
        return tuple(sorted(self._read))

    def of(self, step: dict[str, Value], action: str) -> Content:
        """The content of a write or update step."""
        text = step.get("content")
        if isinstance(text, str) and "content_base64" not in step and "content_from" not in step:
            return Inline(bytes_of(text, "content"))
        source = _only(step, _SOURCES, action)
        if source == "content_from":
            return self._beside(step[source])
        return Inline(_bytes(step, source))

    def _beside(self, value: Value) -> Content:
        name = _source_path(value)
        if name not in self._read:
            try:
                self._read[name] = self._fetched(name)
            except OSError as error:
                raise Fault(f"content_from: {quoted(name)}: {_reason(error)}", "content_from") from None
        return self._read[name]

    def _fetched(self, name: str) -> Content:
        if self._root < 0:
            self._directory = os.path.realpath(self._directory)
            self._root = CALLS.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _refuse_private(os.path.join(self._directory, name), name, self._private)
        fd = _open_regular(name, self._root)
        try:
            before = CALLS.fstat(fd)
            if before.st_size <= MAX_INLINE and self._held + before.st_size <= MAX_HELD:
                content: Content = Inline(b"".join(_chunks(fd, before.st_size, name)))
                self._held += before.st_size
            else:
                content = FromFile(os.path.join(self._directory, name), before.st_size,
                                   _sha256(fd, before.st_size, name))  # fmt: skip
            after = CALLS.fstat(fd)
        finally:
            CALLS.close(fd)
        if (before.st_mtime_ns, before.st_ctime_ns) != (after.st_mtime_ns, after.st_ctime_ns):
            raise _unstable(name)
        return content


def old_of(step: dict[str, Value]) -> bytes:
    """What an update expects to find."""
    return _bytes(step, _only(step, ("old", "old_base64"), "update"))


def _only(step: dict[str, Value], names: tuple[str, ...], action: str) -> str:
    given = [name for name in names if name in step]
    if not given:
        raise Fault(f"{action} needs {quoted(names[0])} (or {' or '.join(names[1:])})")
    if len(given) > 1:
        raise Fault(f"{action} takes only one of {' and '.join(given)}", given[1])
    return given[0]


def _bytes(step: dict[str, Value], source: str) -> bytes:
    text = text_of(step[source], source)
    if not source.endswith("_base64"):
        return bytes_of(text, source)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise Fault(f"{source} is not valid base64", source,
                    hint="Use the standard alphabet with padding, on one line.") from None  # fmt: skip


def _source_path(value: Value) -> str:
    """Confined by its spelling first, so that a person gets a sentence; by the kernel at the open (F1)."""
    text = text_of(value, "content_from")
    try:
        name = path_of(text, "content_from")
    except Fault as fault:
        raise Fault(f"content_from: {fault.message}", "content_from",
                    hint="Files are looked up beside the change file, never above it.") from None  # fmt: skip
    if text.endswith("/"):
        raise Fault(f"content_from: {quoted(text)} names a directory", "content_from")
    return name


def _open_regular(name: str, root: int) -> int:
    """F2: look at it through a handle that cannot read, then open, then look again."""
    handle = CALLS.open_beneath(name, os.O_PATH, root)
    try:
        _refuse_irregular(handle, name)
    finally:
        CALLS.close(handle)
    fd = CALLS.open_beneath(name, _READING, root)
    try:
        _refuse_irregular(fd, name)
    except Fault:
        CALLS.close(fd)
        raise
    return fd


def _refuse_private(place: str, name: str, private: Private) -> None:
    """F5. No link is on the way to the file below its directory, and none is left in the directory's own path."""
    ours = any(f"{place}/".startswith(f"{os.path.realpath(home)}/") for home in (config_home(), state_home()))
    reason = "it belongs to Holdfast itself" if ours else private(place)
    if reason:
        raise Fault(f"content_from: {quoted(name)}: {reason}", "content_from")


def _refuse_irregular(fd: int, name: str) -> None:
    if not stat.S_ISREG(CALLS.fstat(fd).st_mode):
        raise Fault(f"content_from: {quoted(name)} is not a regular file", "content_from")


def _chunks(fd: int, size: int, name: str) -> Iterator[bytes]:
    """All of a file, and exactly `size` bytes of it (F3)."""
    left = size
    while chunk := CALLS.read(fd, _CHUNK):
        left -= len(chunk)
        if left < 0:
            break
        yield chunk
    if left:
        raise _unstable(name)


def _sha256(fd: int, size: int, name: str) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(fd, size, name):
        digest.update(chunk)
    return digest.hexdigest()


def _unstable(name: str) -> Fault:
    return Fault(f"content_from: {quoted(name)} changed while it was read", "content_from")


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a symbolic link is on the way"
    if error.errno == errno.EXDEV:
        return "it is on another file system or outside the directory of the change file"
    return (error.strerror or str(error)).lower()
