"""The list of begun actions survives a crash at any byte, and what is not ours is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.disk.calls import CALLS
from holdfast.errors import Tampering
from holdfast.store.effects import Effects, Open
from holdfast.testing import FaultyCalls, ShortWrite


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_what_is_begun_stands_until_it_is_taken_back(folder: int) -> None:
    """Standing actions are told newest first, each with whether the service ran before."""
    effects = Effects(CALLS, folder)
    effects.announce(3)
    effects.begun(0, True)
    effects.done(0)
    effects.begun(1, None)
    effects.begun(2, False)
    assert effects.standing(3) == [Open(2, False), Open(1, None), Open(0, True)]
    effects.taken_back(1)
    assert effects.standing(3) == [Open(2, False), Open(0, True)]


def test_every_torn_end_is_survived(folder: int, tmp_path: Path) -> None:
    """Cut after any byte, the list says what its whole lines say, and takes the next fact."""
    effects = Effects(CALLS, folder)
    effects.announce(2)
    effects.begun(0, True)
    effects.done(0)
    effects.begun(1, None)
    whole = (tmp_path / "effects").read_bytes()
    lines = whole.splitlines(keepends=True)
    for length in range(len(whole)):
        (tmp_path / "effects").write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        expected = [] if complete < 2 else [Open(0, True)]
        assert effects.standing(2) == expected, length
        if complete:
            effects.taken_back(0)
            assert effects.standing(2) == [], length
            assert (tmp_path / "effects").read_bytes().startswith(b"".join(lines[:complete]))


def test_a_write_in_part_is_an_error_and_no_damage(folder: int) -> None:
    """A disk that takes half a fact stops the action, and the list can still be read and continued."""
    calls = FaultyCalls()
    effects = Effects(calls, folder)
    effects.announce(2)
    effects.begun(0, True)
    calls.arm(*(ShortWrite(number) for number in range(1, 12)))
    with pytest.raises(OSError, match="in part"):
        effects.begun(1, True)
    calls.disarm()
    assert effects.standing(2) == [Open(0, True)]
    effects.taken_back(0)
    assert effects.standing(2) == []


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[]\n", b'{"n": 7, "fact": "begun"}\n', b'{"n": 0, "fact": "dreamt"}\n', b'{"v": 2}\n']
)
def test_a_damaged_list_is_refused(folder: int, tmp_path: Path, line: bytes) -> None:
    """A list of actions that is not ours is tampering; nothing is taken back by it."""
    effects = Effects(CALLS, folder)
    if b"v" not in line:
        effects.announce(1)
    path = tmp_path / "effects"
    path.write_bytes((path.read_bytes() if path.exists() else b"") + line)
    with pytest.raises(Tampering, match="service actions"):
        effects.standing(1)


def test_a_list_of_another_length_is_refused(folder: int) -> None:
    """The list belongs to its log: it must count as many actions as that one announces."""
    effects = Effects(CALLS, folder)
    effects.announce(2)
    with pytest.raises(Tampering, match="service actions"):
        effects.standing(3)
