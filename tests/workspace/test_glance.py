"""The glance: what a process saw before is compared as bytes, and the answer is that of a look from scratch."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.disk import glance as disk_glance
from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.glance import Glass
from holdfast.workspace import glance
from holdfast.workspace.block import row_of
from holdfast.workspace.tree import Snapshot, snapshot

SETTLED_S = 0.05
MANY = 2100  # three parts of a directory
OLD = -86_400


class CountingCalls(Calls):
    """The real kernel, with the number of paths that were looked up."""

    def __init__(self) -> None:
        self.looked = 0

    def lstat(self, path: bytes, *, dir_fd: int | None = None) -> os.stat_result:  # type: ignore[override]
        self.looked += 1
        return os.lstat(path, dir_fd=dir_fd)


@pytest.fixture
def root(workspace: Path) -> Path:
    """Two directories with the same names, and a state directory, at rest and looked at twice."""
    for name in ("a", "b"):
        (workspace / name).mkdir()
        for number in range(4):
            (workspace / name / f"{number}.txt").write_bytes(f"{name}{number}".encode())
    (workspace / "a" / "link").symlink_to("0.txt")
    (workspace / ".holdfast").mkdir(0o700)
    return at_rest(workspace)


@pytest.fixture
def many(root: Path) -> Path:
    """A directory so large that it is looked at in parts."""
    (root / "many").mkdir()
    for number in range(MANY):
        (root / "many" / f"{number:04}").touch()
    at_rest(root)
    return root / "many"


def at_rest(root: Path) -> Path:
    time.sleep(SETTLED_S)
    looked(root)
    looked(root)
    return root


def looked(root: Path, calls: Calls = CALLS) -> Snapshot:
    return snapshot(str(root), str(root / ".holdfast"), calls=calls)


def from_scratch(root: Path) -> Snapshot:
    return snapshot(str(root), None)


@pytest.fixture
def rows_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were made of answers, each time that some were.

    Patched in, because both ways give the same digest: nothing that a caller sees tells which one was gone.
    """
    made: list[int] = []
    make = glance._rows

    def counted(answers: array[int]) -> list[tuple[int, ...]]:
        found = make(answers)
        made.append(len(found))
        return found

    monkeypatch.setattr(glance, "_rows", counted)
    return made


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """One of every kind of thing, with times and modes that fill their fields."""
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 5 << 32)
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", ns=(0, OLD * 10**9 + 7))
    (tmp_path / "set-id").touch()
    (tmp_path / "set-id").chmod(0o6755)
    (tmp_path / "directory").mkdir(0o1777)
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    os.link(tmp_path / "plain", tmp_path / "twin")
    if os.geteuid() == 0:
        os.chown(tmp_path / "old", 70_000, 3_000_000_000)
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_the_rows_of_a_glance_are_those_of_lstat(directory: int) -> None:
    """Number by number, whatever the thing is, however old, however large."""
    names = sorted(map(os.fsencode, os.listdir(directory)))
    answers = Glass().answers(directory, names)
    assert answers is not None
    assert glance._rows(answers) == [row_of(os.lstat(name, dir_fd=directory)) for name in names]


def test_a_glance_tells_of_all_names_or_of_none(directory: int) -> None:
    """One that is gone, and there is no answer."""
    assert Glass().answers(directory, [b"plain", b"gone", b"old"]) is None


def test_room_is_made_for_as_many_names_as_there_are(many: Path) -> None:
    """More than were expected at first."""
    fd = os.open(many, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names = sorted(map(os.fsencode, os.listdir(fd)))
        answers = Glass().answers(fd, names)
        assert answers is not None
        assert glance._rows(answers) == [row_of(os.lstat(name, dir_fd=fd)) for name in names]
    finally:
        os.close(fd)


def _rewritten(path: Path) -> None:
    """In place: the same inode, the same size, and the modification time put back."""
    found = path.stat()
    with path.open("r+b") as file:
        file.write(b"X")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _replaced(path: Path) -> None:
    """By another file of the same size and modification time."""
    found = path.stat()
    (path.parent.parent / "other").write_bytes(b"Y" * found.st_size)
    os.utime(path.parent.parent / "other", ns=(found.st_atime_ns, found.st_mtime_ns))
    (path.parent.parent / "other").rename(path)


def _became_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("1.txt")


@pytest.mark.parametrize(
    "edit",
    [
        _rewritten,
        _replaced,
        _became_a_link,
        lambda path: path.chmod(0o600),
        lambda path: os.setxattr(path, "user.a", b"b"),
        lambda path: path.unlink(),
        lambda path: (path.parent / "new").touch(),
        lambda path: os.chown(path, 1, 1) if os.geteuid() == 0 else path.chmod(0o640),
    ],
)
def test_no_edit_escapes_a_process_that_has_looked_before(root: Path, edit: Callable[[Path], object]) -> None:
    """Whatever was done to a path that was remembered, the digest is the one from scratch, and another one."""
    before = looked(root)
    edit(root / "a" / "2.txt")
    after = looked(root)
    assert before.digest != after.digest == from_scratch(root).digest
    assert looked(root).digest == after.digest


def test_an_edit_in_the_last_part_of_a_large_directory_is_seen(many: Path) -> None:
    """The parts before it were as remembered."""
    before = looked(many.parent)
    (many / f"{MANY - 1}").write_bytes(b"last")
    after = looked(many.parent)
    assert before.digest != after.digest == from_scratch(many.parent).digest


def test_what_was_remembered_of_one_directory_says_nothing_about_another(root: Path) -> None:
    """Two directories change names; their blocks, and what was remembered of them, do not."""
    before = looked(root)
    (root / "a").rename(root / "c")
    (root / "b").rename(root / "a")
    (root / "c").rename(root / "b")
    after = looked(root)
    assert before.digest != after.digest == from_scratch(root).digest


def test_an_unchanged_tree_is_told_by_bytes_alone(root: Path, rows_made: list[int]) -> None:
    """No row is made of any answer that was remembered; of one directory that changed, only of its own."""
    looked(root)
    assert rows_made == []
    (root / "b" / "1.txt").write_bytes(b"other")
    looked(root)
    assert rows_made == [4]


def test_a_process_remembers_from_its_second_look_on(root: Path, rows_made: list[int]) -> None:
    """The first one is plain, since most processes look once; the second one makes rows, the third one none."""
    state = f"{root / '.holdfast'}/."  # spelled anew: for this process another one
    first = snapshot(str(root), state)
    assert rows_made == []
    assert snapshot(str(root), state).digest == first.digest
    assert sum(rows_made) == first.count
    rows_made.clear()
    assert snapshot(str(root), state).digest == first.digest
    assert rows_made == []


def test_without_statx_the_answer_is_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older C library, of which there is none here to take: every path is looked up by itself."""
    monkeypatch.setattr(disk_glance, "_statx", None)
    (root / "a" / "2.txt").write_bytes(b"other")
    assert looked(root).digest == from_scratch(root).digest


def test_who_stands_in_for_the_kernel_sees_every_look(root: Path) -> None:
    """A test that counts or fails calls gets each of them."""
    calls = CountingCalls()
    found = looked(root, calls)
    assert calls.looked == found.count
