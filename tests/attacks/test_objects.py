"""Unusual objects: each is handled exactly, or refused before anything changes."""

from __future__ import annotations

import fcntl
import os
import resource
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from guarded import Ground, as_user, at_most, contents, fill, guard, in_child, put, swap
from holdfast.errors import Blocked, HoldfastError, InvalidPath
from holdfast.model.plan import Chmod, Create, Delete, Move, Step, Symlink

_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602


def _round_trip(ground: Ground, *steps: Step) -> None:
    """Apply, then undo: the tree must be exactly as before."""
    before = ground.tree()
    done = ground.apply(*steps)
    assert ground.tree() != before
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


def test_names_of_255_bytes(tmp_path: Path) -> None:
    """The longest names work for every step, also in many bytes a character; one byte more is refused."""
    names = ["x" * 255, "ß" * 127, "日" * 85]
    ground = guard(tmp_path / "workspace", dict.fromkeys(names, b"old"))
    for name in names:
        _round_trip(ground, put(name, b"new"))
        _round_trip(ground, Move(name, "short"))
        _round_trip(ground, Delete(name))
    _round_trip(ground, Create("d" * 255, True), put("d" * 255 + "/" + "e" * 255, b"1"))
    with pytest.raises(InvalidPath):
        ground.apply(put("x" * 256, b""))


def test_a_path_of_4000_bytes(tmp_path: Path) -> None:
    """A path deeper than the kernel takes in one call from / works, is undone, and longer ones are refused."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    before = ground.tree()
    deep = "/".join(["d" * 99] * 39)  # 3899 bytes
    done = ground.apply(put(f"{deep}/file", b"deep"), put("a", b"new"))
    here = os.getcwd()
    try:
        os.chdir(ground.path)
        for _ in range(39):
            os.chdir("d" * 99)
        assert Path("file").read_bytes() == b"deep"
    finally:
        os.chdir(here)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before
    with pytest.raises(InvalidPath):
        ground.apply(put("/".join(["d" * 99] * 41), b""))


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """Names are bytes: every step works on them, and they come back byte for byte."""
    names = [os.fsdecode(name) for name in (b"\xff\xfe", b"caf\xe9", b"a\xc3", b"\x80/\x81")]
    ground = guard(tmp_path / "workspace", dict.fromkeys(names, b"old"))
    for name in names:
        _round_trip(ground, put(name, b"new"))
        _round_trip(ground, Move(name, os.fsdecode(b"moved\xf0")))
        _round_trip(ground, Delete(name))
        _round_trip(ground, Chmod(name, 0o600))
    _round_trip(ground, Symlink("link", os.fsdecode(b"to\xff")))
    ground.apply(put(names[0], b"new"))
    assert os.fsencode(names[0]) in os.listdir(os.fsencode(ground.path))
    assert ground.hf.audit().ok


def test_names_that_differ_in_case_or_form_only(tmp_path: Path) -> None:
    """README and Readme, composed and decomposed é, are different files where the file system says so."""
    names = ["README", "Readme", "\u00e9", "e\u0301"]
    ground = guard(tmp_path / "workspace", {name: name.encode() for name in names})
    if len(os.listdir(ground.path)) != 5:
        pytest.skip("this file system folds names")
    _round_trip(ground, put("README", b"1"), Delete("Readme"), put("\u00e9", b"2"), Move("e\u0301", "E\u0301"))


def test_empty_files_and_directories(tmp_path: Path) -> None:
    """Nothing is something: empty files and directories are made, changed, removed and restored."""
    ground = guard(tmp_path / "workspace", {"empty": b"", "full": b"x", "d/": b""})
    _round_trip(
        ground, put("empty", b"now full"), put("full", b""), Delete("d", True), Create("e", True), Create("f", False)
    )
    _round_trip(ground, swap("empty", b"", b"x"))
    _round_trip(ground, Move("d", "e"), Delete("empty"))


def test_holes_are_kept(tmp_path: Path) -> None:
    """A sparse file that has to be copied stays sparse, and its bytes and times are the same."""
    ground = guard(tmp_path / "workspace", {"other": b"x"})
    with open(ground / "sparse", "wb") as file:
        file.truncate(64 << 20)
        file.seek(33 << 20)
        file.write(b"in the middle")
    os.utime(ground / "sparse", ns=(10**18, 10**18))
    before = ground.tree()
    # Swapping two names cannot be done by one rename, so the bytes are copied.
    done = ground.apply(Move("sparse", "t"), Move("other", "sparse"), Move("t", "other"))
    about = os.stat(ground / "other")
    assert (about.st_size, about.st_mtime_ns) == (64 << 20, 10**18)
    assert about.st_blocks * 512 < 8 << 20
    assert (ground / "other").read_bytes() == before["sparse"].content
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


@pytest.mark.serial
@pytest.mark.parametrize("gibibytes", [2, pytest.param(100, marks=pytest.mark.crash_full)])
def test_a_huge_sparse_file_costs_no_memory_and_no_space(tmp_path: Path, gibibytes: int) -> None:
    """A sparse file, larger than the disk if need be, is moved without a copy and without being held in memory."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    size = gibibytes << 30
    with open(ground / "huge", "wb") as file:
        file.truncate(size)
    os.utime(ground / "huge", ns=(10**18, 10**18))
    inode = (ground / "huge").stat().st_ino

    def act() -> None:
        mine = Ground(ground.path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.monotonic()
        done = mine.apply(Move("huge", "moved"), put("a", b"new"))
        took = time.monotonic() - started
        assert ((mine / "moved").stat().st_size, (mine / "moved").stat().st_ino) == (size, inode)
        mine.hf.undo(done.id, approved_by="me")
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"a move of {gibibytes} GiB of holes took {took:.1f} s and {more} KiB")
        assert more < 50_000, f"{more} KiB more"

    assert in_child(act, seconds=600) == 0
    assert (ground / "huge").stat().st_blocks == 0


@contextmanager
def _flagged(path: Path, flag: int) -> Iterator[None]:
    def change(add: int, remove: int) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            flags = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("i", 0)))[0]
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", (flags | add) & ~remove))
        finally:
            os.close(fd)

    try:
        change(flag, 0)
    except OSError as error:
        pytest.skip(f"this file system cannot mark files: {error.strerror}")
    try:
        yield
    finally:
        change(0, flag)


@pytest.mark.root
@pytest.mark.parametrize("flag", [_IMMUTABLE, _APPEND_ONLY], ids=["immutable", "append-only"])
@pytest.mark.parametrize("place", ["b", "d"])
def test_a_file_that_may_not_change(tmp_path: Path, flag: int, place: str) -> None:
    """An immutable or append-only file or directory stops the change; what came before it is as it was."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old", "d/f": b"old"})
    before = ground.tree()
    steps: list[Step] = [put("b", b"n"), Delete("b"), Move("b", "z"), Chmod("b", 0o600)]
    if place == "d":
        steps = [put("d/f", b"n"), Delete("d/f"), Move("d/f", "z"), Delete("d", True), Chmod("d", 0o700)]
    with _flagged(ground / place, flag):
        for step in steps:
            with pytest.raises(HoldfastError):
                ground.apply(put("a", b"new"), step)
            assert ground.tree() == before
            assert ground.journal() == []
    assert set(ground.statuses()) <= {"ROLLED_BACK", "ABORTED"}


@pytest.mark.root
def test_a_read_only_directory_of_an_ordinary_user(public: Path) -> None:
    """Nothing can be changed in a directory without write permission; the first file of the change is as before."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"old", "d/f": b"old"})
        (ground / "d").chmod(0o555)
        before = ground.tree()
        for step in (
            put("d/f", b"n"),
            put("d/n", b"n"),
            Delete("d/f"),
            Move("d/f", "z"),
            Move("a", "d/a"),
        ):
            with pytest.raises(HoldfastError):
                ground.apply(put("a0", b"new"), step)
            assert ground.tree() == before
            assert ground.journal() == []

    as_user(public, act)


@pytest.mark.root
def test_directories_that_close_themselves(public: Path) -> None:
    """An ordinary user makes, fills, closes and undoes directories without write permission for themselves."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"old", "d/f": b"old", "shut/": b""})
        (ground / "shut").chmod(0o555)
        _round_trip(ground, Create("n", True, 0o555), put("n/x", b"1"), Create("n/m", True, 0o500), put("n/m/y", b"2"))
        _round_trip(ground, put("d/f", b"new"), Chmod("d", 0o555))
        _round_trip(ground, Delete("shut", True))
        (ground / "d").chmod(0o500)
        _round_trip(ground, Delete("d", True))
        _round_trip(ground, Chmod("d", 0o700), Delete("d/f"))
        _round_trip(ground, Move("shut", "moved"))
        _round_trip(ground, Chmod("shut", 0o755), put("shut/x", b"1"))

    as_user(public, act)


@pytest.mark.root
def test_files_of_others_in_a_directory_of_ours(public: Path) -> None:
    """A user may replace somebody's file in their own directory only where the owner can be kept; otherwise nothing."""

    def act(workspace: Path) -> None:
        ground = Ground(workspace)
        before = ground.tree()
        for step in (put("theirs", b"n"), Chmod("theirs", 0o600)):
            with pytest.raises(HoldfastError):
                ground.apply(put("a", b"new"), step)
            assert ground.tree() == before
        _round_trip(ground, Delete("theirs"))
        done = ground.apply(Delete("theirs"))
        ground.hf.gc(keep_days=0)
        ground.hf.undo(done.id, approved_by="me")
        assert ground.tree() == before

    as_user(public, lambda workspace: guard(workspace, {"a": b"old"}))
    fill(public / "workspace", {"theirs": b"of root"})
    as_user(public, act)


def test_a_hard_link_inside_a_directory_stops_the_whole_change(tmp_path: Path) -> None:
    """One hard-linked file in a directory that shall go stops the whole change."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "d/one": b"1"})
    os.link(ground / "d/one", ground / "d/two")
    before = ground.tree()
    for step in (Delete("d", True), Move("d", "e")):
        with pytest.raises(Blocked, match="hard links"):
            ground.apply(put("a", b"new"), step)
    assert ground.tree() == before


def test_a_file_larger_than_memory_chunks(tmp_path: Path) -> None:
    """A file of several chunks is copied, hashed and restored exactly."""
    data = os.urandom(1 << 20) * 5 + b"end"
    ground = guard(tmp_path / "workspace", {"big": data, "other": b"o"})
    _round_trip(ground, Move("big", "t"), Move("other", "big"), Move("t", "other"))
    _round_trip(ground, put("big", data[:-1]))


def test_moves_of_whole_directories(tmp_path: Path) -> None:
    """A directory with files, links and empty directories moves as one thing and comes back as one."""
    ground = guard(tmp_path / "workspace", {"d/a": b"1", "d/e/": b"", "d/f/g": b"2"})
    os.symlink("a", ground / "d/link")
    (ground / "d/f").chmod(0o750)
    _round_trip(ground, Move("d", "far/away"))
    with at_most(20):
        ground.apply(Move("d", "n"), put("n/f/h", b"3"), Move("n/f", "d"))
    assert contents(ground.tree()) == {"n/a": b"1", "d/g": b"2", "d/h": b"3"}


def test_a_stranger_appears_in_the_tree(tmp_path: Path) -> None:
    """A change elsewhere in the workspace is nobody's business: the plan lands, the stranger's file stays."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "d/x": b"x"})
    rehearsal = ground.ready(ground.plan(put("a", b"new")))
    (ground / "d/stranger").write_bytes(b"s")
    rehearsal.execute()
    assert contents(ground.tree()) == {"a": b"new", "d/x": b"x", "d/stranger": b"s"}
