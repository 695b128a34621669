"""What is kept for undo, edited behind Holdfast's back: nothing forged is put back, and nothing is changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from guarded import ME, Ground, contents, guard, put
from holdfast.engine.history import collect
from holdfast.errors import HoldfastError
from holdfast.store.journal import Log, log_chunks, parse_log

OLD = b"".join(b"line %d\n" % n for n in range(20))
EVIL = OLD.replace(b"line 1\n", b"evil 1\n")
FILES = {"a": OLD, "b": b"b\n", "c": b"c\n"}
_DAY = 86_400 * 10**9


class Kept:
    """One landed change, and the folder with its old objects."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.id = ground.apply(put("a", OLD.replace(b"line 19\n", b"line nineteen\n")), put("b", b"B\n")).id
        self.folder = ground.state / "kept" / self.id

    @property
    def log(self) -> Log:
        return parse_log((self.folder / "log").read_bytes())

    def slot(self, path: str) -> Path:
        return self.folder / next(op.slot for op in self.log.ops if op.path == path).rpartition("/")[2]

    def write_log(self, log: Log) -> None:
        """As Holdfast would write it: every checksum in it is right."""
        data = b"".join(log_chunks(log.header, log.ops, log.parents))
        assert parse_log(data).ops == log.ops and hashlib.sha256(data).hexdigest() != log.root
        (self.folder / "log").write_bytes(data)


def _in_place(path: Path, data: bytes) -> None:
    """Other bytes in the same inode, with its times put back."""
    about = path.stat()
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _swapped(path: Path, data: bytes) -> None:
    """Another file of the same size, mode and times."""
    about = path.stat()
    path.unlink()
    path.write_bytes(data)
    path.chmod(about.st_mode & 0o7777)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _forge_log(kept: Kept, *, with_bytes: bool) -> None:
    """The log says of the old object what the forged one is."""
    log = kept.log
    if with_bytes:
        _swapped(kept.slot("a"), EVIL)
    ops = []
    for op in log.ops:
        if op.path == "a" and op.pre is not None:
            about = os.lstat(kept.slot("a"))
            stamp = op.pre.stamp._replace(inode=about.st_ino, ctime_ns=about.st_ctime_ns, mtime_ns=about.st_mtime_ns)
            image = op.pre.image._replace(digest=blake3(EVIL).hexdigest(), size=len(EVIL))
            op = op._replace(pre=op.pre._replace(image=image, stamp=stamp))
        ops.append(op)
    kept.write_log(log._replace(ops=tuple(ops)))


def _another_path(kept: Kept) -> None:
    """The log says that the old `a` stood at `c`, which would be overwritten."""
    log = kept.log
    kept.write_log(log._replace(ops=tuple(op._replace(path="c") if op.path == "b" else op for op in log.ops)))


def _outside(kept: Kept) -> None:
    """The log says that an object stood outside the workspace."""
    log = kept.log
    kept.write_log(log._replace(ops=tuple(op._replace(path="../planted") for op in log.ops)))


def _link(kept: Kept) -> None:
    secret = kept.ground.path.parent / "secret"
    secret.write_bytes(EVIL)
    kept.slot("a").unlink()
    kept.slot("a").symlink_to(secret)


def _second_name(kept: Kept) -> None:
    """A hard link to a file of the user's: moved into the workspace, it could be edited there."""
    secret = kept.ground.path.parent / "secret"
    secret.write_bytes(OLD)
    kept.slot("a").unlink()
    os.link(secret, kept.slot("a"))


def _fifo(kept: Kept) -> None:
    kept.slot("a").unlink()
    os.mkfifo(kept.slot("a"))


def _folder_of_another(kept: Kept) -> None:
    """The whole folder is that of a later change, which would go back under this one's name."""
    other = kept.ground.apply(put("c", b"C\n"))
    shutil.rmtree(kept.folder)
    shutil.copytree(kept.ground.state / "kept" / other.id, kept.folder, symlinks=True)


def _wider(kept: Kept) -> None:
    """The right bytes with a set-user-id bit, where anybody could run them."""
    kept.slot("a").chmod(0o4755)


ATTACKS: dict[str, Callable[[Kept], object]] = {
    "other bytes in the same file": lambda kept: _in_place(kept.slot("a"), EVIL),
    "another file in its place": lambda kept: _swapped(kept.slot("a"), EVIL),
    "a log with another digest": lambda kept: _forge_log(kept, with_bytes=False),
    "a log and a file that agree": lambda kept: _forge_log(kept, with_bytes=True),
    "a log with another path": _another_path,
    "a log that leads outside": _outside,
    "a link": _link,
    "a second name": _second_name,
    "a FIFO": _fifo,
    "the folder of another change": _folder_of_another,
    "a set-id bit": _wider,
}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(guard(tmp_path / "workspace", FILES))


def test_what_nobody_edited_is_put_back(kept: Kept) -> None:
    """The control of all that follows: undo brings the old tree."""
    kept.ground.hf.undo(kept.id, approved_by=ME)
    assert contents(kept.ground.tree()) == FILES


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("packed", [False, True])
def test_what_was_edited_is_not_put_back(kept: Kept, attack: Callable[[Kept], object], packed: bool) -> None:
    """Undo refuses and changes nothing, or the true old bytes come from another copy; gc in between washes nothing."""
    attack(kept)
    before = kept.ground.tree()
    if packed:
        collect(kept.ground.hf.pipeline, keep_ns=30 * _DAY, now_ns=_far(kept))
    refusal = _undone(kept)
    if refusal is not None:
        assert refusal.exit_status in (5, 8, 12) and not refusal.changed
        assert kept.ground.tree() == before
    else:
        assert contents(kept.ground.tree()) == {**FILES, **({"c": b"C\n"} if attack is _folder_of_another else {})}
        assert not (kept.ground / "a").is_symlink() and (kept.ground / "a").stat().st_mode & 0o7000 == 0
    assert not (kept.ground.path.parent / "planted").exists()
    assert kept.ground.hf.audit().ok


def test_a_forged_blob_is_not_put_back(kept: Kept) -> None:
    """After gc packed the old objects, a blob with other bytes in it is no copy of them."""
    collect(kept.ground.hf.pipeline, keep_ns=30 * _DAY, now_ns=_far(kept))
    assert not kept.slot("a").exists()
    name = blake3(OLD).hexdigest()
    _in_place(kept.ground.state / "objects" / name[:2] / name[2:], EVIL)
    before = kept.ground.tree()
    with pytest.raises(HoldfastError) as caught:
        kept.ground.hf.undo(kept.id, approved_by=ME)
    assert caught.value.exit_status in (5, 8, 12) and kept.ground.tree() == before


@pytest.mark.parametrize("kind", ["same length", "other text"])
def test_a_forged_text_is_not_merged(kept: Kept, kind: str) -> None:
    """The texts that an undo merges with are known by their digests: a forged one does not get into the file."""
    (kept.ground / "a").write_bytes((kept.ground / "a").read_bytes() + b"mine\n")
    texts = [path for path in kept.folder.rglob("*") if path.is_file() and b"line nineteen" in path.read_bytes()]
    assert texts, "the text that was written is kept somewhere"
    for path in texts:
        data = path.read_bytes()
        path.write_bytes(data.replace(b"line 2\n", b"evil 2\n" if kind == "same length" else b"evil 2\nevil 3\n"))
    before = kept.ground.tree()
    refusal = _undone(kept)
    assert refusal is None or (not refusal.changed and kept.ground.tree() == before)
    assert b"evil" not in (kept.ground / "a").read_bytes()


def _undone(kept: Kept) -> HoldfastError | None:
    """Undo it; why not, where it was refused."""
    try:
        kept.ground.hf.undo(kept.id, approved_by=ME)
    except HoldfastError as error:
        return error
    return None


def _far(kept: Kept) -> int:
    """A moment at which everything here is old enough to be packed, and nothing to be forgotten."""
    return max(row.at_ns for row in kept.ground.hf.log()) + 2 * _DAY
