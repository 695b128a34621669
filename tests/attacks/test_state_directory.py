"""Attacks on `.holdfast`: planted, replaced, cut, flipped, rolled back. Each is refused, and nothing changes."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from guarded import Ground, Interloper, at_most, guard, in_child, put
from holdfast.errors import Conflict, HoldfastError, StateLost, Tampering
from holdfast.model.plan import Delete
from holdfast.store.journal import Head, log_chunks, parse_log, read_head, write_head
from holdfast.wiring import Holdfast


def _refused(ground: Ground, kind: type[HoldfastError] = Tampering) -> HoldfastError:
    """Whatever changes the workspace is refused, within seconds, and the tree stays as it is."""
    before = ground.tree()
    with at_most(20), pytest.raises(kind) as caught:
        _work(ground.path)
    assert ground.tree() == before
    assert not caught.value.changed
    return caught.value


def _work(path: Path) -> None:
    with holdfast.open(str(path)) as hf, hf.transaction("after the attack", approved_by="me") as tx:
        tx.write("fresh", b"1")


def _crashed(ground: Ground, calls: Interloper, *, skip: int = 1) -> str:
    """A transaction over a and b that was killed between its two flips; its id."""
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new"), put("b", b"new")))

    def die() -> None:
        calls.arm("exchange", lambda: os._exit(9), skip=skip)
        ground.hf.execute(rehearsal, approved_by="me")

    assert in_child(die) == 9
    return ground.journal()[0]


# ── what may stand in place of the directory ──


def test_a_state_directory_that_is_a_link(tmp_path: Path) -> None:
    """`.holdfast` as a link to a real state directory elsewhere is refused by every verb."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.hf.close()
    os.rename(ground.state, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", ground.state)
    _refused(ground)


def test_init_does_not_follow_a_planted_link(tmp_path: Path) -> None:
    """A repository that ships `.holdfast` as a link to a private directory gets nothing made or chmodded there."""
    workspace, victim = tmp_path / "workspace", tmp_path / "victim"
    workspace.mkdir()
    victim.mkdir(mode=0o755)
    os.symlink(victim, workspace / ".holdfast")
    with pytest.raises(Tampering):
        holdfast.init(str(workspace))
    assert os.listdir(victim) == []
    assert victim.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o707])
def test_init_does_not_adopt_an_open_directory(tmp_path: Path, mode: int) -> None:
    """A `.holdfast` that came with a clone, readable by others, could hold anything and is not adopted."""
    workspace = tmp_path / "workspace"
    (workspace / ".holdfast").mkdir(parents=True)
    (workspace / ".holdfast").chmod(mode)
    with pytest.raises(Tampering):
        holdfast.init(str(workspace))
    assert os.listdir(workspace / ".holdfast") == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_a_state_directory_open_to_others(tmp_path: Path, mode: int) -> None:
    """Others could have written it, so it is not trusted any more."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.state.chmod(mode)
    _refused(ground)


@pytest.mark.root
def test_a_state_directory_of_somebody_else(tmp_path: Path) -> None:
    """A state directory that belongs to another user steers nothing."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    os.chown(ground.state, 12345, 12345)
    _refused(ground)


@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b""), os.mkfifo], ids=["file", "FIFO"])
def test_something_else_of_that_name(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A file or FIFO called `.holdfast` is reported, neither opened nor replaced."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.hf.close()
    shutil.rmtree(ground.state)
    make(ground.state)
    _refused(ground)
    with pytest.raises(Tampering):
        holdfast.init(str(ground.path))


# ── what may be planted inside ──

_PLANTS: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: place.write_bytes(b"x"),
    "a FIFO": os.mkfifo,
    "a link to the workspace": lambda place: os.symlink("../..", place),
    "a link to /etc": lambda place: os.symlink("/etc", place),
    "a deep directory": lambda place: (place / "x/y").mkdir(parents=True),
    "a directory with a file": lambda place: (place.mkdir(), (place / "precious").write_bytes(b"p")),
}


@pytest.mark.parametrize("name", ["x", "e-abcdefgh", "e-../../x".replace("/", "-")])
@pytest.mark.parametrize("plant", _PLANTS.values(), ids=_PLANTS)
def test_things_planted_in_the_journal(tmp_path: Path, plant: Callable[[Path], object], name: str) -> None:
    """What is not a stage of ours is neither followed nor cleaned away, whatever it is called."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    place = ground.state / "journal" / name
    plant(place)
    _refused(ground)
    assert os.path.lexists(place)


@pytest.mark.parametrize("name", ["format", "journal/head", "ledger.jsonl", "holdfast.db", "holdfast.db-wal"])
@pytest.mark.parametrize("kind", ["FIFO", "link", "directory"])
def test_our_own_files_replaced(tmp_path: Path, name: str, kind: str) -> None:
    """A FIFO never blocks us, a link is never followed, wherever one of our files should be."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.apply(put("a", b"new"))
    ground.hf.close()
    place = ground.state / name
    outside = tmp_path / "outside"
    if place.exists():
        outside.write_bytes(place.read_bytes())
        place.unlink()
    if kind == "FIFO":
        os.mkfifo(place)
    elif kind == "link":
        os.symlink(outside, place)
    else:
        place.mkdir()
    before = outside.read_bytes() if outside.exists() else None
    _refused(ground)
    assert (outside.read_bytes() if outside.exists() else None) == before


@pytest.mark.parametrize("folder", ["journal", "kept", "objects"])
@pytest.mark.parametrize("attack", ["removed", "link"])
def test_our_own_folders_replaced(tmp_path: Path, folder: str, attack: str) -> None:
    """A missing or redirected folder is refused; what the link points at is not touched."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.hf.close()
    victim = tmp_path / "victim"
    shutil.copytree(ground.state / folder, victim)
    shutil.rmtree(ground.state / folder)
    if attack == "link":
        os.symlink(victim, ground.state / folder)
    before = sorted(os.listdir(victim))
    _refused(ground, HoldfastError)
    assert sorted(os.listdir(victim)) == before


def test_the_lock_replaced_by_a_link(tmp_path: Path) -> None:
    """A link in place of the lock is not followed: the file it points at is not written."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    victim = tmp_path / "victim"
    victim.write_bytes(b"theirs")
    (ground.state / "lock").unlink(missing_ok=True)
    os.symlink(victim, ground.state / "lock")
    with pytest.raises((HoldfastError, OSError)):
        _work(ground.path)
    assert victim.read_bytes() == b"theirs"


def test_names_in_the_journal_cannot_be_guessed(tmp_path: Path) -> None:
    """Each transaction has a directory of its own with a random name, made anew and closed to others."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    names, modes = [], []

    def note() -> None:
        names.extend(ground.journal())
        modes.extend((ground.state / "journal" / name).stat().st_mode & 0o777 for name in ground.journal())

    for data in (b"1", b"2", b"3"):
        calls.arm("exchange", note)
        ground.apply(put("a", data))
    assert len(set(names)) == 3
    assert set(modes) == {0o700}


# ── the journal: deleted, replayed, flipped ──


def test_the_journal_of_an_open_transaction_deleted(tmp_path: Path) -> None:
    """After a crash somebody deletes the folder that recovery needs: tampering, and nothing is guessed."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    txn = _crashed(ground, calls)
    shutil.rmtree(ground.state / "journal" / txn)
    _refused(ground)


def test_the_journal_deleted_while_we_work(tmp_path: Path) -> None:
    """Between two flips the whole journal is deleted: we stop, say so, and claim nothing."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"new"), put("b", b"new")))
    calls.arm("exchange", lambda: shutil.rmtree(ground.state / "journal"), skip=1)
    with at_most(20), pytest.raises(HoldfastError):
        rehearsal.execute()
    assert ground.hf.last is None or ground.hf.last.status not in ("COMPLETED", "ROLLED_BACK")
    ground.hf.close()
    _refused(ground)


def test_an_old_head_put_back(tmp_path: Path) -> None:
    """The head of an earlier time hides that a transaction is open; its old files are not swept away."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    ground.apply(put("c", b"1"))
    head = (ground.state / "journal/head").read_bytes()
    txn = _crashed(ground, calls)
    (ground.state / "journal/head").write_bytes(head)
    _refused(ground)
    slots = ground.state / "journal" / txn
    assert b"old" in [path.read_bytes() for path in slots.iterdir()]


def test_an_old_head_put_back_and_the_new_file_edited(tmp_path: Path) -> None:
    """Even when nothing stands as planned any more, an old object in a slot is proof that it is needed."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    head = (ground.state / "journal/head").read_bytes()
    txn = _crashed(ground, calls)
    (ground.state / "journal/head").write_bytes(head)
    (ground / "a").write_bytes(b"somebody typed here")
    _refused(ground)
    assert b"old" in [path.read_bytes() for path in (ground.state / "journal" / txn).iterdir()]


def test_a_finished_transaction_replayed(tmp_path: Path) -> None:
    """A head and folder from before the commit, put back after it, do not roll the commit back."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    copy = tmp_path / "copy"
    calls.arm("exchange", lambda: shutil.copytree(ground.state / "journal", copy), after=True)
    done = ground.apply(put("a", b"new"), put("b", b"new"))
    ground.hf.close()
    shutil.rmtree(ground.state / "journal")
    os.rename(copy, ground.state / "journal")
    before = ground.tree()
    with pytest.raises(HoldfastError):
        _work(ground.path)
    assert ground.tree() == before
    assert (ground.state / "kept" / done.id).is_dir()


@pytest.mark.parametrize("part", ["journal", "."])
def test_a_backup_from_the_middle_of_a_change_takes_nothing_back(tmp_path: Path, part: str) -> None:
    """A copy of the journal, or of everything, made while a change landed steers nothing after it has landed."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    copy = tmp_path / "copy"
    calls.arm("exchange", lambda: shutil.copytree(ground.state / part, copy), after=True, skip=1)
    done = ground.apply(put("a", b"new"), put("b", b"new"))
    ground.hf.close()
    shutil.rmtree(ground.state / part)
    shutil.rmtree(ground.state / "kept" / done.id, ignore_errors=True)
    os.rename(copy, ground.state / part)
    assert "an old copy" in _refused(ground).message
    before = ground.tree()
    with holdfast.open(str(ground.path)) as hf, suppress(Tampering):
        hf.recover(accept=True)
    assert ground.tree() == before


def test_the_whole_state_directory_rolled_back(tmp_path: Path) -> None:
    """An older copy of everything under `.holdfast` is shorter than its anchor outside: tampering, at any verb."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.apply(put("a", b"one"))
    ground.hf.close()
    shutil.copytree(ground.state, tmp_path / "copy", symlinks=True)
    with holdfast.open(str(ground.path)) as hf, hf.transaction("later", approved_by="me") as tx:
        tx.write("a", b"two")
    shutil.rmtree(ground.state)
    os.rename(tmp_path / "copy", ground.state)
    os.chmod(ground.state, 0o700)
    _refused(ground)
    with holdfast.open(str(ground.path)) as hf:
        assert hf.audit().problem == "truncated"


def test_a_state_directory_from_another_workspace(tmp_path: Path) -> None:
    """The state of one workspace put into another knows nothing of its files, and changes none of them."""
    one = guard(tmp_path / "one", {"a": b"one"})
    two = guard(tmp_path / "two", {"a": b"two"})
    done = one.apply(put("a", b"changed"))
    for ground in (one, two):
        ground.hf.close()
    shutil.rmtree(two.state)
    shutil.copytree(one.state, two.state)
    os.chmod(two.state, 0o700)
    with holdfast.open(str(two.path)) as hf, pytest.raises(Conflict):
        hf.undo(done.id, approved_by="me")
    assert (two / "a").read_bytes() == b"two"


def test_a_forged_log_with_a_forged_table(tmp_path: Path) -> None:
    """Undo believes the ledger: a log rewritten together with the tables' digest of it steers nothing."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "precious": b"p"})
    done = ground.apply(put("a", b"new"))
    ground.hf.close()
    path = ground.state / "kept" / done.id / "log"
    log = parse_log(path.read_bytes())
    about = os.stat(ground / "precious")
    op = log.ops[0]
    assert op.post is not None
    stamp = op.post.stamp._replace(inode=about.st_ino, size=1, mtime_ns=about.st_mtime_ns)
    image = op.post.image._replace(size=1)
    forged = b"".join(
        log_chunks(log.header, [op._replace(path="precious", post=op.post._replace(image=image, stamp=stamp))], ())
    )
    path.write_bytes(forged)
    with sqlite3.connect(ground.state / "holdfast.db") as db:
        root = parse_log(forged).root
        db.execute("UPDATE executions SET summary=replace(summary, ?, ?)", (log.root, root))
    db.close()
    with holdfast.open(str(ground.path)) as hf, pytest.raises(Tampering):
        hf.undo(done.id, approved_by="me")
    assert (ground / "precious").read_bytes() == b"p"


def test_a_head_that_names_a_path(tmp_path: Path) -> None:
    """A head whose transaction id is a path out of the journal is damage, not an instruction."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    for txn in ("../kept", "..", "", "e-x/../../..", "E-ABCDEFGH"):
        write_head(ground.hf.site.calls, ground.hf.site.journal(), Head("PREPARED", txn, "0" * 64))
        _refused(ground)


def test_any_flipped_byte_of_an_open_journal(tmp_path: Path) -> None:
    """After a crash each byte of head and log is flipped in turn: recovery refuses and leaves all as it found it."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    before = contents_of(ground)
    txn = _crashed(ground, calls)
    mixed = ground.tree()
    for path in (ground.state / "journal/head", ground.state / "journal" / txn / "log"):
        data = path.read_bytes()
        for position in range(0, len(data), 1 if path.name == "head" else 7):
            path.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
            with pytest.raises(Tampering):
                _recover(ground.hf)
            assert ground.tree() == mixed
        path.write_bytes(data)
    ground.hf.recover()
    assert contents_of(ground) == before


def _recover(hf: Holdfast) -> None:
    hf.recover()


def contents_of(ground: Ground) -> dict[str, bytes]:
    return {name: (ground / name).read_bytes() for name in ("a", "b")}


def test_any_cut_of_an_open_journal(tmp_path: Path) -> None:
    """After a crash head and log are cut at many lengths: refused each time, and the whole ones still recover."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    txn = _crashed(ground, calls)
    mixed = ground.tree()
    for path in (ground.state / "journal/head", ground.state / "journal" / txn / "log"):
        data = path.read_bytes()
        for length in range(1, len(data), 13):
            path.write_bytes(data[:length])
            with pytest.raises(Tampering):
                _recover(ground.hf)
            assert ground.tree() == mixed
        path.write_bytes(data)
    ground.hf.recover()
    assert contents_of(ground) == {"a": b"old", "b": b"old"}


def test_an_emptied_head_does_not_hide_an_open_transaction(tmp_path: Path) -> None:
    """A head of zeros looks like a fresh workspace, but the old files in the slots say otherwise."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"}, calls)
    txn = _crashed(ground, calls)
    for data in (bytes(512), b""):
        (ground.state / "journal/head").write_bytes(data)
        _refused(ground)
    assert b"old" in [path.read_bytes() for path in (ground.state / "journal" / txn).iterdir()]


# ── the ledger and the tables ──


def test_the_ledger_deleted(tmp_path: Path) -> None:
    """Without its ledger a workspace does nothing more, and says what is missing."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.hf.close()
    (ground.state / "ledger.jsonl").unlink()
    assert "ledger" in _refused(ground).message


def test_the_tables_deleted_while_a_row_is_missing(tmp_path: Path) -> None:
    """The tables are only a view: deleted, they come back from the ledger, with what was undone still undone."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    one = ground.apply(put("a", b"one"))
    two = ground.apply(put("b", b"two"))
    ground.hf.undo(one.id, approved_by="me")
    rows = [(row.id, row.status, row.live, row.summary) for row in ground.hf.log()]
    ground.hf.close()
    for path in ground.state.glob("holdfast.db*"):
        path.unlink()
    ground = Ground(ground.path)
    ground.hf.recover()
    assert [(row.id, row.status, row.live, row.summary) for row in ground.hf.log()] == rows
    ground.hf.undo(two.id, approved_by="me")
    assert contents_only(ground) == {"a": b"old"}


def contents_only(ground: Ground) -> dict[str, bytes]:
    return {path: thing.content for path, thing in ground.tree().items()}


def test_an_incomplete_state_directory(tmp_path: Path) -> None:
    """A `.holdfast` whose format file is damaged or gone is refused, and `init` makes no other workspace of it."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.hf.close()
    (ground.state / "format").write_bytes(b"{}")
    _refused(ground)
    (ground.state / "format").unlink()
    _refused(ground, StateLost)
    with pytest.raises(StateLost, match="format is missing"):
        holdfast.init(str(ground.path))


def test_reading_verbs_write_nothing_outside_their_state(tmp_path: Path) -> None:
    """Opening, listing and auditing change nothing in the workspace."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ground.apply(put("a", b"new"), Delete("a"), put("z", b"1"))
    before = ground.tree()
    ground.hf.log()
    ground.hf.audit()
    ground.hf.needs_recovery()
    assert read_head(ground.hf.site.calls, ground.hf.site.journal()) is not None
    assert ground.tree() == before


@pytest.mark.parametrize(
    "text",
    ['{"format": 1, "id": "../x"}', '{"format": 1, "id": ""}', '{"format": 1e999, "id": "w"}', "[" * 4000, "[]", ""],
    ids=["a way out", "empty", "endless", "deep", "a list", "nothing"],
)
def test_a_format_file_that_was_edited(tmp_path: Path, text: str) -> None:
    """An id that is no plain name, or no document at all: tampering, for every verb and for init."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    (ground.state / "format").write_text(text)
    _refused(ground)
    with pytest.raises(Tampering):
        holdfast.init(str(ground.path))
