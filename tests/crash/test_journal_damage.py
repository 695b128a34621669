"""Damage to the journal of a half-applied change: recovery restores the old tree, or refuses and touches nothing.

Every truncation, and bit flips everywhere, of the head and of the log. The old files lie in the journal then,
so refusing is safe and guessing is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from crash.driver import Arena, Start, discard, kill_in, recover, start
from crash.scenarios import BY_NAME
from crash.walker import Tree, differences, walk
from holdfast.errors import HoldfastError
from holdfast.testing import Kill

Counted = Callable[[int], None]
_MOVES = frozenset({"exchange", "move", "chmod"})


class Half(NamedTuple):
    """A change killed in the middle of its moves, and everything there is at that moment."""

    begun: Start
    tree: Tree
    journal: Tree


def half_applied(arena: Arena, name: str, moves: int) -> Half:
    begun = start(arena, BY_NAME[name])
    assert not kill_in(begun, BY_NAME[name], Kill(moves), _MOVES)
    tree = walk(begun.place.workspace)
    assert tree != begun.old, "nothing had moved yet"
    return Half(begun, tree, walk(begun.place.journal))


def files_of(half: Half) -> dict[str, bytes]:
    """The head and the log, with their bytes."""
    journal = half.begun.place.journal
    (txn,) = set(os.listdir(journal)) - {"head"}
    found = {}
    for name in ("head", f"{txn}/log"):
        with open(os.path.join(journal, name), "rb") as file:
            found[name] = file.read()
    return found


def truncated(data: bytes, every: int) -> Iterator[bytes]:
    """Shorter by one byte up to everything; the first and the last lengths always."""
    lengths = {*range(0, len(data), every), *range(min(40, len(data))), len(data) - 1}
    return (data[:length] for length in sorted(lengths))


def flipped(data: bytes, every: int) -> Iterator[bytes]:
    """One bit turned over, at every `every`-th place."""
    for bit in range(0, 8 * len(data), every):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        yield bytes(wrong)


def verdict(half: Half, name: str, data: bytes) -> list[str]:
    """What is wrong after recovery over this damage; the damage is put in place and stays there."""
    place = half.begun.place
    path = os.path.join(place.journal, name)
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate(len(data))
    damaged = walk(place.journal)
    try:
        recover(place)
    except HoldfastError:
        # Times of the journal's own files are ours; its names and their bytes must all be there still.
        changed = differences(walk(place.workspace), half.tree), differences(walk(place.journal), damaged)
        return [f"{name}: refused, but changed {changed}"] if any(changed) else []
    found = walk(place.workspace)
    return [] if found == half.begun.old else [f"{name}: recovered into {differences(found, half.begun.old)}"]


def damaged_verdicts(arena: Arena, scenario: str, moves: int, every: int, damages: Counted) -> Iterator[str]:
    half, count = half_applied(arena, scenario, moves), 0
    for name, data in files_of(half).items():
        # The head is one sector and small enough for every bit.
        stride = every if name != "head" else 1 + every // 4
        for wrong in (*truncated(data, every), *flipped(data, stride)):
            count += 1
            yield from verdict(half, name, wrong)
            # Nothing but a refusal is expected of a single fault; a recovery here would use up the half-applied change.
            assert walk(half.begun.place.workspace) == half.tree, f"{name} with a fault was believed"
        with open(os.path.join(half.begun.place.journal, name), "wb") as file:
            file.write(data)
    recover(half.begun.place)
    assert walk(half.begun.place.workspace) == half.begun.old
    discard(half.begun.place)
    damages(count)


@pytest.mark.crash
@pytest.mark.parametrize(("scenario", "moves"), [("few", 4), ("modes", 3)])
def test_a_damaged_journal(scenario: str, moves: int, arena: Arena, damages: Counted) -> None:
    """A truncated or flipped head or log is refused with nothing changed, or recovered to the old tree."""
    assert list(damaged_verdicts(arena, scenario, moves, 61, damages)) == []


@pytest.mark.crash_full
@pytest.mark.parametrize(("scenario", "moves"), [("few", 4), ("modes", 3)])
def test_a_journal_damaged_anywhere(scenario: str, moves: int, arena: Arena, damages: Counted) -> None:
    """The same for every length and every single bit of head and log."""
    assert list(damaged_verdicts(arena, scenario, moves, 1, damages)) == []


@pytest.mark.crash_full
@pytest.mark.parametrize(("scenario", "moves"), [("types", 5), ("few-undo", 4), ("many", 12)])
def test_a_large_journal_damaged(scenario: str, moves: int, arena: Arena, damages: Counted) -> None:
    """The same for a sample of other and larger logs."""
    assert list(damaged_verdicts(arena, scenario, moves, 23, damages)) == []


@pytest.mark.crash
def test_the_undamaged_journal_is_recovered(arena: Arena) -> None:
    """The cases above fail because of the damage: without any, the same half-applied change is rolled back."""
    half = half_applied(arena, "few", 4)
    name, data = "head", files_of(half)["head"]
    assert verdict(half, name, data) == []
    assert walk(half.begun.place.workspace) == half.begun.old
