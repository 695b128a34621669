"""A copy is the tree, whoever made which part of it: this process alone, or a second one beside it."""

from __future__ import annotations

import marshal
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import children, children_of_others, tree_of
from holdfast.disk.confined import Root
from holdfast.workspace.companion import companion
from holdfast.workspace.copying import Copy
from holdfast.workspace.smallfiles import SMALL, Piece, copy_queued, queue

FILES = 1600
# Takes pieces from the queue, leaves rubbish at a name of one of them, and dies before it reports.
DIES = """#!{python} -IS
import marshal, os, sys
os.read(0, int(os.read(0, 12)))
pieces, terms = marshal.loads(os.read(0, 1 << 26))
number = int.from_bytes(os.read(int(sys.argv[-2]), 4), sys.byteorder)
for _ in range(5):
    os.read(int(sys.argv[-2]), 4)
path, names = pieces[number]
folder = os.open(path or ".", os.O_RDONLY, dir_fd=terms[1])
os.write(os.open(names[0], os.O_CREAT | os.O_WRONLY, dir_fd=folder), b"rubbish")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """As many files as make a second process worth its start, and one of everything that is special."""
    place = tmp_path / "source"
    for number in range(FILES):
        folder = place / f"d{number // 100}" / "e"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(b"%d\n" % number * (number % 50))
    (place / "large").write_bytes(os.urandom(SMALL + 1))
    with (place / "sparse").open("wb") as file:
        file.truncate(50 << 20)
        file.seek(40 << 20)
        file.write(b"x")
    (place / "link").symlink_to("/nowhere")
    os.mkfifo(place / "pipe")
    (place / os.fsdecode(b"caf\xe9")).write_bytes(b"name\n")
    _dress(place)
    return place


def _dress(place: Path) -> None:
    first, second, third, fourth = (place / "d0" / "e" / f"f{number}" for number in range(1, 5))
    first.chmod(0o4751)
    second.chmod(0o400)
    os.setxattr(third, "user.note", b"kept")
    os.utime(fourth, ns=(10**18, 10**18 + 1))
    (place / "d1").chmod(0o750)
    if os.geteuid() == 0:
        os.chown(first, 1234, 4321)
        first.chmod(0o4751)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Root]:
    (tmp_path / "target").mkdir()
    with Root(str(tmp_path / "target")) as root:
        yield root


def copied(source: Path, target: Root, masked: frozenset[str] = frozenset()) -> Copy:
    with Root(str(source)) as workspace:
        copy = Copy(workspace, target, masked, 0)
        copy.fill()
    return copy


def is_whole(source: Path, copy: Copy) -> None:
    """The same tree but for the FIFO, with notes about all of it."""
    wanted = {path: thing for path, thing in tree_of(source).items() if path != "pipe"}
    assert tree_of(Path(copy.root.path)) == wanted
    noted = {f"{path}/{name}".lstrip("/") for path, names in copy._notes.items() for name in names}
    assert noted == wanted.keys()


@pytest.fixture
def alone() -> Iterator[None]:
    """One processor only: nobody is there to help."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def test_a_copy_is_the_tree(source: Path, target: Root) -> None:
    """Content, modes, owners, attributes, times, links and holes; no FIFO; each with a note that is true."""
    copy = copied(source, target)
    is_whole(source, copy)
    assert os.stat("sparse", dir_fd=target.fd).st_blocks * 512 < 1 << 20
    for path, names in copy._notes.items():
        for name, note in names.items():
            found = os.stat(f"{path}/{name}" if path else name, dir_fd=target.fd, follow_symlinks=False)
            assert note == (found.st_ino, found.st_ctime_ns)


def test_the_second_process_works(source: Path, target: Root) -> None:
    """Left alone with the queue, it copies everything that is small and plain, and names what is not."""
    pieces = [(f"d{number}/e", os.listdir(source / f"d{number}" / "e")) for number in range(FILES // 100)]
    for path, _ in pieces:
        os.makedirs(os.path.join(target.path, path))
    waiting = queue(len(pieces))
    with Root(str(source)) as workspace:
        devices = os.fstat(workspace.fd).st_dev, os.fstat(target.fd).st_dev
        terms = (workspace.fd, target.fd, *devices, os.geteuid(), os.getegid(), 0, 0o755)
        with companion(waiting, pieces, terms) as his:
            done = his()
    os.close(waiting)
    assert done.keys() == set(range(len(pieces)))
    assert [name for _, left in done.values() for name in left] == ["f3"]
    assert sum(len(notes) for notes, _ in done.values()) == FILES - 1
    assert not os.path.exists(os.path.join(target.path, "d0", "e", "f3"))


@pytest.mark.parametrize("pieces", [0, 1, 1000, 16_000, 16_001, 100_000])
def test_every_piece_is_given_once(pieces: int, tmp_path: Path) -> None:
    """Two who take from one queue at the same time get everything between them, and nothing twice."""
    waiting = queue(pieces)
    pair = os.pipe()
    child = os.fork()
    work: list[Piece] = [("", [])] * pieces
    with Root(str(tmp_path)) as root:
        device = os.fstat(root.fd).st_dev
        terms = (root.fd, root.fd, device, device, 0, 0, 0, 0)
        taken = [number for number, _ in copy_queued(waiting, work, terms)]
    if child == 0:
        with os.fdopen(pair[1], "wb") as file:
            file.write(marshal.dumps(taken))
        os._exit(0)
    os.close(pair[1])
    with os.fdopen(pair[0], "rb") as file:
        theirs = marshal.loads(file.read())
    os.waitpid(child, 0)
    os.close(waiting)
    assert sorted(taken + theirs) == list(range(pieces))


@pytest.mark.usefixtures("alone")
def test_one_processor_makes_the_same_copy(source: Path, target: Root) -> None:
    """Without a second process nothing is missing."""
    is_whole(source, copied(source, target))


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python", ""])
def test_a_second_process_that_cannot_work_is_done_without(
    source: Path, target: Root, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at once, is not there, or nobody knows where it is: the copy is whole."""
    monkeypatch.setattr(sys, "executable", program)
    is_whole(source, copied(source, target))


def test_what_a_dead_second_process_had_taken_is_made_anew(
    source: Path, target: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took pieces, left rubbish at a name, and was killed: the copy is whole, and the rubbish is gone."""
    program = tmp_path / "dies"
    program.write_text(DIES.format(python=os.path.realpath(sys.executable)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    is_whole(source, copied(source, target))


def test_nothing_of_a_second_process_is_left(source: Path, tmp_path: Path) -> None:
    """No child, no zombie and no descriptor after many copies."""

    def state() -> tuple[set[str], int]:
        return children(), len(os.listdir("/proc/self/fd"))

    children_of_others()
    before = state()
    for number in range(3):
        place = tmp_path / f"target{number}"
        place.mkdir()
        with Root(str(place)) as root:
            copied(source, root)
    assert state() == before


@pytest.mark.parametrize("after_ms", [8, 15, 20, 30, 50])
def test_an_interrupted_copy_ends_its_second_process(source: Path, target: Root, after_ms: int) -> None:
    """Ctrl-C while files are copied is raised at once, and nobody goes on writing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    others = children_of_others()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_ms / 1000)
        with pytest.raises(KeyboardInterrupt):
            _copied_for_ever(source, target)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert children() <= others


def _copied_for_ever(source: Path, target: Root) -> None:
    """A copy that is faster than the alarm is begun again."""
    while True:
        copied(source, target)
        for name in os.listdir(target.fd):
            _removed(Path(target.path) / name)


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _removed(inner)
        path.rmdir()
    else:
        path.unlink()


def test_a_hidden_file_is_not_copied_by_either(source: Path, target: Root) -> None:
    """Something empty stands there, in a directory whose other files are copied by whoever comes first."""
    copied(source, target, frozenset(("d3/e/f350", "d4")))
    assert os.stat("d3/e/f350", dir_fd=target.fd).st_size == 0
    assert os.listdir(os.path.join(target.path, "d4")) == []
    assert stat.S_ISREG(os.stat("d3/e/f351", dir_fd=target.fd).st_mode)


def test_a_full_disk_is_told(source: Path, tmp_path: Path) -> None:
    """What neither of them could write is an error, not a smaller copy."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make a small disk")
    from subprocess import run

    for name in ("large", "sparse"):  # which the kernel copies within one file system only
        (source / name).unlink()
    place = tmp_path / "small"
    place.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)], check=True)
    try:
        with Root(str(place)) as root, pytest.raises(OSError, match="No space left"):
            copied(source, root)
    finally:
        run(["umount", str(place)], check=True)
