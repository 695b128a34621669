"""Snapshots of a tree: what the digest covers, what it leaves out, and what can be asked of it."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.disk.calls import CALLS
from holdfast.errors import Blocked
from holdfast.model.image import Image
from holdfast.workspace.observe import observe
from holdfast.workspace.tree import snapshot

NOBODY = 65534


@pytest.fixture
def tree(workspace: Path) -> Path:
    """A little of everything."""
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "main.py").write_bytes(b"print(1)\n")
    (workspace / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 40)
    (workspace / "src.txt").write_bytes(b"sorts between src and src/\n")
    (workspace / "empty").mkdir()
    (workspace / "link").symlink_to("src/main.py")
    os.setxattr(workspace / "src.txt", "user.origin", b"\x00here")
    os.setxattr(workspace / "empty", "user.kept", b"yes")
    return workspace


def digest(root: Path) -> str:
    return snapshot(str(root), None).digest


def swap_link(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("src/main.pz")


def as_directory(root: Path) -> None:
    (root / "src" / "main.py").unlink()
    (root / "src" / "main.py").mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: (root / "src" / "main.py").write_bytes(b"print(2)\n"),
    "length": lambda root: (root / "src" / "main.py").write_bytes(b"print(1)\n\n"),
    "mode": lambda root: (root / "src" / "main.py").chmod(0o755),
    "set-uid bit": lambda root: (root / "src" / "main.py").chmod(0o4644),
    "mode of a directory": lambda root: (root / "empty").chmod(0o700),
    "attribute": lambda root: os.setxattr(root / "src.txt", "user.origin", b"\x00hera"),
    "attribute gone": lambda root: os.removexattr(root / "src.txt", "user.origin"),
    "attribute of a directory": lambda root: os.setxattr(root / "src" / "deep", "user.a", b""),
    "link": swap_link,
    "new empty directory": lambda root: (root / "src" / "new").mkdir(),
    "empty directory gone": lambda root: (root / "empty").rmdir(),
    "new empty file": lambda root: (root / "src" / "new").touch(),
    "rename": lambda root: (root / "src" / "main.py").rename(root / "src" / "main.pz"),
    "move": lambda root: (root / "src" / "main.py").rename(root / "src" / "deep" / "main.py"),
    "file becomes directory": as_directory,
    "new FIFO": lambda root: os.mkfifo(root / "src" / "pipe"),
    "deeper state directory": lambda root: (root / "src" / ".holdfast").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_kind_of_change_changes_the_digest(tree: Path, change: Callable[[Path], object]) -> None:
    """Content, type, mode, attributes, link text and names are all in the digest."""
    before = digest(tree)
    change(tree)
    assert digest(tree) != before


@pytest.mark.root
def test_owner_and_group_change_the_digest(tree: Path) -> None:
    """Who owns a file or a link is in the digest."""
    before = digest(tree)
    os.chown(tree / "src.txt", NOBODY, 0)
    with_owner = digest(tree)
    os.lchown(tree / "link", 0, NOBODY)
    assert len({before, with_owner, digest(tree)}) == 3


def rewritten(root: Path) -> None:
    copy = root / "copy"
    shutil.copyfile(root / "src" / "main.py", copy)
    copy.chmod((root / "src" / "main.py").stat().st_mode & 0o7777)
    copy.rename(root / "src" / "main.py")


NON_CHANGES: dict[str, Callable[[Path], object]] = {
    "mtime": lambda root: os.utime(root / "src" / "main.py", (1, 1)),
    "mtime of a directory": lambda root: os.utime(root / "src", (1, 1)),
    "ctime": lambda root: ((root / "src.txt").chmod(0o600), (root / "src.txt").chmod(0o644)),
    "atime": lambda root: os.utime(root / "src.txt", ns=(5, (root / "src.txt").stat().st_mtime_ns)),
    "inode": rewritten,
    "second name elsewhere": lambda root: os.link(root / "src.txt", root.parent / "second"),
    "mode of the root": lambda root: root.chmod(0o700),
}


@pytest.mark.parametrize("touch", NON_CHANGES.values(), ids=NON_CHANGES.keys())
def test_times_and_inodes_do_not_change_the_digest(tree: Path, touch: Callable[[Path], object]) -> None:
    """What is the same to a person is the same to the digest."""
    before = digest(tree)
    touch(tree)
    assert digest(tree) == before


def test_a_copy_elsewhere_has_the_same_digest(tree: Path, tmp_path: Path) -> None:
    """The digest depends on the tree alone, not on where it is or on the order it was made in."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(tree), str(copy)], check=True)
    assert digest(copy) == digest(tree)


def test_moving_bytes_between_neighbours_changes_the_digest(workspace: Path) -> None:
    """Columns cannot flow into each other: a name's end is not a content's beginning."""
    seen = set()
    for name, content in ((b"ab", b"c"), (b"a", b"bc"), (b"abc", b"")):
        path = os.path.join(os.fsencode(workspace), name)
        Path(os.fsdecode(path)).write_bytes(content)
        seen.add(digest(workspace))
        os.unlink(path)
    assert len(seen) == 3


def test_git_and_our_own_state_are_left_out(tree: Path) -> None:
    """`.git` counts nowhere, as directory or as file; `.holdfast` does not count at the top."""
    before = snapshot(str(tree), None)
    for path in (tree / ".git", tree / "src" / ".git", tree / ".holdfast"):
        path.mkdir()
        (path / "x").write_bytes(b"x")
    (tree / "empty" / ".git").write_text("gitdir: elsewhere\n")
    after = snapshot(str(tree), None)
    assert after.digest == before.digest
    assert [path for path, _ in after.entries()] == [path for path, _ in before.entries()]


def test_entries_come_in_the_order_of_path_bytes(tree: Path) -> None:
    """`src.txt` stands between `src` and what is in it, as it does in a change set."""
    expected = ["empty", "link", "src", "src.txt", "src/deep", "src/deep/data.bin", "src/main.py"]
    assert [path for path, _ in snapshot(str(tree), None).entries()] == expected


def test_images_are_those_a_transaction_sees(tree: Path) -> None:
    """A snapshot and a look at a single path agree in every field, attributes and ACLs included."""
    acl = bytes.fromhex("0200000001000600ffffffff02000600fffe000004000400ffffffff10000600ffffffff20000400ffffffff")
    os.setxattr(tree / "src" / "main.py", "system.posix_acl_access", acl)
    taken = snapshot(str(tree), None)
    for path, image in taken.entries():
        folder = os.open(tree / os.path.dirname(path), os.O_RDONLY)
        seen = observe(CALLS, folder, os.path.basename(path))
        os.close(folder)
        assert seen is not None
        assert (path, seen.image) == (path, image)
        assert taken.get(path) == image
    assert dict(taken.entries())["src/main.py"].xattrs == (("system.posix_acl_access", acl.hex()),)


def test_get_answers_none_where_nothing_is(tree: Path) -> None:
    """A missing name, a path through a file and an empty path are nothing."""
    taken = snapshot(str(tree), None)
    assert [taken.get(path) for path in ("nope", "src/nope", "src.txt/x", "link/x", "nope/x", "")] == [None] * 6


def test_count_and_bytes_are_those_of_the_tree(tree: Path) -> None:
    """Every entry counts once; bytes are those of regular files."""
    taken = snapshot(str(tree), None)
    assert (taken.count, taken.bytes) == (7, 9 + 256 * 40 + 27)


def test_an_empty_tree_has_a_digest(workspace: Path) -> None:
    """Nothing is a tree, too, and not the same as an empty directory in it."""
    taken = snapshot(str(workspace), None)
    assert (taken.count, taken.bytes, list(taken.entries()), taken.problems()) == (0, 0, [], [])
    (workspace / "d").mkdir()
    assert digest(workspace) != taken.digest


def test_names_of_any_bytes_survive(workspace: Path) -> None:
    """Newlines, bytes that are not UTF-8 and long names come back as they are, sorted by bytes."""
    names = [b"\n", b" ", b"\xff\xfe", b"\xc3\xa9", b"z" * 255, b"\x01", b"-rf", b"\xed\xa0\x80"]
    for name in names:
        with open(os.path.join(os.fsencode(workspace), name), "wb") as file:
            file.write(name)
    taken = snapshot(str(workspace), None)
    assert [os.fsencode(path) for path, _ in taken.entries()] == sorted(names)
    assert all(isinstance(taken.get(os.fsdecode(name)), Image) for name in names)


@pytest.mark.parametrize("size", [0, 1, (1 << 18) - 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (9 << 20) + 5])
def test_files_of_any_size_have_the_digest_of_their_bytes(workspace: Path, size: int) -> None:
    """Small files in one read, large ones in pieces, with one thread or several: the digest is that of the bytes."""
    from blake3 import blake3

    data = os.urandom(size)
    (workspace / "file").write_bytes(data)
    for workers in (1, 2):
        image = snapshot(str(workspace), None, workers=workers).get("file")
        assert image is not None
        assert (image.size, image.digest) == (size, blake3(data).hexdigest())


@pytest.mark.parametrize(
    "where", [(), (0,), (5 << 20,), (1 << 20, (3 << 20) + 4096)], ids=["nowhere", "first", "last", "both"]
)
def test_a_sparse_file_has_the_digest_of_its_bytes(workspace: Path, where: tuple[int, ...]) -> None:
    """Holes are not read; what is hashed for them are the zeros that everybody else reads there."""
    sparse, dense = workspace / "sparse", workspace / "dense"
    with sparse.open("wb") as file:
        for at in where:
            file.seek(at)
            file.write(b"data" * 1024)
        file.truncate((5 << 20) + 5000)
    dense.write_bytes(sparse.read_bytes())
    taken = snapshot(str(workspace), None)
    assert taken.get("sparse") == taken.get("dense")


def test_fifos_and_sockets_are_seen_and_never_opened(workspace: Path) -> None:
    """A FIFO without a writer does not block; each kind of special has its own digest."""
    os.mkfifo(workspace / "pipe", 0o640)
    fifo = snapshot(str(workspace), None)
    os.unlink(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(workspace, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/pipe")
        os.close(folder)
        os.chmod(workspace / "pipe", 0o640)
        other = snapshot(str(workspace), None)
    assert [(path, special.what, special.mode) for path, special in fifo.specials()] == [("pipe", "FIFO", 0o640)]
    assert [special.what for _, special in other.specials()] == ["socket"]
    assert fifo.digest != other.digest
    assert (fifo.get("pipe"), list(fifo.entries()), fifo.count) == (None, [], 1)


@pytest.mark.root
def test_devices_are_told_apart_by_their_numbers(workspace: Path) -> None:
    """Another device under the same name is another tree."""
    seen = []
    for kind, minor in ((stat.S_IFCHR, 3), (stat.S_IFCHR, 5), (stat.S_IFBLK, 3)):
        try:
            os.mknod(workspace / "device", kind | 0o600, os.makedev(1, minor))
        except PermissionError:
            pytest.skip("this host does not let root make devices")
        taken = snapshot(str(workspace), None)
        seen.append((taken.digest, next(special for _, special in taken.specials())))
        os.unlink(workspace / "device")
    assert len({digest for digest, _ in seen}) == 3
    assert [(s.what, os.minor(s.device)) for _, s in seen] == [
        ("character device", 3),
        ("character device", 5),
        ("block device", 3),
    ]


@pytest.mark.root
def test_another_file_system_is_noted_and_not_entered(tree: Path) -> None:
    """A mount point counts as such; what is mounted there does not, also when the index knew what it hides."""
    state = tree / ".holdfast"
    state.mkdir()
    time.sleep(0.05)
    before = snapshot(str(tree), str(state))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(tree / "src" / "deep")], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.decode().strip()}")
    try:
        (tree / "src" / "deep" / "hidden").write_text("x")
        during = snapshot(str(tree), str(state))
        (tree / "src" / "deep" / "more").write_text("y")
        again = snapshot(str(tree), None)
    finally:
        subprocess.run(["umount", str(tree / "src" / "deep")], check=True)
    assert [(path, special.what) for path, special in during.specials()] == [("src/deep", "other file system")]
    assert during.digest == again.digest != before.digest
    assert during.get("src/deep/hidden") is None
    assert snapshot(str(tree), str(state)).digest == before.digest


@pytest.fixture
def plain_home() -> Iterator[Path]:
    """A directory that belongs to a plain user, who does the test; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    was_root = os.geteuid() == 0
    if was_root:
        os.chown(path, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield path
    finally:
        if was_root:
            os.seteuid(0)
        subprocess.run(["chmod", "-R", "u+rwx", str(path)], check=True)
        shutil.rmtree(path)


def test_what_cannot_be_read_is_a_problem_with_a_name(plain_home: Path) -> None:
    """Unreadable files and directories are listed, in the digest by mode, owner and size, and looked at every time."""
    root = plain_home
    (root / "locked").write_bytes(b"secret")
    for name in ("no-list", "no-search"):
        (root / name).mkdir()
        (root / name / "inside").write_bytes(b"x")
    (root / "plain").write_bytes(b"y")
    state = root / ".holdfast"
    state.mkdir()
    for name, mode in (("locked", 0), ("no-list", 0o300), ("no-search", 0o600)):
        (root / name).chmod(mode)
    time.sleep(0.05)
    first, second = (snapshot(str(root), str(state)) for _ in range(2))
    assert [(p.path, p.detail.split(":")[0]) for p in first.problems()] == [
        (name, "permission denied") for name in ("locked", "no-list", "no-search")
    ]
    assert (second.digest, second.problems()) == (first.digest, first.problems())
    image = first.get("locked")
    assert image is not None
    assert (image.size, image.digest, image.mode) == (6, "", 0)
    assert first.get("no-list/inside") is None
    (root / "no-search").chmod(0o700)
    third = snapshot(str(root), str(state))
    assert third.digest != first.digest
    assert third.get("no-search/inside") is not None


def test_a_root_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error names the path; a file is no root either."""
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(Blocked, match=name):
            snapshot(str(tmp_path / name), None)


@pytest.fixture
def chain(workspace: Path) -> Iterator[Path]:
    """2,000 directories inside each other, together far longer than a path may be."""
    fd = os.open(workspace, os.O_RDONLY)
    for depth in range(2000):
        name = f"level{depth:04}"
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
        for side in ("a", "z"):
            os.mkdir(side, dir_fd=fd)
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    yield workspace
    subprocess.run(["rm", "-rf", str(workspace / "level0000")], check=True)  # the library's own rmtree recurses


def test_a_very_deep_tree_needs_few_descriptors_and_no_recursion(chain: Path) -> None:
    """2,000 levels with 100 descriptors; the index takes them in and gives the same digest."""
    state = chain / ".holdfast"
    state.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 100, hard))
    try:
        first, second = (snapshot(str(chain), str(state)) for _ in range(2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert first.digest == second.digest
    assert (first.count, sum(1 for _ in first.entries())) == (6001, 6001)
    bottom = "/".join(f"level{depth:04}" for depth in range(2000)) + "/bottom"
    assert second.get(bottom) is not None
    assert len(os.listdir("/proc/self/fd")) <= in_use + 2
