"""Directories: made again, inherited, nested deep, closed to their owner; and never looked at through an old door."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guarded import USER, Ground, as_user, contents, fill, guard, put
from holdfast.disk.confined import Root
from holdfast.errors import VerificationFailed
from holdfast.model.plan import Chmod, Create, Delete, Step
from holdfast.store.journal import Op
from holdfast.workspace.flip import Flipper
from holdfast.workspace.observe import observe

_MARK = "user.holdfast.test"


def _lands_and_goes_back(ground: Ground, *steps: Step) -> None:
    """The change completes, and its undo gives back exactly what stood."""
    before = ground.tree()
    done = ground.apply(*steps)
    assert ground.statuses()[-1] == done.status == "COMPLETED"
    assert ground.journal() == []
    after = ground.tree()
    back = ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before
    ground.hf.undo(back.id, approved_by="me")
    assert ground.tree() == after


# ── made again ──


def test_a_directory_deleted_and_made_again_keeps_its_attributes(tmp_path: Path) -> None:
    """Emptied and filled anew in one plan, a directory keeps its extended attributes, and the undo is exact."""
    ground = guard(tmp_path / "workspace", {"app/old": b"x", "app/deep/old": b"y"})
    os.setxattr(ground / "app", _MARK, b"v")
    _lands_and_goes_back(ground, Delete("app", True), put("app/new", b"n"))
    assert contents(ground.tree()) == {"app/new": b"n"}
    assert ground.tree()["app"].xattrs == ((_MARK, b"v"),)


@pytest.mark.root
@pytest.mark.parametrize("how", ["implied by a file", "created"])
def test_a_directory_deleted_and_made_again_keeps_its_owner(tmp_path: Path, how: str) -> None:
    """Root redeploys a directory of somebody else: it still belongs to them afterwards, whichever step makes it."""
    ground = guard(tmp_path / "workspace", {"app/old": b"x"})
    os.chown(ground / "app", USER, USER)
    made = (Create("app", True),) if how == "created" else ()
    _lands_and_goes_back(ground, Delete("app", True), *made, put("app/new", b"n"))
    assert contents(ground.tree()) == {"app/new": b"n"}
    assert ground.tree()["app"].owner == (USER, USER)


@pytest.mark.root
def test_a_child_directory_that_stays_the_same(tmp_path: Path) -> None:
    """Below a directory that is made again, one that looks as before is there too, without what was in it."""
    ground = guard(tmp_path / "workspace", {"app/sub/k": b"x"})
    os.chown(ground / "app", USER, USER)
    _lands_and_goes_back(ground, Delete("app", True), Create("app/sub", True), put("app/new", b"n"))
    assert set(ground.tree()) == {"app", "app/sub", "app/new"}


# ── old doors ──


def test_a_directory_replaced_between_two_verbs(tmp_path: Path) -> None:
    """A Holdfast held open looks paths up anew: what somebody put in place of a directory is what gets changed."""
    ground = guard(tmp_path / "workspace", {"d/x": b"first"})
    ground.apply(put("d/y", b"1"))
    ground.hf.simulate(ground.plan(put("d/x", b"never")))
    os.rename(ground / "d", ground / "aside")
    (ground / "d").mkdir()
    ground.apply(put("d/x", b"2"))
    assert contents(ground.tree()) == {"aside/x": b"first", "aside/y": b"1", "d/x": b"2"}


def test_a_directory_that_becomes_a_file_and_a_directory_again(tmp_path: Path) -> None:
    """One Holdfast turns a directory into a file and back, then undoes both: nothing lands in what was put away."""
    ground = guard(tmp_path / "workspace", {"d/x": b"old"})
    old = ground.tree()
    first = ground.apply(Delete("d", True), put("d", b"a file"))
    second = ground.apply(Delete("d"), put("d/x", b"new"), put("d/y", b"new"))
    assert contents(ground.tree()) == {"d/x": b"new", "d/y": b"new"}
    ground.hf.undo(second.id, approved_by="me")
    assert contents(ground.tree()) == {"d": b"a file"}
    ground.hf.undo(first.id, approved_by="me")
    assert ground.tree() == old


def test_a_descriptor_does_not_outlive_the_name_it_was_opened_by(tmp_path: Path) -> None:
    """Once a directory is known to have moved, it and all below are opened anew; its neighbours stay open."""
    for name in ("d/e", "new/e", "dd"):
        (tmp_path / name).mkdir(parents=True)
    with Root(str(tmp_path)) as root:
        neighbour = root.directory("dd")
        for path in ("d", "d/e"):
            root.directory(path)
        os.rename(tmp_path / "d", tmp_path / "aside")
        os.rename(tmp_path / "new", tmp_path / "d")
        root.forget_below("d")
        for path in ("d/e", "d"):
            assert os.fstat(root.directory(path)).st_ino == (tmp_path / path).stat().st_ino
        assert root.directory("dd") == neighbour


def test_a_flip_forgets_the_directory_it_moved(tmp_path: Path) -> None:
    """A flip took a directory away and somebody made it anew: what is in it is not looked for in the slot."""
    ground = guard(tmp_path / "workspace", {"d/": b""})
    site, txn = ground.hf.site, "t-test"
    (ground.state / "journal" / txn).mkdir()
    site.workspace.directory("d")
    flipper = Flipper(site, txn)
    flipper.forward(Op("flip", "d", f"{txn}/1", observe(site.calls, site.workspace.fd, "d"), None))
    fill(ground.path, {"d/x": b"theirs"})
    found = flipper.found(Op("flip", "d/x", f"{txn}/2", None, None))
    assert found is not None and found.st_ino == (ground / "d/x").stat().st_ino


# ── new ones ──


def test_a_set_group_directory_passes_its_group_on(tmp_path: Path) -> None:
    """New directories inherit group and set-group bit, new files the group, at any depth and whatever the umask."""
    ground = guard(tmp_path / "workspace", {"s/": b"", "plain/": b""})
    group = USER if os.geteuid() == 0 else os.getegid()
    os.chown(ground / "s", -1, group)
    (ground / "s").chmod(0o2770)
    before = os.umask(0o077)
    try:
        _lands_and_goes_back(ground, put("s/sub/deep/f", b"x"), Create("s/made", True), put("plain/sub/f", b"x"))
    finally:
        os.umask(before)
    tree = ground.tree()
    for path in ("s/sub", "s/sub/deep", "s/made"):
        assert (path, tree[path].mode, tree[path].owner) == (path, 0o2755, (os.geteuid(), group))
    assert (tree["s/sub/deep/f"].mode, tree["s/sub/deep/f"].owner) == (0o644, (os.geteuid(), group))
    assert (tree["plain/sub"].mode, tree["plain/sub"].owner) == (0o755, (os.geteuid(), os.getegid()))


@pytest.mark.long
def test_six_hundred_nested_new_directories(tmp_path: Path) -> None:
    """Depth is bounded by the kernel's path length, not by our stack: all are made, and all are undone."""
    ground = guard(tmp_path / "workspace")
    done = ground.apply(put("a/" * 600 + "f", b"deep"))
    assert done.changes == 601
    assert (ground / ("a/" * 600 + "f")).read_bytes() == b"deep"
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == {}


# ── closed to their owner ──


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o500, 0o555, 0o700])
def test_a_directory_closed_by_its_own_change(public: Path, mode: int) -> None:
    """An ordinary user fills a directory and closes it in one plan, new or old; undo opens, empties and restores it."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"d/x": b"0", "e/": b""})
        _lands_and_goes_back(ground, Chmod("d", mode), put("d/x", b"1"), put("d/new", b"1"))
        _lands_and_goes_back(ground, Create("n", True, mode), put("n/new", b"1"), Create("n/m", True, mode))
        _lands_and_goes_back(ground, Create("empty", True, mode), Chmod("e", mode))
        assert [ground.tree()[path].mode for path in ("d", "n", "n/m", "empty", "e")] == [mode] * 5
        _lands_and_goes_back(ground, Delete("n", True), Delete("d", True))
        assert set(ground.tree()) == {"empty", "e"}

    as_user(public, act)


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o300, 0o200, 0o100, 0o000])
def test_a_directory_that_could_not_be_read_back(public: Path, mode: int) -> None:
    """What cannot be proven to stand is not committed: rolled back exactly, nothing stuck, the next change works."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"d/x": b"0"})
        before = ground.tree()
        for steps in ((Chmod("d", mode), put("d/x", b"1")), (Create("n", True, mode), put("n/x", b"1"))):
            with pytest.raises(VerificationFailed, match="rolled back") as caught:
                ground.apply(*steps)
            assert not caught.value.changed
            assert ground.tree() == before
            assert ground.journal() == []
        assert ground.statuses() == ["ROLLED_BACK"] * 2
        assert ground.hf.recover() is None
        _lands_and_goes_back(ground, put("d/x", b"2"))

    as_user(public, act)
