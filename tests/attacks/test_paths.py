"""Paths that try to leave the workspace, or to reach what is protected. None may; nothing may change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from guarded import Ground, guard, in_child, put, with_package
from holdfast.errors import Blocked, Conflict, HoldfastError, InvalidPath
from holdfast.model.plan import Chmod, Create, Delete, Move, Read, Step, Symlink
from holdfast.sandbox.process import Command, clean_environment, run
from holdfast.testing import FaultyCalls, KillAt

ESCAPES = [
    "",
    "/",
    "/etc/passwd",
    "//etc/passwd",
    "..",
    ".",
    "../outside",
    "sub/../../outside",
    "sub/..",
    "./a",
    "sub//a",
    "a/",
    "a\0b",
    "a/\0",
    "x" * 256,
    "/".join(["d" * 200] * 21),
    "half\ud800",
]
PROTECTED = [
    ".git",
    ".git/config",
    ".git/hooks/pre-commit",
    ".holdfast",
    ".holdfast/format",
    ".holdfast/journal/head",
    "vendor/.git/config",
    "vendor/.holdfast/x",
    ".GIT/config",
    ".Git",
    ".git./config",
    ".git /config",
    ".git. . /config",
    ".HOLDFAST/lock",
    ".ｇｉｔ/config",
    "．git/config",
    ".g\u200dit/config",
    ".\u200cgit/hooks/x",
    ".git\ufeff/config",
    ".gi\u206at/config",
    ".git\u2060/config",
    ".ɢit/config".replace("ɢ", "Ｇ"),
    ".holdﬀast/x".replace("ﬀ", "f"),
]


def _steps_on(path: str) -> list[Step]:
    return [
        put(path, b"x"),
        Create(path, False),
        Create(path, True),
        Delete(path, recursive=True),
        Chmod(path, 0o700),
        Symlink(path, "a"),
        Read(path),
        Move("a", path),
        Move(path, "b"),
    ]


@pytest.mark.parametrize("path", [*ESCAPES, *PROTECTED], ids=ascii)
def test_no_step_may_name_such_a_path(tmp_path: Path, path: str) -> None:
    """A plan built in Python is refused as one from a file is: no step reaches an escaping or protected path."""
    ground = guard(tmp_path / "workspace", {"a": b"a", "sub/": b""})
    before, outside = ground.tree(), sorted(os.listdir(tmp_path))
    for step in _steps_on(path):
        with pytest.raises(InvalidPath):
            ground.hf.simulate(ground.plan(step))
    assert ground.tree() == before
    assert sorted(os.listdir(tmp_path)) == outside


# There a trailing slash is how a directory is written.
@pytest.mark.parametrize("path", sorted({*ESCAPES, *PROTECTED} - {"a/"}), ids=ascii)
def test_no_collected_change_may_name_such_a_path(tmp_path: Path, path: str) -> None:
    """`tx.write` refuses at once, and the block lands nothing of what was collected before."""
    ground = guard(tmp_path / "workspace", {"a": b"a"})
    before = ground.tree()
    with pytest.raises(InvalidPath):
        _collect(ground, path)
    assert ground.tree() == before


def _collect(ground: Ground, path: str) -> None:
    with ground.hf.transaction("t", approved_by="me") as tx:
        tx.write("first", b"1")
        tx.write(path, b"x")


def test_a_protected_name_that_does_not_exist_yet(tmp_path: Path) -> None:
    """Protection is of names, not of files: without any repository here, `.git` still cannot be made."""
    ground = guard(tmp_path / "workspace")
    with pytest.raises(InvalidPath):
        ground.apply(put(".git/hooks/post-checkout", b"#!/bin/sh\n", 0o755))
    assert not (ground / ".git").exists()


def test_a_nested_repository_is_neither_deleted_nor_moved(tmp_path: Path) -> None:
    """A directory that contains a `.git` or a `.holdfast` goes nowhere: what is in there is not ours."""
    ground = guard(tmp_path / "workspace", {"vendor/.git/config": b"[core]\n", "other/deep/.holdfast/x": b"1"})
    before = ground.tree()
    for step in (Delete("vendor", True), Move("vendor", "v2"), Delete("other", True), Move("other/deep", "d")):
        with pytest.raises(Blocked, match="protected"):
            ground.apply(step)
    assert ground.tree() == before


def test_the_root_is_a_directory_and_not_a_prefix(tmp_path: Path) -> None:
    """`repo-evil` beside `repo` starts with the same letters and is out of reach, also through a link."""
    ground = guard(tmp_path / "repo", {"a": b"a"})
    evil = tmp_path / "repo-evil"
    evil.mkdir()
    (evil / "x").write_bytes(b"theirs")
    os.symlink("../repo-evil", ground / "link")
    for path in ("../repo-evil/x", str(evil / "x")):
        with pytest.raises(InvalidPath):
            ground.apply(put(path, b"ours"))
    with pytest.raises(Blocked, match="symbolic link"):
        ground.apply(put("link/x", b"ours"))
    assert (evil / "x").read_bytes() == b"theirs"
    assert os.listdir(evil) == ["x"]


def test_a_final_link_to_the_outside_is_not_followed(tmp_path: Path) -> None:
    """Writing, updating or chmod of a link to a file outside is refused; moving it moves the link, never the file."""
    ground = guard(tmp_path / "workspace")
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    outside.chmod(0o600)
    os.symlink(outside, ground / "link")
    for step in (put("link", b"ours"), Chmod("link", 0o777), Create("link", False)):
        with pytest.raises(Blocked):
            ground.apply(step)
    ground.apply(Move("link", "moved"))
    assert os.readlink(ground / "moved") == str(outside)
    ground.apply(Delete("moved"))
    assert (outside.read_bytes(), outside.stat().st_mode & 0o777) == (b"theirs", 0o600)


@pytest.mark.parametrize("target", ["/etc", "..", "../..", "/proc/self/cwd", "/proc/self/root", "/proc/self/fd"])
def test_no_path_goes_through_a_link(tmp_path: Path, target: str) -> None:
    """Links on the way, magic ones of /proc included, are refused by the kernel for every step."""
    ground = guard(tmp_path / "workspace", {"a": b"a"})
    os.symlink(target, ground / "way")
    before = ground.tree()
    for step in _steps_on("way/planted-by-a-test"):
        with pytest.raises(Blocked):
            ground.apply(step)
    assert ground.tree() == before
    assert not os.path.lexists(os.path.join("/etc", "planted-by-a-test"))


def test_a_plan_cannot_write_through_a_link_that_it_makes(tmp_path: Path) -> None:
    """A symlink step followed by a write through it is blocked at the write, and the link is not made either."""
    ground = guard(tmp_path / "workspace", {"d/x": b"x"})
    outside = tmp_path / "outside"
    outside.mkdir()
    before = ground.tree()
    plans = [
        (Symlink("way", str(outside)), put("way/x", b"evil")),
        (Symlink("way", str(outside)), Create("way/deep/", True)),
        (Delete("d", True), Symlink("d", str(outside)), put("d/y", b"evil")),
        (Symlink("one", str(outside)), Move("one", "two"), put("two/x", b"evil")),
        (Symlink("way", str(outside)), Move("d/x", "way/x")),
    ]
    for steps in plans:
        with pytest.raises((Blocked, InvalidPath)):
            ground.apply(*steps)
    assert ground.tree() == before
    assert os.listdir(outside) == []


def test_a_hard_link_to_an_outside_file_is_refused(tmp_path: Path) -> None:
    """A file with a second name is neither replaced, nor deleted, moved or chmodded: the other name would notice."""
    ground = guard(tmp_path / "workspace")
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    os.link(outside, ground / "inside")
    before = ground.tree()
    for step in (put("inside", b"x"), Chmod("inside", 0o777), Delete("inside"), Move("inside", "b")):
        with pytest.raises(Blocked, match="hard links"):
            ground.apply(step)
    assert ground.tree() == before
    assert outside.read_bytes() == b"theirs"
    assert ground.journal() == []


def test_a_link_made_after_the_rehearsal_is_seen(tmp_path: Path) -> None:
    """A hard link made between rehearsal and execution is a change like any other: conflict, nothing done."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    rehearsal = ground.ready(ground.plan(Chmod("a", 0o777)))
    os.link(ground / "a", tmp_path / "outside")
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert (tmp_path / "outside").stat().st_mode & 0o777 != 0o777


@pytest.mark.root
def test_a_bind_mount_inside_the_workspace_is_not_entered(tmp_path: Path) -> None:
    """Another mount below the root, even of the same file system, is another world: every step on it is refused."""
    if not _can_unshare():
        pytest.skip("mount namespaces are not to be had here")
    ground = guard(tmp_path / "workspace", {"mnt/x": b"under", "file": b"under"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"theirs")
    script = Path(__file__).with_name("bind_mount_attack.py")
    # The mounts live and die with the namespace of this one process.
    argv = ("unshare", "-m", sys.executable, str(script), str(ground.path), str(outside))
    done = subprocess.run(argv, env=with_package(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (outside / "x").read_bytes() == b"theirs"
    assert os.listdir(outside) == ["x"]
    assert (ground / "mnt/x").read_bytes() == b"under"
    assert (ground / "file").read_bytes() == b"under"


def _can_unshare() -> bool:
    finished = run(Command(("unshare", "-m", "true"), "/", clean_environment("/"), 10_000))
    return finished.succeeded


def test_a_git_file_or_directory_below_is_not_made(tmp_path: Path) -> None:
    """A `.git` file that redirects git elsewhere is as protected as the directory of that name."""
    ground = guard(tmp_path / "workspace")
    for path in (".git", "sub/.git", "a/b/.GIT"):
        with pytest.raises(HoldfastError):
            ground.apply(put(path, b"gitdir: /tmp/evil\n"))
    assert ground.tree() == {}


def test_undo_does_not_follow_a_parent_that_became_a_link(tmp_path: Path) -> None:
    """After an apply the directory is replaced by a link to its copy; undo refuses instead of working there."""
    ground = guard(tmp_path / "workspace", {"sub/a": b"old"})
    done = ground.apply(put("sub/a", b"new"))
    os.rename(ground / "sub", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", ground / "sub")
    with pytest.raises(HoldfastError):
        ground.hf.undo(done.id, approved_by="me")
    assert (tmp_path / "elsewhere/a").read_bytes() == b"new"


def _deep(top: Path, length: int) -> None:
    """A file below `top` whose path from the workspace is this many bytes long."""
    here, relative = os.open(top, os.O_RDONLY), top.name
    while len(relative) + 201 < length - 10:
        os.mkdir("n" * 200, dir_fd=here)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, relative = below, relative + "/" + "n" * 200
    os.close(os.open("f" * (length - len(relative) - 1), os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize(
    ("length", "step"),
    [(4050, Delete("d", True)), (4050, Move("d", "e")), (3990, Move("d", "a-somewhat-longer-name"))],
    ids=["deleted", "moved", "moved to a longer name"],
)
def test_paths_below_a_directory_count_too(tmp_path: Path, length: int, step: Step) -> None:
    """A path that is too long is refused also where only its directory is named, before anything changes."""
    ground = guard(tmp_path / "workspace", {"x": b"1", "d/": b""})
    _deep(ground / "d", length)
    with pytest.raises(Blocked, match="longer than 4000 bytes"):
        ground.apply(put("x", b"2"), step)
    assert (ground / "x").read_bytes() == b"1"
    assert (ground / "d").is_dir()
    assert ground.journal() == []


def test_the_longest_path_there_may_be(tmp_path: Path) -> None:
    """With exactly 4000 bytes everything works: delete it with its directory, crash, recover, delete, undo."""
    ground = guard(tmp_path / "workspace", {"x": b"1", "d/": b""})
    _deep(ground / "d", 4000)

    def die() -> None:
        mine = Ground(ground.path, calls := FaultyCalls())
        rehearsal = mine.ready(mine.plan(put("x", b"2"), Delete("d", True)))
        calls.arm(KillAt("flipped"))
        rehearsal.execute()

    assert in_child(die) == -9
    assert not (ground / "d").exists()
    ground.hf.recover()
    assert (ground / "d").is_dir() and (ground / "x").read_bytes() == b"1"
    done = ground.apply(Delete("d", True))
    ground.hf.undo(done.id, approved_by="me")
    assert (ground / "d").is_dir()
