"""Sparse files are read without their holes, and every byte is the one that a plain read gives."""

from __future__ import annotations

import os
from pathlib import Path

from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.disk.calls import CALLS
from holdfast.disk.holes import CHUNK, ZEROS, pieces
from holdfast.workspace.observe import content_digest

# Offsets around pages and chunks, where mistakes live.
_edge = st.builds(
    lambda base, off: max(0, base + off), st.sampled_from([0, 4096, CHUNK, 3 * CHUNK]), st.integers(-2, 2)
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_edge, st.sampled_from([1, 4095, 4096, 70_000])), max_size=4), _edge)
def test_pieces_are_the_bytes_of_the_file(tmp_path: Path, writes: list[tuple[int, int]], size: int) -> None:
    """Whatever is data and whatever is hole, the pieces joined are the file, and the digest is that of its bytes."""
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        for offset, length in writes:
            file.seek(offset)
            file.write(b"x" * length)
        file.truncate(size)
    expected = path.read_bytes()
    fd = os.open(path, os.O_RDONLY)
    try:
        found = list(pieces(CALLS, fd))
        os.lseek(fd, 0, os.SEEK_SET)
        digest = content_digest(CALLS, fd)
    finally:
        os.close(fd)
    assert b"".join(found) == expected
    assert all(0 < len(piece) <= CHUNK for piece in found)
    assert digest == blake3(expected).hexdigest()


def test_a_hole_is_not_read(tmp_path: Path) -> None:
    """A large hole comes as the one shared chunk of zeros, so it costs neither reading nor memory."""
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.truncate(50 * CHUNK)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert all(piece is ZEROS for piece in pieces(CALLS, fd))
    finally:
        os.close(fd)


def test_a_file_that_is_cut_while_it_is_read_ends(tmp_path: Path) -> None:
    """Somebody shortens the file between two pieces: the reading ends, without an error and without a loop."""
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(b"x" * CHUNK)
        file.truncate(10 * CHUNK)
        file.seek(9 * CHUNK)
        file.write(b"y" * CHUNK)
    fd = os.open(path, os.O_RDONLY)
    try:
        reading = pieces(CALLS, fd)
        first = next(reading)
        os.truncate(path, 5)
        rest = list(reading)
    finally:
        os.close(fd)
    assert first == b"x" * CHUNK
    assert len(rest) <= 10
