"""Capture: exact changes, and a name for everything that does not land."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from blake3 import blake3

from guarded import USER, as_user, rewritten, tree_of
from holdfast.disk.calls import Calls
from holdfast.errors import Blocked
from holdfast.workspace.capture import Captured
from holdfast.workspace.overlay import OPAQUE, make_whiteout
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.shifting import our_shift
from holdfast.workspace.site import Site
from holdfast.workspace.staging import CopyOf
from holdfast.workspace.tree import snapshot
from shaded import PYTHON, Act, captured_by, changes, confined, land, perform, shaded, shell, standing

Kind = Literal["overlay", "copy"]
FILES = {"a": b"one\n", "d/a": b"two\n", "d/e/b": b"three\n", "run.sh": b"#!/bin/sh\n"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with shaded(tmp_path / "workspace", FILES) as opened:
        yield opened


@pytest.fixture(params=["overlay", "copy"])
def shadow(request: pytest.FixtureRequest, site: Site) -> Iterator[Shadow]:
    with open_shadow(site, request.param) as opened:
        yield opened


def refused(captured: Captured) -> dict[str, str]:
    return {remark.path: remark.reason for remark in captured.refused}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo new > c", {"c": "new"}),
        ("echo two > a", {"a": "edited"}),
        ("rm a", {"a": "gone"}),
        ("mv a z", {"a": "gone", "z": "new"}),
        ("chmod 755 a", {"a": "mode"}),
        ("chmod 700 d", {"d": "mode"}),
        ("ln -s a l", {"l": "new"}),
        ("rm a; ln -s run.sh a", {"a": "symlink"}),
        ("rm a; mkdir a; echo x > a/x", {"a": "directory", "a/x": "new"}),
        ("rm -r d; echo x > d", {"d": "file", "d/a": "gone", "d/e": "gone", "d/e/b": "gone"}),
        ("rm -r d", {"d": "gone", "d/a": "gone", "d/e": "gone", "d/e/b": "gone"}),
        ("rm -r d; mkdir d; echo x > d/a", {"d/a": "edited", "d/e": "gone", "d/e/b": "gone"}),
        ("rm -r d; mkdir -p d/e; echo x > d/e/n", {"d/a": "gone", "d/e/b": "gone", "d/e/n": "new"}),
        ("mv d x", {"d": "gone", "d/a": "gone", "d/e": "gone", "d/e/b": "gone"}
            | {"x": "new", "x/a": "new", "x/e": "new", "x/e/b": "new"}),
        ("mkdir -p n/m; rmdir n/m; rmdir n", {}),
        ("touch a d; cat a > t; cat t > a; rm t; mv d/a q; mv q d/a", {}),
        ("chmod 600 a; chmod 644 a; cp -p a b; mv b a", {}),
        (": > a", {"a": "edited"}),
        ("cp -r d t; rm -r d; mv t d", {}),
        ("cp -r d t; rm -r d; mv t d; echo x > d/a", {"d/a": "edited"}),
    ],
)  # fmt: skip
def test_what_a_program_did_is_the_change_set(shadow: Shadow, script: str, expected: dict[str, str]) -> None:
    """Creates, edits, deletes, moves, modes, links and changes of kind are captured; what ends equal is no change."""
    before = tree_of(Path(shadow.view.path))
    shell(shadow, script)
    captured = captured_by(shadow)
    assert changes(captured) == expected
    assert captured[3:] == ((), (), (), ())
    assert tree_of(Path(shadow.view.path)) == before


@pytest.mark.parametrize(
    ("act", "path", "words"),
    [
        ("mkfifo f", "f", "FIFO"),
        ("ln a b", "b", "hard link"),
        ("cp run.sh s; chmod 4755 s", "s", "set-id"),
        ("chmod 2755 run.sh", "run.sh", "set-id"),
        ("mkdir g; chmod 2755 g", "g", "set-id"),
        ("mkdir .GIT; echo > .GIT/config", ".GIT", "protected"),
        ("mkdir -p d/.Holdfast", "d/.Holdfast", "protected"),
    ],
)
def test_dangers_are_refused_by_name(site: Site, shadow: Shadow, act: str, path: str, words: str) -> None:
    """Set-id bits, hard links, special files and spellings of protected names do not land, and the reason is given."""
    shell(shadow, f"{act}; echo fine > fine")
    captured = captured_by(shadow)
    assert words in refused(captured)[path]
    assert changes(captured) == {"fine": "new"}
    land(site, captured)
    assert not (Path(site.path) / path).exists() or path == "run.sh"
    assert not os.stat(Path(site.path) / "run.sh").st_mode & stat.S_ISGID


@pytest.mark.parametrize("name", ["opaque", "redirect", "metacopy", "whiteout", "origin", "anything"])
@pytest.mark.parametrize("path", ["d", "a", "new"])
def test_an_attribute_named_like_the_overlays_own_says_nothing(shadow: Shadow, name: str, path: str) -> None:
    """What a program calls `user.overlay.…` deletes nothing and redirects nothing: it is refused by that name."""
    act = f"import os; open('new', 'w').close(); os.setxattr({path!r}, 'user.overlay.{name}', b'y')"
    confined(shadow.view, PYTHON, "-I", "-S", "-c", act)
    captured = captured_by(shadow)
    assert f"user.overlay.{name}," in refused(captured)[path]
    assert changes(captured) == ({} if path == "new" else {"new": "new"})


def test_a_file_of_the_workspace_with_an_overlays_attribute(tmp_path: Path) -> None:
    """A shadow cannot show such an attribute, so a change to the file is refused rather than losing it."""
    with shaded(tmp_path / "w", FILES) as site:
        os.setxattr(tmp_path / "w/a", "user.overlay.of-another", b"y")
        for kind in ("overlay", "copy"):
            with open_shadow(site, kind) as shadow:
                shell(shadow, "echo more >> a; echo b > b")
                captured = captured_by(shadow)
                assert "user.overlay.of-another" in refused(captured)["a"]
                assert changes(captured) == {"b": "new"}


# One that ping has: CAP_NET_RAW, permitted and effective.
_NET_RAW = b"\x01\x00\x00\x02\x00\x20\x00\x00" + bytes(12)


@pytest.mark.parametrize("kind", ["overlay", "copy"])
@pytest.mark.parametrize("special", ["set-id", "capability", "trusted"])
def test_special_rights_are_not_lost_by_a_program(tmp_path: Path, kind: Kind, special: str) -> None:
    """A program that rewrites a file with special rights would take them away: refused, as a write step is."""
    with shaded(tmp_path / "w", FILES) as site:
        if special == "set-id":
            (tmp_path / "w/run.sh").chmod(0o4755)
        elif os.geteuid() != 0:
            pytest.skip("only root gives capabilities and trusted attributes")
        else:
            name, value = ("security.capability", _NET_RAW) if special == "capability" else ("trusted.own", b"y")
            os.setxattr(tmp_path / "w/run.sh", name, value)
        with open_shadow(site, kind) as shadow:
            shell(shadow, "{ echo 'echo more' >> run.sh && chmod 0700 run.sh; } || : > untouched; echo b > b")
            captured = captured_by(shadow)
        kept = special == "trusted" and kind == "copy"
        # btrfs lists trusted attributes that only root may read, so the kernel refuses to copy the file up.
        untouched = "untouched" in changes(captured)
        assert not untouched or (special, kind) == ("trusted", "overlay")
        assert ("run.sh" in refused(captured)) != (kept or untouched)
        expected = {"b": "new", **({"run.sh": "edited"} if kept else {}), **({"untouched": "new"} if untouched else {})}
        assert changes(captured) == expected


def test_what_is_in_a_refused_directory_is_refused_too(shadow: Shadow) -> None:
    """A file in a new directory that cannot land cannot land either."""
    shell(shadow, "mkdir g; chmod 2755 g; echo x > g/x; mkdir g/h")
    assert refused(captured_by(shadow)).keys() == {"g", "g/x", "g/h"}


def test_a_directory_that_hands_down_its_group(tmp_path: Path) -> None:
    """A directory made inside one with the set-gid bit inherits the bit, which is no danger."""
    with shaded(tmp_path / "w", FILES) as site:
        os.chmod(tmp_path / "w/d", 0o2755)
        with open_shadow(site) as shadow:
            shell(shadow, "mkdir d/n")
            captured = captured_by(shadow)
        assert (changes(captured), refused(captured)) == ({"d/n": "new"}, {})


def test_a_file_with_two_names_in_the_workspace(site: Site) -> None:
    """Changing or removing one name of a file that has two would separate them: refused, as the transaction would."""
    os.link(Path(site.path) / "a", Path(site.path) / "same")
    with open_shadow(site) as shadow:
        shell(shadow, "echo x >> a; rm same")
        captured = captured_by(shadow)
    assert {path: "2 names" in reason for path, reason in refused(captured).items()} == {"a": True, "same": True}
    assert not captured.change_set


def test_the_root_of_the_workspace_is_no_path(shadow: Shadow) -> None:
    """What is done to the workspace's own directory is not part of any change set."""
    shell(shadow, "chmod 700 .; touch .")
    assert not captured_by(shadow).change_set


def test_a_file_changed_meanwhile_is_told(site: Site, shadow: Shadow) -> None:
    """Where somebody changed in the workspace what a program changed in the shadow, the path is in `moved`,
    and its pre-image is what stands there now; a file that appeared in a directory that the program removed too.
    """
    shell(shadow, "echo mine >> a; echo mine >> run.sh; rm -r d")
    rewritten(Path(site.path) / "a", b"not\n")
    (Path(site.path) / "d/late").write_bytes(b"")
    captured = captured_by(shadow)
    assert "a" in captured.moved and "run.sh" not in captured.moved
    assert captured.seen["a"].image.size == 4
    assert ("d/late" in changes(captured)) == ("d/late" in captured.moved)


def test_attributes_are_part_of_a_change(site: Site, shadow: Shadow) -> None:
    """An attribute of a file is captured and lands; the overlay's own notes never do."""
    perform(shadow.view, [("attribute", "a", "x"), ("append", "run.sh", "true\n")])
    captured = captured_by(shadow)
    assert [change.post.xattrs for change in captured.change_set.changes if change.post] == [(("user.note", "78"),), ()]
    land(site, captured)
    assert os.getxattr(Path(site.path) / "a", "user.note") == b"x"
    assert os.listxattr(Path(site.path) / "run.sh") == []


def test_attributes_of_a_directory_that_exists_are_refused(site: Site) -> None:
    """A transaction changes only the mode of a directory, so anything else about it is refused here already."""
    with open_shadow(site, "overlay") as shadow:
        shell(shadow, "mkdir d/x")
        os.setxattr(os.path.join(shadow.view.layers[0].upper, "d"), "user.note", b"x")
        captured = captured_by(shadow)
    assert "cannot be changed" in refused(captured)["d"]


def test_large_files_are_copied_when_they_land(site: Site, shadow: Shadow) -> None:
    """A large file is not kept in memory; it is read from the shadow when it is staged, holes and all."""
    shell(shadow, "truncate -s 30M big; echo end >> big")
    captured = captured_by(shadow)
    assert isinstance(captured.sources["big"], CopyOf)
    land(site, captured)
    about = os.stat(Path(site.path) / "big")
    assert (about.st_size, about.st_blocks < 1000) == (30 * (1 << 20) + 4, True)


def test_times_of_new_files_are_kept(site: Site, shadow: Shadow) -> None:
    """A file lands with the modification time it had in the shadow, as an unpacked archive would have it."""
    shell(shadow, "touch -d 2001-02-03T04:05:06Z old")
    land(site, captured_by(shadow))
    assert os.stat(Path(site.path) / "old").st_mtime == 981173106


@pytest.mark.parametrize("name", ["redirect", "metacopy"])
def test_an_upper_layer_that_we_do_not_understand_is_refused(site: Site, name: str) -> None:
    """Overlay features that nobody asked for would make the capture wrong, so there is none."""
    with open_shadow(site, "overlay") as shadow:
        directory = os.path.join(shadow.view.layers[0].upper, "d")
        os.mkdir(directory)
        os.setxattr(directory, f"user.overlay.{name}", b"/a")
        with pytest.raises(Blocked, match="feature"):
            captured_by(shadow)


def test_a_layer_made_by_hand(site: Site) -> None:
    """Whiteouts, opaque directories and copied-up directories mean what the kernel's documentation says."""
    with open_shadow(site, "overlay") as shadow:
        upper, shift = shadow.view.layers[0].upper, our_shift()
        root = os.open(upper, os.O_RDONLY)
        make_whiteout("a", root)
        make_whiteout("never-was", root)
        os.close(root)
        os.mkdir(f"{upper}/d")
        os.setxattr(f"{upper}/d", OPAQUE, b"y")
        os.chown(f"{upper}/d", os.getuid() + shift, os.getgid() + shift)
        assert changes(captured_by(shadow)) == {"a": "gone", "d/a": "gone", "d/e": "gone", "d/e/b": "gone"}


def test_an_owner_who_is_nobody_is_refused(site: Site) -> None:
    """A file in the layer that no program inside can have made is not given an owner by guess."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with open_shadow(site, "overlay") as shadow:
        Path(shadow.view.layers[0].upper, "alien").write_bytes(b"")
        assert "nobody" in refused(captured_by(shadow))["alien"]


def test_a_path_too_long_to_be_ours(shadow: Shadow) -> None:
    """A tree deeper than any path we handle is refused where it gets too long, and removed with the shadow."""
    script = "import os\nfor _ in range(40):\n    os.mkdir('n' * 200)\n    os.chdir('n' * 200)"
    confined(shadow.view, PYTHON, "-I", "-S", "-c", script)
    captured = captured_by(shadow)
    assert list(refused(captured).values()) == ["the path is longer than 4000 bytes"]
    assert len(captured.change_set.changes) == 19


@pytest.mark.root
@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_closed_to_their_owner(public: Path, kind: Kind) -> None:
    """An ordinary user's program closes files and directories: they are captured as such, stay so inside, and go."""

    def act(workspace: Path) -> None:
        with shaded(workspace, FILES) as site:
            with open_shadow(site, kind) as shadow:
                shell(shadow, "mkdir -p p/q; echo x > p/q/f; chmod 0 p/q/f p/q p; echo y >> d/a; chmod 0 d")
                for _ in range(2):
                    captured = captured_by(shadow)
                    wanted = {"d": "mode", "d/a": "edited", "p": "new", "p/q": "new", "p/q/f": "new"}
                    assert changes(captured) == wanted
                shell(shadow, "test $(stat -c %a p) = 0; chmod 700 p; test $(stat -c %a p/q) = 0; chmod 0 p")
                with open_shadow(site, kind) as other:
                    for _ in range(2):
                        other.put(captured.change_set, captured.seen, captured.sources)
                        assert captured_by(other).change_set == captured.change_set
            assert os.listdir(workspace / ".holdfast/shadows") == []

    as_user(public, act)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_an_ordinary_user_lands_what_stood(public: Path, kind: Kind) -> None:
    """Without root the same road leads from a program in a shadow to the workspace."""

    def act(workspace: Path) -> None:
        with shaded(workspace, FILES) as site, open_shadow(site, kind) as shadow:
            acts: list[Act] = [("rename", "d", "x"), ("write", "a", "new"), ("again", "x/e"), ("mode", "run.sh", 0o755)]
            stood = perform(shadow.view, acts)
            land(site, captured_by(shadow))
            assert standing(site) == stood
            assert os.stat(workspace / "x/a").st_uid == USER

    as_user(public, act)


def test_an_old_look_is_not_believed_about_what_was_written_since(site: Site, shadow: Shadow) -> None:
    """Whatever stands otherwise than when the workspace was looked at is read as it is now, and told as moved."""
    time.sleep(0.05)
    look = snapshot(site.path, None)
    shell(shadow, "echo mine > a; echo mine > d/a; echo mine > d/e/b")
    rewritten(Path(site.path) / "a", b"six\n")
    (Path(site.path) / "d/a").unlink()
    captured = shadow.capture((), look)
    before = {change.path: change.pre for change in captured.change_set.changes}
    assert before["a"] is not None
    assert before["a"].digest == blake3(b"six\n").hexdigest()
    assert before["d/a"] is None
    assert before["d/e/b"] == look.get("d/e/b")
    assert captured.moved == ("a",)


class NotingCalls(Calls):
    """The real kernel, and the names of what was opened."""

    def __init__(self) -> None:
        self.opened: set[str] = set()

    def open(  # type: ignore[override]
        self, path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        self.opened.add(os.fsdecode(path))
        return os.open(path, flags, mode, dir_fd=dir_fd)


def test_what_a_look_knows_is_not_read_again(site: Site) -> None:
    """Of a file that stands as it was looked at, nothing in the workspace is opened."""
    time.sleep(0.05)
    look = snapshot(site.path, None)
    calls = NotingCalls()
    with Site(site.path, calls) as noted, open_shadow(noted, "overlay") as shadow:
        shell(shadow, "echo mine > a; echo mine > d/e/b")
        calls.opened.clear()
        assert changes(shadow.capture((), look)) == {"a": "edited", "d/e/b": "edited"}
        assert not {"a", "b"} & calls.opened
        shadow.capture()
        assert {"a", "b"} <= calls.opened
