"""Where a hunk goes, and when it goes nowhere."""

from __future__ import annotations

import time

import pytest

from holdfast.errors import InvalidInput
from holdfast.model.patch import FilePatch, Hunk, Line, Patch, reverse
from holdfast.model.patch_apply import Applied, NotApplying, Placed, apply
from holdfast.model.patch_make import MOST_LINES, make
from holdfast.model.patch_text import parse

OLD = b"".join(b"line %d\n" % n for n in range(1, 21))
NEW = OLD.replace(b"line 10\n", b"LINE 10\n")
CHANGE = make(OLD, NEW, "a")


def applied(data: bytes, file: FilePatch) -> Applied:
    outcome = apply(data, file)
    assert isinstance(outcome, Applied), outcome
    return outcome


def refused(data: bytes, file: FilePatch) -> NotApplying:
    outcome = apply(data, file)
    assert isinstance(outcome, NotApplying), outcome
    return outcome


def hunk(text: str, start: int = 1) -> FilePatch:
    """A change of one hunk, from its lines."""
    lines = tuple(Line(line[0], line[1:].encode() + b"\n") for line in text.split("|"))  # type: ignore[arg-type]
    old, new = (sum(line.sign != sign for line in lines) for sign in "+-")
    return FilePatch("a", "a", (Hunk(start, old, start, new, lines, at=7),))


def test_the_named_place_is_taken_although_others_fit() -> None:
    """Where a hunk fits exactly at its line, other places do not matter."""
    outcome = applied(b"y\nx\ny\nx\ny\n", hunk(" y|-x|+z| y", 3))
    assert outcome == Applied(b"y\nx\ny\nz\ny\n", (Placed(3, 0, 0),))
    assert outcome.exact


def test_a_moved_place_is_found_and_told() -> None:
    """Lines that moved down are found there, with the distance."""
    outcome = applied(b"new\nnewer\n" + OLD, CHANGE)
    assert outcome == Applied(b"new\nnewer\n" + NEW, (Placed(9, 2, 0),))


def test_a_hunk_may_fit_before_its_line() -> None:
    """Lines that moved up are found too."""
    assert applied(OLD[len(b"line 1\n") :], CHANGE).hunks == (Placed(6, -1, 0),)


def test_two_places_are_none() -> None:
    """A hunk that fits in two places, and in neither exactly, is refused with its number and line."""
    outcome = refused(b"0\nx\ny\nx\ny\n", hunk("-x|+z| y"))
    assert (outcome.hunk, outcome.line) == (1, 7)
    assert "more than one place" in outcome.reason


def test_a_hunk_from_the_end_of_a_file_that_grew_must_be_unique() -> None:
    """Less context behind than before means the end: where the file goes on and the lines repeat, nobody knows."""
    file = hunk(" a|-b|+a", 3)
    assert applied(b"a\nb\na\nb\n", file).data == b"a\nb\na\na\n"
    assert "more than one place" in refused(b"a\nb\na\nb\na\nb\n", file).reason
    assert applied(b"0\n0\na\nb\n0\n", file).data == b"0\n0\na\na\n0\n"
    start = hunk("-b|+a| a", 1)
    assert applied(b"b\na\nb\na\n", start).exact
    assert "more than one place" in refused(b"a\nb\na\nb\na\n", hunk("-b|+a| a", 2)).reason


@pytest.mark.parametrize(("gone", "fuzz"), [((7,), 1), ((13,), 1), ((7, 13), 1), ((8,), 2), ((7, 12), 2)])
def test_outer_context_may_differ_and_that_is_told(gone: tuple[int, ...], fuzz: int) -> None:
    """Up to two outer lines of context may have changed; how many were ignored is told."""
    data = OLD
    for number in gone:
        data = data.replace(b"line %d\n" % number, b"other\n")
    outcome = applied(data, CHANGE)
    assert outcome.data == data.replace(b"line 10\n", b"LINE 10\n")
    assert outcome.hunks == (Placed(7, 0, fuzz),)


def test_the_line_next_to_the_change_counts() -> None:
    """The innermost of three context lines is never ignored."""
    assert "not there" in refused(OLD.replace(b"line 9\n", b"other\n"), CHANGE).reason


def test_a_fuzzy_place_must_be_the_only_one() -> None:
    """With context ignored, even the named place is refused when another fits as well."""
    file = hunk(" a| b|-x|+y| c| d", 1)
    assert "more than one place" in refused(b"A\nb\nx\nc\nD\nA\nb\nx\nc\nD\n", file).reason


def test_blanks_are_never_ignored() -> None:
    """A tab is no blank, and a blank at the end of a line is content."""
    assert "not there" in refused(OLD.replace(b"line 10\n", b"line\t10\n"), CHANGE).reason
    assert "not there" in refused(OLD.replace(b"line 10\n", b"line 10 \n"), CHANGE).reason


def test_other_line_ends_are_named_as_the_reason() -> None:
    """A patch with LF does not apply to a file with CR LF, and the reason says so."""
    assert "the file's lines end in CR LF" in refused(OLD.replace(b"\n", b"\r\n"), CHANGE).reason


def test_a_patch_that_is_applied_already_is_recognised() -> None:
    """The new content is no place for the hunk, and the reason says what it looks like."""
    assert "applied already" in refused(NEW, CHANGE).reason


def test_hunks_keep_their_order() -> None:
    """A hunk is not looked for before the hunk that precedes it."""
    first, second = hunk("-b|+B", 2).hunks[0], hunk("-a|+A", 1).hunks[0]
    assert refused(b"a\nb\n", FilePatch("a", "a", (first, second))).hunk == 2


def test_an_insertion_without_context_needs_its_number() -> None:
    """Without old lines the number decides; without the number, or after a moved hunk, nothing does."""
    file = FilePatch("a", "a", (Hunk(1, 0, 2, 1, (Line("+", b"x\n"),)),))
    assert applied(b"a\nb\n", file).data == b"a\nx\nb\n"
    lost = FilePatch("a", "a", (Hunk(-1, 0, -1, 1, (Line("+", b"x\n"),)),))
    assert "nothing says where" in refused(b"a\nb\n", lost).reason
    moved = FilePatch("a", "a", (*hunk("-b|+B", 1).hunks, *file.hunks))
    assert "nothing says where" in refused(b"a\nb\n", moved).reason
    beyond = FilePatch("a", "a", (Hunk(9, 0, 10, 1, (Line("+", b"x\n"),)),))
    assert "not there" in refused(b"a\nb\n", beyond).reason


def test_an_unnumbered_hunk_goes_to_its_only_place() -> None:
    """A hunk without numbers is applied where it fits once, and refused where it fits twice."""
    file = parse(b"--- a/a\n+++ b/a\n@@ @@\n x\n-y\n+z\n").files[0]
    assert applied(b"0\nx\ny\n", file) == Applied(b"0\nx\nz\n", (Placed(2, 0, 0),))
    assert "more than one place" in refused(b"x\ny\nx\ny\n", file).reason


def test_nothing_is_joined_to_a_line_without_an_end() -> None:
    """A last line without a newline is not the same line with one, and nothing is put behind it."""
    assert "not there" in refused(b"a\nb", hunk(" b|+c", 2)).reason
    file = FilePatch("a", "a", (Hunk(2, 0, 3, 1, (Line("+", b"x\n"),)),))
    assert "join lines" in refused(b"a\nb", file).reason
    middle = FilePatch("a", "a", (Hunk(1, 1, 1, 1, (Line("-", b"a\n"), Line("+", b"A"))),))
    assert "join lines" in refused(b"a\nb\n", middle).reason


def test_a_new_file_must_not_be_there() -> None:
    """A creation applies to nothing, and to nothing else."""
    file = make(None, b"x\n", "a")
    assert applied(b"", file).data == b"x\n"
    assert "exists already" in refused(b"x\n", file).reason


def test_a_deletion_must_be_of_everything() -> None:
    """A deletion that leaves lines over is refused."""
    file = make(b"x\n", None, "a")
    assert applied(b"x\n", file).data == b""
    assert "leaves some" in refused(b"x\nmore\n", file).reason


def test_a_copy_has_no_inverse() -> None:
    """The patch does not hold what the inverse of a copy would remove."""
    with pytest.raises(InvalidInput, match="cannot be reversed"):
        reverse(Patch((FilePatch("a", "b", copied=True),)))


def test_large_files_are_compared_in_bounded_time() -> None:
    """Two large texts that differ everywhere become one exact hunk, without comparing every line with every other."""
    old = b"".join(b"%d\n" % n for n in range(MOST_LINES * 10))
    new = b"".join(b"%d\n" % (n * 7) for n in range(MOST_LINES * 10))
    start = time.process_time()
    file = make(old, new, "a")
    assert applied(old, file).data == new
    assert time.process_time() - start < 20


def test_a_hunk_that_nearly_fits_everywhere_is_found_in_bounded_time() -> None:
    """A file made to be searched slowly is searched in linear time."""
    lines = b"x\n" * 200_000
    file = hunk("|".join([" x"] * 5_000 + ["-y", "+z"]), 5)
    start = time.process_time()
    assert "not there" in refused(lines, file).reason
    assert time.process_time() - start < 20


def test_binary_content_makes_no_patch() -> None:
    """A NUL byte on either side is refused."""
    with pytest.raises(InvalidInput, match="binary"):
        make(b"a\0", b"b", "a")
