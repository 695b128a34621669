"""A `.git` from a stranger gives whoever works over a mirror nothing that is not in it, wherever it leads."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointed import git, put, repository, users_home
from guarded import guard
from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.store.state import create_state
from holdfast.workspace.borrowed import borrow, head_of
from holdfast.workspace.gitplace import place_of
from holdfast.workspace.ignored import ignored_paths, tracked_paths
from holdfast.workspace.manifest import manifest_of
from holdfast.workspace.mirror import Mirror
from holdfast.workspace.origins import FromTree
from holdfast.workspace.site import Site

SECRET = b"harmless-test-value\n"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users_home(tmp_path, monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A work tree, and beside it what is none of its business: a folder, and a repository."""
    for name in ("key", "ab/key", "pack/key", "heads/key", "info/exclude", "objects/pack/key"):
        put(tmp_path / "secret", name, SECRET)
    repository(tmp_path / "private", {"key": SECRET})
    return repository(tmp_path / "work")


def _linked(name: str, target: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        path = place / ".git" / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(place.parent / target)

    return change


def _leading(text: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        shutil.rmtree(place / ".git")
        put(place, ".git", text.format(beside=place.parent).encode())

    return change


def _brought_work_tree(place: Path) -> None:
    _leading("gitdir: {beside}/brought\n")(place)
    own = place.parent / "brought"
    put(own, "HEAD", b"ref: refs/heads/main\n")
    put(own, "commondir", b"../private/.git\n")
    put(own, "gitdir", b"../work/.git\n")


LEADING_OUT: dict[str, Callable[[Path], None]] = {
    "references": _linked("refs", "secret"),
    "branches": _linked("refs/heads", "secret/heads"),
    "objects": _linked("objects", "secret"),
    "a folder of objects": _linked("objects/ab", "secret/ab"),
    "packs": _linked("objects/pack", "secret/pack"),
    "tables": _linked("reftable", "secret"),
    "rules": _linked("info", "secret/info"),
    "index": _linked("index", "secret/key"),
    "packed references": _linked("packed-refs", "secret/key"),
    "the whole": _linked("", "private/.git"),
    "common place": lambda place: put(place, ".git/commondir", b"../../private/.git\n"),
    "another repository": _leading("gitdir: ../private/.git\n"),
    "a work tree brought along": _brought_work_tree,
}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_nothing_outside_comes_into_a_mirror(place: Path, tmp_path: Path, name: str) -> None:
    """A `.git` that leads out is refused, by all who ask for a repository, and nothing behind it is copied."""
    LEADING_OUT[name](place)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "scratch").mkdir()
    scratch = os.open(tmp_path / "scratch", os.O_RDONLY)
    try:
        with Root(str(tmp_path / "mirror")) as target, pytest.raises(Blocked):
            borrow(str(place), target, "", scratch)
    finally:
        os.close(scratch)
    assert list((tmp_path / "mirror").rglob("*")) == []
    with pytest.raises(Blocked):
        head_of(str(place))


def test_links_among_objects_and_references_are_left_out(place: Path, tmp_path: Path) -> None:
    """A single link below what is borrowed is not followed: the rest is there, what it leads to is not."""
    ground = guard(tmp_path / "ground", {"a.txt": b"a\n"})
    shutil.move(place / ".git", ground.path / ".git")
    for name in ("objects/pack/pack-1.pack", "refs/tags/v1", "refs/tags/more", "info/exclude"):
        (ground.path / ".git" / name).unlink(missing_ok=True)
        (ground.path / ".git" / name).symlink_to(tmp_path / "secret/key")
    (ground.path / ".git/refs/tags/folder").symlink_to(tmp_path / "secret")
    base = manifest_of(ground.hf.site)
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        mirror.bring_to(base, FromTree(ground.hf.site.workspace))
        mirror.borrow_git(base, str(ground.path))
    found = [path for path in (tmp_path / "mirror/.git").rglob("*") if path.is_file()]
    assert SECRET not in [path.read_bytes() for path in found]
    assert git(tmp_path / "mirror", "show", "HEAD:a.txt") == "one\n"


@pytest.mark.parametrize("name", [*LEADING_OUT, "rules of its own", "rules that never end"])
def test_a_git_that_leads_out_says_nothing_about_ignored_or_tracked_paths(place: Path, name: str) -> None:
    """Neither the rules nor the names of another repository decide what lands here, and nothing waits for a FIFO."""
    (place / ".gitignore").write_bytes(b"*.o\n")
    if name == "rules that never end":
        (place / ".git/info/exclude").unlink(missing_ok=True)
        os.mkfifo(place / ".git/info/exclude")
    else:
        (_linked("info/exclude", "secret/info/exclude") if name == "rules of its own" else LEADING_OUT[name])(place)
    create_state(str(place))
    began = time.monotonic()
    with Site(str(place)) as site:
        with pytest.raises(Blocked):
            ignored_paths(site, ["x.o"])
        with pytest.raises(Blocked):
            tracked_paths(site, ["key"])
    assert time.monotonic() - began < 20


def test_who_asks_what_is_ignored_in_a_linked_work_tree_or_a_submodule_is_told(place: Path, tmp_path: Path) -> None:
    """Places that know their work tree are asked as ever, by their own rules and their own index."""
    git(place, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(place, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "private"), "lib")
    put(place, "lib/.gitignore", b"*.o\n")
    put(tmp_path / "side", ".gitignore", b"*.o\n")
    for path, prefix in ((place, "lib/"), (tmp_path / "side", "")):
        create_state(str(path))
        with Site(str(path)) as site:
            assert ignored_paths(site, [f"{prefix}x.o", f"{prefix}x.c"]) == {f"{prefix}x.o"}
            assert tracked_paths(site, [f"{prefix}{'key' if prefix else 'a.txt'}"])


def test_real_work_trees_and_submodules_are_known(place: Path, tmp_path: Path) -> None:
    """A linked work tree, one of a bare repository, and a submodule have their places, each with what it shares."""
    git(place, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(tmp_path, "clone", "-q", "--bare", str(place), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", str(tmp_path / "of-bare"), "main")
    git(place, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "private"), "lib")
    found = [place_of(str(path)) for path in (place, tmp_path / "side", tmp_path / "of-bare", place / "lib")]
    assert [each and Path(each.common).relative_to(tmp_path).as_posix() for each in found] == [
        "work/.git",
        "work/.git",
        "bare.git",
        "work/.git/modules/lib",
    ]
    assert place_of(str(tmp_path / "secret")) is None
