"""Three-way merge of lines: take back one change and keep the others.

`base` is what our change wrote, `mine` what stands there now, `theirs` what stood there before our change.
A region changed on one side only takes that side; changed on both sides alike, it is taken once;
changed on both sides differently, there is no merge.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher

# The merge of the file at a path, from `base`, `mine` and `theirs`; None where there is none.
Merge = Callable[[str, bytes, bytes, bytes], bytes | None]
# The matcher compares every line with every line in the worst case; beyond this a person waits too long.
MAX_COMPARISONS = 4_000_000


def merged_lines(base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
    """The merge, or None when the two sides touch the same or adjoining lines, or when it `takes_too_long`."""
    if mine == theirs or base == theirs:
        return mine
    if base == mine:
        return theirs
    b, m, t = (text.splitlines(keepends=True) for text in (base, mine, theirs))
    mine_edits, their_edits = _edits(b, m, 0), _edits(b, t, 1)
    if mine_edits is None or their_edits is None:
        return None
    return _woven(b, sorted(mine_edits + their_edits))


def by_lines(path: str, base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
    """How files are merged of whose content nothing more is known."""
    return merged_lines(base, mine, theirs)


# (start in base, end in base, side, replacement)
_Edit = tuple[int, int, int, tuple[bytes, ...]]


def takes_too_long(base: bytes, other: bytes) -> bool:
    """Is this why there is no merge? Then nobody knows whether the two sides touch the same lines."""
    _, core, changed = _apart(base.splitlines(keepends=True), other.splitlines(keepends=True))
    return len(core) * len(changed) > MAX_COMPARISONS


def _edits(base: list[bytes], other: list[bytes], side: int) -> list[_Edit] | None:
    """What `other` changed; None when finding out would take too long."""
    head, core, changed = _apart(base, other)
    if len(core) * len(changed) > MAX_COMPARISONS:
        return None
    codes = SequenceMatcher(None, core, changed, autojunk=False).get_opcodes()
    return [(head + i1, head + i2, side, tuple(changed[j1:j2])) for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def _apart(base: list[bytes], other: list[bytes]) -> tuple[int, list[bytes], list[bytes]]:
    """Where they begin to differ, and what is left of both when equal ends are cut off."""
    head = _common(base, other)
    tail = _common(base[head:][::-1], other[head:][::-1])
    return head, base[head : len(base) - tail], other[head : len(other) - tail]


def _common(one: list[bytes], other: list[bytes]) -> int:
    """How many lines at the start are the same."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _woven(base: list[bytes], edits: list[_Edit]) -> bytes | None:
    out: list[bytes] = []
    at = 0
    previous: _Edit | None = None
    for edit in edits:
        start, end, side, lines = edit
        if previous is not None and side != previous[2] and start <= previous[1]:
            if (start, end, lines) == (previous[0], previous[1], previous[3]):
                continue  # both sides made the same edit
            return None
        out += base[at:start]
        out += lines
        at = end
        previous = edit
    out += base[at:]
    return b"".join(out)
