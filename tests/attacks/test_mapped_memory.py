"""Real disks, full or nearly, on which writing to SQLite's shared memory kills: small blocks, and copies on write.

A disk is a file with a file system in it, mounted in a mount namespace of a child process, gone with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import Ground, guard, in_child, put
from holdfast.cli import main
from holdfast.errors import Blocked, DiskFull
from holdfast.store.database import Records
from holdfast.testing.faults import FaultyCalls, KillAt

pytestmark = pytest.mark.root

_NEW_NAMESPACE, _PRIVATE_RECURSIVE = 0x20000, (1 << 18) | 16384
_KIB = 1024
_CHANGE = json.dumps({"intent": "a test", "steps": [{"write": "a", "content": "new\n"}]})
_VERBS = (("status",), ("log",), ("gc",), ("apply", "-", "--yes"))
_SMALL_BLOCKS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024")
_COPY_ON_WRITE = ("mkfs.btrfs", "-q", "--mixed")
_libc = ctypes.CDLL(None, use_errno=True)


def _isolated() -> None:
    for failed in (
        _libc.unshare(_NEW_NAMESPACE),
        _libc.mount(b"none", b"/", None, _PRIVATE_RECURSIVE, None),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _on_disk(
    tmp_path: Path, act: Callable[[Path], None], make: tuple[str, ...] = _SMALL_BLOCKS, seconds: float = 60
) -> None:
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    image.touch()
    os.truncate(image, 8 << 20 if make is _SMALL_BLOCKS else 64 << 20)
    if shutil.which(make[0]) is None:
        pytest.skip(f"there is no {make[0]} here")
    subprocess.run([*make, str(image)], check=True, stdout=subprocess.DEVNULL)

    def mount() -> None:
        _isolated()
        subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True, stderr=subprocess.DEVNULL)

    def child() -> None:
        mount()
        act(disk)

    if in_child(mount):
        pytest.skip("no file can be mounted as a disk here")
    assert in_child(child, seconds=seconds) == 0


def _fill(disk: Path, leave: int) -> None:
    """Take all the space but `leave` bytes; on the disk, not only in memory."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        for size in (1 << 16, _KIB, _KIB):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                os.fsync(file)
        if leave:
            file.truncate(file.tell() - leave)
            os.fsync(file)


def _said(disk: Path, words: tuple[str, ...], beside: Path) -> tuple[int, str]:
    """One verb in a process of its own: how it ended, negative for a signal, and all it said."""
    heard, change = beside / "heard", beside / "change"
    change.write_text(_CHANGE)

    def child() -> None:
        with open(change) as given, open(heard, "w") as out:
            sys.stdin, sys.stdout, sys.stderr = given, out, out
            os.chdir(disk)
            try:
                status = main(list(words))
            except OSError:
                sys.excepthook(*sys.exc_info())
                status = 1
        os._exit(status)

    return in_child(child), heard.read_text()


def _ended_well(verb: str, status: int, said: str, landed: bool) -> bool:
    """A change that landed may find no room for its record then; it says so, and the next verb records it."""
    if verb != "apply":
        return status == 0
    unrecorded = status == 1 and "the change was applied, but it is not recorded" in said
    return landed if status == 0 or unrecorded else status == 5 and not landed


def test_no_verb_is_killed_by_a_full_disk(tmp_path: Path) -> None:
    """However little room there is, a verb ends by itself: looking and gc well, a change landed or refused."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old"})
        ground.apply(put("b", b"1" * 3000))
        ground.hf.close()
        for leave in range(0, 66, 6):
            for words in _VERBS:
                (disk / "a").write_bytes(b"old")
                _fill(disk, leave * _KIB)
                status, said = _said(disk, words, tmp_path)
                landed = (disk / "a").read_bytes() == b"new\n"
                assert _ended_well(words[0], status, said, landed), (leave, words, status, said)
                assert "internal error" not in said
                (disk / "ballast").unlink()
        ground = Ground(disk)
        ground.hf.recover()
        assert ground.statuses() == ground.ledger_statuses()
        assert ground.hf.audit().ok

    _on_disk(tmp_path, act, seconds=110)


def test_a_disk_that_was_full_from_the_first_verb_on(tmp_path: Path) -> None:
    """Where not even the first folder or lock can be written, that is what is told, with what helps; no defect."""

    def act(disk: Path) -> None:
        guard(disk, {"a": b"old", "ROADMAP.md": b"# R\n- [ ] one\n"}).hf.close()
        _fill(disk, 0)
        for words in (("apply", "-", "--yes"), ("run", "--agent", "manual")):
            status, said = _said(disk, words, tmp_path)
            assert status == 5, (words, status, said)
            assert "Make room" in said
            assert "internal error" not in said
        assert _said(disk, ("status",), tmp_path)[0] == 0
        assert (disk / "a").read_bytes() == b"old"

    _on_disk(tmp_path, act)


def test_a_disk_with_small_blocks_that_fills_under_an_open_database(tmp_path: Path) -> None:
    """What was opened with room and finds too little when it writes says so, and loses nothing that was written."""

    def act(disk: Path) -> None:
        Records(str(disk)).close()
        written, refused = [], []
        for leave in range(0, 40, 4):
            records = Records(str(disk))
            assert not records.volatile
            _fill(disk, leave * _KIB)
            try:
                records.save_plan(f"p-{leave}", "d", 1, b"{}")
                written.append(f"p-{leave}")
            except DiskFull as error:
                refused.append(error.message)
            assert [records.resolve(id) for id in written] == written
            records.close()
            (disk / "ballast").unlink()
        assert written
        assert refused
        again = Records(str(disk))
        assert [again.resolve(id) for id in written] == written
        again.close()

    _on_disk(tmp_path, act)


def test_a_disk_that_copies_on_write_and_fills_under_an_open_database(tmp_path: Path) -> None:
    """There even what has its place already needs another one; what was written is found all the same."""

    def act(disk: Path) -> None:
        records = Records(str(disk))
        records.save_plan("p-first", "d", 1, b"{}")
        os.sync()
        _fill(disk, 0)
        with pytest.raises((Blocked, DiskFull)) as caught:
            _saved_until_refused(records)
        assert "room" in caught.value.hint
        assert records.resolve("p-first") == "p-first"
        records.close()
        (disk / "ballast").unlink()
        again = Records(str(disk))
        assert again.resolve("p-first") == "p-first"
        again.close()

    _on_disk(tmp_path, act, _COPY_ON_WRITE)


def _saved_until_refused(records: Records) -> None:
    """A full btrfs finds room for a while."""
    for number in range(1000):
        records.save_plan(f"p-{number}", "d", 1, bytes(4000))
        os.sync()


@pytest.mark.parametrize("point", ["flipped", "committed"])
def test_what_was_interrupted_can_be_looked_at_without_room(tmp_path: Path, point: str) -> None:
    """Where even its record finds no room, looking goes on and tells; with room the next verb repairs it."""

    def act(disk: Path) -> None:
        ground = guard(disk, {"a": b"old", "ROADMAP.md": b"# R\n- [ ] one\n"})
        ground.apply(put("b", b"1"))
        ground.hf.close()
        assert in_child(lambda: _interrupted(disk, point)) == -9
        _fill(disk, 0)
        for words in (("status",), ("log",), ("tasks",)):
            status, said = _said(disk, words, tmp_path)
            assert status == 0, (words, status, said)
            assert "internal error" not in said
            if words == ("status",):
                trouble = said.splitlines()[said.splitlines().index(_line_of(said, "Trouble")) + 1]
                assert "Make room" in trouble
            else:
                assert "by the first verb that finds room" in said
        (disk / "ballast").unlink()
        ground = Ground(disk)
        ground.hf.recover()
        assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED", _THEN[point]]
        assert ground.hf.audit().ok

    _on_disk(tmp_path, act)


_THEN = {"flipped": "ROLLED_BACK", "committed": "COMPLETED"}


def _line_of(said: str, word: str) -> str:
    return next((line for line in said.splitlines() if line.startswith(word)), "")


def _interrupted(disk: Path, point: str) -> None:
    calls = FaultyCalls()
    ground = Ground(disk, calls)
    calls.arm(KillAt(point))
    ground.apply(put("a", b"new" * 1000))


def test_a_database_from_a_disk_with_larger_blocks(tmp_path: Path) -> None:
    """One that keeps a write-ahead log, as elsewhere, is taken out of it without mapping anything, rows and all."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    records = Records(str(elsewhere))
    records.save_plan("p-first", "d", 1, b"{}")
    names = sorted(os.listdir(elsewhere))
    assert names == ["holdfast.db", "holdfast.db-shm", "holdfast.db-wal"]

    def act(disk: Path) -> None:
        for name in ("holdfast.db", "holdfast.db-wal"):  # as a crash leaves it
            shutil.copy(elsewhere / name, disk / name)
        found = Records(str(disk))
        assert found.resolve("p-first") == "p-first"
        found.save_plan("p-second", "d", 1, b"{}")
        assert not (disk / "holdfast.db-shm").exists()
        found.close()

    _on_disk(tmp_path, act)
    records.close()
