"""Three-way merge of lines: one change is taken back, the others stay, and nothing is lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.workspace.merge import MAX_COMPARISONS, merged_lines

_line = st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"x\r\n", b"\n", b"\xff\n"])
_text = st.tuples(st.lists(_line, max_size=12), st.sampled_from([b"", b"last"])).map(lambda t: b"".join(t[0]) + t[1])


@given(_text, _text)
def test_where_one_side_did_nothing_the_other_wins(base: bytes, other: bytes) -> None:
    """With one side untouched the merge is the other side, byte for byte."""
    assert merged_lines(base, other, base) == other
    assert merged_lines(base, base, other) == other


@given(_text, _text)
def test_the_same_edit_on_both_sides_is_made_once(base: bytes, both: bytes) -> None:
    """Two equal edits are one."""
    assert merged_lines(base, both, both) == both


@given(_text, _text, _text)
def test_the_sides_may_be_named_in_either_order(base: bytes, mine: bytes, theirs: bytes) -> None:
    """Which side is called mine makes no difference."""
    assert merged_lines(base, mine, theirs) == merged_lines(base, theirs, mine)


@given(_text, _text, _text)
def test_a_merge_invents_nothing(base: bytes, mine: bytes, theirs: bytes) -> None:
    """Every line of a merge comes from one of the texts."""
    merged = merged_lines(base, mine, theirs)
    if merged is not None:
        known = {line for text in (base, mine, theirs) for line in text.splitlines(keepends=True)}
        assert set(merged.splitlines(keepends=True)) <= known


_numbered = st.integers(6, 30)


@settings(max_examples=300)
@given(_numbered, st.data())
def test_edits_apart_from_each_other_are_both_kept(count: int, data: st.DataObject) -> None:
    """With unique lines, what only one side touched is never lost: insertions of both stand, deletions of both hold."""
    base = [b"line %d\n" % n for n in range(count)]
    mine, theirs = list(base), list(base)
    split = data.draw(st.integers(2, count - 3), label="mine above, theirs below")
    mine_at = data.draw(st.integers(0, split - 1), label="mine at")
    theirs_at = data.draw(st.integers(split + 1, count - 1), label="theirs at")
    _edit(mine, mine_at, b"mine\n", data.draw(st.sampled_from(["insert", "replace", "delete"])))
    _edit(theirs, theirs_at, b"theirs\n", data.draw(st.sampled_from(["insert", "replace", "delete"])))
    merged = merged_lines(b"".join(base), b"".join(mine), b"".join(theirs))
    assert merged is not None
    expected = [*mine[: len(mine) - (count - split)], *theirs[split:]]
    assert merged == b"".join(expected)


def _edit(lines: list[bytes], at: int, new: bytes, how: str) -> None:
    if how == "insert":
        lines.insert(at, new)
    elif how == "replace":
        lines[at] = new
    else:
        del lines[at]


@settings(max_examples=300)
@given(st.lists(st.integers(0, 9), max_size=10), st.lists(st.integers(0, 9), max_size=10), st.integers(1, 10))
def test_a_stranger_s_line_is_in_the_merge_or_there_is_none(above: list[int], below: list[int], at: int) -> None:
    """A line that only a stranger added is never dropped in silence."""
    base = b"".join(b"%d\n" % n for n in above)
    theirs = b"".join(b"%d\n" % n for n in below)
    lines = base.splitlines(keepends=True)
    lines.insert(min(at, len(lines)), b"stranger\n")
    merged = merged_lines(base, b"".join(lines), theirs)
    assert merged is None or b"stranger\n" in merged.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (b"1\nX\n3\n", b"1\nY\n3\n"),
        (b"1\nX\n3\n", b"1\n3\n"),
        (b"1\nX\n2\n3\n", b"1\nY\n2\n3\n"),
        (b"", b"1\n2\n3\n4\n"),
    ],
)
def test_edits_in_one_place_do_not_merge(mine: bytes, theirs: bytes) -> None:
    """Two different edits of the same lines are a conflict."""
    assert merged_lines(b"1\n2\n3\n", mine, theirs) is None


def test_a_missing_newline_at_the_end_is_an_edit_like_any_other() -> None:
    """The last line without its newline is another line; it is kept where only one side has it."""
    assert merged_lines(b"1\n2\n3\n4\n5", b"0\n1\n2\n3\n4\n5", b"1\n2\n3\n4\n5\n") == b"0\n1\n2\n3\n4\n5\n"


def test_texts_without_end_are_not_merged() -> None:
    """Beyond a bound there is no merge, so that no undo takes minutes; a large text with small edits still merges."""
    lines = [b"%d\n" % n for n in range(int(MAX_COMPARISONS**0.5) + 2)]
    base, shuffled = b"".join(lines), b"".join(lines[::-1])
    assert merged_lines(base, shuffled, base + b"end\n") is None
    assert merged_lines(base, b"start\n" + base, base + b"end\n") == b"start\n" + base + b"end\n"
