"""The ledger in good weather, and what it refuses before it starts."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from holdfast.errors import Tampering
from holdfast.store.chain import Record
from holdfast.store.ledger import LEDGER_NAME, Ledger
from ledger_kit import AT, KEY, WORKSPACE, Faulty, House, append, numbers

GOLDEN = Path(__file__).parent.parent / "golden" / "ledger"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house")


def test_an_unused_ledger_is_empty_and_in_order(house: House) -> None:
    """Before the first record there is no file, no head, no entry, and nothing to complain about."""
    ledger = house.ledger()
    assert (ledger.head(), list(ledger.entries()), ledger.find("execution", "x-1")) == (None, [], None)
    verdict = ledger.verify()
    assert (verdict.ok, verdict.count) == (True, 0)
    assert not house.path.exists()
    assert not house.anchor.exists()


def test_records_come_back_in_order_and_backwards(house: House) -> None:
    """What was appended is read back equal, oldest first, or newest first when asked."""
    ledger = house.filled(5).ledger()
    assert numbers(ledger) == [1, 2, 3, 4, 5]
    assert list(ledger.entries(reverse=True)) == list(reversed(list(ledger.entries())))


def test_an_entry_is_what_append_returned(house: House) -> None:
    """The entry that `append` returns is the entry that is read back."""
    ledger = house.ledger()
    written = ledger.append("plan", {"a": [1, None, True, {"mac": "x", "b": ', "mac": "'}]}, AT)
    assert list(ledger.entries()) == [written]
    assert (written.seq, written.kind, written.at_ns) == (1, "plan", AT)


def test_a_line_is_canonical_json_with_its_mac_at_the_end(house: House) -> None:
    """Every line is one JSON object whose last 64 hex digits before the closing are its mac."""
    line = house.filled(1).lines()[0]
    fields = json.loads(line)
    assert list(fields) == ["at", "body", "kind", "seq", "v", "mac"]
    assert line.endswith(f', "mac": "{fields["mac"]}"}}\n'.encode())


def test_names_that_move_the_cursor_are_stored_escaped(house: House) -> None:
    """Bidi controls, ANSI sequences, newlines and bytes that are not UTF-8 are ASCII in the file, and come back."""
    ledger = house.ledger()
    nasty = "a\u202ekcab\x1b[31m\r\n\udcff\u2028"
    ledger.append("execution", {"path": nasty}, AT)
    raw = house.path.read_bytes()
    assert raw.isascii()
    assert not set(raw) & set(b"\x1b\r\0")
    assert raw.count(b"\n") == 1
    assert next(ledger.entries()).body["path"] == nasty


def test_a_value_that_has_no_canonical_form_leaves_nothing_behind(house: House) -> None:
    """A float is refused before anything is written."""
    ledger = house.filled(1).ledger()
    before = house.path.read_bytes()
    with pytest.raises(TypeError):
        ledger.append("execution", {"ratio": 0.5}, AT)  # type: ignore[dict-item]
    assert house.path.read_bytes() == before
    assert ledger.verify().ok


def test_a_group_is_one_write_and_one_sync(house: House) -> None:
    """`append_many` makes a hundred records durable with a single write and a single fdatasync of the ledger."""
    house.filled(1)
    calls = Faulty(0, lambda name, real: real())
    entries = house.ledger(calls).append_many([Record("execution", {"number": n}, AT) for n in range(2, 102)])
    assert [entry.seq for entry in entries] == list(range(2, 102))
    assert calls.made.count("fdatasync") == 1
    assert calls.made.count("pwrite") == 3  # the lines, then the anchor and the verified mark
    assert house.ledger().verify().count == 101


def test_an_empty_group_writes_nothing(house: House) -> None:
    """Appending no records touches no file."""
    assert house.ledger().append_many([]) == ()
    assert not house.path.exists()


def test_the_anchor_moves_only_after_the_record_is_durable(house: House) -> None:
    """The order is: write the line, sync it, then write the anchor and the mark, and no sync after that."""
    house.filled(1)
    calls = Faulty(0, lambda name, real: real())
    append(house.ledger(calls), 2)
    kept = [name for name in calls.made if name in ("pwrite", "fdatasync", "fsync", "point")]
    assert kept == ["pwrite", "fdatasync", "point", "pwrite", "pwrite"]


def test_the_first_record_also_makes_the_name_durable(house: House) -> None:
    """The anchor's file and the ledger's directory are synced with the first record."""
    calls = Faulty(0, lambda name, real: real())
    append(house.ledger(calls), 1)
    assert calls.made.index("fsync") < calls.made.index("pwrite")
    assert "fsync" in calls.made[calls.made.index("fdatasync") :]


@pytest.mark.parametrize("count", [10, 3000])
def test_the_cost_of_an_append_does_not_grow(house: House, count: int) -> None:
    """However long the ledger is, an append makes the same calls and reads less than two kilobytes."""
    house.ledger().append_many([Record("execution", {"number": n}, AT) for n in range(count)])
    read = 0

    def counted(fd: int, length: int, offset: int) -> bytes:
        nonlocal read
        data = os.pread(fd, length, offset)
        read += len(data)
        return data

    calls = Faulty(0, lambda name, real: real())
    calls.pread = counted  # type: ignore[method-assign,assignment]
    append(house.ledger(calls), count)
    assert read < 2048
    assert len(calls.made) == 18


def test_find_gives_the_newest_record_of_an_execution(house: House) -> None:
    """`find` searches from the end, by kind and by the body's own `execution_id`, not by a text elsewhere."""
    ledger = house.filled(3).ledger()
    ledger.append("undo", {"execution_id": "x-2", "number": 9}, AT)
    ledger.append("execution", {"inner": {"execution_id": "x-1"}}, AT)
    newest = ledger.append("execution", {"execution_id": "x-2", "number": 10}, AT)
    assert ledger.find("execution", "x-2") == newest
    found = ledger.find("execution", "x-1")
    assert found is not None
    assert found.seq == 1
    assert ledger.find("plan", "x-1") is None


def test_long_lines_and_many_lines_read_the_same_both_ways(house: House) -> None:
    """Lines longer than a read and lines that straddle reads are found whole in both directions."""
    ledger = house.ledger()
    records = [Record("execution", {"text": "t" * (n * 997 % 5000)}, AT) for n in range(200)]
    records.append(Record("execution", {"text": "u" * 400_000}, AT))
    written = list(ledger.append_many(records))
    assert list(ledger.entries()) == written
    assert list(ledger.entries(reverse=True)) == written[::-1]
    assert ledger.verify().count == 201


def test_the_head_is_the_newest_record(house: House) -> None:
    """The head names the newest record's number, its mac and the file's length."""
    ledger = house.filled(4).ledger()
    head = ledger.head()
    assert head is not None
    assert head == (4, list(ledger.entries())[-1].mac, house.path.stat().st_size)


def test_a_descriptor_of_the_state_directory_serves_as_well(house: House) -> None:
    """The state directory may be given as an open descriptor, also when its path changes meanwhile."""
    directory = os.open(house.state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ledger = Ledger(directory, KEY, WORKSPACE, str(house.anchor))
        append(ledger, 1)
        house.state.rename(house.root / "elsewhere")
        append(ledger, 2)
        assert numbers(ledger) == [1, 2]
    finally:
        os.close(directory)


def test_a_reader_sees_no_tampering_while_a_writer_is_at_work(house: House) -> None:
    """At every call of an append, another process that verifies finds an intact ledger with or without the record."""
    house.filled(2)
    seen = set()

    def look(name: str, real: object) -> object:
        verdict = house.ledger().verify()
        assert verdict.ok, verdict
        seen.add(verdict.count)
        return real()  # type: ignore[operator]

    for nth in range(1, 12):
        before = house.ledger().verify().count
        seen.clear()
        append(house.ledger(Faulty(nth, look)), nth)
        assert seen <= {before, before + 1}


def test_a_reader_of_a_half_written_line_sees_the_lines_before_it(house: House) -> None:
    """An unfinished last line is left out of entries, head and count, and is no tampering."""
    house.filled(2)
    with house.path.open("ab") as file:
        file.write(b'{"at":17')
    ledger = house.ledger()
    assert numbers(ledger) == [1, 2]
    assert (ledger.verify().ok, ledger.verify().torn) == (True, 8)


def test_the_golden_ledger_verifies_forever(tmp_path: Path) -> None:
    """A ledger, key and anchor written by the first version verify, read and continue with today's code."""
    state, anchor = tmp_path / "state", tmp_path / "anchor"
    state.mkdir()
    shutil.copy(GOLDEN / LEDGER_NAME, state / LEDGER_NAME)
    anchor.write_bytes((GOLDEN / "anchor").read_bytes())
    anchor.chmod(0o600)
    ledger = Ledger(str(state), (GOLDEN / "ledger.key").read_bytes(), "golden", str(anchor))
    verdict = ledger.verify()
    assert (verdict.ok, verdict.count, verdict.unanchored) == (True, 5, 1)
    assert [entry.kind for entry in ledger.entries()] == ["init", "plan", "execution", "undo", "execution"]
    assert ledger.append("execution", {}, AT).seq == 6
    assert ledger.verify().ok


def test_a_key_of_the_wrong_length_is_refused(house: House) -> None:
    """A short key is a programming error and never used."""
    with pytest.raises(ValueError):
        Ledger(str(house.state), b"short", WORKSPACE, str(house.anchor))


def test_another_key_verifies_nothing(house: House) -> None:
    """With another key the anchor does not check out, and neither verify nor append goes on."""
    house.filled(2)
    other = Ledger(str(house.state), KEY[::-1], WORKSPACE, str(house.anchor))
    assert other.verify().problem == "anchor_invalid"
    with pytest.raises(Tampering):
        append(other, 3)
