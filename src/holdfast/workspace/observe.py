"""Look at one path: what is there (image) and which inode it is (stamp).

Invariants
  O1  Nothing but regular files is ever opened for reading; a FIFO or device cannot block or react.
  O2  A digest belongs to the stamp it is returned with: the stamp was equal before and after the read,
      and old enough that any later write must change it (coarse clocks tick every few milliseconds).
"""

from __future__ import annotations

import os
import stat
import time

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.disk.holes import CHUNK, pieces
from holdfast.errors import Blocked, Conflict
from holdfast.model.image import Image, Kind, Seen, Stamp, Xattrs
from holdfast.model.path import printable

# Kernels without fine-grained time stamps tick every 1 to 10 ms; two ticks are safe.
RACY_NS = 20_000_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# xfs shows root an access list a second time, as it is on the disk; the list itself is `system.posix_acl_…`.
SECOND_ACLS = "trusted.SGI_ACL_"
# Labels the host's security system keeps by itself.
_FOREIGN_XATTRS = ("security.selinux", "system.nfs4", SECOND_ACLS)
_REGULAR = stat.S_IFREG
_ABSENT = (2, 20)  # ENOENT, ENOTDIR
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def look(calls: Calls, directory: int, name: str) -> os.stat_result | None:
    """`lstat`, with None for nothing there."""
    try:
        return calls.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def observe(calls: Calls, directory: int, name: str, *, wait: bool = True) -> Seen | None:
    """Image and stamp of a path, or None when nothing is there.

    Without `wait`, a file written a moment ago is read at once: its content is true now,
    but a write in the same tick of the clock would leave the stamp as it is (O2).
    """
    for _ in range(5):
        found = look(calls, directory, name)
        if found is None:
            return None
        if wait:
            _wait_until_settled(found)
        try:
            image = _image(calls, directory, name, found)
        except FileNotFoundError:
            continue
        again, stamp = look(calls, directory, name), stamp_of(found)
        if again is not None and stamp_of(again) == stamp:
            return Seen(image, stamp)
    raise Conflict(f"{printable(name)} keeps changing while it is read")


def stamp_of(found: os.stat_result) -> Stamp:
    mtime_ns, ctime_ns = found.st_mtime_ns, found.st_ctime_ns
    # A new file has both alike: one number for two is 3 MB less for 100,000 of them.
    return Stamp(found.st_ino, found.st_size, mtime_ns, mtime_ns if mtime_ns == ctime_ns else ctime_ns, found.st_nlink)


def kind_of(found: os.stat_result) -> Kind | None:
    """None for devices, FIFOs and sockets."""
    return _KINDS.get(stat.S_IFMT(found.st_mode))


def is_same(found: os.stat_result | None, seen: Seen | None) -> bool:
    """Is this the very object that was seen, unmodified?

    ctime is left out, because our own renames move it;
    a directory's size and mtime are left out, because our own work inside moves them.
    """
    if found is None or seen is None:
        return found is None and seen is None
    image, stamp = seen
    if image.kind == "file":
        return (
            found.st_ino == stamp.inode
            and found.st_mtime_ns == stamp.mtime_ns
            and found.st_size == stamp.size
            and found.st_mode == _REGULAR | image.mode
            and found.st_uid == image.uid
            and found.st_gid == image.gid
        )
    if found.st_ino != stamp.inode or kind_of(found) != image.kind:
        return False
    if image.kind == "symlink":
        return found.st_mtime_ns == stamp.mtime_ns
    return found.st_mode & 0o7777 == image.mode and found.st_uid == image.uid and found.st_gid == image.gid


def is_untouched(found: os.stat_result | None, seen: Seen | None) -> bool:
    """`is_same`, and not even its metadata were written since (directories excepted)."""
    if not is_same(found, seen):
        return False
    return found is None or seen is None or seen.image.kind == "directory" or found.st_ctime_ns == seen.stamp.ctime_ns


def read_xattrs(calls: Calls, target: int | str) -> Xattrs:
    """Extended attributes, POSIX ACLs among them."""
    try:
        names = calls.listxattr(target)
    except OSError as error:
        if error.errno == 95:  # the file system has none
            return ()
        raise
    if not names:
        return ()
    kept = sorted(name for name in names if not name.startswith(_FOREIGN_XATTRS))
    return tuple((name, calls.getxattr(target, name).hex()) for name in kept)


def content_digest(calls: Calls, fd: int, size: int = -1) -> str:
    """BLAKE3 of a file that was opened just now.

    A caller that says the size, and looks afterwards whether it still holds, saves a read, and a large buffer.
    """
    first = calls.read(fd, min(size + 1, CHUNK) if size >= 0 else CHUNK)
    if len(first) == size:
        return blake3(first).hexdigest()
    if len(first) < CHUNK and not (first and calls.pread(fd, 1, len(first))):
        return blake3(first).hexdigest()
    calls.lseek(fd, 0, os.SEEK_SET)
    hasher = blake3()
    for piece in pieces(calls, fd):
        hasher.update(piece)
    return hasher.hexdigest()


def _image(calls: Calls, directory: int, name: str, found: os.stat_result) -> Image:
    kind = kind_of(found)
    mode, uid, gid = found.st_mode & 0o7777, found.st_uid, found.st_gid
    if kind == "symlink":
        # A link has no permissions of its own; Linux reports 0777 for all.
        return Image("symlink", 0o777, uid, gid, target=calls.readlink(name, dir_fd=directory))
    if kind is None:
        raise Blocked(f"{printable(name)} is a device, FIFO or socket; Holdfast does not touch those")
    flags = _READ | os.O_DIRECTORY if kind == "directory" else _READ
    fd = calls.open(name, flags, dir_fd=directory)
    try:
        if kind == "directory":
            return Image("directory", mode, uid, gid, xattrs=read_xattrs(calls, fd))
        if kind_of(calls.fstat(fd)) != "file":
            raise FileNotFoundError(2, "replaced while it was opened", name)
        xattrs = read_xattrs(calls, fd)
        digest = content_digest(calls, fd, found.st_size)
        return Image("file", mode, uid, gid, found.st_size, digest, xattrs=xattrs)
    finally:
        calls.close(fd)


def _wait_until_settled(found: os.stat_result) -> None:
    now = time.time_ns()
    if now - found.st_ctime_ns >= RACY_NS and now - found.st_mtime_ns >= RACY_NS:
        return
    # Each by itself: a modification time set into the future says nothing about a change of this moment.
    ages = [age for age in (now - found.st_mtime_ns, now - found.st_ctime_ns) if 0 <= age < RACY_NS]
    if ages and not stat.S_ISDIR(found.st_mode):
        time.sleep((RACY_NS - min(ages)) / 1e9)
