"""The canonical text that is put together by hand, for speed, is what the plain encoder makes: digests rest on it."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.model.canonical import canonical, canonical_rows, digest_of, quoted
from holdfast.model.changeset import Change, Observation, change_set, images_digest
from holdfast.model.image import Image, Seen, Stamp, image_text, seen_text
from nouns import images, seens, texts

_NOTHING = Image("file", 0, 0, 0)
_STAMP = Stamp(0, 0, 0, 0, 0)
_ODD = 'caf\udce9 "\\\x00\x1f\x7f\u2028\U0001f600'
_FIELDS: dict[str, int | str | tuple[tuple[str, str], ...]] = {
    "kind": "symlink",
    "mode": 0o7777,
    "uid": 2**32 - 2,
    "gid": 2**32 - 3,
    "size": 2**63,
    "digest": "ab" * 32,
    "target": _ODD,
    "xattrs": ((_ODD, "00ff"), ("user.b", "")),
}


def _plain(value: object) -> str:
    return canonical(value).decode("ascii")


def _path_bytes(row: tuple[object, ...]) -> bytes:
    assert isinstance(row[0], str)
    return row[0].encode("utf-8", "surrogateescape")


@given(texts)
def test_a_quoted_text_is_its_canonical_form(text: str) -> None:
    """Control characters, quotes, bytes that are no text: written like the plain encoder does, and read back."""
    assert quoted(text) == _plain(text)
    assert json.loads(quoted(text)) == text


def test_every_character_is_quoted_as_in_the_canonical_form() -> None:
    """No character there is has another form; halves that only pairs are made of have none and are left out."""
    points = [number for number in range(sys.maxunicode + 1) if not 0xD800 <= number <= 0xDBFF]
    assert quoted("".join(map(chr, points))) == _plain("".join(map(chr, points)))
    assert len({quoted(chr(number)) for number in points}) == len(points)


@given(images)
@example(_NOTHING)
@example(Image(**_FIELDS))  # type: ignore[arg-type]
def test_the_text_of_an_image_is_its_canonical_form(image: Image) -> None:
    """Whatever stands at a path: the text put together by hand is the plain encoder's."""
    assert image_text(image) == _plain(image) == canonical_rows(image).decode("ascii")


@pytest.mark.parametrize("field", Image._fields)
def test_every_field_of_an_image_is_in_its_text(field: str) -> None:
    """An image that differs in one field has another text, still the plain one; a new field needs a value here."""
    changed = _NOTHING._replace(**{field: _FIELDS[field]})
    assert image_text(changed) == _plain(changed) != image_text(_NOTHING)


@given(seens)
@example(Seen(_NOTHING, _STAMP))
def test_the_text_of_a_sight_is_its_canonical_form(seen: Seen) -> None:
    """The same for an image with its stamp."""
    assert seen_text(seen) == _plain(seen)


@pytest.mark.parametrize("field", Stamp._fields)
def test_every_field_of_a_stamp_is_in_its_text(field: str) -> None:
    """A sight that differs in one number of its stamp, also below zero, has another text."""
    changed = Seen(_NOTHING, _STAMP._replace(**{field: -(2**63)}))
    assert seen_text(changed) == _plain(changed) != seen_text(Seen(_NOTHING, _STAMP))


def test_nothing_is_null() -> None:
    """Where nothing stands, the text is the plain encoder's for nothing."""
    assert image_text(None) == seen_text(None) == _plain(None)


@given(st.dictionaries(texts, st.none() | images, max_size=4))
def test_the_digest_of_images_is_that_of_the_plain_rows(found: dict[str, Image | None]) -> None:
    """The proof of a rollback is a digest over [path, image] rows in the order of the paths' bytes."""
    assert images_digest(found.items()) == digest_of(sorted(found.items(), key=_path_bytes))


_changes = st.builds(Change, texts, st.none() | images, st.none() | images, st.none() | texts)
_real_changes = st.lists(
    _changes.filter(lambda change: change.pre != change.post), max_size=4, unique_by=lambda c: c.path
)
_reads = st.lists(st.builds(Observation, texts, images), max_size=3, unique_by=lambda read: read.path)


@given(_real_changes, _reads)
def test_the_digests_of_a_change_set_are_those_of_the_plain_rows(
    changes: list[Change], reads: list[Observation]
) -> None:
    """The digest covers [changes, reads]; the base covers the same without what will be."""
    whole = sorted(changes, key=_path_bytes)
    base = [[change.path, change.pre] for change in whole]
    seen = sorted(reads, key=_path_bytes)
    sealed = change_set(changes, reads)
    assert (sealed.digest, sealed.base) == (digest_of([whole, seen]), digest_of([base, seen]))
