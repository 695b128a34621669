"""A broken ledger: recovering and looking go on, everything else waits until a person accepts the break."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

import holdfast
from engine.papers import edit_tables
from guarded import ME, Ground, guard, in_child, put
from holdfast.disk.calls import Calls
from holdfast.errors import Blocked, HoldfastError, NeedsHuman, Tampering
from holdfast.model.execution import intent_id
from holdfast.model.plan import CommandCheck
from holdfast.store.anchor import anchor_path
from holdfast.store.keys import key_path
from holdfast.testing import FaultyCalls, KillAt


def _lines(ground: Ground) -> list[bytes]:
    return (ground.state / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def _write(ground: Ground, lines: list[bytes]) -> None:
    """In place, with the old times where they can be had."""
    path = ground.state / "ledger.jsonl"
    about = path.stat()
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(b"".join(lines))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _edited(ground: Ground) -> None:
    lines = _lines(ground)
    at = next(n for n, line in enumerate(lines) if b'"kind":"execution"' in line)
    lines[at] = lines[at].replace(b'"approved_by":"tester"', b'"approved_by":"nobody"')
    _write(ground, lines)


def _deleted(ground: Ground) -> None:
    lines = _lines(ground)
    del lines[next(n for n, line in enumerate(lines) if b'"kind":"execution"' in line)]
    _write(ground, lines)


def _inserted(ground: Ground) -> None:
    lines = _lines(ground)
    _write(ground, [*lines[:3], b'{"forged":1}\n', *lines[3:]])


def _cut_off(ground: Ground) -> None:
    _write(ground, _lines(ground)[:-4])


def _gone(ground: Ground) -> None:
    (ground.state / "ledger.jsonl").unlink()


def _without_anchor(ground: Ground) -> None:
    os.unlink(anchor_path(ground.hf.id))


def _without_key(ground: Ground) -> None:
    os.unlink(key_path())
    with pytest.raises(Tampering):
        holdfast.init(str(ground.path))


def _linked(ground: Ground) -> None:
    os.link(ground.state / "ledger.jsonl", ground.path.parent / "another name")


_BREAKS = [_edited, _deleted, _inserted, _cut_off, _gone, _without_anchor, _without_key, _linked]
Breaking = Callable[[Ground], None]


def _prepared(tmp_path: Path) -> tuple[Ground, str, str]:
    """Two landed changes, to `a` and to `b`; both may be undone."""
    ground = guard(tmp_path / "workspace", {"a": b"0", "b": b"0"})
    return ground, ground.apply(put("a", b"1")).id, ground.apply(put("b", b"1")).id


@pytest.mark.parametrize("broken", _BREAKS)
def test_nothing_but_looking_goes_on(tmp_path: Path, broken: Breaking) -> None:
    """Apply, undo, approve, reject, gc and notes are refused (12), nothing moves; log and show go on."""
    ground, one, _ = _prepared(tmp_path)
    simulated = ground.hf.simulate(ground.plan(put("c", b"1")))
    decision = ground.hf.evaluate(simulated)
    before = ground.tree()
    broken(ground)
    ground = ground.reopened()
    refused: list[Callable[[], object]] = [
        lambda: ground.apply(put("a", b"2")),
        lambda: ground.hf.undo(one, approved_by=ME),
        lambda: ground.hf.approve(decision, by=ME),
        lambda: ground.hf.reject(decision, by=ME),
        lambda: ground.hf.gc(keep_days=0),
        lambda: ground.hf.pipeline.note("delegation", {"id": "g-1"}),
        lambda: ground.hf.execute(simulated, approved_by=ME),
        ground.hf.require_whole_ledger,
    ]
    for act in refused:
        with pytest.raises(Tampering) as caught:
            act()
        assert caught.value.exit_status == 12
        assert "holdfast audit accept" in caught.value.hint
    assert ground.tree() == before
    assert [row.id for row in ground.hf.log()][-1:] == [one]
    assert ground.hf.show(one)[0].status == "COMPLETED"


@pytest.mark.parametrize("broken", _BREAKS)
def test_an_accepted_break_is_recorded_and_what_is_kept_can_be_undone(tmp_path: Path, broken: Breaking) -> None:
    """The break is in the ledger, which is whole again; the old file is kept, and both changes can be undone.

    No row is called edited, whichever entry it is from now; one that is edited afterwards is.
    """
    ground, one, two = _prepared(tmp_path)
    broken(ground)
    ground = ground.reopened()
    found = ground.hf.find_break()
    assert found is not None
    ground.hf.accept_break(found.id)
    ground = ground.reopened()
    assert ground.hf.audit().ok
    assert [entry.body["id"] for entry in ground.hf.ledger.entries() if entry.kind == "break"] == [found.id]
    assert (ground.state / f"ledger.{found.id}.jsonl").exists() == (broken is not _gone)
    assert {row.id for row in ground.hf.log()} == {one, two}
    assert ground.statuses() == ground.ledger_statuses()
    assert ground.hf.rows_unlike_the_ledger() == []
    assert edit_tables(ground, "UPDATE executions SET at_ns=at_ns+1 WHERE id=:id", id=two) == 1
    assert ground.hf.rows_unlike_the_ledger() == [f"executions {two}"]
    assert edit_tables(ground, "UPDATE executions SET at_ns=at_ns-1 WHERE id=:id", id=two) == 1
    ground.hf.undo(one, approved_by=ME)
    ground.hf.undo(two, approved_by=ME)
    assert (ground / "a").read_bytes() == (ground / "b").read_bytes() == b"0"
    ground.apply(put("a", b"3"))
    assert ground.hf.find_break() is None


def test_an_end_whose_beginning_is_lost_is_called_edited_by_nobody(tmp_path: Path) -> None:
    """That a change waits for a person is one entry, how it ended another: the second alone is proven after a break."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    with pytest.raises(NeedsHuman):
        ground.apply(put("a", b"1"), health=(CommandCheck(("sh", "-c", "echo mine > a; exit 1"), 2000),))
    ground.hf.recover(accept=True)
    _edited(ground)
    ground = ground.reopened()
    found = ground.hf.find_break()
    assert found is not None
    ground.hf.accept_break(found.id)
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    assert ground.reopened().hf.rows_unlike_the_ledger() == []


def test_only_the_break_that_was_shown_is_accepted(tmp_path: Path) -> None:
    """When the ledger is broken further after the look, the consent does not count, and nothing is changed."""
    ground, _, _ = _prepared(tmp_path)
    _edited(ground)
    found = ground.hf.find_break()
    assert found is not None
    _cut_off(ground)
    before = _lines(ground)
    with pytest.raises(Blocked, match="is not what is wrong"):
        ground.hf.accept_break(found.id)
    assert _lines(ground) == before


def test_an_approval_from_before_a_break_does_not_count(tmp_path: Path) -> None:
    """The record that used it up may be lost: it must be given again."""
    ground, _, _ = _prepared(tmp_path)
    ready = ground.ready(ground.plan(put("c", b"1")))
    assert ready.approval is not None
    _without_anchor(ground)
    found = ground.hf.find_break()
    assert found is not None
    ground.hf.accept_break(found.id)
    assert ground.hf.pipeline.governance.custody_of(ready.simulated.report.id).approvals == ()


def test_an_older_backup_is_a_break_and_a_copy_is_none(tmp_path: Path) -> None:
    """The state as it was before the last change is a break; a copy of the state of now, with other times, is none."""
    ground, _, _ = _prepared(tmp_path)
    ground.hf.close()
    shutil.copytree(ground.state, tmp_path / "older")
    ground = Ground(ground.path)
    ground.apply(put("a", b"2"))
    ground.hf.close()
    shutil.copytree(ground.state, tmp_path / "newer")
    for backup, is_whole in (("newer", True), ("older", False)):
        shutil.rmtree(ground.state)
        shutil.copytree(tmp_path / backup, ground.state, symlinks=True)
        ground = Ground(ground.path)
        if is_whole:
            ground.hf.require_whole_ledger()
            ground.apply(put("b", b"5"))
            shutil.rmtree(tmp_path / "newer")
        else:
            with pytest.raises(Tampering):
                ground.apply(put("b", b"6"))
        ground.hf.close()


@pytest.mark.parametrize("broken", [_edited, _cut_off, _without_anchor])
@pytest.mark.parametrize("point", ["flipped", "committed"])
def test_an_open_transaction_is_recovered_over_a_broken_ledger(tmp_path: Path, broken: Breaking, point: str) -> None:
    """Killed in the middle, with a broken ledger: the tree is the old or the new one at once, and recorded in time."""
    ground, _, _ = _prepared(tmp_path)
    ground.hf.close()

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        ready = there.ready(there.plan(put("a", b"7")))
        calls.arm(KillAt(point))
        ready.execute()

    assert in_child(die) == -9
    broken(ground)
    ground = Ground(ground.path)
    with nullcontext() if broken is _edited else pytest.raises(Tampering, match="not recorded yet"):
        ground.hf.recover()
    assert (ground / "a").read_bytes() == (b"1" if point == "flipped" else b"7")
    found = ground.hf.find_break()
    assert found is not None
    ground.hf.accept_break(found.id)
    assert ground.statuses() == ground.ledger_statuses()
    assert ground.hf.log()[0].status == ("ROLLED_BACK" if point == "flipped" else "COMPLETED")
    assert not ground.hf.needs_recovery()


@pytest.mark.crash
@pytest.mark.parametrize("broken", [_edited, _gone])
def test_an_acceptance_that_is_killed_can_be_repeated(tmp_path: Path, broken: Breaking) -> None:
    """Failing at any of its calls, an acceptance leaves a ledger that is whole, or broken and accepted again."""
    model, one, _ = _prepared(tmp_path / "model")
    model.hf.close()
    home = Path(os.environ["XDG_STATE_HOME"])
    shutil.copytree(home, tmp_path / "home")
    number = 0
    while True:
        number += 1
        place = tmp_path / f"p{number}"
        shutil.copytree(model.path, place)
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "home", home)
        calls = FaultyCalls()
        ground = Ground(place, calls)
        broken(ground)
        found = ground.hf.find_break()
        assert found is not None

        def accept(ground: Ground = ground, calls: FaultyCalls = calls, id: str = found.id, at: int = number) -> None:
            from holdfast.testing import Kill

            calls.arm(Kill(at * 7))
            ground.hf.accept_break(id)

        ended = in_child(accept)
        ground.hf.close()
        ground = Ground(place)
        again = ground.hf.find_break()
        if again is not None:
            ground.hf.accept_break(again.id)
        assert ground.hf.audit().ok
        assert ground.statuses() == ground.ledger_statuses()
        ground.hf.undo(one, approved_by=ME)
        ground.hf.close()
        if ended == 0:
            return


def test_the_mark_spares_the_walk_and_no_more(tmp_path: Path) -> None:
    """Untouched, the ledger is checked in a few reads; touched, all of it is; our own appends are no touch."""
    calls = FaultyCalls()
    ground = guard(tmp_path / "workspace", {"a": b"0"}, calls)
    for number in range(30):
        ground.hf.pipeline.note("delegation", {"id": f"g-{number}", "filler": "x" * 20_000})
    ledger = ground.hf.ledger
    ledger.require_whole()

    def reads() -> int:
        calls.arm()
        ledger.require_whole()
        return calls.trace.count("pread")

    few = reads()
    assert few <= 4
    ground.apply(put("a", b"1"))
    assert reads() == few
    os.utime(ground.state / "ledger.jsonl")
    assert reads() > few
    assert reads() == few
    mark = Path(f"{anchor_path(ground.hf.id)}.verified")
    mark.write_bytes(b"x" * 512)
    assert reads() > few
    mark.unlink()
    assert reads() > few
    assert reads() == few


class Meddler(Calls):
    """The real kernel, and somebody who edits an old record of the ledger while the n-th of our appends is synced."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._left = path, number

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        os.fdatasync(fd)
        if os.readlink(f"/proc/self/fd/{fd}") == str(self._path):
            self._left -= 1
            if self._left == 0:
                with self._path.open("r+b") as file:
                    at = file.read().index(b'"approved_by":"tester"') + len(b'"approved_by":"')
                    file.seek(at)
                    file.write(b"nobody")


@pytest.mark.parametrize("number", [1, 2])
def test_an_edit_while_we_append_is_found(tmp_path: Path, number: int) -> None:
    """Our append does not vouch for what somebody else wrote while the disk was waited for."""
    ground, _, _ = _prepared(tmp_path)
    ground.hf.require_whole_ledger()
    ground = ground.reopened(Meddler(ground.state / "ledger.jsonl", number))
    with suppress(Tampering):  # before the second append it may be found already
        ground.apply(put("c", b"1"))
    with pytest.raises(Tampering):
        ground.reopened().hf.require_whole_ledger()


def test_an_edit_through_a_mapping_is_found(tmp_path: Path) -> None:
    """A page that was written through a mapping before a walk, and is written again after it, is no blind spot."""
    ground, _, _ = _prepared(tmp_path)
    path = ground.state / "ledger.jsonl"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        at = mapped.find(b'"approved_by":"tester"') + len(b'"approved_by":"')
        before = path.stat().st_ctime_ns
        mapped[at : at + 1] = b"t"
        if path.stat().st_ctime_ns == before:
            pytest.skip("this file system gives no time to what is written through a mapping")
        ground.hf.require_whole_ledger()
        mapped[at : at + 1] = b"T"
        with pytest.raises(Tampering):
            ground.hf.require_whole_ledger()


@pytest.mark.parametrize("broken", [_edited, _deleted, _cut_off, _without_anchor])
def test_a_trace_shows_what_is_proven(tmp_path: Path, broken: Breaking) -> None:
    """Looking goes on: the chain of custody of a change is shown as far as the broken ledger can prove it."""
    ground, _, two = _prepared(tmp_path)
    if broken is _cut_off:
        ground.apply(put("c", b"1"))
    broken(ground)
    ground = ground.reopened()
    for id in (two, two[:-1], intent_id(ground.hf.records.row(two).intent)):
        assert two in [link.id for link in ground.hf.trace(id).links if link.kind == "execution"], id
    line = ground.hf.trace(two).lineage
    assert line is not None
    assert line.trigger == "change"


def test_records_of_a_break_are_plain(tmp_path: Path) -> None:
    """The entry says what was wrong, how much is proven, what was rebuilt, and who accepted it."""
    ground, one, _ = _prepared(tmp_path)
    _deleted(ground)
    found = ground.hf.find_break()
    assert found is not None
    ground.hf.accept_break(found.id)
    (entry,) = [entry for entry in ground.hf.ledger.entries() if entry.kind == "break"]
    assert entry.body["rebuilt"] == [one]
    assert entry.body["by"] == ground.hf.me()
    assert json.loads(json.dumps(entry.body))["proven_before"] == len(found.before)


def test_a_ledger_that_is_whole_is_not_accepted(tmp_path: Path) -> None:
    """There is nothing to find, and nothing to accept."""
    ground, _, _ = _prepared(tmp_path)
    assert ground.hf.find_break() is None
    with pytest.raises(HoldfastError):
        ground.hf.accept_break("b-whatever")
