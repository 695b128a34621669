"""What the program says, without starting it: moments, counts, summaries, patches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from holdfast.cli.moments import for_programs, moment_of
from holdfast.cli.patch import patch
from holdfast.cli.summary import summary
from holdfast.cli.words import count, duration, size
from holdfast.engine.difference import Compared, Side
from holdfast.errors import InvalidInput
from holdfast.model.changeset import Change
from holdfast.model.image import Image

NOW = 1_800_000_000 * 10**9
HOUR = 3600 * 10**9


def file(text: str, mode: int = 0o644) -> Image:
    return Image("file", mode, 0, 0, len(text), f"digest of {text}")


def directory() -> Image:
    return Image("directory", 0o755, 0, 0)


class Texts(NamedTuple):
    """A difference whose file contents are their digests' words."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    def compared(self, changes: Sequence[Change]) -> Iterator[Compared]:
        for change in changes:
            yield Compared(change, _side(change.pre), _side(change.post))


def _side(image: Image | None) -> Side:
    return Side(image.digest.removeprefix("digest of ").encode() if image is not None else b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 hours ago", NOW - 2 * HOUR),
        ("an hour ago", NOW - HOUR),
        ("1  day  AGO", NOW - 24 * HOUR),
        ("30 min ago", NOW - HOUR // 2),
        ("yesterday", NOW - 24 * HOUR),
        ("now", NOW),
        ("2020-01-01T00:00:00Z", 1_577_836_800 * 10**9),
        ("2020-01-01 01:00:00+01:00", 1_577_836_800 * 10**9),
        ("2020-01-01T00:00:00.5Z", 1_577_836_800 * 10**9 + 5 * 10**8),
    ],
)
def test_moments_are_read_as_written(text: str, expected: int) -> None:
    """ISO 8601 with a zone, and "… ago", are exact."""
    assert moment_of(text, NOW) == expected


def test_a_moment_without_a_zone_is_local() -> None:
    """What a person reads from the clock on the wall is what is meant."""
    assert moment_of("2020-06-01 12:00", NOW) == int(time.mktime((2020, 6, 1, 12, 0, 0, 0, 0, -1))) * 10**9


@pytest.mark.parametrize("text", ["", "soon", "2 moons ago", "-1 hours ago", "2020-13-01", "1e3", "2999-01-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    """Nonsense and the future are InvalidInput, never a guess."""
    with pytest.raises(InvalidInput):
        moment_of(text, NOW)


def test_numbers_have_units() -> None:
    """Counts, sizes and durations read as people say them."""
    assert (count(1, "change"), count(10_000, "change")) == ("1 change", "10,000 changes")
    assert (size(1), size(999), size(12_300), size(3_400_000)) == ("1 byte", "999 bytes", "12 KB", "3.4 MB")
    assert (duration(12), duration(1_400), duration(125_000)) == ("12 ms", "1.4 s", "2 min 5 s")
    assert for_programs(1_577_836_800_123_456_789) == "2020-01-01T00:00:00.123Z"


def test_a_summary_has_a_sign_for_each_kind_of_change() -> None:
    """Signs and words say what happens to each path."""
    link = Image("symlink", 0o777, 0, 0, target="to")
    changes = (
        Change("a", file("1\n2\n"), file("1\n3\n")),
        Change("b", None, file("x\n")),
        Change("c", file("x"), None),
        Change("d", file("x"), file("x", 0o755)),
        Change("e", None, link),
        Change("f", None, file("moved"), "g"),
        Change("g", file("moved"), None),
        Change("h", file("a\n"), file("a\nb\n", 0o600)),
    )
    assert summary(Texts(changes)) == [
        "  ~ a      1 line changed",
        "  + b      new, 1 line",
        "  - c      removed (kept for undo)",
        "  m d      mode 0644 → 0755",
        "  > e → to",
        "  → g → f  moved",
        "  ~ h      1 line added, mode 0644 → 0600",
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("1\n2\n3\n", "1\n2\n3", "1 line changed"),
        ("1\n2\n3", "1\n2\n3\n", "1 line changed"),
        ("a\n", "b", "1 line changed"),
        ("a", "b\n", "1 line changed"),
        ("{}", '{"a": 1}', "1 line changed"),
        ("a\n", "a\nb", "1 line added"),
        ("a\nb\n", "a\n", "1 line removed"),
        ("a\rb\n", "a\rc\n", "1 line changed"),
        ("a\n\n", "a\n", "1 line removed"),
    ],
)
def test_a_summary_counts_lines_as_the_diff_does(old: str, new: str, told: str) -> None:
    """The end of a line is part of it, and nothing else ends one: the counts are those of the lines in the diff."""
    change = Change("a", file(old), file(new))
    assert summary(Texts((change,))) == [f"  ~ a  {told}"]
    lines = list(patch(Compared(change, Side(old.encode()), Side(new.encode()))))[3:]
    gone, come = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    assert told.startswith(str(max(gone, come)))


def test_a_new_file_has_the_lines_that_the_diff_shows() -> None:
    """A carriage return ends no line."""
    assert summary(Texts((Change("a", None, file("a\rb\n")),))) == ["  + a  new, 1 line"]


def test_a_summary_of_many_changes_is_short() -> None:
    """Twenty lines, and how many more there are."""
    lines = summary(Texts(tuple(Change(f"{n:05}", None, file("x")) for n in range(10_000))))
    assert len(lines) == 21
    assert lines[-1] == "  and 9,980 more"


def test_a_removed_directory_is_one_line() -> None:
    """What is inside is counted."""
    inside = [Change(f"d/{n}", file("x"), None) for n in range(3)]
    lines = summary(Texts((Change("d", directory(), None), *inside)))
    assert lines == ["  - d/  removed with 3 entries (kept for undo)"]


def test_a_patch_marks_a_missing_newline() -> None:
    """The last line without its end is marked, as patch tools do; the rest is a unified diff."""
    change = Change("a", file("1\n2"), file("1\n3\n"))
    assert list(patch(Compared(change, Side(b"1\n2"), Side(b"1\n3\n")))) == [
        "changed a", "--- a/a", "+++ b/a", "@@ -1,2 +1,2 @@", " 1", "-2", "\\ No newline at end of file", "+3",
    ]  # fmt: skip


def test_a_patch_without_content_gives_the_reason() -> None:
    """A side that is not at hand is named, with both sizes."""
    change = Change("a", file("12"), file("123"))
    lines = list(patch(Compared(change, Side(b"12"), Side(None, "no longer kept"))))
    assert lines == ["changed a", "  new content no longer kept: 2 bytes → 3 bytes"]
