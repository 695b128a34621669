"""Turns: the logs of some transactions, folded into one way back for each path.

Where a transaction found what the one before it had left, the two fold into one.
Where it did not, somebody edited the file in between; that edit must not get lost, so a new stretch begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.model.image import Image, Seen
from holdfast.store.journal import Log


class Past(NamedTuple):
    """A finished transaction, and when it was finished: what changed later was not changed by it."""

    txn: str
    log: Log
    settled_ns: int


class Turn(NamedTuple):
    """One path: what the newest transaction left there, what stood before the oldest, and the slot that has it.

    Where somebody edited the file between two of the transactions, `earlier` is the turn of those before that edit:
    first this turn goes back, which brings the edit to light, then the earlier one is taken out from under it.
    """

    path: str
    expected: Seen | None
    target: Seen | None
    slot: str
    earlier: Turn | None = None


def turns(pasts: Sequence[Past]) -> list[Turn]:
    """Fold the logs, newest first, into one turn a path; an edit by somebody else in between starts a new stretch."""
    oldest: dict[str, Turn] = {}
    newer: dict[str, list[Turn]] = {}  # only of paths that have several stretches
    for past in pasts:
        for _, path, slot, pre, post in reversed(past.log.ops):
            last = oldest.get(path)
            if last is not None and _follows(last.target, post):
                oldest[path] = Turn(path, last.expected, pre, slot or last.slot)
                continue
            if last is not None:
                newer.setdefault(path, []).append(last)
            oldest[path] = Turn(path, post, pre, slot)
    return [_linked([*newer.get(path, ()), oldest[path]]) for path in sorted(oldest)]


def _follows(later: Seen | None, earlier: Seen | None) -> bool:
    """Did the later transaction find what the earlier one had left?"""
    return _image(later) == _image(earlier)


def _linked(stretches: list[Turn]) -> Turn:
    """Newest first. A stretch that already goes back to where the older ones started makes those superfluous."""
    turn: Turn | None = None
    for stretch in reversed(stretches):
        if turn is None or _image(turn.target) == _image(stretch.target):
            turn = stretch
        else:
            turn = stretch._replace(earlier=turn)
    assert turn is not None
    return turn


def _image(seen: Seen | None) -> Image | None:
    return seen.image if seen is not None else None
