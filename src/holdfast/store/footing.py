"""What SQLite stands on here: how much room the disk has, how large its blocks are, whether it copies on write.

    plenty of room ............................... WAL: nobody waits for anybody, and no write waits for the disk
    plenty of room, small blocks or copies ....... a rollback journal: slower, and nothing is mapped into memory
    hardly any room .............................. a copy in memory, and the file is left as it is

Invariants
  G1  SQLite maps nothing of a disk that may have no room for it. Its shared memory (`-shm`) is a file into which it
      writes one byte in every 4 KiB. Where blocks are smaller, the rest is holes; where the file system copies on
      write, every page needs a new place. To find none for a mapped page is no error but SIGBUS: the end of the
      process, in the middle of whatever it does.
  G2  With hardly any room at the beginning, nothing later fails for want of it: rows go into the copy. They are a
      projection of the ledger, and come into the file with the first verb that has room.
  G3  The copy is of what was committed. Whoever has the file open keeps it from being copied: then there is none, and
      the ledger tells everything but the details of steps.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Literal, NamedTuple

from holdfast.disk.mounts import file_system_kind

Mode = Literal["WAL", "DELETE"]
# As much as a verb writes into the tables and the ledger, with a margin; a run wants as much before it starts.
LEAST_ROOM = 1 << 20
_SHARED_MEMORY_STRIDE = 4096
# What lies under an overlay is not told.
_COPY_ON_WRITE = frozenset({"btrfs", "bcachefs", "nilfs2"})


class Footing(NamedTuple):
    """`mode` is the journal that a database may have there."""

    has_room: bool
    mode: Mode


def footing_of(directory: str) -> Footing:
    return judged(os.statvfs(directory), file_system_kind(directory))


def judged(about: os.statvfs_result, kind: str) -> Footing:
    """Some file systems do not say how much they hold: they are taken for ones with room."""
    block = min(about.f_bsize, about.f_frsize)
    has_room = not about.f_blocks or about.f_bavail * about.f_frsize >= LEAST_ROOM
    maps_safely = not 0 < block < _SHARED_MEMORY_STRIDE and kind not in _COPY_ON_WRITE
    return Footing(has_room, "WAL" if maps_safely else "DELETE")


def set_mode(db: sqlite3.Connection, mode: Mode) -> None:
    """Bring the database to this journal. Out of WAL it is taken alone: nothing is mapped for that either (G1)."""
    if mode == "WAL":
        db.execute("PRAGMA journal_mode=WAL")
        return
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("PRAGMA locking_mode=NORMAL")
    # The lock goes with the next look.
    db.execute("PRAGMA user_version").fetchone()


def copy_of(path: str) -> sqlite3.Connection:
    """The database in memory; sqlite3.Error where it cannot be read alone, or is not there (G3)."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    if not os.path.exists(path):
        return copy
    file = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        # The index of the write-ahead log is in our own memory then, and not in a file that is mapped.
        file.execute("PRAGMA locking_mode=EXCLUSIVE")
        file.execute("PRAGMA user_version").fetchone()  # `backup` would wait for a lock without end
        file.backup(copy)
    except sqlite3.Error:
        copy.close()
        raise
    finally:
        file.close()
    return copy
