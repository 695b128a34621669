"""Three-way merge of lines: take back one change and keep the others.

`base` is what our change wrote, `mine` what stands there now, `theirs` what stood there before our change.
A region changed on one side only takes that side; changed on both sides alike, it is taken once;
changed on both sides differently, there is no merge.
"""

from __future__ import annotations

from difflib import SequenceMatcher

MAX_LINES = 20_000


def merged_lines(base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
    """The merge, or None when the two sides touch the same or adjoining lines."""
    if mine == theirs or base == theirs:
        return mine
    if base == mine:
        return theirs
    b, m, t = (text.splitlines(keepends=True) for text in (base, mine, theirs))
    if max(len(b), len(m), len(t)) > MAX_LINES:
        return None
    edits = sorted(_edits(b, m, 0) + _edits(b, t, 1))
    return _woven(b, edits)


# (start in base, end in base, side, replacement)
_Edit = tuple[int, int, int, tuple[bytes, ...]]


def _edits(base: list[bytes], other: list[bytes], side: int) -> list[_Edit]:
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [
        (i1, i2, side, tuple(other[j1:j2])) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    ]


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
