"""Paths as values: what `checked_path` lets through is safe to hand to the kernel."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidPath
from holdfast.model.path import ancestors_of, checked_path, is_protected, parent_of, person_folded, person_name

_name = st.text(min_size=1, max_size=20) | st.sampled_from([".", "..", ".git", ".holdfast", "a"])
_path = st.lists(_name, min_size=1, max_size=5).map("/".join) | st.text()


@given(_path)
@example("..")
@example("a/../b")
@example(".GIT/x")
def test_whatever_is_let_through_stays_inside(text: str) -> None:
    """A checked path is relative, has no dots that climb, no NUL, and names nothing protected."""
    try:
        path = checked_path(text)
    except InvalidPath:
        return
    names = path.split("/")
    assert not {"", ".", ".."} & set(names)
    assert "\0" not in path
    assert os.path.normpath(path) == path
    assert not is_protected(path)
    assert all(len(os.fsencode(name)) <= 255 for name in names)
    assert checked_path(path) == path


@given(_path)
def test_ancestors_lead_to_the_parent(text: str) -> None:
    """The last ancestor is the parent; each one starts the path."""
    above = ancestors_of(text)
    assert (above[-1] if above else "") == parent_of(text)
    assert all(text.startswith(f"{ancestor}/") for ancestor in above)


@pytest.mark.parametrize("name", [".git", ".holdfast"])
@pytest.mark.parametrize(
    "blank", ["\u00ad", "\u034f", "\u061c", "\u115f", "\u17b4", "\u180b", "\u200b", "\u200c", "\u200d", "\u2060",
              "\u2064", "\u3164", "\ufe0f", "\ufeff", "\uffa0", "\ufff0", "\U0001d173", "\U000e0020", "\U000e01ef"],
    ids=ascii,
)  # fmt: skip
def test_a_name_with_characters_that_do_not_show_is_an_alias(name: str, blank: str) -> None:
    """Every default-ignorable character, anywhere in a protected name, leaves it protected."""
    for spelled in (f"{name[:2]}{blank}{name[2:]}", f"{blank}{name}", f"{name}{blank}", f"a/{name.upper()}{blank}/x"):
        assert is_protected(spelled)
        with pytest.raises(InvalidPath):
            checked_path(spelled)


@pytest.mark.parametrize("name", [" alice", "alice ", "ali\u200cce", "Ali\u3164ce", "\u00a0Alice\u2060", "\talice\n"])
def test_a_person_has_one_name(name: str) -> None:
    """Blanks around it, its case, and characters that do not show make nobody else of somebody."""
    assert person_folded(name) == person_folded("alice")


def test_a_name_that_shows_nothing_is_none() -> None:
    """Blanks around a name go; what has nothing that can be seen names nobody."""
    assert (person_name(" Anna Lee\n"), person_name("!"), person_name("😀")) == ("Anna Lee", "!", "😀")
    assert [person_name(name) for name in ("", " ", "\u200b\u3164", "\x00 \x00", "\ufe0f")] == [""] * 5
