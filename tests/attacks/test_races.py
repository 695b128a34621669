"""Somebody else at work in the same files, at the worst moments. Foreign bytes are never lost, in apply or rollback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import Ground, Interloper, contents, guard, put, rewritten
from holdfast.errors import Conflict, HoldfastError, NeedsHuman
from holdfast.model.plan import Chmod, CommandCheck, Create, Delete, Move, Read, Step, Symlink

Edit = Callable[[Path], object]


def _replaced(path: Path) -> None:
    other = path.with_name("their-temporary-file")
    other.write_bytes(b"foreign")
    os.rename(other, path)


def _relinked(path: Path) -> None:
    path.unlink()
    os.symlink("/etc/hostname", path)


def _turned_into_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "foreign").write_bytes(b"foreign")


def _piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


EDITS: dict[str, Edit] = {
    "written in place": lambda path: path.write_bytes(b"foreign"),
    "same size, time put back": lambda path: rewritten(path, b"evl"),
    "replaced by rename": _replaced,
    "deleted": lambda path: path.unlink(),
    "chmodded": lambda path: path.chmod(0o751),
    "truncated": lambda path: os.truncate(path, 0),
    "turned into a link": _relinked,
    "turned into a directory": _turned_into_directory,
    "turned into a FIFO": _piped,
    "given an attribute": lambda path: os.setxattr(path, "user.theirs", b"1"),
    "touched": lambda path: os.utime(path),
}
STEPS: dict[str, Step] = {
    "replace": put("b", b"new"),
    "delete": Delete("b"),
    "move": Move("b", "z"),
    "chmod": Chmod("b", 0o600),
}


def _ground(tmp_path: Path, calls: Interloper) -> Ground:
    return guard(tmp_path / "workspace", {"a": b"old", "b": b"old", "c": b"old"}, calls)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_between_rehearsal_and_execution_is_a_conflict(tmp_path: Path, edit: Edit, step: Step) -> None:
    """Whatever was done to a file after the rehearsal, execution refuses, and the tree stays as the other left it."""
    ground = _ground(tmp_path, Interloper())
    rehearsal = ground.ready(ground.plan(put("a", b"new"), step, put("c", b"new")))
    edit(ground / "b")
    theirs = ground.tree()
    with pytest.raises(Conflict) as caught:
        rehearsal.execute()
    assert ground.tree() == theirs
    assert not caught.value.changed
    assert ground.journal() == []
    assert ground.statuses() == ground.ledger_statuses() == ["ABORTED"]


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_of_a_file_that_was_only_read_is_a_conflict(tmp_path: Path, edit: Edit) -> None:
    """What a plan relied on without changing it must still stand when the change lands."""
    ground = _ground(tmp_path, Interloper())
    rehearsal = ground.ready(ground.plan(Read("b"), put("a", b"new")))
    edit(ground / "b")
    theirs = ground.tree()
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert ground.tree() == theirs


def test_a_file_that_appears_where_one_shall_be_made(tmp_path: Path) -> None:
    """A file created after the rehearsal, where the plan creates one, is not overwritten."""
    ground = _ground(tmp_path, Interloper())
    rehearsal = ground.ready(ground.plan(put("a", b"new"), put("fresh", b"ours"), Create("dir", True)))
    (ground / "fresh").write_bytes(b"theirs")
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert contents(ground.tree()) == {"a": b"old", "b": b"old", "c": b"old", "fresh": b"theirs"}


_VISIBLE = [name for name in EDITS if name not in ("same size, time put back", "given an attribute")]


@pytest.mark.parametrize("name", _VISIBLE)
@pytest.mark.parametrize("step", ["replace", "delete", "move"])
def test_an_edit_between_the_check_and_the_flip_is_given_back(tmp_path: Path, name: str, step: str) -> None:
    """The flip is a compare-and-swap: what it displaced by mistake goes back, and everything else is rolled back."""
    calls = Interloper()
    ground = _ground(tmp_path, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"new"), STEPS[step], put("c", b"new")))
    if step == "replace":
        # Before the exchange of b, which is the second one: a was checked and flipped, b checked.
        calls.arm("exchange", lambda: EDITS[name](ground / "b"), skip=1)
    else:
        calls.arm("move", lambda: EDITS[name](ground / "b"))
    with pytest.raises(HoldfastError):
        rehearsal.execute()
    assert calls.struck == 1
    found = contents(ground.tree())
    assert (found["a"], found["c"]) == (b"old", b"old")
    _assert_theirs(ground, name)
    assert "new" not in [data.decode() for data in found.values()]
    assert "z" not in found


def _assert_theirs(ground: Ground, name: str) -> None:
    """What somebody did to b stands, or lies untouched in the journal."""
    b = ground / "b"
    match name:
        case "written in place" | "replaced by rename":
            assert b.read_bytes() == b"foreign"
        case "deleted":
            assert not b.exists()
        case "chmodded":
            assert (b.read_bytes(), b.stat().st_mode & 0o777) == (b"old", 0o751)
        case "truncated":
            assert b.read_bytes() == b""
        case "turned into a link":
            assert os.readlink(b) == "/etc/hostname"
        case "turned into a directory":
            assert (b / "foreign").read_bytes() == b"foreign"
        case "turned into a FIFO":
            assert b.is_fifo()
        case "touched":
            assert b.read_bytes() == b"old"
        case _:
            raise AssertionError(name)


# An attribute or a stealthy edit within microseconds of the flip shows only when the object is used again.
@pytest.mark.parametrize("name", _VISIBLE)
def test_an_edit_of_our_new_file_before_the_commit_is_kept(tmp_path: Path, name: str) -> None:
    """After the flip and before the commit somebody edits what we put there: it is theirs now; a person decides."""
    calls = Interloper()
    ground = _ground(tmp_path, calls)
    health = (CommandCheck(("true",), 5_000),)
    rehearsal = ground.ready(ground.plan(put("a", b"new"), put("b", b"NEW"), health=health))
    # The first barrier after the flips syncs the directories; by then everything is in place.
    _strike_at(calls, "applied", lambda: EDITS[name](ground / "b"))
    with pytest.raises(NeedsHuman):
        rehearsal.execute()
    assert (ground / "a").read_bytes() == b"old"
    assert len(ground.journal()) == 1
    slots = [
        path.read_bytes()
        for path in (ground.state / "journal" / ground.journal()[0]).iterdir()
        if path.name.isdecimal()
    ]
    assert b"old" in slots, "the old content of b must be kept"
    assert ground.hf.last is not None and ground.hf.last.status == "FAILED"
    _assert_nobody_works_until_decided(ground)
    theirs = ground.tree()
    ground.hf.recover(accept=True)
    assert ground.tree() == theirs
    assert ground.journal() == []
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    assert ground.apply(put("c", b"next")).status == "COMPLETED"


def _strike_at(calls: Interloper, point: str, act: Callable[[], object]) -> None:
    due = [point]

    def only_there(name: str) -> None:
        if name in due:
            due.remove(name)
            act()

    setattr(calls, "point", only_there)  # noqa: B010  (the class has a static method of this name)


def _assert_nobody_works_until_decided(ground: Ground) -> None:
    theirs = ground.tree()
    assert [item.path for item in ground.hf.open_divergence()] == ["b"]
    with pytest.raises(NeedsHuman):
        ground.apply(put("c", b"x"))
    with pytest.raises(NeedsHuman):
        ground.hf.recover()
    assert ground.tree() == theirs


def test_a_person_may_put_it_right_and_recover(tmp_path: Path) -> None:
    """When the foreign file is gone again, recovery finishes the rollback by itself and records just that."""
    calls = Interloper()
    ground = _ground(tmp_path, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(put("a", b"new"), put("fresh", b"new")))
    _strike_at(calls, "applied", lambda: (ground / "fresh").write_bytes(b"theirs"))
    with pytest.raises(NeedsHuman):
        rehearsal.execute()
    (ground / "fresh").unlink()
    found = ground.hf.recover()
    assert found is not None and found.outcome == "ABORTED"
    assert ground.tree() == before
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


def test_accepting_where_nothing_is_in_the_way_is_a_rollback(tmp_path: Path) -> None:
    """`recover --accept` after a plain crash finds nothing foreign, and the record says rolled back, not partial."""
    calls = Interloper()
    ground = _ground(tmp_path, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(put("a", b"new"), put("b", b"new")))

    pid = os.fork()
    if pid == 0:
        calls.arm("exchange", lambda: os._exit(9), skip=1)
        try:
            rehearsal.execute()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    ground = ground.reopened()
    ground.hf.recover(accept=True)
    assert ground.tree() == before
    assert ground.statuses() == ["ROLLED_BACK"]


# The call before which the attacker strikes: by then everything was checked, and the first change is about to happen.
_SWAPS: list[tuple[Step, str]] = [
    (put("sub/b", b"new"), "exchange"),
    (put("sub/fresh", b"new"), "exchange"),
    (Chmod("sub/b", 0o600), "exchange"),
    (Delete("sub/b"), "move"),
    (Move("sub/b", "moved-by-us"), "move"),
]


@pytest.mark.parametrize(("step", "call"), _SWAPS)
def test_a_parent_swapped_for_a_link_in_mid_apply(tmp_path: Path, step: Step, call: str) -> None:
    """In mid-apply a directory is moved out and a link to a foreign one put there: the foreign one is never entered."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old", "sub/b": b"old"}, calls)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "b").write_bytes(b"theirs")
    (victim / "b").chmod(0o640)
    rehearsal = ground.hf.simulate(ground.plan(put("a", b"new"), step))

    def attack() -> None:
        os.rename(ground / "sub", tmp_path / "moved")
        os.symlink(victim, ground / "sub")

    calls.arm(call, attack)
    with pytest.raises(HoldfastError):
        ground.hf.execute(rehearsal, approved_by="me")
    assert calls.struck == 1
    assert (ground / "a").read_bytes() == b"old"
    assert os.listdir(victim) == ["b"]
    assert ((victim / "b").read_bytes(), (victim / "b").stat().st_mode & 0o777) == (b"theirs", 0o640)
    kept = [path.read_bytes() for path in ground.state.glob("journal/*/[0-9]*") if path.is_file()]
    assert b"old" in [*kept, *(path.read_bytes() for path in (tmp_path / "moved").iterdir())]


def test_a_foreign_file_in_a_directory_that_is_being_deleted(tmp_path: Path) -> None:
    """A file that appears in mid-delete stays, the directory too, and what was deleted already comes back."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"d/one": b"1", "d/two": b"2", "d/e/three": b"3"}, calls)
    before = ground.tree()
    rehearsal = ground.ready(ground.plan(Delete("d", recursive=True)))
    # After the first removal, so that the check has passed.
    calls.arm("move", lambda: (ground / "d/e/foreign").write_bytes(b"theirs"), after=True)
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert calls.struck == 1
    found = ground.tree()
    assert found.pop("d/e/foreign").content == b"theirs"
    assert found == before
    assert ground.journal() == []


def test_directories_swapped_during_a_recursive_delete(tmp_path: Path) -> None:
    """The directory to delete is swapped with another one in mid-delete: the other one's files stay what they are."""
    calls = Interloper()
    ground = guard(
        tmp_path / "workspace", {"d/one": b"1", "d/two": b"2", "precious/one": b"p1", "precious/two": b"p2"}, calls
    )
    rehearsal = ground.hf.simulate(ground.plan(Delete("d", recursive=True)))

    def attack() -> None:
        os.rename(ground / "d", ground / "aside")
        os.rename(ground / "precious", ground / "d")

    calls.arm("move", attack)
    with pytest.raises(HoldfastError):
        ground.hf.execute(rehearsal, approved_by="me")
    assert calls.struck == 1
    assert ((ground / "d/one").read_bytes(), (ground / "d/two").read_bytes()) == (b"p1", b"p2")
    rest = [path.read_bytes() for path in (*(ground / "aside").iterdir(), *ground.state.glob("journal/*/[0-9]*"))]
    assert {b"1", b"2"} <= set(rest)


def test_a_moved_file_that_somebody_deletes_before_the_commit(tmp_path: Path) -> None:
    """The rollback of a move whose file was deleted meanwhile cannot bring it back, and does not claim to have."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls)
    rehearsal = ground.ready(ground.plan(Move("a", "b")))
    _strike_at(calls, "applied", lambda: (ground / "b").unlink())
    with pytest.raises(NeedsHuman):
        rehearsal.execute()
    assert ground.tree() == {}
    assert len(ground.journal()) == 1


def test_a_foreign_file_at_the_target_of_a_move(tmp_path: Path) -> None:
    """A file that appears at the target in the last moment stops the move; both files stand."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls)
    for skip in (0, 1):
        rehearsal = ground.ready(ground.plan(Move("a", "b")))
        calls.arm("move", lambda: (ground / "b").write_bytes(b"theirs"), skip=skip)
        with pytest.raises(Conflict):
            rehearsal.execute()
        assert contents(ground.tree()) == {"a": b"old", "b": b"theirs"}
        assert ground.journal() == []
        (ground / "b").unlink()


def test_an_open_descriptor_of_a_replaced_file(tmp_path: Path) -> None:
    """Somebody appends through a descriptor opened before the change: those bytes are kept, and undo says so."""
    ground = guard(tmp_path / "workspace", {"log": b"line 1\n"})
    with open(ground / "log", "ab") as writer:
        done = ground.apply(put("log", b"fresh\n"))
        writer.write(b"line 2\n")
    kept = ground.state / "kept" / done.id
    assert b"line 1\nline 2\n" in [path.read_bytes() for path in kept.iterdir() if path.name.isdecimal()]
    assert (ground / "log").read_bytes() == b"fresh\n"
    with pytest.raises(HoldfastError):
        ground.hf.undo(done.id, approved_by="me")
    assert (ground / "log").read_bytes() == b"fresh\n"


def test_a_link_swapped_between_check_and_flip(tmp_path: Path) -> None:
    """A symbolic link that somebody points elsewhere at the last moment keeps pointing there."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls)
    os.symlink("a", ground / "link")
    rehearsal = ground.hf.simulate(ground.plan(Symlink("link", "b")))

    def attack() -> None:
        (ground / "link").unlink()
        os.symlink("theirs", ground / "link")

    calls.arm("exchange", attack)
    with pytest.raises(Conflict):
        ground.hf.execute(rehearsal, approved_by="me")
    assert os.readlink(ground / "link") == "theirs"
