"""Change sets: one order, one digest, whatever they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.canonical import canonical_rows, digest_of
from holdfast.model.changeset import Change, Observation, change_set, files_in, images_digest
from holdfast.model.image import Image

texts = st.sampled_from(["", "ab12", 'a"b', "a\\b", "ü", "\udcff", "new\nline", "0" * 64])
images = st.builds(
    Image,
    kind=st.sampled_from(["file", "directory", "symlink"]),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, 3),
    gid=st.integers(0, 3),
    size=st.integers(0, 1 << 40),
    digest=texts,
    target=texts,
    xattrs=st.sampled_from([(), (("user.a", "00"),)]),
)
names = st.text(st.sampled_from("ab/.0ü\U0001f600\udc80\udcff"), min_size=1, max_size=6)
changes = st.builds(
    Change, names, st.one_of(st.none(), images), st.one_of(st.none(), images), st.one_of(st.none(), names)
).filter(lambda change: change.pre != change.post)


def path_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


@given(
    st.lists(changes, max_size=8, unique_by=lambda change: change.path), st.lists(st.builds(Observation, names, images))
)
def test_the_digests_are_those_of_the_canonical_form(made: list[Change], reads: list[Observation]) -> None:
    """Both digests are over the canonical bytes of the rows in the order of path bytes, however they were spelled."""
    sealed = change_set(made, reads)
    ordered = sorted(made, key=lambda change: path_bytes(change.path))
    assert list(sealed.changes) == ordered
    assert [path_bytes(read.path) for read in sealed.reads] == sorted(path_bytes(read.path) for read in set(reads))
    seen = [list(read) for read in sealed.reads]
    assert sealed.digest == digest_of([ordered, seen])
    assert sealed.base == digest_of([[change[:2] for change in ordered], seen])


odd = st.text(st.sampled_from('ab/"\\\x7f\n\0ü\udcff'), max_size=2).map("a".__add__)
files = st.tuples(st.integers(0, 9), odd).map(lambda pair: Image("file", 0o644, 0, 0, *pair))


@given(st.dictionaries(odd, st.tuples(files, files).filter(lambda pair: pair[0] != pair[1]), max_size=4))
def test_edits_of_plain_files_are_spelled_as_all_else(edits: dict[str, tuple[Image, Image]]) -> None:
    """Of plain edits, whatever characters are in their paths and digests, the digests are over the canonical form."""
    made = [Change(path, *pair) for path, pair in edits.items()]
    sealed = change_set(made)
    ordered = sorted(made, key=lambda change: path_bytes(change.path))
    assert sealed.digest == digest_of([ordered, []])
    assert sealed.base == digest_of([[change[:2] for change in ordered], []])


@given(st.dictionaries(names, st.one_of(st.none(), images), max_size=8))
def test_what_stands_at_some_paths_has_one_digest(standing: dict[str, Image | None]) -> None:
    """It is over the canonical form too, in the order of path bytes."""
    rows = sorted(standing.items(), key=lambda row: path_bytes(row[0]))
    assert images_digest(standing.items()) == digest_of([list(row) for row in rows])
    assert canonical_rows(rows)


def test_many_changes_are_digested_in_parts() -> None:
    """A digest over more rows than are spelled at once is that of all of them."""
    many = [Change(f"f{n:05}", None, Image("file", 0o644, 0, 0, n, f"{n:064x}")) for n in range(1500)]
    assert change_set(reversed(many)).digest == digest_of([many, []])


def test_one_path_changes_once() -> None:
    """Two changes for one path, and one that changes nothing, are refused."""
    image = Image("file", 0o644, 0, 0)
    with pytest.raises(ValueError, match="two changes for one path: 'b'"):
        change_set([Change("b", None, image), Change("a", None, image), Change("b", image, None)])
    with pytest.raises(ValueError, match="changes nothing: 'a'"):
        change_set([Change("a", image, image)])


def test_files_are_counted_without_folders_and_moves_once() -> None:
    """A folder is no file; a file that moves is one, a link too."""
    file, folder, link = Image("file", 0o644, 0, 0), Image("directory", 0o755, 0, 0), Image("symlink", 0o777, 0, 0)
    made = (Change("d", None, folder), Change("d/a", None, file), Change("l", None, link), Change("x", file, None))
    moved = (Change("from", file, None), Change("to", None, file, "from"))
    assert (files_in(made), files_in(moved), files_in(())) == (3, 1, 0)
