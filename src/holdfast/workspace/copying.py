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
from holdfast.workspace.companion import companion
from holdfast.workspace.observe import RACY_NS, SECOND_ACLS
from holdfast.workspace.shifting import OVERLAY_XATTRS, moved_attribute
from holdfast.workspace.smallfiles import NEW, READ, SMALL, Done, Note, Piece, Terms, clear, copy_queued, queue
from holdfast.workspace.staging import write_all
from holdfast.workspace.touched import Doors, Found, Touch, Touched, is_plain, is_too_long, joined, name_of

_PIECE_FILES = 64
_FICLONE = 0x40049409
_NO_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


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
        self._masked: dict[str, set[str]] = {}
        for path in masked:
            self._masked.setdefault(parent_of(path), set()).add(name_of(path))
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
        pieces: list[Piece] = []
        for path, _ in directories:  # grows while it is read: parents before what is in them
            directories += self._copy_directory(path, pieces)
        # The deepest first: so the histories that version control packs, larger than all, do not come last and alone.
        pieces.reverse()
        self._copy_files(pieces)
        # Modes and times come when nothing is written any more, inner directories first.
        for path, found in reversed(directories):
            self._finish(path, found)
        self._workspace.forget()

    def touches(self, doors: Doors) -> Iterator[Touched]:
        waiting = [""]
        while waiting:
            path = waiting.pop()
            folder, known = self.root.directory(path), self._notes.get(path, {})
            names = sorted(CALLS.names(folder))
            found = [os.stat(name, dir_fd=folder, follow_symlinks=False) for name in names]
            files: list[Found] = []
            others: list[Touch] = []
            for name, about in zip(names, found, strict=True):
                if known.get(name) == (about.st_ino, about.st_ctime_ns):
                    continue
                if is_plain(about):
                    files.append((path, name, joined(path, name), about))
                else:
                    others.append(Touch(joined(path, name), about))
            others += [Touch(joined(path, name), None) for name in sorted(known.keys() - names)]
            if files or others:
                yield Touched(path, files, others)
            for name, about in zip(reversed(names), reversed(found), strict=True):
                below = joined(path, name)
                if stat.S_ISDIR(about.st_mode) and not is_too_long(below):
                    doors.enter(below, about)
                    waiting.append(below)

    def _copy_directory(self, path: str, pieces: list[Piece]) -> list[tuple[str, os.stat_result]]:
        """Everything in one directory but its files, which become pieces of work.

        The directories in it are made, and returned to be filled.
        """
        try:
            source = self._workspace.open_directory(path)
        except OSError as error:
            if error.errno not in _GONE:
                self._hide(path, error)
            return []
        try:
            target = self.root.open_directory(path)
            try:
                return self._copy_entries(path, source, target, pieces)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _copy_entries(
        self, path: str, source: int, target: int, pieces: list[Piece]
    ) -> list[tuple[str, os.stat_result]]:
        notes, masked = self._notes.setdefault(path, {}), self._masked.get(path, ())
        inner, files = [], []
        with CALLS.entries(source) as entries:
            for entry in entries:
                name = entry.name
                try:
                    if name in masked:
                        _stand_in(target, name, is_directory=entry.is_dir(follow_symlinks=False))
                    elif entry.is_file(follow_symlinks=False):
                        files.append(name)
                    elif entry.is_symlink():
                        notes[name] = self._copy_link(source, target, joined(path, name), name)
                    elif entry.is_dir(follow_symlinks=False):
                        os.mkdir(name, 0o700, dir_fd=target)
                        inner.append((joined(path, name), entry.stat(follow_symlinks=False)))
                except OSError as error:
                    self._missed(path, target, name, error)
        pieces += [(path, files[at : at + _PIECE_FILES]) for at in range(0, len(files), _PIECE_FILES)]
        return [item for item in inner if item[1].st_dev == self._device]

    def _copy_files(self, pieces: list[Piece]) -> None:
        """Each piece by us or by a second process; what neither of them reports may be half done, and is made anew."""
        devices = self._device, os.fstat(self.root.fd).st_dev
        owners = self._uid, self._gid, self._shift if self._uid == 0 else 0
        terms: Terms = (self._workspace.fd, self.root.fd, *devices, *owners, self._open_modes)
        missing = dict(enumerate(pieces))
        waiting = queue(len(pieces))
        try:
            with companion(waiting, pieces, terms) as his:
                for number, done in copy_queued(waiting, pieces, terms):
                    self._note(missing.pop(number)[0], done)
                for number, done in his().items():
                    self._note(missing.pop(number)[0], done)
        finally:
            os.close(waiting)
        for path, names in missing.values():
            self._note(path, ({}, names))

    def _note(self, path: str, done: Done) -> None:
        notes, left = done
        self._notes[path].update(notes)
        if left:
            self._copy_others(path, left)

    def _copy_others(self, path: str, names: list[str]) -> None:
        """What was left of a piece: large, with attributes or another owner, gone, closed to us, or it failed."""
        try:
            source, target = self._workspace.open_directory(path), -1
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return
        try:
            target = self.root.open_directory(path)
            for name in names:
                try:
                    clear(target, name)
                    note = self._copy_file(source, target, joined(path, name), name)
                    if note is not None:
                        self._notes[path][name] = note
                except OSError as error:
                    self._missed(path, target, name, error)
        finally:
            for fd in (source, target):
                if fd >= 0:
                    os.close(fd)

    def _copy_file(self, source: int, target: int, path: str, name: str) -> Note | None:
        """None where it is no file any more."""
        reading = os.open(name, READ, dir_fd=source)
        try:
            found = os.fstat(reading)
            if not stat.S_ISREG(found.st_mode):
                return None
            writing = os.open(name, NEW, found.st_mode & 0o777, dir_fd=target)
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
        if size < SMALL:
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
        names = [name for name in os.listxattr(reading) if not name.startswith(SECOND_ACLS)]
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

    def _missed(self, path: str, target: int, name: str, error: OSError) -> None:
        if error.errno not in _GONE:  # removed or replaced since it was listed
            self._hide(joined(path, name), error)
            _stand_in(target, name, is_directory=False)

    def _hide(self, path: str, error: OSError) -> None:
        """Y2. Whatever else went wrong is no reason to give programs half a tree."""
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise error
        self.unreadable.add(path)


def _stand_in(target: int, name: str, *, is_directory: bool) -> None:
    if is_directory:
        os.mkdir(name, 0o700, dir_fd=target)
    else:
        os.close(os.open(name, NEW & ~os.O_EXCL, 0o600, dir_fd=target))


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
