"""Whatever is done to a ledger up to its anchor is found, named and located."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.disk.calls import Calls
from holdfast.errors import Tampering
from holdfast.store.ledger import Ledger
from ledger_kit import AT, KEY, House, append

RECORDS = 12
Edit = Callable[[list[bytes]], list[bytes]]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house").filled(RECORDS)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("ready") / "house").filled(RECORDS)


def _seq_edited(lines: list[bytes], at: int) -> list[bytes]:
    stem, number, rest = lines[at].rpartition(b'"seq":')
    lines[at] = stem + number + b"7" + rest
    return lines


CASES: list[tuple[str, str, int, Edit]] = [
    ("body", "edited", 4, lambda ls: [*ls[:3], ls[3].replace(b'"number":4', b'"number":5'), *ls[4:]]),
    ("mac", "edited", 4, lambda ls: [*ls[:3], ls[3][:-10] + b"0000000" + ls[3][-3:], *ls[4:]]),
    ("closing", "edited", 4, lambda ls: [*ls[:3], ls[3][:-2] + b"]\n", *ls[4:]]),
    ("newline", "edited", 4, lambda ls: [*ls[:3], ls[3][:-1] + b" ", *ls[4:]]),
    ("last newline", "edited", 12, lambda ls: [*ls[:11], ls[11][:-1] + b" "]),
    ("own number", "edited", 4, lambda ls: _seq_edited(ls, 3)),
    ("last one's number", "edited", 12, lambda ls: _seq_edited(ls, 11)),
    ("longer last line", "edited", 12, lambda ls: [*ls[:11], b'{"x":1,' + ls[11][1:]]),
    ("blank line", "inserted", 4, lambda ls: [*ls[:3], b"\n", *ls[3:]]),
    ("forged line", "inserted", 4, lambda ls: [*ls[:3], ls[3].replace(b'"v":1', b'"v":2'), *ls[3:]]),
    (
        "forged line with a later number",
        "inserted",
        4,
        lambda ls: [*ls[:3], ls[7].replace(b'"v":1', b'"v":2'), *ls[3:]],
    ),
    ("copy", "duplicate", 5, lambda ls: [*ls[:4], ls[3], *ls[4:]]),
    ("copy at the end", "duplicate", 13, lambda ls: [*ls, ls[11]]),
    ("swap", "reordered", 4, lambda ls: [*ls[:3], ls[4], ls[3], *ls[5:]]),
    ("far swap", "reordered", 4, lambda ls: [*ls[:3], ls[5], ls[4], ls[3], *ls[6:]]),
    ("moved to the end", "reordered", 4, lambda ls: [*ls[:3], *ls[4:], ls[3]]),
    ("one out", "deleted", 4, lambda ls: [*ls[:3], *ls[4:]]),
    ("two out", "deleted", 4, lambda ls: [*ls[:3], *ls[5:]]),
    ("first out", "deleted", 1, lambda ls: ls[1:]),
    ("last but one out", "deleted", 11, lambda ls: [*ls[:10], ls[11]]),
    ("end cut", "truncated", 12, lambda ls: ls[:11]),
    ("end cut in a line", "truncated", 9, lambda ls: [*ls[:8], ls[8][:50]]),
    ("emptied", "truncated", 1, lambda ls: []),
]


@pytest.mark.parametrize(("problem", "line", "edit"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_verify_names_what_was_done_and_where(house: House, problem: str, line: int, edit: Edit) -> None:
    """Edits, insertions, copies, reordering, deletions and truncations are told apart and located."""
    house.rewrite(edit(house.lines()))
    verdict = house.ledger().verify()
    assert (verdict.ok, verdict.problem, verdict.line, verdict.seq) == (False, problem, line, line)
    assert verdict.count == line - 1
    assert str(line) in verdict.message or problem == "truncated"


@pytest.mark.parametrize("edit", [case[3] for case in CASES], ids=[case[0] for case in CASES])
def test_whoever_meets_it_says_what_verify_says(house: House, edit: Edit) -> None:
    """An edit of an old record moves the end of the file: no verb calls that a cut, whatever it looks at first."""
    house.rewrite(edit(house.lines()))
    said = f"the ledger is broken: {house.ledger().verify().message}"
    uses: list[Callable[[Ledger], object]] = [
        Ledger.require_whole,
        Ledger.head,
        lambda ledger: append(ledger, 99),
        lambda ledger: list(ledger.entries()),
        lambda ledger: list(ledger.entries(reverse=True)),
    ]
    met = []
    for use in uses:
        try:
            use(house.ledger())
        except Tampering as error:
            met.append(error.message)
    assert said in met and set(met) == {said}


def _tampered(data: bytes, kind: str, at: int, other: int) -> bytes:
    lines = data.splitlines(keepends=True)
    one, two = at % len(lines), other % len(lines)
    if kind == "flip":
        place = at % len(data)
        return data[:place] + bytes([data[place] ^ (1 << other % 8)]) + data[place + 1 :]
    if kind == "cut":
        return data[: at % len(data)]
    if kind == "drop bytes":
        place = at % len(data)
        return data[:place] + data[place + 1 + other % 400 :]
    if kind == "zero":
        place = at % len(data)
        return data[:place] + bytes(len(data) - place)
    if kind == "delete":
        del lines[one]
    elif kind == "duplicate":
        lines.insert(two, lines[one])
    elif kind == "swap":
        lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


KINDS = st.sampled_from(["flip", "cut", "drop bytes", "zero", "delete", "duplicate", "swap"])


@given(kind=KINDS, at=st.integers(0, 10**6), other=st.integers(0, 10**6))
def test_any_single_change_up_to_the_anchor_is_found(ready: House, kind: str, at: int, other: int) -> None:
    """A flipped bit, lost bytes, a deleted, copied or swapped line, a cut anywhere: verify never says yes."""
    original = ready.path.read_bytes()
    changed = _tampered(original, kind, at, other)
    with tempfile.TemporaryDirectory() as folder:
        house = ready.copy(Path(folder) / "house")
        house.path.write_bytes(changed)
        verdict = house.ledger().verify()
        assert verdict.ok == (changed == original)
        if not verdict.ok:
            assert 1 <= verdict.line <= RECORDS + 1
            with pytest.raises(Tampering):
                list(house.ledger().entries())
            with pytest.raises(Tampering):
                list(house.ledger().entries(reverse=True))


def test_every_truncation_is_found(house: House) -> None:
    """Cut at each byte in turn, the ledger is reported as truncated, and nothing can be appended."""
    data = house.path.read_bytes()
    for length in range(len(data)):
        house.path.write_bytes(data[:length])
        assert house.ledger().verify().problem == "truncated"
        with pytest.raises(Tampering, match="cut off"):
            append(house.ledger(), 99)
        assert house.path.read_bytes() == data[:length]


def test_a_missing_ledger_with_an_anchor_is_tampering(house: House) -> None:
    """Deleting the file is truncation to nothing; an append does not start a new one."""
    house.path.unlink()
    assert house.ledger().verify().problem == "truncated"
    for use in (lambda: append(house.ledger(), 13), house.ledger().head, lambda: list(house.ledger().entries())):
        with pytest.raises(Tampering):
            use()
    assert not house.path.exists()


def test_a_missing_anchor_fails_closed(house: House) -> None:
    """Records without an anchor are not believed: verify says so with a hint, append and reading refuse."""
    house.anchor.unlink()
    verdict = house.ledger().verify()
    assert (verdict.problem, bool(verdict.hint)) == ("anchor_missing", True)
    for use in (lambda: append(house.ledger(), 13), house.ledger().head, lambda: list(house.ledger().entries())):
        with pytest.raises(Tampering):
            use()
    assert not house.anchor.exists()


def test_an_older_copy_of_the_ledger_is_tampering(house: House) -> None:
    """A ledger rolled back to an earlier copy of itself, valid as it is, is shorter than the anchor."""
    older = house.path.read_bytes()
    append(house.ledger(), 13)
    house.path.write_bytes(older)
    verdict = house.ledger().verify()
    assert (verdict.problem, verdict.seq) == ("truncated", 13)
    with pytest.raises(Tampering):
        append(house.ledger(), 14)


def _same_shape(root: Path) -> House:
    """Another valid ledger of the same workspace and key, line for line as long as the first."""
    other = House(root)
    ledger = other.ledger()
    for number in range(1, RECORDS + 1):
        ledger.append("execution", {"execution_id": f"x-{number}", "number": number}, AT + 1000 + number)
    return other


def test_a_history_rewritten_with_the_key_does_not_match_the_anchor(house: House, tmp_path: Path) -> None:
    """Another valid ledger of the same workspace and key, put in place of the anchored one, is found."""
    house.path.write_bytes(_same_shape(tmp_path / "other").path.read_bytes())
    assert house.ledger().verify().problem == "rewritten"
    with pytest.raises(Tampering):
        append(house.ledger(), 13)


def test_a_ledger_swapped_while_it_is_read_backwards_is_not_believed(house: House, tmp_path: Path) -> None:
    """After the tail was checked against the anchor, another valid history in its place is still refused."""
    other = _same_shape(tmp_path / "other").path.read_bytes()
    reads = 0

    class Swapping(Calls):
        @staticmethod
        def pread(fd: int, length: int, offset: int, /) -> bytes:
            nonlocal reads
            reads += 1
            if reads == 3:  # the anchor, the trailer at the anchor, the lines
                house.path.write_bytes(other)
            return os.pread(fd, length, offset)

    with pytest.raises(Tampering):
        next(house.ledger(Swapping()).entries(reverse=True))
    assert reads >= 3  # what comes then looks for the cause


@pytest.mark.parametrize(
    ("problem", "edit"),
    [
        ("edited", lambda lines: _seq_edited(lines, 9)),
        ("deleted", lambda lines: [*lines[:9], *lines[10:]]),
        ("reordered", lambda lines: [*lines[:9], lines[10], lines[9], lines[11]]),
    ],
)
def test_trouble_beyond_the_anchor_is_named_too(house: House, problem: str, edit: Edit) -> None:
    """Whole lines beyond an anchor that fell behind are judged like the others, and append refuses."""
    anchor = house.anchor.read_bytes()
    for number in range(RECORDS + 1, RECORDS + 4):
        append(house.ledger(), number)
    house.anchor.write_bytes(anchor)
    lines = house.lines()
    house.rewrite(lines[:3] + edit(lines[3:]))
    verdict = house.ledger().verify()
    assert (verdict.ok, verdict.problem, verdict.line) == (False, problem, 13)
    with pytest.raises(Tampering):
        append(house.ledger(), 16)


def test_a_ledger_of_another_workspace_is_tampering(house: House, tmp_path: Path) -> None:
    """Ledger and anchor of one workspace, copied to another, do not verify there."""
    moved = Ledger(str(house.state), KEY, "w-5678", str(house.anchor))
    assert moved.verify().problem == "anchor_invalid"
    other = House(tmp_path / "other")
    foreign = Ledger(str(other.state), KEY, "w-5678", str(other.anchor))
    append(foreign, 1)
    other.path.write_bytes(house.path.read_bytes())
    verdict = foreign.verify()
    assert (verdict.problem, verdict.line) == ("edited", 1)


def test_a_wrong_whole_line_beyond_the_anchor_is_tampering(house: House) -> None:
    """A crash leaves no complete wrong line: one beyond the anchor is reported, and append refuses."""
    with house.path.open("ab") as file:
        file.write(b'{"at":1}\n')
    verdict = house.ledger().verify()
    assert (verdict.ok, verdict.line) == (False, RECORDS + 1)
    with pytest.raises(Tampering):
        append(house.ledger(), 13)


def test_an_edit_of_the_anchored_record_stops_the_next_append(house: House) -> None:
    """When the newest record carries another mac than the anchor, nothing is appended."""
    lines = house.lines()
    house.rewrite([*lines[:-1], lines[-1][:-10] + b"0000000" + lines[-1][-3:]])
    with pytest.raises(Tampering) as caught:
        append(house.ledger(), 13)
    assert caught.value.exit_status == 12


@pytest.mark.parametrize("damage", [b"", b"x" * 1024, b"holdfast-anchor 1 0 0 0 " + b"0" * 64])
def test_a_damaged_anchor_is_not_believed(house: House, damage: bytes) -> None:
    """An anchor with no valid slot is tampering, for verify and append alike."""
    house.anchor.write_bytes(damage)
    assert house.ledger().verify().problem == "anchor_invalid"
    with pytest.raises(Tampering):
        append(house.ledger(), 13)


@pytest.mark.parametrize("slot", [0, 1])
def test_one_torn_slot_leaves_the_other(house: House, slot: int) -> None:
    """With either slot destroyed the anchor still stands, at most one append behind, and work goes on."""
    raw = bytearray(house.anchor.read_bytes())
    raw[slot * 512 + 20 : slot * 512 + 40] = b"\0" * 20
    house.anchor.write_bytes(bytes(raw))
    verdict = house.ledger().verify()
    assert verdict.ok
    assert verdict.unanchored in (0, 1)
    append(house.ledger(), 13)
    assert house.ledger().verify().count == RECORDS + 1


@pytest.mark.parametrize("victim", ["path", "anchor"])
def test_symbolic_links_are_refused(house: House, victim: str) -> None:
    """A ledger or anchor that became a symbolic link is not read and not written, wherever it leads."""
    path: Path = getattr(house, victim)
    real = path.rename(path.with_name("real"))
    before = real.read_bytes()
    path.symlink_to(real)
    with pytest.raises(Tampering):
        append(house.ledger(), 13)
    with pytest.raises(Tampering):
        house.ledger().head()
    assert real.read_bytes() == before


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    """A symbolic link planted before the first record creates nothing at its target."""
    house = House(tmp_path / "house")
    house.path.symlink_to(tmp_path / "outside")
    with pytest.raises(Tampering):
        append(house.ledger(), 1)
    assert not (tmp_path / "outside").exists()


def test_a_hard_link_to_an_outside_file_is_not_written(tmp_path: Path) -> None:
    """A hard link planted as the ledger leaves the other name's file untouched."""
    house, outside = House(tmp_path / "house"), tmp_path / "outside"
    outside.touch()
    os.link(outside, house.path)
    with pytest.raises(Tampering):
        append(house.ledger(), 1)
    assert outside.read_bytes() == b""


@pytest.mark.parametrize("victim", ["path", "anchor"])
def test_a_fifo_is_refused_without_waiting(house: House, victim: str) -> None:
    """A FIFO in place of a file is refused at once."""
    path: Path = getattr(house, victim)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(Tampering):
        append(house.ledger(), 13)


def test_an_anchor_that_others_may_write_is_refused(house: House) -> None:
    """An anchor with group or world permissions vouches for nothing."""
    house.anchor.chmod(0o620)
    assert house.ledger().verify().problem == "anchor_invalid"
    with pytest.raises(Tampering):
        append(house.ledger(), 13)
