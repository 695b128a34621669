"""Things that are not plain files, rights that must not be gained, and names that want to deceive."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import as_user, at_most, guard, put, swap, thing_at
from holdfast.errors import Blocked, HoldfastError
from holdfast.model.path import printable
from holdfast.model.plan import Chmod, Create, Delete, FromFile, Move, Read, Step, Symlink, Write


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(path.parent)  # the address of a socket may be no longer than 107 bytes
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


def _device(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: reading it never ends


_SPECIALS: list[object] = [
    pytest.param(os.mkfifo, id="FIFO"),
    pytest.param(_socket, id="socket"),
    pytest.param(_device, id="endless device", marks=pytest.mark.root),
]
_STEPS: list[Step] = [
    put("it", b"x"),
    swap("it", b"", b"x"),
    Create("it", False),
    Delete("it"),
    Chmod("it", 0o777),
    Symlink("it", "x"),
    Read("it"),
    Move("it", "b"),
    Delete("d", True),
    Move("d", "e"),
    put("it/below", b"x"),
]


@pytest.mark.parametrize("make", _SPECIALS)
def test_a_special_file_in_the_way_never_blocks(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """FIFO, socket and device are refused by every step, without being opened, within the second."""
    ground = guard(tmp_path / "workspace", {"d/f": b"1"})
    make(ground / "it")
    make(ground / "d/it")
    before = ground.tree()
    for step in _STEPS:
        with at_most(10), pytest.raises(Blocked):
            ground.apply(step)
    assert ground.tree() == before
    assert ground.journal() == []


def test_a_special_file_where_an_undo_wants_to_work(tmp_path: Path) -> None:
    """A FIFO in place of a file we wrote: undo refuses at once, and the FIFO stays."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done = ground.apply(put("a", b"new"))
    (ground / "a").unlink()
    os.mkfifo(ground / "a")
    with at_most(10), pytest.raises(HoldfastError):
        ground.hf.undo(done.id, approved_by="me")
    assert (ground / "a").is_fifo()


def test_a_content_file_that_became_a_fifo(tmp_path: Path) -> None:
    """The file named by content_from turned into a FIFO after it was read: refused, not waited for."""
    ground = guard(tmp_path / "workspace")
    os.mkfifo(tmp_path / "source")
    step = Write("a", FromFile(str(tmp_path / "source"), 3, "0" * 64))
    with at_most(10), pytest.raises(Blocked):
        ground.apply(step)
    assert ground.tree() == {}


@pytest.mark.root
def test_a_content_file_that_became_endless(tmp_path: Path) -> None:
    """A device that never ends in place of a content file is read no further than the size that was promised."""
    ground = guard(tmp_path / "workspace")
    _device(tmp_path / "source")
    with at_most(10), pytest.raises(Blocked):
        ground.apply(Write("a", FromFile(str(tmp_path / "source"), 3, "0" * 64)))
    assert ground.tree() == {}


# ── rights ──


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o1777, 0o10000, 0o777777, -1])
def test_no_step_sets_special_bits(tmp_path: Path, mode: int) -> None:
    """Set-id, sticky and nonsense bits cannot be asked for, by any step that has a mode."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "d/": b""})
    before = ground.tree()
    for step in (
        Chmod("a", mode),
        Chmod("d", mode),
        put("n", b"x", mode),
        put("a", b"x", mode),
        Create("m", True, mode),
    ):
        with pytest.raises(Blocked):
            ground.apply(step)
    assert ground.tree() == before


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_a_set_id_file_is_not_rewritten_but_may_go(tmp_path: Path, mode: int) -> None:
    """New bytes never inherit special rights; removing, moving and undoing keep the very same file."""
    ground = guard(tmp_path / "workspace", {"tool": b"old"})
    (ground / "tool").chmod(mode)
    before = ground.tree()
    for step in (put("tool", b"evil"), swap("tool", b"old", b"evil"), Chmod("tool", 0o755)):
        with pytest.raises(Blocked, match="special rights"):
            ground.apply(step)
    assert ground.tree() == before
    done = ground.apply(Delete("tool"))
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before
    done = ground.apply(Move("tool", "moved"))
    assert (ground / "moved").stat().st_mode & 0o7777 == mode
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


# VFS_CAP_REVISION_2, cap_net_bind_service permitted: one harmless capability.
_CAPABILITY = struct.pack("<IIIII", 0x02000000, 1 << 10, 0, 0, 0)


@pytest.mark.root
def test_a_file_with_capabilities_is_not_rewritten(tmp_path: Path) -> None:
    """A capability is neither given to other bytes nor lost when the file is deleted, undone or moved."""
    ground = guard(tmp_path / "workspace", {"tool": b"old", "plain": b"p"})
    os.setxattr(ground / "tool", "security.capability", _CAPABILITY)
    before = ground.tree()
    assert dict(before["tool"].xattrs)["security.capability"] == _CAPABILITY
    for step in (put("tool", b"evil"), swap("tool", b"old", b"evil"), Chmod("tool", 0o755)):
        with pytest.raises(Blocked, match="special rights"):
            ground.apply(step)
    for step in (Delete("tool"), Move("tool", "moved")):
        done = ground.apply(step)
        ground.hf.undo(done.id, approved_by="me")
        assert ground.tree() == before
    # Two moves that swap the files copy the bytes: the capability goes with its bytes and not with its name.
    ground.apply(Move("tool", "t"), Move("plain", "tool"), Move("t", "plain"))
    after = ground.tree()
    assert (after["plain"].xattrs, after["tool"].xattrs) == (before["tool"].xattrs, ())


# user::rw-, user:12345:rw-, group::r--, mask::rw-, other::r--
_ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, bits, who)
    for tag, bits, who in [
        (1, 6, 0xFFFFFFFF),
        (2, 6, 12345),
        (4, 4, 0xFFFFFFFF),
        (16, 6, 0xFFFFFFFF),
        (32, 4, 0xFFFFFFFF),
    ]
)


def _has_acls(path: Path) -> bool:
    try:
        os.setxattr(path, "system.posix_acl_access", _ACL)
    except OSError:
        return False
    return True


def test_an_access_list_stays_with_its_file(tmp_path: Path) -> None:
    """A rewritten file keeps its ACL, a moved one too, a new one gets none, and undo restores exactly."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"plain"})
    if not _has_acls(ground / "a"):
        pytest.skip("this file system has no ACLs")
    before = ground.tree()
    done = ground.apply(put("a", b"new"), put("fresh", b"f"), put("b", b"changed"))
    after = ground.tree()
    assert dict(after["a"].xattrs) == {"system.posix_acl_access": _ACL}
    assert (after["fresh"].xattrs, after["b"].xattrs) == ((), ())
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


def test_a_default_access_list_of_the_root_gives_nothing_away(tmp_path: Path) -> None:
    """Where the workspace's directory hands an ACL down, `.holdfast` does not take it, nor do files that land."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    try:
        os.setxattr(workspace, "system.posix_acl_default", _ACL)
    except OSError:
        pytest.skip("this file system has no ACLs")
    ground = guard(workspace)
    for place in (ground.state, ground.state / "journal", ground.state / "kept", ground.state / "format"):
        assert os.listxattr(place) == [], place
    ground.apply(put("fresh", b"f"), Create("d", True))
    assert (thing_at(ground / "fresh").xattrs, thing_at(ground / "d").xattrs) == ((), ())
    assert (ground / "fresh").stat().st_mode & 0o777 == 0o644


def test_attributes_are_kept(tmp_path: Path) -> None:
    """Extended attributes of a file survive a rewrite, a move and an undo."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    os.setxattr(ground / "a", "user.note", b"\0\xff")
    before = ground.tree()
    done = ground.apply(put("a", b"new"), Move("a", "b"))
    assert thing_at(ground / "b").xattrs == (("user.note", b"\0\xff"),)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


@pytest.mark.root
def test_owners_are_kept(tmp_path: Path) -> None:
    """Root rewriting somebody's file leaves it theirs."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    os.chown(ground / "a", 12345, 23456)
    before = ground.tree()
    done = ground.apply(put("a", b"new"))
    assert thing_at(ground / "a").owner == (12345, 23456)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


# ── names shown to a person ──

_DECEIVING = {
    "bidi override": "a\u202egpj.exe",
    "bidi isolate": "a\u2066b\u2069",
    "ANSI colour": "\x1b[31mred\x1b[0m",
    "ANSI clear": "\x1b[2J",
    "C1 control": "a\x9b31mb",
    "newline": "a\nApply? yes",
    "carriage return": "safe\revil",
    "backspace": "evil\b\b\b\bsafe",
    "zero width space": "a\u200bb",
    "zero width joiner": "a\u200db",
    "byte order mark": "\ufeffa",
    "line separator": "a\u2028b",
    "no-break space": "a\u00a0b",
    "soft hyphen": "a\u00adb",
    "Hangul filler": "a\u3164b",
    "variation selector": "a\ufe0fb",
    "tag characters": "a\U000e0041b",
    "braille blank": "a\u2800b",
    "not UTF-8": "a\udcffb",
    "DEL": "a\x7fb",
}


@pytest.mark.parametrize("name", _DECEIVING.values(), ids=_DECEIVING)
def test_a_deceiving_name_is_shown_for_what_it_is(name: str) -> None:
    """What hides, moves the cursor or turns the reading direction is shown as an escape."""
    shown = printable(name)
    assert "\\" in shown
    assert shown.isprintable()
    assert not set(shown) & (set(name) - {ch for ch in name if ch.isascii() and ch.isprintable()})


@given(st.text())
def test_what_is_shown_is_one_printable_line(text: str) -> None:
    """Whatever the name, what a person sees is one line without control characters; plain text is left as it is."""
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown
    if text.isascii() and text.isprintable():
        assert shown == text


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\u202eb", "a\udcffb"], ids=ascii)
def test_messages_show_names_escaped(tmp_path: Path, name: str) -> None:
    """The sentence a person reads when such a file is in the way holds no raw control character."""
    ground = guard(tmp_path / "workspace", {"d/f": b"1"})
    done = ground.apply(put(f"d/{name}", b"ours"))
    (ground / f"d/{name}").write_bytes(b"theirs, since")
    messages = []
    for act in (
        lambda: ground.hf.undo(done.id, approved_by="me"),
        lambda: ground.apply(Create(f"d/{name}", False)),
        lambda: ground.apply(Delete(f"d/{name}/x")),
        lambda: ground.apply(swap(f"d/{name}", b"wrong", b"x")),
    ):
        with pytest.raises(HoldfastError) as caught:
            act()
        messages.append(caught.value.message)
    for message in messages:
        assert all(line.isprintable() for line in message.split("\n"))
        assert printable(name) in message


def test_an_intent_that_is_no_whole_text_can_be_recorded(tmp_path: Path) -> None:
    """Half characters and raw bytes in an intent neither stop the record nor brick the workspace."""
    ground = guard(tmp_path / "workspace")
    for intent in ("byte \udc80", "half \ud800", "pair \ud83d\ude00", "\x1b[31m\n\0"):
        with ground.hf.transaction(intent, approved_by=intent) as tx:
            tx.write("a", intent.encode("utf-8", "replace"))
    ground = ground.reopened()
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"] * 4
    assert ground.hf.audit().ok
    assert len(ground.hf.log(search="byte \udc80")) <= 1


@pytest.mark.root
def test_a_user_without_rights_is_told_so(public: Path) -> None:
    """What this user may not read is refused before anything changes, and the other files stay as they are."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a": b"old", "secret": b"s"})
        (ground / "secret").chmod(0)
        for step in (
            put("secret", b"x"),
            Delete("secret"),
            Move("secret", "s2"),
            Read("secret"),
            Chmod("secret", 0o600),
        ):
            with pytest.raises(Blocked):
                ground.apply(put("a", b"new"), step)
            assert (ground / "a").read_bytes() == b"old"

    as_user(public, act)
