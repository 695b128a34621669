"""Blobs: bytes by digest, proven at every read."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from blake3 import blake3

from guarded import at_most, in_child
from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.errors import Tampering
from holdfast.store.blobs import Blobs
from holdfast.store.contents import read_contents, write_contents


@pytest.fixture
def store(tmp_path: Path) -> Blobs:
    (tmp_path / "objects").mkdir()
    return Blobs(Root(str(tmp_path)))


def _file(tmp_path: Path, digest: str) -> Path:
    return tmp_path / "objects" / digest[:2] / digest[2:]


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\0" * 100_000, os.urandom(5 << 20)], ids=["empty", "one", "zeros", "large"]
)
def test_what_is_put_is_got(tmp_path: Path, store: Blobs, data: bytes) -> None:
    """The digest that comes back gets the bytes back; putting them twice keeps one file."""
    digest = store.put(data)
    assert store.put(data) == digest == blake3(data).hexdigest()
    assert store.get(digest) == data
    assert store.digests() == [digest]
    assert _file(tmp_path, digest).stat().st_mode & 0o777 == 0o600


def test_a_changed_blob_is_tampering(tmp_path: Path, store: Blobs) -> None:
    """Bytes that are not what their name says are not given out."""
    digest = store.put(b"true")
    _file(tmp_path, digest).write_bytes(b"false")
    with pytest.raises(Tampering):
        store.get(digest)


def test_a_removed_blob_is_gone(store: Blobs) -> None:
    """What was removed is reported as not there, and its size as freed."""
    digest = store.put(b"12345")
    assert store.remove(digest) == 5
    with pytest.raises(FileNotFoundError):
        store.get(digest)
    assert store.digests() == []


def test_adopting_moves_the_file(tmp_path: Path, store: Blobs) -> None:
    """A file whose bytes were checked becomes a blob; a second one with the same bytes is only dropped."""
    digest = blake3(b"mine").hexdigest()
    directory = os.open(tmp_path, os.O_RDONLY)
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"mine")
        store.adopt(directory, name, digest)
        assert not (tmp_path / name).exists()
        assert store.get(digest) == b"mine"
    os.close(directory)


@pytest.mark.parametrize("damage", [b"", b"torn", b"mi"])
def test_adopting_replaces_a_damaged_blob(tmp_path: Path, store: Blobs, damage: bytes) -> None:
    """A blob that lost its bytes in a power cut does not swallow the good copy that is adopted."""
    digest = store.put(b"mine")
    _file(tmp_path, digest).write_bytes(damage)
    (tmp_path / "one").write_bytes(b"mine")
    directory = os.open(tmp_path, os.O_RDONLY)
    store.adopt(directory, "one", digest)
    os.close(directory)
    assert store.get(digest) == b"mine"


def test_a_planted_fifo_or_link_is_not_read(tmp_path: Path, store: Blobs) -> None:
    """A FIFO under a blob's name does not block, a link is not followed."""
    digest = store.put(b"true")
    path = _file(tmp_path, digest)
    path.unlink()
    os.mkfifo(path)
    with at_most(5), pytest.raises((Tampering, OSError)):
        store.get(digest)
    path.unlink()
    (tmp_path / "outside").write_bytes(b"true")
    os.symlink(tmp_path / "outside", path)
    with pytest.raises(OSError):
        store.get(digest)


def test_contents_are_believed_only_with_their_digest(tmp_path: Path) -> None:
    """Texts kept for merging come back whole or not at all, however the file was cut or changed."""
    texts = {blake3(text).hexdigest(): text for text in (b"one\n", b"two\n" * 100, b"three")}
    directory = os.open(tmp_path, os.O_RDONLY)
    write_contents(CALLS, directory, [*texts.items(), (blake3(b"\0").hexdigest(), b"\0binary")])
    assert read_contents(CALLS, directory, set(texts)) == texts
    data = (tmp_path / "contents").read_bytes()
    for length in range(0, len(data), 3):
        (tmp_path / "contents").write_bytes(data[:length])
        found = read_contents(CALLS, directory, set(texts))
        assert found.items() <= texts.items()
    for position in range(0, len(data), 5):
        (tmp_path / "contents").write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
        found = read_contents(CALLS, directory, set(texts))
        assert found.items() <= texts.items()
    os.close(directory)


def test_a_large_blob_is_checked_piece_by_piece(tmp_path: Path, store: Blobs) -> None:
    """Adopting a second copy of a blob that is larger than the memory there is needs little of it."""
    size = 1 << 29
    hasher = blake3()
    for _ in range(size >> 20):
        hasher.update(bytes(1 << 20))
    for name in ("one", "two"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)

    def adopt() -> None:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + (size >> 2), used + (size >> 2)))
        directory = os.open(tmp_path, os.O_RDONLY)
        for name in ("one", "two"):
            store.adopt(directory, name, hasher.hexdigest())

    assert in_child(adopt) == 0
    assert not (tmp_path / "two").exists()
