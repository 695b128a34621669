"""The canonical form: one byte string for one value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.canonical import canonical, digest_of
from nouns import texts

_value = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def _typed(value: object) -> object:
    """The value with its types: in Python 1 equals True."""
    if isinstance(value, list):
        return ["list", *map(_typed, value)]
    if isinstance(value, dict):
        return ["dict", *sorted((key, repr(_typed(item))) for key, item in value.items())]
    return [type(value).__name__, value]


@given(_value, _value)
def test_equal_values_and_only_those_give_equal_bytes(one: object, two: object) -> None:
    """Different values, also 1 and true, have different bytes; equal ones the same."""
    assert (canonical(one) == canonical(two)) == (_typed(one) == _typed(two))


@given(_value)
def test_it_is_ascii_and_survives_the_round_trip(value: object) -> None:
    """Bytes that are no text travel as escapes and come back."""
    data = canonical(value)
    assert data.isascii()
    assert json.loads(data) == value


@given(st.dictionaries(texts, st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    """An object is its keys and values, in whatever order they came."""
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize(
    "value", [1.0, float("nan"), [1, 2.0], {"a": 1.5}, b"bytes", {1: "a"}, {None: 1}, {"s"}, object()]
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    """1.0 beside 1 would be two forms of one number; floats, bytes, sets and keys that are no text are refused."""
    with pytest.raises(TypeError):
        canonical(value)


@pytest.mark.parametrize("value", ["\ud83d\ude00", "\ud800", ["x\udbff"], {"\ud83d\ude00": 1}])
def test_half_characters_are_refused(value: object) -> None:
    """Two halves side by side would be written like the whole character, which is another text."""
    with pytest.raises(TypeError):
        canonical(value)
    assert digest_of("\U0001f600")
