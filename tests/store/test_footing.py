"""How the database stands on its disk: which journal, and when it is a copy in memory."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from holdfast.store.footing import Footing, copy_of, footing_of, judged, set_mode

_EXT4, _BTRFS = "ext4", "btrfs"


def _database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    set_mode(db, "WAL")
    db.execute("CREATE TABLE t(x)")
    db.execute("INSERT INTO t VALUES(1)")
    return db


def _mode(db: sqlite3.Connection) -> str:
    return str(db.execute("PRAGMA journal_mode").fetchone()[0])


def _about(block: int, available: int, blocks: int = 1000) -> os.statvfs_result:
    return os.statvfs_result((block, block, blocks, available, available, 100, 100, 100, 0, 255))


@pytest.mark.parametrize(
    ("block", "available", "kind", "expected"),
    [
        (4096, 256, _EXT4, Footing(True, "WAL")),
        (4096, 255, _EXT4, Footing(False, "WAL")),
        (65536, 16, _EXT4, Footing(True, "WAL")),
        (2048, 512, _EXT4, Footing(True, "DELETE")),
        (1024, 1023, _EXT4, Footing(False, "DELETE")),
        (0, 0, _EXT4, Footing(False, "WAL")),
        (4096, 256, _BTRFS, Footing(True, "DELETE")),
    ],
)
def test_blocks_room_and_kind_decide(block: int, available: int, kind: str, expected: Footing) -> None:
    """Less than a mebibyte is no room; blocks under 4 KiB and copies on write are no ground for shared memory."""
    assert judged(_about(block, available), kind) == expected


def test_a_disk_that_does_not_say_how_much_it_holds_has_room() -> None:
    """Nothing is known of it, and nothing is refused for that."""
    assert judged(_about(4096, 0, blocks=0), _EXT4) == Footing(True, "WAL")


def test_a_directory_that_is_not_there_is_no_ground(tmp_path: Path) -> None:
    """It is an error, and no guess."""
    with pytest.raises(FileNotFoundError):
        footing_of(str(tmp_path / "nowhere"))


def test_a_copy_has_what_was_committed_and_maps_nothing(tmp_path: Path) -> None:
    """Also what stands only in the write-ahead log that a crash left; the copy can be written, the file stays."""
    _database(tmp_path / "a.db")  # never closed before its files are copied: as after a crash
    for ending in ("", "-wal"):
        (tmp_path / f"b.db{ending}").write_bytes((tmp_path / f"a.db{ending}").read_bytes())
    copy = copy_of(str(tmp_path / "b.db"))
    assert copy.execute("SELECT x FROM t").fetchall() == [(1,)]
    copy.execute("INSERT INTO t VALUES(2)")
    assert copy.execute("SELECT count(*) FROM t").fetchone() == (2,)
    assert not (tmp_path / "b.db-shm").exists()
    assert copy_of(str(tmp_path / "b.db")).execute("SELECT x FROM t").fetchall() == [(1,)]


def test_a_file_that_somebody_has_open_is_not_copied(tmp_path: Path) -> None:
    """It is refused at once, and whoever has it goes on undisturbed."""
    db = _database(tmp_path / "a.db")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        copy_of(str(tmp_path / "a.db"))
    db.execute("INSERT INTO t VALUES(2)")
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_where_there_is_no_file_the_copy_is_empty(tmp_path: Path) -> None:
    """Looking makes none."""
    assert copy_of(str(tmp_path / "a.db")).execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    assert os.listdir(tmp_path) == []


def test_out_of_the_log_and_open_to_others(tmp_path: Path) -> None:
    """A database taken out of WAL keeps its rows, and two may use it in turns."""
    _database(tmp_path / "a.db").close()
    one, other = (sqlite3.connect(tmp_path / "a.db", isolation_level=None, timeout=1) for _ in range(2))
    set_mode(one, "DELETE")
    set_mode(other, "DELETE")
    one.execute("INSERT INTO t VALUES(2)")
    other.execute("INSERT INTO t VALUES(3)")
    assert (_mode(one), one.execute("SELECT count(*) FROM t").fetchone()) == ("delete", (3,))
