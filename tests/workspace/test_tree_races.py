"""Snapshots while somebody else is at work: nothing blocks, nothing is followed, nothing is half read."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.disk.calls import Calls
from holdfast.errors import Conflict
from holdfast.workspace.tree import snapshot

Deed = Callable[[], object]


class Neighbour(Calls):
    """The real kernel, and somebody who acts on the real files just before or after a name is seen, opened or read."""

    def __init__(self, name: str, *, before_look: Deed | None = None, before_open: Deed | None = None,
                 after_read: Deed | None = None, after_seek: Deed | None = None, times: int = 1) -> None:  # fmt: skip
        self._name = name
        self._before_look = before_look
        self._before_open = before_open
        self._after_read = after_read
        self._after_seek = after_seek
        self._times = times
        self._watched = -1
        self.reached: list[str] = []

    def lstat(self, path: bytes, *, dir_fd: int | None = None) -> os.stat_result:  # type: ignore[override]
        if self._before_look is not None and os.fsdecode(path) == self._name:
            self._act(self._before_look)
        return os.lstat(path, dir_fd=dir_fd)

    def open(  # type: ignore[override]
        self, path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        ours = os.fsdecode(path) == self._name
        if ours and self._before_open is not None:
            self._act(self._before_open)
        fd = os.open(path, flags, mode, dir_fd=dir_fd)
        self.reached.append(os.readlink(f"/proc/self/fd/{fd}"))
        if ours:
            self._watched = fd
        return fd

    def read(self, fd: int, size: int) -> bytes:  # type: ignore[override]
        data = os.read(fd, size)
        if fd == self._watched and self._after_read is not None:
            self._act(self._after_read)
        return data

    def lseek(self, fd: int, position: int, how: int) -> int:  # type: ignore[override]
        found = os.lseek(fd, position, how)
        if fd == self._watched and self._after_seek is not None:
            self._act(self._after_seek)
        return found

    def names(self, directory: int) -> list[str]:  # type: ignore[override]
        found = Calls.names(directory)
        if self._name == "(list)" and self._after_read is not None:
            self._act(self._after_read)
        return found

    def _act(self, deed: Deed) -> None:
        if self._times > 0:
            self._times -= 1
            deed()


@pytest.fixture
def tree(workspace: Path) -> Path:
    (workspace / "dir").mkdir()
    (workspace / "dir" / "inner").write_bytes(b"inner")
    (workspace / "dir" / "victim").write_bytes(b"first")
    (workspace / "other").write_bytes(b"other")
    return workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "inner").write_bytes(b"never to be read")
    return folder


def replaced(path: Path, make: Callable[[Path], object]) -> Deed:
    def deed() -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    return deed


def check_equals_rest(tree: Path, calls: Calls) -> None:
    assert snapshot(str(tree), None, calls=calls).digest == snapshot(str(tree), None).digest


SWAPS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "directory": Path.mkdir,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to a file": lambda path: path.symlink_to("inner"),
    "other file": lambda path: path.write_bytes(b"other"),
}


@pytest.mark.parametrize("make", SWAPS.values(), ids=SWAPS.keys())
def test_what_is_swapped_in_for_a_file_is_recorded_as_what_it_is(tree: Path, make: Callable[[Path], object]) -> None:
    """The open neither blocks nor follows; the snapshot is that of the tree after the swap."""
    deed = replaced(tree / "dir" / "victim", make)
    check_equals_rest(tree, Neighbour("victim", before_open=deed))


def test_a_link_swapped_in_for_a_file_is_not_followed(tree: Path, outside: Path) -> None:
    """What it points to is not even opened."""
    deed = replaced(tree / "dir" / "victim", lambda path: path.symlink_to(outside / "inner"))
    calls = Neighbour("victim", before_open=deed)
    image = snapshot(str(tree), None, calls=calls).get("dir/victim")
    assert image is not None
    assert image.target == str(outside / "inner")
    assert str(tree / "other") in calls.reached
    assert not [path for path in calls.reached if path.startswith(str(outside))]


def test_a_directory_swapped_for_a_link_is_not_followed(tree: Path, outside: Path) -> None:
    """What the link points to is never part of the snapshot."""
    deed = replaced(tree / "dir", lambda path: path.symlink_to(outside))
    taken = snapshot(str(tree), None, calls=Neighbour("dir", before_open=deed))
    assert [(path, image.kind) for path, image in taken.entries()] == [("dir", "symlink"), ("other", "file")]


def test_a_directory_swapped_for_a_file_is_recorded_as_a_file(tree: Path) -> None:
    """The parent is looked at again."""
    deed = replaced(tree / "dir", lambda path: path.write_bytes(b"now a file"))
    check_equals_rest(tree, Neighbour("dir", before_open=deed))


@pytest.mark.parametrize("content", [b"secnd", b"longer than before", b""])
def test_a_file_that_changes_while_it_is_read_is_read_again(tree: Path, content: bytes) -> None:
    """No digest of half an edit: the result is that of the file at rest."""
    victim = tree / "dir" / "victim"
    check_equals_rest(tree, Neighbour("victim", after_read=lambda: victim.write_bytes(content)))


def test_a_large_file_cut_short_while_it_is_read_is_read_again(tree: Path) -> None:
    """No signal, no error, no half digest."""
    victim = tree / "dir" / "victim"
    victim.write_bytes(os.urandom(3 << 20))
    check_equals_rest(tree, Neighbour("victim", after_read=lambda: os.truncate(victim, 100)))


@pytest.mark.parametrize("moment", ["after_read", "after_seek"])
@pytest.mark.parametrize("length", [0, 100, 3 << 20, 9 << 20])
def test_a_sparse_file_cut_short_or_grown_while_it_is_read_is_read_again(tree: Path, length: int, moment: str) -> None:
    """The places of holes are asked for and then read: whatever happens in between, there is no half digest."""
    victim = tree / "dir" / "victim"
    with victim.open("wb") as file:
        for at in (1 << 20, 4 << 20):
            file.seek(at)
            file.write(os.urandom(1 << 20))
        file.truncate(8 << 20)
    cut: dict[str, Deed] = {moment: lambda: os.truncate(victim, length)}
    check_equals_rest(tree, Neighbour("victim", **cut))  # type: ignore[arg-type]


def test_an_attribute_that_changes_while_a_file_is_read_is_seen(tree: Path) -> None:
    """Content and attributes belong to the same moment."""
    victim = tree / "dir" / "victim"
    check_equals_rest(tree, Neighbour("victim", after_read=lambda: os.setxattr(victim, "user.a", b"b")))


@pytest.mark.parametrize("start", [b"first", b"x" * (2 << 20)], ids=["small", "large"])
def test_a_file_that_never_rests_is_named(tree: Path, start: bytes) -> None:
    """After a few attempts the snapshot gives up and says which path it was."""
    victim = tree / "dir" / "victim"
    victim.write_bytes(start)

    def grow() -> None:
        with open(victim, "ab") as file:
            file.write(b"more")

    with pytest.raises(Conflict, match=r"^dir/victim keeps changing") as caught:
        snapshot(str(tree), None, calls=Neighbour("victim", after_read=grow, times=10**6))
    assert caught.value.changed is False


def test_a_directory_that_never_rests_is_named(tree: Path) -> None:
    """Names that come and go each time it is listed end in a Conflict, not in a guess."""
    numbers = iter(range(10**6))

    def come_and_go() -> None:
        number = next(numbers)
        (tree / f"new{number}").touch()
        (tree / f"new{number - 1}").unlink(missing_ok=True)

    with pytest.raises(Conflict, match="keeps changing"):
        snapshot(str(tree), None, calls=Neighbour("(list)", after_read=come_and_go, times=10**6))


def test_names_that_vanish_after_they_were_listed_are_not_there(tree: Path) -> None:
    """A file gone between listing and looking is simply gone; its neighbours are all there."""
    deed = (tree / "other").unlink
    taken = snapshot(str(tree), None, calls=Neighbour("(list)", after_read=deed))
    assert [path for path, _ in taken.entries()] == ["dir", "dir/inner", "dir/victim"]


@pytest.mark.parametrize("after", ["victim", "other"])
def test_a_name_that_vanishes_from_a_known_directory_is_not_there(tree: Path, after: str) -> None:
    """A file gone between the look at its directory, which stands as known, and the look at itself is simply gone."""
    state = tree / ".holdfast"
    state.mkdir()
    time.sleep(0.05)
    snapshot(str(tree), str(state))
    gone = next(path for path in (tree / "dir" / after, tree / after) if path.exists())
    taken = snapshot(str(tree), str(state), calls=Neighbour(after, before_look=gone.unlink))
    assert taken.get(str(gone.relative_to(tree))) is None
    assert taken.digest == snapshot(str(tree), None).digest


def test_a_renamed_file_is_never_lost(tree: Path) -> None:
    """A rename during the listing shows the new name: the directory is listed again."""
    taken = snapshot(
        str(tree), None, calls=Neighbour("(list)", after_read=lambda: (tree / "other").rename(tree / "another"))
    )
    assert [path for path, _ in taken.entries()] == ["another", "dir", "dir/inner", "dir/victim"]


def test_a_name_added_while_a_known_directory_is_listed_is_there(tree: Path) -> None:
    """The index helps with the entries, not with the list: it belongs to one state of the directory."""
    state = tree / ".holdfast"
    state.mkdir()
    time.sleep(0.05)
    snapshot(str(tree), str(state))
    os.utime(tree)
    calls = Neighbour("(list)", after_read=(tree / "late").touch)
    assert snapshot(str(tree), str(state), calls=calls).get("late") is not None


def test_a_vanished_directory_is_not_there(tree: Path) -> None:
    """Removed just before it is entered: the parent is looked at again, and nothing is read twice for it."""
    taken = snapshot(str(tree), None, calls=Neighbour("dir", before_open=lambda: shutil.rmtree(tree / "dir")))
    assert [path for path, _ in taken.entries()] == ["other"]


def test_a_directory_moved_from_under_a_long_walk_is_a_conflict(workspace: Path, outside: Path) -> None:
    """An ancestor whose descriptor was given up is reopened through `..` only if it is the same directory."""
    names = [f"d{depth}" for depth in range(200)]
    os.makedirs(workspace.joinpath(*names))
    (workspace.joinpath(*names) / "bottom").write_bytes(b"x")
    (workspace / "d0" / "z").mkdir()
    middle = workspace.joinpath(*names[:2])
    deed: Deed = lambda: middle.rename(outside / "moved")  # noqa: E731
    with pytest.raises(Conflict, match="was moved"):
        snapshot(str(workspace), None, calls=Neighbour("bottom", before_open=deed))


def test_no_descriptor_stays_open_after_a_failure(tree: Path) -> None:
    """Whatever ends a walk, every directory and file it opened is closed."""
    before = len(os.listdir("/proc/self/fd"))
    victim = tree / "dir" / "victim"
    calls = Neighbour("victim", after_read=lambda: victim.write_bytes(os.urandom(4)), times=10**6)
    with pytest.raises(Conflict):
        snapshot(str(tree), None, calls=calls)
    assert len(os.listdir("/proc/self/fd")) == before
