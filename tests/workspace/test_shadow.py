"""Shadows: made at once, hidden things hidden, filled as told, and gone at the end, whatever programs left."""

from __future__ import annotations

import gc
import os
import resource  # noqa: F401  (loaded now: after a change of user the interpreter's own directory may be out of reach)
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from guarded import as_user, in_child, tree_of
from holdfast.disk.calls import Calls
from holdfast.errors import Conflict, InvalidInput, Unsupported
from holdfast.model.changeset import Change, change_set
from holdfast.model.image import Image
from holdfast.workspace.hidden import masked_paths, matches
from holdfast.workspace.observe import observe
from holdfast.workspace.shadow import open_shadow, sweep_shadows
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes
from shaded import changes, confined, perform, shaded, shell, standing

Kind = Literal["overlay", "copy"]
both = pytest.mark.parametrize("kind", ["overlay", "copy"])
FILES = {
    "a": b"one\n",
    ".env": b"TOKEN=1\n",
    "secrets/k": b"key\n",
    "d/x.pem": b"pem\n",
    "d/e/y.pem": b"pem\n",
    "d/z": b"z\n",
}
NEW = Image("file", 0o644, os.getuid(), os.getgid(), 4, "", "")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with shaded(tmp_path / "workspace", FILES) as opened:
        yield opened


def shadows(site: Site) -> list[str]:
    return os.listdir(Path(site.path) / ".holdfast/shadows")


def created(path: str, data: bytes, pre: Image | None = None) -> tuple[Change, Bytes]:
    from blake3 import blake3

    return Change(path, pre, NEW._replace(size=len(data), digest=blake3(data).hexdigest())), Bytes(data)


# ── beginning and end ──


@both
@pytest.mark.parametrize(
    "script",
    [
        "true",
        "mkdir -p p/q/r; echo x > p/q/r/s; chmod 0 p/q/r/s p/q/r p/q p",
        "i=0; while [ $i -lt 300 ]; do mkdir n; cd n; echo > f; i=$((i+1)); done",
        "rm -rf * .env; mkfifo f; ln -s / root",
        "chmod 0 .",
    ],
)
def test_nothing_is_left(site: Site, kind: Kind, script: str) -> None:
    """However a program left its shadow, it is gone afterwards, and the workspace is as it was."""
    before = tree_of(Path(site.path))
    with open_shadow(site, kind) as shadow:
        confined(shadow.view, "/bin/sh", "-c", f"{script}; exit 0")
        assert shadows(site) == [shadow.id]
    assert (shadows(site), tree_of(Path(site.path))) == ([], before)


@pytest.mark.root
@both
def test_nothing_is_left_of_an_ordinary_user(public: Path, kind: Kind) -> None:
    """Without root, closed directories inside closed directories are removed as well."""

    def act(workspace: Path) -> None:
        with shaded(workspace, FILES) as site:
            with open_shadow(site, kind) as shadow:
                shell(shadow, "mkdir -p p/q/r; echo x > p/q/r/s; chmod 0 p/q/r/s p/q/r p/q p; chmod 0 d")
            assert shadows(site) == []

    as_user(public, act)


@both
def test_an_error_in_the_block_removes_the_shadow_too(site: Site, kind: Kind) -> None:
    """The shadow goes with the block, and the error comes out."""
    with pytest.raises(ZeroDivisionError), open_shadow(site, kind):
        _ = 1 // 0
    assert shadows(site) == []


@pytest.mark.long
def test_descriptors_and_shadows_do_not_add_up(site: Site) -> None:
    """Two hundred shadows of each kind, with layers, leave no descriptor and no file behind."""
    empty = change_set(())
    with open_shadow(site, "overlay"):
        pass  # what is loaded once is loaded
    gc.collect()  # what other tests left open is not closed in the middle of the count
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        with open_shadow(site, "copy" if number % 10 == 0 else "overlay") as shadow:
            shadow.put(empty, {}, {})
            shadow.capture()
            with shadow.layer(empty, {}, {}):
                pass
    assert (len(os.listdir("/proc/self/fd")), shadows(site)) == (before, [])


def test_what_a_dead_process_left_is_swept(site: Site) -> None:
    """A shadow whose owner was killed is removed by the next sweep; one in use is left alone."""

    def die() -> None:
        with Site(site.path) as own, open_shadow(own, "copy") as shadow:
            Path(shadow.view.base, "left").write_bytes(b"")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    with open_shadow(site) as shadow:
        assert len(shadows(site)) == 2
        with Site(site.path) as other:
            assert sweep_shadows(other) == 1
        assert shadows(site) == [shadow.id]
    assert sweep_shadows(site) == 0


def test_a_sweep_and_a_beginning_at_once(site: Site) -> None:
    """Somebody who sweeps without pause never removes a shadow that is just being made."""
    child = os.fork()
    if child == 0:
        with Site(site.path) as other:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                sweep_shadows(other)
        os._exit(0)
    try:
        for _ in range(300):
            with open_shadow(site, "overlay") as shadow:
                assert os.path.isdir(shadow.view.layers[0].upper)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_two_shadows_do_not_see_each_other(site: Site) -> None:
    """What is written in one is not in the other."""
    with open_shadow(site) as one, open_shadow(site) as other:
        shell(one, "echo x > mine")
        shell(other, "test ! -e mine; echo y > yours")
        assert (changes(one.capture()), changes(other.capture())) == ({"mine": "new"}, {"yours": "new"})


# ── which kind ──


def test_an_overlay_is_preferred(site: Site) -> None:
    """Where nothing speaks against it, a shadow is an overlay and says nothing about why."""
    with open_shadow(site) as shadow:
        assert (shadow.kind, shadow.why) == ("overlay", "")


def test_a_copy_says_why(site: Site) -> None:
    """Where the sandbox cannot mount overlays, the shadow is a copy with that reason; demanded, it is refused."""
    with open_shadow(site, trouble="no user namespaces") as shadow:
        assert (shadow.kind, shadow.why) == ("copy", "no user namespaces")
    with (
        pytest.raises(Unsupported, match="no user namespaces"),
        open_shadow(site, "overlay", trouble="no user namespaces"),
    ):
        pass
    assert shadows(site) == []


@pytest.mark.root
def test_owners_who_cannot_be_mapped_make_it_a_copy(site: Site) -> None:
    """A file of an owner that programs inside cannot be could not be changed in an overlay."""
    os.chown(Path(site.path) / "a", 70_000, 0)
    with open_shadow(site) as shadow:
        assert shadow.kind == "copy"
        assert "70000" in shadow.why


# ── hidden ──


@both
def test_hidden_paths_are_empty_inside_and_stay(site: Site, kind: Kind) -> None:
    """Hidden files and directories look empty, cannot be written or removed, and are no part of what is captured."""
    with open_shadow(site, kind, [".env", "secrets/**", "**/*.pem"]) as shadow:
        assert shadow.view.masked == (".env", ".holdfast", "d/e/y.pem", "d/x.pem", "secrets")
        shell(
            shadow,
            'test ! -s .env; test ! -s d/x.pem; test -z "$(ls -A secrets; ls -A .holdfast)"; test $(cat d/z) = z;'
            "! (echo x > .env) 2>/dev/null; ! rm .env 2>/dev/null; ! touch secrets/x 2>/dev/null;"
            "rm -rf d 2>/dev/null || true; echo x > new",
        )
        captured = shadow.capture()
        assert changes(captured) == {"d/z": "gone", "new": "new"}
        assert captured.refused == ()


def test_a_copy_holds_no_secret(site: Site) -> None:
    """What is hidden is not even copied."""
    with open_shadow(site, "copy", [".env", "secrets/**"]) as shadow:
        base = Path(shadow.view.base)
        assert (base / ".env").read_bytes() == b"" and os.listdir(base / "secrets") == []
        assert os.listdir(base / ".holdfast") == []


@pytest.mark.root
def test_what_a_user_cannot_read_is_hidden_in_a_copy(public: Path, tmp_path: Path) -> None:
    """A file that cannot be copied is shown empty and unwritable, and is never captured as emptied."""
    (public / "workspace/locked").write_bytes(b"of root")
    (public / "workspace/locked").chmod(0o600)

    def act(workspace: Path) -> None:
        with shaded(workspace, FILES) as site, open_shadow(site, "copy") as shadow:
            assert shadow.view.masked == (".holdfast", "locked")
            shell(shadow, "test ! -s locked; ! (echo x > locked) 2>/dev/null")
            assert not shadow.capture().change_set

    as_user(public, act)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (".env", [".env"]),
        ("nothing", []),
        ("secrets/**", ["secrets"]),
        ("secrets/*", ["secrets/k"]),
        ("d/**", ["d"]),
        ("**/*.pem", ["d/e/y.pem", "d/x.pem"]),
        ("d/*/*.pem", ["d/e/y.pem"]),
        ("**/e/**", ["d/e"]),
        ("*.p?m", ["d/e/y.pem", "d/x.pem"]),
        ("x.PEM", ["d/x.pem"]),
        ("E", ["d/e"]),
        ("up/y.pem", ["d/e/y.pem"]),
        ("link", ["d/z"]),
        ("up/**", ["d/e"]),
    ],
)
def test_patterns_name_paths(site: Site, pattern: str, expected: list[str]) -> None:
    """Fixed names, wildcards, any depth; a link hides what it leads to, and what leads outside hides nothing."""
    root = Path(site.path)
    (root / "link").symlink_to("d/z")
    (root / "up").symlink_to("d/e")
    (root / "out").symlink_to("/etc")
    assert list(masked_paths(site.workspace, [pattern])) == sorted([".holdfast", *expected])


@pytest.mark.parametrize("pattern", ["", "/etc", "../x", "a/../b", "**", "**/**", "a//b", "*", "[ab].key"])
def test_patterns_that_make_no_sense(site: Site, pattern: str) -> None:
    """Absolute, climbing and all-embracing patterns are refused, and sets of characters, which have no meaning."""
    with pytest.raises(InvalidInput):
        masked_paths(site.workspace, [pattern])


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [("build/out/x", "build/out/**", True), ("build/out", "build/out/**", True), ("build/x", "build/out/**", False),
     ("a/b/c.log", "**/*.log", True), ("c.log", "**/*.log", True), ("d/e", "d", True), ("de", "d", False)],
)  # fmt: skip
def test_a_pattern_keeps_what_is_below(path: str, pattern: str, expected: bool) -> None:
    """A pattern that names a directory names everything in it."""
    assert matches(path, [pattern]) is expected


def test_a_name_is_hidden_at_any_depth_and_in_any_spelling(site: Site) -> None:
    """`hidden = [".env"]` is every `.env` of the tree, whatever its case; git's own files are named to be hidden."""
    root = Path(site.path)
    for path in ("sub/.env", "sub/deep/.ENV", ".git/.env", ".git/config"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("secret")
    assert masked_paths(site.workspace, [".env"]) == (".env", ".holdfast", "sub/.env", "sub/deep/.ENV")
    assert masked_paths(site.workspace, [".git/config"]) == (".git/config", ".holdfast")


def test_hidden_patterns_of_a_repository_take_no_time(site: Site) -> None:
    """Nested jumps over a deep tree, which kept a matcher busy for minutes, are looked up at once."""
    deep = Path(site.path, "top", *["a"] * 60)
    deep.mkdir(parents=True)
    started = time.process_time()
    pattern = "**/a/" * 50 + "b"
    assert masked_paths(site.workspace, [pattern]) == (".holdfast",)
    assert not matches("/".join(["a"] * 60), [pattern])
    assert time.process_time() - started < 20


# ── filling ──


@both
def test_a_change_set_is_put_and_put_again(site: Site, kind: Kind) -> None:
    """A put change stands for programs; what they then leave as it is is not made anew by the next put."""
    change, source = created("n/f", b"new\n")
    folder = Change("n", None, NEW._replace(kind="directory", mode=0o755, size=0))
    wanted = change_set((change, folder))
    with open_shadow(site, kind) as shadow:
        shadow.put(wanted, {}, {"n/f": source})
        shell(shadow, "test $(cat n/f) = new; echo more > n/g")
        root = shadow.view.layers[0].upper if kind == "overlay" else shadow.view.base
        inode = os.stat(f"{root}/n/f").st_ino
        shadow.put(wanted, {}, {"n/f": source})
        assert os.stat(f"{root}/n/f").st_ino == inode
        assert changes(shadow.capture()) == {"n": "new", "n/f": "new", "n/g": "new"}
        shell(shadow, "echo worse > n/f")
        shadow.put(wanted, {}, {"n/f": source})
        assert shadow.capture().change_set.changes[1] == change


@both
def test_a_directory_that_a_program_removed_comes_back_empty(site: Site, kind: Kind) -> None:
    """Where a program removed a directory and a change set makes it, nothing of the old one shows through."""
    with open_shadow(site, kind) as shadow:
        shell(shadow, "rm -r d")
        folder = Change("d", None, NEW._replace(kind="directory", mode=0o755, size=0))
        shadow.put(change_set((folder,)), {}, {})
        shell(shadow, 'test -d d; test -z "$(ls -A d)"')
        assert changes(shadow.capture()) == {"d/e": "gone", "d/e/y.pem": "gone", "d/x.pem": "gone", "d/z": "gone"}


@both
def test_a_move_and_a_mode_need_no_bytes(site: Site, kind: Kind) -> None:
    """Halves of moves and changes of mode have no source of their own: the workspace's file is copied, not moved."""
    before = tree_of(Path(site.path))
    seen = {name: observe(Calls(), site.workspace.fd, name) for name in ("a",)}
    a = seen["a"]
    assert a is not None
    moved = change_set((Change("a", a.image, None), Change("b", None, a.image, origin="a")))
    closed = change_set((Change("a", a.image, a.image._replace(mode=0o600)),))
    with open_shadow(site, kind) as shadow:
        with shadow.layer(moved, {"a": a}, {}) as view:
            stood = perform(view, [])
            assert "a" not in stood and stood["b"][4] == b"one\n".hex()
        with shadow.layer(closed, {"a": a}, {}) as view:
            assert perform(view, [])["a"][1] == 0o600
    assert tree_of(Path(site.path)) == before


@both
def test_checks_see_no_by_products_and_leave_nothing(site: Site, kind: Kind) -> None:
    """A layer shows workspace and change set only; what is written there never becomes part of the change."""
    change, source = created("f", b"new\n")
    wanted = change_set((change,))
    with open_shadow(site, kind) as shadow:
        shell(shadow, "echo cache > cache")
        with shadow.layer(wanted, {}, {"f": source}) as view:
            confined(
                view, "/bin/sh", "-e", "-c", "test ! -e cache; test $(cat f) = new; echo x > a; rm -r d; echo > made"
            )
            confined(view, "/bin/sh", "-e", "-c", "test -e made")
        assert changes(shadow.capture()) == {"cache": "new"}
        assert len(os.listdir(Path(site.path) / ".holdfast/shadows" / shadow.id)) == 2


@both
def test_a_change_without_its_directory_is_a_conflict(site: Site, kind: Kind) -> None:
    """A change set whose parents are not there cannot be put, and says which."""
    change, source = created("no/such/f", b"new\n")
    with open_shadow(site, kind) as shadow, pytest.raises(Conflict, match="no is no directory"):
        shadow.put(change_set((change,)), {}, {"no/such/f": source})


@pytest.mark.root
@both
def test_access_lists_name_the_same_people_inside(site: Site, kind: Kind) -> None:
    """Owners in access lists are moved on the way in and out, as the owners of files are."""
    import struct

    rules = [(1, 6, 0xFFFFFFFF), (2, 4, 1234), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF), (32, 4, 0xFFFFFFFF)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *rule) for rule in rules)
    os.setxattr(Path(site.path) / "a", "system.posix_acl_access", acl)
    before = standing(site)["a"]
    with open_shadow(site, kind) as shadow:
        stood = perform(shadow.view, [("append", "a", "more\n"), ("rewrite", "d/z")])
        assert stood["a"][:4] == before[:4]
        (change,) = shadow.capture().change_set.changes
        assert change.post is not None and change.post.xattrs == (("system.posix_acl_access", acl.hex()),)
        with open_shadow(site, kind) as other:
            captured = shadow.capture()
            other.put(captured.change_set, captured.seen, captured.sources)
            assert other.capture().change_set == captured.change_set
