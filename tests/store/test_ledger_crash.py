"""The ledger when the process dies, the disk fills up or the device fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.disk.calls import Calls
from holdfast.store.chain import Record
from ledger_kit import AT, Faulty, House, TornWrite, append, in_child, numbers

Fault = Callable[[str, Callable[[], object]], object]


def _die_before(name: str, real: Callable[[], object]) -> object:
    os._exit(9)


def _die_after(name: str, real: Callable[[], object]) -> object:
    try:
        return real()
    finally:
        os._exit(9)


def _checked(house: House, before: list[object], added: list[object]) -> None:
    """The ledger holds the old records and a first part of the new ones, and goes on."""
    ledger = house.ledger()
    verdict = ledger.verify()
    assert verdict.ok, verdict
    present = numbers(ledger)
    assert present[: len(before)] == before
    assert present[len(before) :] == added[: len(present) - len(before)]
    append(ledger, 77)
    assert numbers(house.ledger()) == [*present, 77]
    verdict = house.ledger().verify()
    assert (verdict.ok, verdict.unanchored, verdict.torn) == (True, 0, 0)


def _start(tmp_path: Path, state: str) -> tuple[House, list[object]]:
    """Ledgers as an append may find them: none, in order, ahead of the anchor, with a torn line."""
    house = House(tmp_path / "start")
    if state == "none":
        return house, []
    house.filled(2)
    if state == "in order":
        return house, [1, 2]
    anchor = house.anchor.read_bytes()
    append(house.ledger(), 3)
    house.anchor.write_bytes(anchor)
    if state == "torn":
        with house.path.open("ab") as file:
            file.write(b'{"at":1700000000000000003,"body":{"exec' + b"\0" * 5)
    return house, [1, 2, 3]


STATES = ["none", "in order", "ahead", "torn"]


@pytest.mark.crash
@pytest.mark.parametrize("fault", [_die_before, _die_after])
@pytest.mark.parametrize("state", STATES)
def test_killed_at_any_call_the_record_is_there_or_not(tmp_path: Path, state: str, fault: Fault) -> None:
    """Killed before or after each call of an append, the ledger verifies, has or lacks the record, and goes on."""
    start, before = _start(tmp_path, state)
    for nth in range(1, 100):
        house = start.copy(tmp_path / "house")
        status = in_child(lambda: append(house.ledger(Faulty(nth, fault)), 10))  # noqa: B023  runs before the next
        _checked(house, before, [10])
        if status == 0:
            assert nth > 8
            return
        assert status == 9
    raise AssertionError("the append never came to its end")


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("state", ["in order", "ahead", "torn"])
def test_a_write_torn_at_any_byte_is_a_trace_of_a_crash(tmp_path: Path, state: str) -> None:
    """However much of a group of records reached the file, whole records count and the rest is cut off."""
    start, before = _start(tmp_path, state)
    group = [Record("execution", {"number": number}, AT) for number in (10, 11)]
    whole = start.copy(tmp_path / "whole")
    whole.ledger().append_many(group)
    length = len(whole.path.read_bytes()) - len(b"".join(start.lines()[:2]))
    for kept in range(0, length, 7):
        house = start.copy(tmp_path / "house")
        assert in_child(lambda: house.ledger(TornWrite(kept)).append_many(group)) == 9  # noqa: B023
        _checked(house, before, [10, 11])


def test_a_page_that_never_reached_the_disk_is_a_trace_of_a_crash(tmp_path: Path) -> None:
    """Zeros beyond the anchor, even with later lines after them, are what a power loss leaves, not tampering."""
    house = House(tmp_path / "house").filled(2)
    anchor, size = house.anchor.read_bytes(), house.path.stat().st_size
    house.ledger().append_many([Record("execution", {"number": number}, AT) for number in range(3, 30)])
    house.anchor.write_bytes(anchor)
    with house.path.open("r+b") as file:
        file.seek(size + 100)
        file.write(bytes(512))
    _checked(house, [1, 2], [])


def test_zero_padding_is_a_trace_of_a_crash(tmp_path: Path) -> None:
    """A file that grew without its data verifies, and the padding is gone after the next append."""
    house = House(tmp_path / "house").filled(2)
    os.truncate(house.path, house.path.stat().st_size + 4096)
    _checked(house, [1, 2], [])


def test_records_beyond_the_anchor_are_accepted_and_then_anchored(tmp_path: Path) -> None:
    """A ledger longer than its anchor with a valid chain verifies; the next append advances the anchor."""
    house, _ = _start(tmp_path, "ahead")
    verdict = house.ledger().verify()
    assert (verdict.ok, verdict.count, verdict.unanchored) == (True, 3, 1)
    append(house.ledger(), 4)
    assert house.ledger().verify().unanchored == 0


def test_records_beyond_the_anchor_are_written_again(tmp_path: Path) -> None:
    """Lines that a failed sync may have left in memory only are written anew before the anchor vouches for them."""
    house, _ = _start(tmp_path, "ahead")
    written: list[tuple[bytes, int]] = []

    class Watched(Calls):
        @staticmethod
        def pwrite(fd: int, data: bytes, offset: int, /) -> int:
            written.append((data, offset))
            return os.pwrite(fd, data, offset)

    lines = house.lines()
    append(house.ledger(Watched()), 4)
    data, offset = written[0]
    assert offset == len(lines[0] + lines[1])
    assert data.startswith(lines[2])


@pytest.mark.crash
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_an_error_at_any_call_leaves_nothing_half(tmp_path: Path, state: str, number: int, after: bool) -> None:
    """An error before or after the effect of each call is raised, and the ledger verifies and goes on."""

    def fail(name: str, real: Callable[[], object]) -> object:
        try:
            if after and name != "open":  # a descriptor given and then denied would only leak
                real()
        finally:
            raise OSError(number, os.strerror(number))

    start, before = _start(tmp_path, state)
    for nth in range(1, 100):
        house = start.copy(tmp_path / "house")
        calls = Faulty(nth, fail)
        try:
            append(house.ledger(calls), 10)
        except OSError as error:
            raised = error.errno
        else:
            raised = number  # the verified mark may fail: it spares a walk, and vouches for nothing
            if nth > len(calls.made):
                return
        assert raised == number
        _checked(house, before, [10])


@pytest.mark.parametrize("failing", ["pwrite", "fdatasync"])
def test_a_failed_write_or_sync_is_cut_off_and_not_retried(tmp_path: Path, failing: str) -> None:
    """After a failed write or sync the file is as long as before, the sync was tried once, the anchor is as it was."""
    house = House(tmp_path / "house").filled(2)
    before, anchor = house.path.read_bytes(), house.anchor.read_bytes()
    tried: list[str] = []

    def fail(*args: object) -> int:
        tried.append(failing)
        raise OSError(errno.EIO, "the device failed")

    calls = Calls()
    setattr(calls, failing, fail)
    with pytest.raises(OSError, match="the device failed"):
        append(house.ledger(calls), 3)
    assert tried == [failing]
    assert (house.path.read_bytes(), house.anchor.read_bytes()) == (before, anchor)


def test_a_short_write_is_a_full_disk(tmp_path: Path) -> None:
    """When only a part of a line fits, ENOSPC is raised and the part is gone."""
    house = House(tmp_path / "house").filled(2)
    before = house.path.read_bytes()
    calls = Calls()
    calls.pwrite = lambda fd, data, offset: os.pwrite(fd, data[:40], offset)  # type: ignore[method-assign,assignment]
    with pytest.raises(OSError, match="No space left") as caught:
        append(house.ledger(calls), 3)
    assert caught.value.errno == errno.ENOSPC
    assert house.path.read_bytes() == before


def test_a_record_that_cannot_be_taken_back_is_said_to_be_in_doubt(tmp_path: Path) -> None:
    """When the sync fails and cutting off fails too, the error says that the record is in doubt."""
    house = House(tmp_path / "house").filled(2)

    def fail(*args: object) -> int:
        raise OSError(errno.EIO, "the device failed")

    calls = Calls()
    calls.fdatasync = calls.truncate = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(OSError, match="the device failed") as caught:
        append(house.ledger(calls), 3)
    assert "in doubt" in caught.value.__notes__[0]
    _checked(house, [1, 2], [3])
