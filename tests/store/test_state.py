"""The state directory: made by whoever comes first, and once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.store.journal import Head, read_head, write_head
from holdfast.store.state import create_state

AT_ONCE = 8


@pytest.mark.parametrize("turn", range(10))
def test_threads_that_create_the_same_state_at_once_agree(tmp_path: Path, turn: int) -> None:
    """All of them find the same workspace, whoever was first, and none leaves anything of its own behind."""
    start = Barrier(AT_ONCE)

    def create(_: int) -> str:
        start.wait()
        return create_state(str(tmp_path)).id

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert len(set(pool.map(create, range(AT_ONCE)))) == 1
    made = sorted(os.listdir(tmp_path / ".holdfast"))
    assert made == [".gitignore", "format", "journal", "kept", "objects"]
    assert os.listdir(tmp_path / ".holdfast/journal") == ["head"]


def test_creating_a_state_that_is_in_use_leaves_its_head_alone(tmp_path: Path) -> None:
    """A head that is written while somebody else is about to make one stays as it was written."""
    create_state(str(tmp_path))
    head = Head("PREPARED", "e-abcdefgh", "ab" * 32)

    class Overtaken(type(CALLS)):  # type: ignore[misc]
        """Somebody else's head appears just before ours would get its name."""

        def move(self, source: str, source_directory: int, target: str, target_directory: int) -> None:
            if target == "head":
                os.link(
                    tmp_path / ".holdfast/journal/theirs", tmp_path / ".holdfast/journal/head", follow_symlinks=False
                )
            super().move(source, source_directory, target, target_directory)

    with Root(str(tmp_path / ".holdfast"), CALLS) as state:
        journal = state.directory("journal")
        write_head(CALLS, journal, head)
        os.rename(tmp_path / ".holdfast/journal/head", tmp_path / ".holdfast/journal/theirs")
        create_state(str(tmp_path), Overtaken())
        assert read_head(CALLS, journal) == head
