"""A glance at a directory: does all in it stand as it did when this process last looked?

A walk compares stat rows with the stamps of the index. What it finds equal it can remember as the kernel told it, and
the next time compare bytes with bytes, without making a number of any of them: most of a look at an unchanged tree.

    answers of the kernel ──equal to those remembered──▶ as known
              └──otherwise──▶ rows ──equal to the stamps──▶ as known, and remembered
                                └──otherwise──▶ the walk reads what differs

Invariants
  K1  Remembered is only what was found equal to the stamps, from the very answers that are remembered.
  K2  What is compared holds all that a stamp does, so equal answers are equal rows.
  K3  A block is never changed (B2 of `block`), so what was remembered for it stays true as long as it lives.
  K4  Only of the kernel itself. Whoever puts something else in its place (`Calls`) sees each call.
  K5  The first look of a process is a plain one, and remembers nothing: most processes look once.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence
from itertools import starmap

from holdfast.disk.calls import Calls
from holdfast.disk.glance import ANSWER, Glass
from holdfast.workspace.block import STAMP, Block, Row
from holdfast.workspace.index import Glances

_SECOND = 1_000_000_000
# Where the fields of an answer are, in numbers of 8, 4 and 2 bytes.
_LINKS_AND_OWNER, _GROUP_AND_MODE, _INODE, _SIZE = 2, 3, 4, 5
_CHANGED, _CHANGED_NS, _MODIFIED, _MODIFIED_NS, _DEVICE = 12, 13, 14, 15, 17
_COMPARED = (_LINKS_AND_OWNER, _GROUP_AND_MODE, _INODE, _SIZE, _CHANGED, _CHANGED_NS, _MODIFIED, _MODIFIED_NS)
_OWNER, _GROUP, _CHANGED_NANOSECONDS, _MODIFIED_NANOSECONDS = 5, 6, 26, 30
_MODE = 14


class Glancing:
    """What was remembered of the last look, and in `seen` what will be of this one."""

    def __init__(self, remembered: Glances) -> None:
        self._before = remembered
        self.seen: dict[tuple[Block, int], bytes] = {}
        self._glass = Glass()

    def differing(
        self, directory: int, block: Block, start: int, names: Sequence[bytes], device: int
    ) -> list[Row] | None:
        """The rows of these names, which begin at `start`, if they are not the block's; empty if they are.

        None where a glance does not tell: something is gone, or on another file system than this device's.
        """
        answers = self._glass.answers(directory, names)
        if answers is None or answers[_DEVICE::ANSWER].tobytes() != _numbers_of(device) * len(names):
            return None
        compared = b"".join([answers[field::ANSWER] for field in _COMPARED])
        part = block, start
        if self._before.get(part) != compared:
            rows = _rows(answers)
            if not _are_stamped(rows, block.stamps[start * STAMP.size : (start + len(names)) * STAMP.size]):
                return rows
        self.seen[part] = compared
        return []


def glancing(calls: Calls, remembered: Glances | None) -> Glancing | None:
    """None for the first look of a process, and where each call is to be seen (K4, K5)."""
    return Glancing(remembered) if remembered is not None and type(calls) is Calls else None


def _numbers_of(device: int) -> bytes:
    return array("I", (os.major(device), os.minor(device))).tobytes()


def _rows(words: array[int]) -> list[Row]:
    """As `block.row_of` makes them of an `lstat`."""
    raw = words.tobytes()
    halves, quarters = array("I", raw), array("H", raw)
    seconds = array("q", raw)  # which may lie before 1970
    eighth, fourth, half = ANSWER, 2 * ANSWER, 4 * ANSWER
    modified = zip(seconds[_MODIFIED::eighth], halves[_MODIFIED_NANOSECONDS::fourth], strict=True)
    changed = zip(seconds[_CHANGED::eighth], halves[_CHANGED_NANOSECONDS::fourth], strict=True)
    columns = (
        words[_INODE::eighth],
        words[_SIZE::eighth],
        [second * _SECOND + part for second, part in modified],
        [second * _SECOND + part for second, part in changed],
        quarters[_MODE::half],
        halves[_OWNER::fourth],
        halves[_GROUP::fourth],
    )
    return list(zip(*columns, strict=True))


def _are_stamped(rows: list[Row], stamps: bytes) -> bool:
    try:
        return b"".join(starmap(STAMP.pack, rows)) == stamps
    except struct.error:
        return False  # a time after the year 2262, for which there is no stamp
