"""Blocks: one directory of a snapshot in bytes, and how another is made of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspace.block import DIRECTORY, FILE, NEVER, STAMP, SYMLINK, Block, Entry, Row, packed, sealed

_NAMES = st.lists(st.binary(min_size=1, max_size=5).filter(lambda name: b"\0" not in name), unique=True, max_size=8)
_TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
_ROWS = st.tuples(
    st.integers(1, 1 << 40),
    st.integers(0, 1 << 40),
    _TIMES,
    _TIMES,
    st.integers(0, 0xFFFF),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
)


@st.composite
def _entries(draw: st.DrawFn) -> Entry:
    kind, row = draw(st.sampled_from([FILE, DIRECTORY, SYMLINK])), draw(_ROWS)
    record = packed(kind, row, size=row[1], digest=draw(st.binary(min_size=32, max_size=32)))
    stamp = draw(st.sampled_from([NEVER, STAMP.pack(*row)]))
    return Entry(record, stamp, draw(st.sampled_from([b"", b"", b"x", b"a longer one"])))


@given(st.data(), _NAMES)
def test_a_patched_block_is_the_one_sealed_from_scratch(data: st.DataObject, found: list[bytes]) -> None:
    """Whatever entries change under the same names, extras come or go: facts, stamps and digest are the same."""
    names = sorted(found)
    before = [data.draw(_entries()) for _ in names]
    changed = {place: data.draw(_entries()) for place in range(len(names)) if data.draw(st.booleans())}
    after = [changed.get(place, entry) for place, entry in enumerate(before)]
    children: dict[int, Block] = {}
    new, wanted = sealed(names, before, {}).patched(changed, children), sealed(names, after, children)
    assert (new.facts, new.stamps, new.digest) == (wanted.facts, wanted.stamps, wanted.digest)
    assert new.children is children


@given(st.lists(st.tuples(_ROWS, _ROWS, st.booleans()), min_size=1, max_size=8), st.integers(0, 3))
def test_rows_that_differ_are_found_at_their_places(pairs: list[tuple[Row, Row, bool]], start: int) -> None:
    """Wherever a part of a directory begins, exactly the rows that are not the stamped ones are told."""
    entries = [Entry(packed(FILE, row), STAMP.pack(*row)) for row, _, _ in pairs]
    block = sealed([b"%d" % place for place in range(len(pairs))], entries, {})
    rows = [other if swapped else row for row, other, swapped in pairs]
    wanted = [place for place, (row, _, _) in enumerate(pairs) if rows[place] != row]
    first = min(start, len(pairs))
    assert block.differing(first, rows[first:]) == [place for place in wanted if place >= first]
