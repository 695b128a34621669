"""Every system call that touches the user's files or our state goes through one small object.

Why: a test can then fail, kill or count the N-th call (`holdfast.testing.FaultyCalls`),
and a reader can see all there is.
The attributes are the plain functions of `os` where Python has them, so the indirection costs nothing.

`point(name)` marks a place with a name; it does nothing here and stops the world in a test.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import _ScandirIterator as ScandirIterator

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
CONFINED = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_SYS_OPENAT2 = 437  # the same number on every architecture
_SYNC_FILE_RANGE_WRITE_AND_WAIT = 1 | 2 | 4

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BYTES = ctypes.sizeof(_OpenHow)


@cache
def _how(flags: int) -> object:
    """Made once for each of a few: the kernel only reads it, and to make it takes as long as to open a directory."""
    return ctypes.byref(_OpenHow(flags | os.O_CLOEXEC, 0, CONFINED))


def _function(name: str, *argtypes: object) -> Callable[..., int] | None:
    function = getattr(_libc, name, None)
    if function is None:
        return None
    function.argtypes = argtypes
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


_renameat2 = _function("renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_syncfs = _function("syncfs", ctypes.c_int)
_sync_file_range = _function("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def _raise(path: str | bytes) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), os.fsdecode(path))


def _rename2(old: str, old_dir: int, new: str, new_dir: int, flags: int) -> None:
    if _renameat2 is None:
        raise OSError(38, "renameat2 is not available on this system")
    if _renameat2(old_dir, old.encode("utf-8", "surrogateescape"), new_dir,
                  new.encode("utf-8", "surrogateescape"), flags):  # fmt: skip
        _raise(new)


def _rewound(directory: int) -> int:
    """A descriptor whose next listing shows the names of now.

    A file system may show a descriptor only the names that existed when it was opened or last rewound (btrfs does),
    and ours stay open while programs and people work.
    """
    os.lseek(directory, 0, os.SEEK_SET)
    return directory


class Calls:
    """The real kernel.

    `names` and `entries` are the only ways to list a directory by its descriptor (see `_rewound`).
    """

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    stat = staticmethod(os.stat)
    lstat = staticmethod(os.lstat)
    fstat = staticmethod(os.fstat)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    unlink = staticmethod(os.unlink)
    rename = staticmethod(os.rename)
    link = staticmethod(os.link)
    symlink = staticmethod(os.symlink)
    readlink = staticmethod(os.readlink)
    chmod = staticmethod(os.chmod)
    fchmod = staticmethod(os.fchmod)
    fchown = staticmethod(os.fchown)
    chown = staticmethod(os.chown)
    utime = staticmethod(os.utime)
    fsync = staticmethod(os.fsync)
    fdatasync = staticmethod(os.fdatasync)
    listxattr = staticmethod(os.listxattr)
    getxattr = staticmethod(os.getxattr)
    setxattr = staticmethod(os.setxattr)
    removexattr = staticmethod(os.removexattr)
    lseek = staticmethod(os.lseek)
    truncate = staticmethod(os.ftruncate)

    @staticmethod
    def names(directory: int) -> list[str]:
        """The names in a directory, in no order."""
        return os.listdir(_rewound(directory))

    @staticmethod
    def entries(directory: int) -> ScandirIterator[str]:
        """The same with the kinds that the directory records; use in a `with` statement."""
        return os.scandir(_rewound(directory))

    @staticmethod
    def exchange(name: str, directory: int, other: str, other_directory: int) -> None:
        """Swap two names in one atomic step; both must exist."""
        _rename2(name, directory, other, other_directory, _RENAME_EXCHANGE)

    @staticmethod
    def move(name: str, directory: int, new: str, new_directory: int) -> None:
        """Rename without ever replacing anything."""
        _rename2(name, directory, new, new_directory, _RENAME_NOREPLACE)

    @staticmethod
    def open_beneath(path: str, flags: int, root: int) -> int:
        """Open a path that cannot leave `root`: no symlink, no '..', no other file system."""
        how = _how(flags)
        raw = path.encode("utf-8", "surrogateescape") or b"."
        while True:
            fd = _syscall(_SYS_OPENAT2, root, raw, how, _HOW_BYTES)
            if fd >= 0:
                return int(fd)
            # EAGAIN: a rename raced with the resolution; the kernel asks to try again.
            if ctypes.get_errno() not in (11, 4):
                _raise(path)

    @staticmethod
    def sync_file_system(fd: int) -> None:
        """Everything written to this file system so far becomes durable."""
        if _syncfs is None:
            raise OSError(38, "syncfs is not available on this system")
        if _syncfs(fd):
            _raise("(file system)")

    @staticmethod
    def start_write_back(fd: int) -> None:
        """Send a file's pages to the device without waiting for the file system's journal.

        Only a head start: the fsync that follows is what makes them durable.
        """
        if _sync_file_range is not None:
            _sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE_AND_WAIT)

    @staticmethod
    def point(name: str) -> None:
        """A named place where a test may stop the world."""


CALLS = Calls()
