"""The journal's two formats: what was written is read back, and anything else is refused or nothing, never wrong."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.disk.calls import CALLS
from holdfast.errors import Tampering
from holdfast.model.canonical import canonical
from holdfast.model.image import Image, Seen, Stamp
from holdfast.store.journal import (
    SECTOR,
    Head,
    Op,
    Parent,
    create_head,
    log_chunks,
    parse_log,
    read_head,
    write_head,
)
from nouns import numbers, seens, texts, times

_op = st.builds(Op, st.sampled_from(["flip", "mode"]), texts, texts, st.none() | seens, st.none() | seens)
_header = st.dictionaries(texts, st.none() | st.integers() | texts | st.lists(texts, max_size=2), max_size=4)
_parent = st.builds(Parent, texts, numbers, times)

SAMPLE = b"".join(
    log_chunks(
        {"intent": "x", "undoes": ["e-aaaaaaaa"]},
        [
            Op(
                "flip",
                "a/b",
                "e-aaaaaaaa/1",
                None,
                Seen(Image("file", 0o644, 1, 2, 3, "ab" * 32), Stamp(1, 2, 3, 4, 1)),
            ),
            Op(
                "mode",
                "d",
                "",
                *[Seen(Image("directory", mode, 1, 2), Stamp(9, 9, 9, 9, 2)) for mode in (0o755, 0o700)],
            ),
        ],
        [Parent("a", 5, 6)],
    )
)


@given(_header, st.lists(_op, max_size=5), st.lists(_parent, max_size=3))
def test_a_log_comes_back_as_it_was_written(header: dict[str, object], ops: list[Op], parents: list[Parent]) -> None:
    """Header, operations and parents survive the round trip, names that are no text included."""
    log = parse_log(b"".join(log_chunks(header, ops, parents)))  # type: ignore[arg-type]
    assert (log.header, log.ops, log.parents) == (header, tuple(ops), tuple(parents))


def _plain_log(records: list[object]) -> bytes:
    """The bytes of a log as its format says, without any of the writer's shortcuts."""
    bodies = [canonical(record) for record in records]
    return b"HFLOG001" + b"".join(struct.pack("<II", len(body), zlib.crc32(body)) + body for body in bodies)


@given(_header, st.lists(_op, min_size=1, max_size=5), st.lists(_parent, max_size=3))
def test_a_log_is_written_in_the_canonical_form(
    header: dict[str, object], ops: list[Op], parents: list[Parent]
) -> None:
    """Records are put together by hand, for speed; their bytes are the plain encoder's."""
    plain = _plain_log([["begin", header], ["ops", ops], ["parents", parents]])
    assert b"".join(log_chunks(header, ops, parents)) == plain  # type: ignore[arg-type]


def test_many_operations_are_split_into_records() -> None:
    """More operations than fit one record come back in order."""
    ops = [Op("flip", str(n), f"e-aaaaaaaa/{n}", None, None) for n in range(1500)]
    assert [op.path for op in parse_log(b"".join(log_chunks({}, ops, ()))).ops] == [str(n) for n in range(1500)]


@pytest.mark.parametrize("length", range(len(SAMPLE)))
def test_every_truncation_of_a_log_is_refused(length: int) -> None:
    """A log that ends anywhere but at its end is no log."""
    with pytest.raises(Tampering):
        parse_log(SAMPLE[:length])


def test_every_flipped_bit_of_a_log_is_refused() -> None:
    """No single flipped bit goes unnoticed."""
    for position in range(len(SAMPLE)):
        for bit in range(8):
            data = bytearray(SAMPLE)
            data[position] ^= 1 << bit
            with pytest.raises(Tampering):
                parse_log(bytes(data))


@given(st.binary(max_size=200))
def test_garbage_after_a_log_is_refused(tail: bytes) -> None:
    """Whatever follows the last record makes the whole log doubtful."""
    if tail:
        with pytest.raises(Tampering):
            parse_log(SAMPLE + tail)


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["begin", "ops", "parents", "flip"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=300)
@given(st.lists(_json, max_size=4))
def test_records_with_sound_checksums_and_nonsense_inside(values: list[object]) -> None:
    """Frames that are whole but hold something else are tampering, never another kind of error."""
    try:
        log = parse_log(_plain_log(values))
    except Tampering:
        return
    assert isinstance(log.header, (dict, list, str, int, type(None)))


def _journal(tmp_path: Path) -> int:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    create_head(CALLS, directory)
    return directory


@pytest.mark.parametrize("state", ["PREPARED", "COMMITTED", "ABORTED"])
def test_a_head_comes_back_as_it_was_written(tmp_path: Path, state: str) -> None:
    """The head is one sector, and says the state, the transaction and its log's digest."""
    directory = _journal(tmp_path)
    head = Head(state, "e-abcdefgh", "ab" * 32)  # type: ignore[arg-type]
    assert read_head(CALLS, directory) is None
    write_head(CALLS, directory, head)
    assert read_head(CALLS, directory) == head
    assert (tmp_path / "head").stat().st_size == SECTOR
    create_head(CALLS, directory)
    assert read_head(CALLS, directory) == head
    os.close(directory)


def test_every_damage_to_a_head_is_refused(tmp_path: Path) -> None:
    """Every flipped bit and every cut of the sector is tampering; only a sector of zeros is a fresh one."""
    directory = _journal(tmp_path)
    write_head(CALLS, directory, Head("PREPARED", "e-abcdefgh", "ab" * 32))
    data = (tmp_path / "head").read_bytes()
    for position in range(SECTOR):
        for bit in range(8):
            _refused(tmp_path, directory, data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
    for length in range(1, SECTOR):
        _refused(tmp_path, directory, data[:length])
    _refused(tmp_path, directory, data + b"\0")
    _refused(tmp_path, directory, bytes(SECTOR - 1))
    os.close(directory)


def _refused(tmp_path: Path, directory: int, data: bytes) -> None:
    (tmp_path / "head").write_bytes(data)
    with pytest.raises(Tampering):
        read_head(CALLS, directory)


@pytest.mark.parametrize(
    "body",
    [None, [], ["PREPARED"], ["OPEN", "e-abcdefgh", "x"], ["PREPARED", "../x", "x"], ["PREPARED", 1, 2], {"a": 1}],
)
def test_a_head_with_a_sound_checksum_and_nonsense_inside(tmp_path: Path, body: object) -> None:
    """A head that says something no head says is tampering."""
    directory = _journal(tmp_path)
    text = canonical(body)
    (tmp_path / "head").write_bytes(
        (b"HFHEAD01" + struct.pack("<II", len(text), zlib.crc32(text)) + text).ljust(SECTOR, b"\0")
    )
    with pytest.raises(Tampering):
        read_head(CALLS, directory)
    os.close(directory)


def test_a_missing_head_is_tampering(tmp_path: Path) -> None:
    """Where a head should be and is not, nobody knows what was going on."""
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(Tampering):
        read_head(CALLS, directory)
    os.close(directory)
