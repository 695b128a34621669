"""The tables: a projection of the ledger that can be lost, damaged and rebuilt."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from guarded import Ground, guard, put
from holdfast.errors import UnknownId, Unsupported
from holdfast.store.database import Records, Row
from holdfast.store.patch_history import PatchHistory


def _row(id: str, at_ns: int, *, live: bool = True) -> Row:
    return Row(
        id, "p-x", "digest", f"intent of {id}", "COMPLETED", at_ns, 1, live, True, {"root": "r", "status": "COMPLETED"}
    )


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(str(tmp_path))


def test_rows_come_newest_first_even_when_the_clock_was_set_back(records: Records) -> None:
    """The order is the ledger's; a clock that jumps must not turn an undo around."""
    for seq, (id, at) in enumerate([("e-one", 300), ("e-two", 100), ("e-three", 200)], 1):
        records.save_execution(_row(id, at), None, seq, off=[], on=[])
    assert [row.id for row in records.executions()] == ["e-three", "e-two", "e-one"]
    assert [row.id for row in records.landed_with_plan("digest") if row.live] == ["e-three", "e-two", "e-one"]


def test_an_execution_switches_others_off_and_on(records: Records) -> None:
    """What an undo undoes is no longer live; what it revives is."""
    records.save_execution(_row("e-one", 1), None, 1, off=[], on=[])
    records.save_execution(_row("e-two", 2), None, 2, off=["e-one"], on=[])
    assert {row.id: row.live for row in records.executions()} == {"e-one": False, "e-two": True}
    records.save_execution(_row("e-three", 3), None, 3, off=["e-two"], on=["e-one"])
    assert {row.id: row.live for row in records.executions()} == {"e-one": True, "e-two": False, "e-three": True}
    assert records.projected == 3


def test_the_mark_moves_one_by_one(records: Records) -> None:
    """How far the ledger is projected never goes back and never skips: a gap stays to be filled."""
    for seq in (1, 2, 3):
        records.mark_projected(seq)
    records.save_execution(_row("e-one", 1), None, 2, off=[], on=[])
    records.mark_projected(1)
    assert records.projected == 3
    records.save_execution(_row("e-two", 2), None, 5, off=[], on=[])
    assert records.projected == 3


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("e-abc", None),
        ("e-abcd", "e-abcdefgh"),
        ("e-abcx", "e-abcxyzzz"),
        ("e-abcdefgh", "e-abcdefgh"),
        ("p-", "p-12345678"),
    ],
)
def test_a_unique_prefix_is_enough(records: Records, prefix: str, found: str | None) -> None:
    """An id may be shortened as long as it is unique; otherwise the choices are named."""
    for seq, id in enumerate(["e-abcdefgh", "e-abcxyzzz"], 1):
        records.save_execution(_row(id, seq), None, seq, off=[], on=[])
    records.save_plan("p-12345678", "d", 1, b"{}")
    if found is not None:
        assert records.resolve(prefix) == found
    else:
        with pytest.raises(UnknownId, match=r"e-abcdefgh.*e-abcxyzzz"):
            records.resolve(prefix)


@pytest.mark.parametrize("prefix", ["", "%", "e-%", "_", "'; DROP TABLE executions; --", "\udc80", "e-nothere"])
def test_no_prefix_is_a_pattern(records: Records, prefix: str) -> None:
    """Wildcards, quotes and odd characters match nothing."""
    records.save_execution(_row("e-abcdefgh", 1), None, 1, off=[], on=[])
    with pytest.raises(UnknownId):
        records.resolve(prefix)


@pytest.mark.parametrize("search", ["%", "_", "\\", "'", "\udc80", "100%", "intent%"])
def test_a_search_is_text_and_no_pattern(records: Records, search: str) -> None:
    """Searching for a wildcard finds that very character."""
    records.save_execution(_row("e-one", 1), None, 1, off=[], on=[])
    assert records.executions(search=search) == []
    assert len(records.executions(search="intent of")) == 1


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Tables written by a newer Holdfast are not guessed at."""
    Records(str(tmp_path)).close()
    with sqlite3.connect(tmp_path / "holdfast.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(Unsupported, match="version 99"):
        Records(str(tmp_path))


def test_damage_anywhere_stops_nothing(tmp_path: Path) -> None:
    """Whichever page of the file is damaged, the tables can be read; what cannot be is set aside."""
    records = Records(str(tmp_path))
    for seq in range(1, 60):
        records.save_execution(_row(f"e-{seq:06}", seq), b"{}", seq, off=[], on=[])
    expected = records.executions()
    records.close()
    data = (tmp_path / "holdfast.db").read_bytes()
    for start in range(0, len(data), 256):
        noise = random.Random(start).randbytes(64)
        (tmp_path / "holdfast.db").write_bytes(data[:start] + noise + data[start + 64 :])
        try:
            records = Records(str(tmp_path))
        except Unsupported:  # the noise hit the version
            continue
        assert len(records.executions()) <= len(expected)
        records.close()


@pytest.mark.parametrize("share", [0.0, 0.002, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("filling", ["", "noise", "zeros"])
def test_tables_cut_off_or_overwritten_come_back(tmp_path: Path, share: float, filling: str) -> None:
    """Cut off anywhere, or garbage from there on: the very next question is answered truly, and so are all later."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    one = ground.apply(put("a", b"1"))
    ground.apply(put("b", b"2"))
    ground.hf.undo(one.id, approved_by="me")
    rows = _facts(ground)
    ground.hf.close()
    file = ground.state / "holdfast.db"
    data = file.read_bytes()
    # Garbage that spares a part of a page may be a row that nobody can tell from a true one.
    start = int(len(data) * share) if not filling else int(len(data) * share) // 4096 * 4096
    rest = len(data) - start
    filler = {"": b"", "noise": random.Random(1).randbytes(rest), "zeros": bytes(rest)}[filling]
    file.write_bytes(data[:start] + filler)
    ground = Ground(ground.path)
    assert _facts(ground) == rows
    ground.apply(put("a", b"3"))
    ground = ground.reopened()
    assert _facts(ground)[1:] == rows
    assert ground.statuses() == ground.ledger_statuses()
    assert not ground.hf.needs_recovery()
    assert not ground.hf.records.volatile
    assert not ground.hf.records.trouble


def test_damage_found_in_the_middle_of_a_verb(tmp_path: Path) -> None:
    """A table that goes missing while a change is under way: it lands, is listed, and the next verb rebuilds it."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    ready = ground.ready(ground.plan(put("a", b"1")))
    with sqlite3.connect(ground.state / "holdfast.db") as db:
        db.execute("DROP TABLE executions")
    db.close()
    done = ready.execute()
    assert [row.id for row in ground.hf.log()] == [done.id]
    assert "set aside as holdfast.db.damaged" in ground.hf.records.trouble
    assert (ground.state / "holdfast.db.damaged").exists()
    ground = ground.reopened()
    assert [row.id for row in ground.hf.log()] == [done.id]
    assert not ground.hf.records.volatile


def test_a_plan_is_kept_although_its_table_is_damaged(tmp_path: Path) -> None:
    """What is nowhere else goes into a new file at once, with a word about it; the damaged one is set aside."""
    records = Records(str(tmp_path))
    records.save_plan("p-old", "d", 1, b"{}")
    (page,) = records.connection.execute("SELECT rootpage FROM sqlite_master WHERE name='plans'").fetchone()
    (size,) = records.connection.execute("PRAGMA page_size").fetchone()
    records.close()
    with (tmp_path / "holdfast.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(random.Random(1).randbytes(size))
    records = Records(str(tmp_path))
    records.save_plan("p-new", "d", 2, b"{}")
    assert "damaged" in records.trouble
    records.close()
    assert Records(str(tmp_path)).resolve("p-new") == "p-new"
    assert (tmp_path / "holdfast.db.damaged").exists()


@pytest.mark.parametrize("damage", ["at_ns='y'", "changes=x'00'", "live='yes'", "summary='[]'"])
def test_a_row_of_something_else_is_damage(tmp_path: Path, damage: str) -> None:
    """A file that SQLite can read, with other things in it than were written: answered from the ledger."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    done = ground.apply(put("a", b"1"))
    ground.hf.close()
    with sqlite3.connect(ground.state / "holdfast.db") as db:
        db.execute(f"UPDATE executions SET {damage}")
    db.close()
    after = Ground(ground.path)
    assert [(row.id, row.status, row.changes) for row in after.hf.log()] == [(done.id, "COMPLETED", 1)]
    assert "damaged" in after.hf.records.trouble
    after.hf.close()


def test_patches_survive_the_loss_of_their_table(tmp_path: Path) -> None:
    """Patches are known from their own file when the database fails between two questions about them."""
    ground = guard(tmp_path / "workspace")
    history = PatchHistory(ground.hf.site.state, ground.hf.records)
    patch = history.create(b"--- a\n+++ b\n", "d" * 64, 1).patch
    with sqlite3.connect(ground.state / "holdfast.db") as db:
        db.execute("DROP TABLE patch_history")
        db.execute("CREATE TABLE patch_history(other TEXT)")
    db.close()
    assert history.move(patch, "validated", 2).state == "validated"
    assert [standing.state for standing in history.history(patch)] == ["created", "validated"]


def _facts(ground: Ground) -> list[tuple[object, ...]]:
    return [(row.id, row.status, row.live, row.at_ns, row.changes, row.summary) for row in ground.hf.log(limit=-1)]


def test_everything_but_details_comes_back_from_the_ledger(tmp_path: Path) -> None:
    """With the database deleted, rows, order and what is live are there again at once, through undo and redo."""
    ground = guard(tmp_path / "workspace", {"a": b"old", "b": b"old"})
    one = ground.apply(put("a", b"1"))
    two = ground.apply(put("b", b"2"))
    back = ground.hf.undo(one.id, approved_by="me")
    ground.hf.undo(back.id, approved_by="me")
    ground.hf.undo(two.id, approved_by="me")
    rows = _facts(ground)
    ground.hf.close()
    for path in ground.state.glob("holdfast.db*"):
        path.unlink()
    ground = Ground(ground.path)
    assert _facts(ground) == rows
    assert not ground.hf.needs_recovery()
    ground.hf.undo(one.id, approved_by="me")
    assert (ground / "a").read_bytes() == b"old"


def test_a_database_from_an_earlier_time_catches_up(tmp_path: Path) -> None:
    """An older copy of the tables, as a power cut may leave, is brought up to date by the next verb."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    one = ground.apply(put("a", b"1"))
    ground.hf.close()
    copy = (ground.state / "holdfast.db").read_bytes()
    ground = Ground(ground.path)
    ground.hf.undo(one.id, approved_by="me")
    ground.apply(put("a", b"2"))
    rows = _facts(ground)
    ground.hf.close()
    for path in ground.state.glob("holdfast.db*"):
        path.unlink()
    (ground.state / "holdfast.db").write_bytes(copy)
    ground = Ground(ground.path)
    ground.hf.recover()
    assert _facts(ground) == rows
    assert [row.live for row in ground.hf.log()] == [True, True, False]
