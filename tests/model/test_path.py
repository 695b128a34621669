"""Paths as values: what `checked_path` lets through is safe to hand to the kernel."""

from __future__ import annotations

import os

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidPath
from holdfast.model.path import ancestors_of, checked_path, is_protected, parent_of

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
