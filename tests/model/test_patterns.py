"""The one pattern language: what it covers, told by a slow reference, and that no pattern makes it slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import in_child
from holdfast.errors import InvalidInput
from holdfast.model.patterns import PatternIndex, covers

NAMES = st.text("abA*?.", min_size=1, max_size=4).filter(lambda name: "**" not in name and name[-1] != ".")
PATTERNS = st.lists(st.one_of(NAMES, st.sampled_from(["**", "*", "a"])), min_size=1, max_size=5).map("/".join)
PATHS = st.lists(st.sampled_from(["a", "b", "A", "ab", "ba", "a.b", ".a", "aab"]), min_size=1, max_size=5)


def fits_name(pattern: str, name: str) -> bool:
    """Character by character, by definition."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(fits_name(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and fits_name(pattern[1:], name[1:])


def fits(pattern: list[str], names: list[str]) -> bool:
    """Name by name, by definition."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(fits(pattern[1:], names[skip:]) for skip in range(len(names) + 1))
    return bool(names) and fits_name(pattern[0], names[0]) and fits(pattern[1:], names[1:])


def covered(pattern: str, names: list[str]) -> bool:
    """What a pattern names, and everything below that; a last `**` names what it stands in."""
    parts = pattern.lower().split("/")
    while len(parts) > 1 and parts[-1] == "**":
        parts.pop()
    parts = ["**", *parts] if "/" not in pattern else parts
    lower = [name.lower() for name in names]
    return any(fits(parts, lower[:end]) for end in range(1, len(lower) + 1))


@given(st.lists(PATTERNS, min_size=1, max_size=4), PATHS)
def test_an_index_agrees_with_the_definition(patterns: list[str], names: list[str]) -> None:
    """Many patterns at once cover exactly what each of them covers by definition."""
    wanted = {number for number, pattern in enumerate(patterns) if covered(pattern, names)}
    assert PatternIndex([[pattern] for pattern in patterns]).owners_of("/".join(names)) == wanted


@given(PATTERNS, PATHS, PATHS)
def test_a_pattern_may_begin_above_the_workspace(pattern: str, above: list[str], names: list[str]) -> None:
    """Where the workspace stands counts: a pattern covers the path as seen from the top, or from the workspace."""
    found = bool(PatternIndex([[pattern]]).owners_of("/".join(names), "/".join(above)))
    assert found == (covered(pattern, names) or covered(pattern, [*above, *names]))


@pytest.mark.parametrize("path", [".env", "a/b/.env", ".ENV", "x/.Env./below", "．ｅｎｖ", ".e\u200bnv"])
def test_a_name_is_meant_at_any_depth_and_in_any_spelling(path: str) -> None:
    """`.env` is every spelling of it that a file system could take for it."""
    assert covers([".env"]).covers(path)


HOSTILE = [
    "**/a/" * 400 + "b",
    "**/*a*/" * 300 + "b",
    "a*" * 900 + "b",
    "*a?" * 600 + "b",
]


@pytest.mark.parametrize("pattern", HOSTILE, ids=["jumps", "jumps and stars", "stars", "stars and marks"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """Patterns that keep a backtracking matcher busy for minutes take milliseconds, for the longest of paths."""

    def match() -> None:
        index = covers([pattern])
        assert not index.covers("/".join(["a"] * 2000))
        assert not index.covers("a" * 255)

    # Whatever does not come back is killed there.
    assert in_child(match, seconds=2) == 0


def test_patterns_are_bounded() -> None:
    """One pattern, and all of them together, have a length that nobody needs more than."""
    for patterns in (["a" * 4001], [f"{n:0500}" for n in range(250)], [f"a{n}*b" for n in range(1001)]):
        with pytest.raises(InvalidInput):
            covers(patterns)
