"""Recovery: what a crash left is finished or taken back, once, by whoever comes next."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import Ground, Interloper, Tree, contents, guard, in_child, put
from holdfast.errors import Conflict, HoldfastError, Interrupted, NeedsHuman, Tampering
from holdfast.model.plan import Chmod, Create, Delete, Move, Step, Symlink
from holdfast.testing import CHANGES, At, Fail, FaultyCalls, KillAt

_FILES = {"a": b"old a", "b": b"old b", "d/c": b"old c", "m": b"old m"}
_STEPS = (
    put("a", b"new a"),
    Delete("b"),
    Move("m", "e/m"),
    Chmod("d/c", 0o600),
    Symlink("l", "a"),
    Create("shut", True, 0o500),
    put("shut/x", b"x"),
)
_BEFORE = ("staged", "logged", "prepared", "flipped", "applied", "commit")
_AFTER = ("committed", "ledger.durable", "in-ledger", "in-tables", "put-away")


def _killed(ground: Ground, point: str, steps: tuple[Step, ...] = _STEPS) -> None:
    """The change dies at a named point, as if the power plug of the process was pulled."""

    def act() -> None:
        calls = FaultyCalls()
        mine = Ground(ground.path, calls)
        rehearsal = mine.ready(mine.plan(*steps))
        calls.arm(KillAt(point))
        rehearsal.execute()

    assert in_child(act) == -9


@pytest.mark.parametrize("point", _BEFORE)
def test_before_the_commit_everything_is_taken_back(tmp_path: Path, point: str) -> None:
    """Killed anywhere before the commit sector: the old tree, exactly, and at most one record of it."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, point)
    assert ground.hf.needs_recovery()
    ground.hf.recover()
    assert ground.tree() == old
    assert ground.journal() == []
    assert (
        ground.statuses() == ground.ledger_statuses() == (["ROLLED_BACK"] if point not in ("staged", "logged") else [])
    )
    assert not ground.hf.needs_recovery()
    assert ground.hf.recover() is None


@pytest.mark.parametrize("point", _AFTER)
def test_after_the_commit_it_stands(tmp_path: Path, point: str) -> None:
    """Killed anywhere after the commit sector: the new tree, recorded once, and it can be undone."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, point)
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["COMPLETED"]
    assert (ground / "a").read_bytes() == b"new a"
    ground.hf.undo(ground.hf.log()[0].id, approved_by="me")
    assert ground.tree() == old


@pytest.mark.parametrize("verb", ["apply", "undo", "gc", "restore"])
def test_any_verb_that_changes_something_recovers_first(tmp_path: Path, verb: str) -> None:
    """Nobody has to think of recovery: whichever verb comes next does it before its own work."""
    ground = guard(tmp_path / "workspace", _FILES)
    first = ground.apply(put("z", b"1"))
    _killed(ground, "flipped")
    if verb == "apply":
        ground.apply(put("z", b"2"))
    elif verb == "undo":
        ground.hf.undo(first.id, approved_by="me")
    elif verb == "gc":
        ground.hf.gc()
    else:
        ground.hf.restore(0, approved_by="me")
    assert ground.journal() == []
    assert "ROLLED_BACK" in ground.statuses()
    assert {name: (ground / name).read_bytes() for name in _FILES} == _FILES


def test_a_stage_that_was_never_prepared_is_swept(tmp_path: Path) -> None:
    """A crash while staging leaves a folder that nobody needs; the next verb removes it."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "staged")
    assert len(ground.journal()) == 1
    ground.hf.recover()
    assert ground.journal() == []


def test_foreign_work_after_a_crash_is_kept(tmp_path: Path) -> None:
    """Between crash and recovery somebody edits our new file and makes another: both kept, the rest rolled back."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "flipped")
    (ground / "a").write_bytes(b"typed after the crash")
    (ground / "shut").chmod(0o700)
    (ground / "other").write_bytes(b"theirs")
    with pytest.raises(NeedsHuman):
        ground.hf.recover()
    found = contents(ground.tree())
    assert found["a"] == b"typed after the crash"
    assert found["other"] == b"theirs"
    assert (found["b"], found["m"]) == (b"old b", b"old m")
    slots = [path for path in ground.state.glob("journal/*/[0-9]*") if path.is_file()]
    assert b"old a" in [path.read_bytes() for path in slots]
    ground.hf.recover(accept=True)
    assert contents(ground.tree())["a"] == b"typed after the crash"
    assert ground.statuses() == ["FAILED"]
    kept = [path.read_bytes() for path in ground.state.glob("kept/*/[0-9]*") if path.is_file()]
    assert b"old a" in kept


def _written(path: Path, kept: Path) -> None:
    path.write_bytes(kept.read_bytes())


def _copied_over(path: Path, kept: Path) -> None:
    shutil.copy2(kept, path)


def _replaced(path: Path, kept: Path) -> None:
    shutil.copy2(kept, path.with_name("beside"))
    path.with_name("beside").rename(path)


def _moved(path: Path, kept: Path) -> None:
    kept.rename(path)


def _waiting(tmp_path: Path) -> tuple[Ground, Tree]:
    """Somebody wrote over a changed file, and into the place of a deleted one; recovery has left both to a person."""
    ground = guard(tmp_path / "workspace", {"a": b"old a", "gone": b"old gone", "b": b"old b"})
    (ground / "a").chmod(0o640)
    old = ground.tree()

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        ready = there.ready(there.plan(put("a", b"new a"), Delete("gone"), put("b", b"new b")))
        calls.arm(KillAt("flipped"))
        ready.execute()

    assert in_child(die) == -9
    (ground / "a").write_bytes(b"theirs")
    (ground / "gone").write_bytes(b"theirs too")
    with pytest.raises(NeedsHuman, match=r"except this: gone was .* \(other content\).*; a was .* \(other content\)"):
        ground.hf.recover()
    return ground, old


def _kept(ground: Ground) -> dict[str, Path]:
    """Where the hint says that the old content of each lies."""
    with pytest.raises(NeedsHuman) as caught:
        ground.hf.recover()
    return {path: ground / place for path, place in re.findall(r"(\w+) in (\S+/\d+)", caught.value.hint)}


@pytest.mark.parametrize("put_right", [_written, _copied_over, _replaced, _moved])
def test_a_person_puts_it_right_by_content(tmp_path: Path, put_right: Callable[[Path, Path], None]) -> None:
    """Whichever object has the old content, mode and owner: recovery ends, and the tree is proven to be the old one."""
    ground, old = _waiting(tmp_path)
    kept = _kept(ground)
    assert kept.keys() == {"a", "gone"}
    put_right(ground / "a", kept["a"])
    with pytest.raises(NeedsHuman, match="gone"):
        ground.hf.recover()
    (ground / "gone").unlink()
    ground.hf.recover()
    assert ground.tree() == old
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


def test_a_deleted_file_is_put_right_by_a_copy(tmp_path: Path) -> None:
    """In the place of what they made there."""
    ground, old = _waiting(tmp_path)
    for path, place in _kept(ground).items():
        _copied_over(ground / path, place)
    ground.hf.recover()
    assert ground.tree() == old


@pytest.mark.parametrize("spoil", ["content", "mode", "attribute"])
def test_what_is_only_nearly_right_waits(tmp_path: Path, spoil: str) -> None:
    """Another mode or attribute is another file: it is left as it stands, and the old one is kept."""
    ground, _ = _waiting(tmp_path)
    (ground / "gone").unlink()
    target = ground / "a"
    target.write_bytes(b"old A" if spoil == "content" else b"old a")
    if spoil == "mode":
        target.chmod(0o600)
    if spoil == "attribute":
        os.setxattr(target, "user.note", b"theirs")
    before = ground.tree()
    with pytest.raises(NeedsHuman, match="a"):
        ground.hf.recover()
    assert ground.tree()["a"] == before["a"]


def test_recovery_of_recovery(tmp_path: Path) -> None:
    """Recovery itself is killed while it rolls back, again and again; the last one ends it."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped")

    def die(point: str) -> None:
        mine = Ground(ground.path, FaultyCalls(KillAt(point)))
        mine.hf.recover()

    for point in ("rolled-back", "aborted", "ledger.durable", "in-ledger", "in-tables", "put-away"):
        assert in_child(lambda point=point: die(point)) in (0, -9)  # type: ignore[misc]
    ground.hf.recover()
    assert ground.tree() == old
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


def test_a_crash_does_not_confuse_a_rehearsal(tmp_path: Path) -> None:
    """A rehearsal made over a half-applied tree is refused when its turn comes: recovery changed what it stood on."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped")
    rehearsal = ground.ready(ground.plan(put("a", b"over a mixed tree")))
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert ground.tree() == old


def test_looking_does_not_recover(tmp_path: Path) -> None:
    """Verbs that only look change nothing, also after a crash."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "flipped")
    mixed, journal = ground.tree(), ground.journal()
    ground.hf.log()
    ground.hf.audit()
    ground.hf.open_divergence()
    assert ground.hf.needs_recovery()
    assert (ground.tree(), ground.journal()) == (mixed, journal)


def test_the_log_of_another_transaction_is_not_accepted(tmp_path: Path) -> None:
    """A whole log that is not the one the head names is damage."""
    ground = guard(tmp_path / "workspace", _FILES)
    done = ground.apply(put("z", b"1"))
    _killed(ground, "flipped")
    mixed = ground.tree()
    log = ground.state / "journal" / ground.journal()[0] / "log"
    log.write_bytes((ground.state / "kept" / done.id / "log").read_bytes())
    with pytest.raises(Tampering):
        ground.hf.recover()
    assert ground.tree() == mixed


def test_attacks_between_prepared_and_the_first_flip(tmp_path: Path) -> None:
    """An edit after PREPARED and before the flip is a conflict, not a case for a person: nothing of ours was there."""
    calls = FaultyCalls()
    ground = guard(tmp_path / "workspace", _FILES, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"new"), Move("m", "b2"), Delete("b")))
    calls.arm(At("prepared", lambda: (ground / "b").write_bytes(b"typed")))
    with pytest.raises(Conflict):
        rehearsal.execute()
    assert contents(ground.tree()) == {**_FILES, "b": b"typed"}
    assert ground.journal() == []
    assert ground.statuses() == ["ROLLED_BACK"]
    assert os.listdir(ground.state / "kept") == []


# ── a stage that nobody vouches for ──


def _forget_head(ground: Ground) -> None:
    """As if no transaction had ever been prepared here."""
    (ground.state / "journal" / "head").write_bytes(bytes(512))


def _everything_in(ground: Ground) -> list[tuple[str, bytes]]:
    folder = ground.state / "journal" / ground.journal()[0]
    return sorted((path.name, path.read_bytes()) for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("left", [None, 0, 8, 100], ids=["removed", "emptied", "only the start", "cut"])
def test_old_files_that_cannot_be_judged_are_not_swept(tmp_path: Path, left: int | None) -> None:
    """Head wiped and log damaged: nobody can say what the slots hold, so recovery refuses and everything stays."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "flipped")
    mixed = ground.tree()
    log = ground.state / "journal" / ground.journal()[0] / "log"
    _forget_head(ground)
    if left is None:
        log.unlink()
    else:
        os.truncate(log, left)
    stage = _everything_in(ground)
    for _ in range(2):
        with pytest.raises(Tampering, match="was prepared"):
            ground.hf.recover()
    assert (ground.tree(), _everything_in(ground)) == (mixed, stage)
    assert b"old a" in dict(stage).values()


@pytest.mark.parametrize("steps", [(Chmod("a", 0o600), Chmod("d", 0o700)), _STEPS], ids=["only modes", "all"])
def test_a_wiped_head_does_not_hide_what_was_done(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    """With the head wiped, a change that was carried out, if only in modes, is found by its log and refused."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "flipped", steps)
    mixed = ground.tree()
    _forget_head(ground)
    with pytest.raises(Tampering, match="was carried out"):
        ground.hf.recover()
    assert ground.tree() == mixed
    assert len(ground.journal()) == 1


@pytest.mark.parametrize("point", ["staged", "logged"])
def test_a_stage_with_its_mark_needs_no_log(tmp_path: Path, point: str) -> None:
    """A crash while staging leaves the mark, which proves that nothing moved: swept, however torn the log is."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, point)
    log = ground.state / "journal" / ground.journal()[0] / "log"
    if log.exists():
        os.truncate(log, 50)
    ground.hf.recover()
    assert (ground.journal(), ground.tree()) == ([], old)


def test_the_mark_is_gone_before_anything_moves(tmp_path: Path) -> None:
    """From PREPARED on a stage has no mark, so that nothing proves it harmless."""
    calls = FaultyCalls()
    ground = guard(tmp_path / "workspace", _FILES, calls)
    rehearsal = ground.hf.simulate(ground.plan(*_STEPS))
    seen: dict[str, bool] = {}

    def look(point: str) -> None:
        seen[point] = bool((ground.state / "journal" / ground.journal()[0]).stat().st_mode & stat.S_ISVTX)

    calls.arm(*(At(point, lambda point=point: look(point)) for point in ("staged", "logged", "prepared")))  # type: ignore[misc]
    ground.hf.execute(rehearsal, approved_by="me")
    assert seen == {"staged": True, "logged": True, "prepared": False}


# ── our new files, and where they went ──


def test_a_new_file_that_went_away_with_its_directory(tmp_path: Path) -> None:
    """A person renames the directory of our new file before recovery: it is not called rolled back, until it is."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped", (put("d/new", b"half"), put("e", b"2")))
    os.rename(ground / "d", ground / "d2")
    with pytest.raises(NeedsHuman, match="d/new"):
        ground.hf.recover()
    assert (ground / "d2/new").read_bytes() == b"half"
    assert [item.path for item in ground.hf.open_divergence()] == ["d/new"]
    assert ground.statuses() == ["FAILED"]
    os.rename(ground / "d2", ground / "d")
    ground.hf.recover()
    assert (ground.tree(), ground.statuses()) == (old, ["ROLLED_BACK"])


def test_a_moved_file_that_went_away_with_its_directory(tmp_path: Path) -> None:
    """The same for a file that we moved: its old place is empty, its new one is gone, so a person must look."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped", (Move("m", "d/m"),))
    os.rename(ground / "d", ground / "d2")
    with pytest.raises(NeedsHuman):
        ground.hf.recover()
    assert (ground / "d2/m").read_bytes() == b"old m"
    os.rename(ground / "d2", ground / "d")
    ground.hf.recover()
    assert ground.tree() == old


def test_a_move_that_never_happened_and_was_edited(tmp_path: Path) -> None:
    """The file to be moved is edited after PREPARED and before the crash: it never left, so nobody has to decide."""
    ground = guard(tmp_path / "workspace", _FILES)
    _killed(ground, "prepared", (Move("m", "e/m"), put("a", b"new")))
    (ground / "m").write_bytes(b"typed")
    found = ground.hf.recover()
    assert found is not None and found.outcome == "ABORTED"
    assert contents(ground.tree()) == {**_FILES, "m": b"typed"}


# ── what is said about a recovery that was stopped ──


def _press() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_in_a_recovery_says_that_files_were_moved(tmp_path: Path) -> None:
    """Interrupted while it takes back, recovery does not claim that nothing was changed; the next one ends it."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped")
    ground = ground.reopened(FaultyCalls(At("rolled-back", _press)))
    with pytest.raises(Interrupted, match="taken back") as caught:
        ground.hf.recover()
    assert caught.value.changed
    ground = ground.reopened()
    ground.hf.recover()
    assert (ground.tree(), ground.statuses()) == (old, ["ROLLED_BACK"])


def test_ctrl_c_before_anything_is_open_stays_itself(tmp_path: Path) -> None:
    """With nothing to take back nothing was changed, and nothing else is claimed."""
    ground = guard(tmp_path / "workspace", _FILES)
    ground.apply(put("a", b"new"))
    calls = Interloper()
    ground = ground.reopened(calls)
    calls.arm("pread", _press)
    with pytest.raises(KeyboardInterrupt):
        ground.hf.recover()


def test_a_recovery_that_cannot_be_recorded_says_that_files_were_moved(tmp_path: Path) -> None:
    """Rolled back in the workspace, refused by the ledger: the error is the ledger's, and `changed` is true."""
    ground = guard(tmp_path / "workspace", _FILES)
    old = ground.tree()
    _killed(ground, "flipped")
    os.link(ground.state / "ledger.jsonl", tmp_path / "second-name")
    with pytest.raises(Tampering) as caught:
        ground.hf.recover()
    assert caught.value.changed
    assert ground.tree() == old


def _failing(ground: Ground, number: int) -> tuple[HoldfastError | OSError | None, bool]:
    """What recovery says when the n-th change of the disk fails, and whether there was one."""
    calls = FaultyCalls(counted=CHANGES)
    mine = Ground(ground.path, calls)
    calls.arm(Fail(number))
    try:
        mine.hf.recover()
    except (HoldfastError, OSError) as error:
        return error, True
    finally:
        mine.hf.close()
    return None, calls.count >= number


@pytest.mark.long
def test_an_error_on_the_way_back_tells_what_moved(tmp_path: Path) -> None:
    """At whatever change of the disk recovery fails: files that it moved are never called unchanged."""
    moved, number, more = [], 0, True
    while more:
        number += 1
        ground = guard(tmp_path / str(number), _FILES)
        old = ground.tree()
        _killed(ground, "flipped")
        mixed = ground.tree()
        error, more = _failing(ground, number)
        if error is not None and ground.tree() != mixed:
            moved.append((number, str(error), getattr(error, "changed", False)))
        ground.hf.recover()
        assert ground.tree() == old
        ground.hf.close()
    assert len(moved) > 5
    assert [told for told in moved if not told[2]] == []
