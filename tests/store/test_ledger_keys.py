"""The ledger's key: who may hold it, and how it comes to be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Tampering
from holdfast.store.anchor import anchor_path
from holdfast.store.keys import key_path, load_key, load_or_create_key
from ledger_kit import Faulty, in_child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "holdfast" / "ledger.key"


def test_a_new_key_is_private_and_stays_the_same(path: Path) -> None:
    """A key of 32 bytes is made with mode 0600 in a directory of mode 0700, also under a generous umask."""
    old = os.umask(0)
    try:
        key = load_or_create_key(str(path))
    finally:
        os.umask(old)
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_or_create_key(str(path)) == load_key(str(path)) == key
    assert os.listdir(path.parent) == ["ledger.key"]


def test_a_key_is_durable_before_it_has_its_name(path: Path) -> None:
    """The bytes are synced before the name is given, and the directory after; with any umask the mode is 0600."""
    path.parent.mkdir(parents=True, mode=0o700)
    calls, old = Faulty(0, lambda name, real: real()), os.umask(0o777)
    try:
        load_or_create_key(str(path), calls)
    finally:
        os.umask(old)
    kept = [name for name in calls.made if name in ("write", "fsync", "move")]
    assert kept == ["write", "fsync", "move", "fsync"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_differ(tmp_path: Path) -> None:
    """Two keys are not the same."""
    assert load_or_create_key(str(tmp_path / "a" / "k")) != load_or_create_key(str(tmp_path / "b" / "k"))


def test_a_missing_key_is_not_replaced_in_silence(path: Path) -> None:
    """`load_key` refuses where there is no key, with a hint, and makes none."""
    with pytest.raises(Tampering) as caught:
        load_key(str(path))
    assert caught.value.hint
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622, 0o610])
def test_a_key_open_to_others_is_refused(path: Path, mode: int) -> None:
    """Any permission for group or world is refused, and the message gives the mode."""
    load_or_create_key(str(path))
    path.chmod(mode)
    with pytest.raises(Tampering, match=f"{mode:04o}"):
        load_key(str(path))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give the key to another user")
def test_a_key_of_another_user_is_refused(path: Path) -> None:
    """A key that belongs to somebody else is refused even where we could read it."""
    load_or_create_key(str(path))
    os.chown(path, 12345, 12345)
    with pytest.raises(Tampering, match="another user"):
        load_key(str(path))


def test_a_symbolic_link_to_a_key_is_refused(path: Path, tmp_path: Path) -> None:
    """A key behind a symbolic link is refused, and so is making one through a dangling link."""
    load_or_create_key(str(path))
    real = path.rename(tmp_path / "real")
    path.symlink_to(real)
    with pytest.raises(Tampering):
        load_or_create_key(str(path))
    real.unlink()
    with pytest.raises(Tampering):
        load_or_create_key(str(path))
    assert not real.exists()


@pytest.mark.parametrize("data", [b"", b"k" * 31, b"k" * 33])
def test_a_file_that_is_no_key_is_refused(path: Path, data: bytes) -> None:
    """A key has exactly 32 bytes."""
    load_or_create_key(str(path))
    path.write_bytes(data)
    with pytest.raises(Tampering):
        load_key(str(path))


def test_a_directory_or_fifo_is_no_key(path: Path) -> None:
    """Something else in the key's place is refused without waiting for it."""
    path.mkdir(parents=True)
    with pytest.raises(Tampering):
        load_key(str(path))
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(Tampering):
        load_key(str(path))


def test_a_directory_that_others_may_write_holds_no_key(path: Path) -> None:
    """No key is made where somebody else could replace it."""
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    with pytest.raises(Tampering, match="others may write"):
        load_or_create_key(str(path))
    assert list(path.parent.iterdir()) == []


def test_racing_creators_agree(path: Path, tmp_path: Path) -> None:
    """Processes that start at the same moment end up with one key, the one on disk."""
    path.parent.mkdir(parents=True, mode=0o700)
    go, results = os.pipe(), [tmp_path / f"result{n}" for n in range(8)]
    children = []
    for result in results:
        pid = os.fork()
        if not pid:
            try:
                os.close(go[1])
                os.read(go[0], 1)  # all start when the parent closes its end
                result.write_bytes(load_or_create_key(str(path)))
            finally:
                os._exit(0)
        children.append(pid)
    os.close(go[0])
    os.close(go[1])
    for pid in children:
        os.waitpid(pid, 0)
    assert {result.read_bytes() for result in results} == {load_key(str(path))}
    assert os.listdir(path.parent) == ["ledger.key"]


class _NoRename(Calls):
    """A file system that cannot rename without replacing."""

    @staticmethod
    def move(name: str, directory: int, new: str, new_directory: int) -> None:
        raise OSError(22, os.strerror(22))


def test_a_file_system_without_exclusive_rename_makes_keys_too(path: Path) -> None:
    """Where the kernel cannot rename without replacing, a link does, and an existing key still wins."""
    key = load_or_create_key(str(path), _NoRename())
    assert load_or_create_key(str(path), _NoRename()) == load_key(str(path)) == key
    assert os.listdir(path.parent) == ["ledger.key"]


@pytest.mark.crash
def test_killed_at_any_call_there_is_a_whole_key_or_none(tmp_path: Path) -> None:
    """Killed after each call, the key is absent or 32 bytes and private, and the next attempt succeeds."""

    def die(name: str, real: object) -> object:
        try:
            return real()  # type: ignore[operator]
        finally:
            os._exit(9)

    for nth in range(1, 60):
        path = tmp_path / str(nth) / "holdfast" / "ledger.key"
        path.parent.parent.mkdir()
        status = in_child(lambda: load_or_create_key(str(path), Faulty(nth, die)))  # noqa: B023
        left = load_key(str(path)) if path.exists() else None
        assert left in (None, load_or_create_key(str(path), CALLS))
        if status == 0:
            assert nth > 8
            return
    raise AssertionError("the key was never made")


def test_places_follow_the_xdg_specification(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Variables that are set and absolute count; unset, empty and relative ones give the defaults under HOME."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/conf")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert (key_path(), anchor_path("w1")) == ("/conf/holdfast/ledger.key", "/var/state/holdfast/anchors/w1")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert key_path() == "/home/someone/.config/holdfast/ledger.key"
    assert anchor_path("w1") == "/home/someone/.local/state/holdfast/anchors/w1"


@pytest.mark.parametrize("name", ["", "..", "a/b", "é", "a b", "a\n"])
def test_a_workspace_id_cannot_lead_elsewhere(name: str) -> None:
    """An id that is no plain name has no anchor path."""
    with pytest.raises(ValueError):
        anchor_path(name)
