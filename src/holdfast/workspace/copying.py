"""A copy of the workspace for programs to change, where an overlay cannot be had.

While it is made, the inode and change time of every object are noted. The kernel moves the change time with every
write, mode, owner, attribute and link, and no program can set it back: what differs later was touched, and what was
noted and is not there is gone.

Invariants
  Y1  Paths that are hidden are not copied: something empty stands in their place, for the mask to cover.
  Y2  What cannot be read is hidden too, so that an empty stand-in is never taken for the content.
  Y3  The notes are older than any program's work by more than a tick of the clock.
  Y4  `.holdfast`, devices, FIFOs, sockets and other file systems are not copied.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.model.path import parent_of
from holdfast.workspace.observe import RACY_NS
from holdfast.workspace.shifting import OVERLAY_XATTRS, moved_attribute
from holdfast.workspace.staging import write_all
from holdfast.workspace.touched import Doors, Touch, is_too_long, joined, name_of

# Reading and writing beats any cleverer call for what fits into one buffer.
_SMALL = 1 << 17
_FICLONE = 0x40049409
_NO_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

# Inode and change time.
Note = tuple[int, int]


class Copy:
    """A copied tree and the notes about it."""

    # There is no overlay here, so nothing but a program makes such names; they could not be told from one's notes.
    programs_own: tuple[str, ...] = OVERLAY_XATTRS

    def __init__(self, workspace: Root, root: Root, masked: frozenset[str], shift: int) -> None:
        self.root = root
        self._shift = shift
        self.unreadable: set[str] = set()
        # Owners that we could not give to the copy, by path.
        self.foreign: dict[str, tuple[int, int]] = {}
        self._workspace = workspace
        self._masked = masked
        self._notes: dict[str, dict[str, Note]] = {}
        self._clones = True
        self._device = os.fstat(workspace.fd).st_dev
        self._uid, self._gid = os.geteuid(), os.getegid()
        umask = os.umask(0)
        os.umask(umask)
        self._open_modes = 0o777 & ~umask

    def make(self) -> None:
        """Copy everything, and wait until the notes are old enough. OSError where the copy cannot be written."""
        self.fill()
        time.sleep(RACY_NS / 1e9)  # Y3

    def fill(self) -> None:
        """Copy everything."""
        directories = [("", os.fstat(self._workspace.fd))]
        for path, _ in directories:  # grows while it is read: parents before what is in them
            directories += self._copy_directory(path)
        # Modes and times come when nothing is written any more, inner directories first.
        for path, found in reversed(directories):
            self._finish(path, found)
        self._workspace.forget()

    def touches(self, doors: Doors) -> Iterator[Touch]:
        waiting = [""]
        while waiting:
            path = waiting.pop()
            folder, known = self.root.directory(path), self._notes.get(path, {})
            names = sorted(os.listdir(folder))
            found = [os.stat(name, dir_fd=folder, follow_symlinks=False) for name in names]
            for name, about in zip(names, found, strict=True):
                if known.get(name) != (about.st_ino, about.st_ctime_ns):
                    yield Touch(joined(path, name), about)
            for name in sorted(known.keys() - names):
                yield Touch(joined(path, name), None)
            for name, about in zip(reversed(names), reversed(found), strict=True):
                below = joined(path, name)
                if stat.S_ISDIR(about.st_mode) and not is_too_long(below):
                    doors.enter(below, about)
                    waiting.append(below)

    def _copy_directory(self, path: str) -> list[tuple[str, os.stat_result]]:
        """Everything in one directory; the directories in it are made, and returned to be filled."""
        try:
            source = self._workspace.open_directory(path)
        except OSError as error:
            if error.errno not in _GONE:
                self._hide(path, error)
            return []
        try:
            target = self.root.open_directory(path)
            try:
                return self._copy_entries(path, source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _copy_entries(self, path: str, source: int, target: int) -> list[tuple[str, os.stat_result]]:
        notes = self._notes.setdefault(path, {})
        inner = []
        with os.scandir(source) as entries:
            for entry in entries:
                name = entry.name
                below = f"{path}/{name}" if path else name
                try:
                    if below in self._masked:
                        _stand_in(target, name, is_directory=entry.is_dir(follow_symlinks=False))
                    elif entry.is_symlink():
                        notes[name] = self._copy_link(source, target, below, name)
                    elif entry.is_file(follow_symlinks=False):
                        notes[name] = self._copy_file(source, target, below, name)
                    elif entry.is_dir(follow_symlinks=False):
                        os.mkdir(name, 0o700, dir_fd=target)
                        inner.append((below, entry.stat(follow_symlinks=False)))
                except OSError as error:
                    if error.errno in _GONE:
                        continue  # removed or replaced since it was listed
                    self._hide(below, error)
                    _stand_in(target, name, is_directory=False)
        return [item for item in inner if item[1].st_dev == self._device]

    def _copy_file(self, source: int, target: int, path: str, name: str) -> Note:
        reading = os.open(name, _READ, dir_fd=source)
        try:
            found = os.fstat(reading)
            writing = os.open(name, _NEW, found.st_mode & 0o777, dir_fd=target)
            try:
                self._copy_content(reading, writing, found.st_size)
                self._dress(reading, writing, path, found)
                made = os.fstat(writing)
                return made.st_ino, made.st_ctime_ns
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def _copy_content(self, reading: int, writing: int, size: int) -> None:
        if size < _SMALL:
            while data := os.read(reading, size + 1):
                write_all(CALLS, writing, data)
                if len(data) == size:
                    return
            return
        if self._clones:
            try:
                fcntl.ioctl(writing, _FICLONE, reading)
                return
            except OSError as error:
                if error.errno not in _NO_CLONE:
                    raise
                self._clones = False
        _copy_ranges(reading, writing)

    def _dress(self, reading: int, writing: int, path: str, found: os.stat_result) -> None:
        """Owner, attributes, mode, times: an owner clears bits of the mode, an access list sets some."""
        self._own(writing, path, found)
        mode = stat.S_IMODE(found.st_mode)
        names = os.listxattr(reading)
        for name in names:
            self._copy_attribute(reading, writing, name)
        if names or mode & self._open_modes != mode:
            os.fchmod(writing, mode)
        os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _own(self, writing: int, path: str, found: os.stat_result) -> None:
        owner = found.st_uid, found.st_gid
        if self._uid == 0:
            if self._on_disk(owner) != (0, self._gid):
                os.fchown(writing, *self._on_disk(owner))
        elif owner != (self._uid, self._gid):
            self.foreign[path] = owner

    def _on_disk(self, owner: tuple[int, int]) -> tuple[int, int]:
        return owner[0] + self._shift, owner[1] + self._shift

    def _copy_link(self, source: int, target: int, path: str, name: str) -> Note:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        owner = found.st_uid, found.st_gid
        if self._uid == 0:
            os.chown(name, *self._on_disk(owner), dir_fd=target, follow_symlinks=False)
        elif owner != (self._uid, self._gid):
            self.foreign[path] = owner
        times = found.st_atime_ns, found.st_mtime_ns
        os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)
        made = os.stat(name, dir_fd=target, follow_symlinks=False)
        return made.st_ino, made.st_ctime_ns

    def _copy_attribute(self, reading: int, writing: int, name: str) -> None:
        """Labels of the security system and capabilities stay behind where we may not set them."""
        try:
            os.setxattr(writing, name, moved_attribute(name, os.getxattr(reading, name), self._shift))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENODATA):
                raise

    def _finish(self, path: str, found: os.stat_result) -> None:
        writing = self.root.directory(path)
        if path not in self.unreadable:
            try:
                self._dress(self._workspace.directory(path), writing, path, found)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
            os.fchmod(writing, stat.S_IMODE(found.st_mode))
        if path:
            made = os.fstat(writing)
            self._notes[parent_of(path)][name_of(path)] = made.st_ino, made.st_ctime_ns

    def _hide(self, path: str, error: OSError) -> None:
        """Y2. Whatever else went wrong is no reason to give programs half a tree."""
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise error
        self.unreadable.add(path)


def _stand_in(target: int, name: str, *, is_directory: bool) -> None:
    if is_directory:
        os.mkdir(name, 0o700, dir_fd=target)
    else:
        os.close(os.open(name, _NEW & ~os.O_EXCL, 0o600, dir_fd=target))


def _copy_ranges(reading: int, writing: int) -> None:
    """Data by the kernel, holes not at all."""
    size = os.fstat(reading).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(reading, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # only a hole is left
        end = os.lseek(reading, at, os.SEEK_HOLE)
        while at < end:
            done = os.copy_file_range(reading, writing, end - at, at, at)
            if not done:
                break  # somebody cut it off
            at += done
    os.ftruncate(writing, size)
