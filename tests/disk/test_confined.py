"""A root and what it holds open."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

import holdfast
from holdfast.disk.confined import Root


def open_below(place: Path) -> list[str]:
    """Where the descriptors of this process lead, of those at or below a place."""
    gc.collect()
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    leads = (os.readlink(link) for link in links if os.path.islink(link))
    return [lead for lead in leads if lead.startswith(str(place))]


def test_a_root_that_nobody_closed_holds_nothing(tmp_path: Path) -> None:
    """When nobody refers to it any more, neither its own descriptor nor a cached one is open (D4)."""
    (tmp_path / "d").mkdir()
    root = Root(str(tmp_path))
    root.directory("d")
    assert len(open_below(tmp_path)) == 2
    del root
    assert open_below(tmp_path) == []


def test_a_closed_root_closes_nothing_of_others(tmp_path: Path) -> None:
    """A number that the kernel gave to somebody else meanwhile stays open."""
    root = Root(str(tmp_path))
    number = root.fd
    root.close()
    other = os.open("/", os.O_RDONLY)
    try:
        assert other == number
        del root
        gc.collect()
        os.fstat(other)
    finally:
        os.close(other)


def test_a_root_that_could_not_be_opened_is_no_error_again(tmp_path: Path) -> None:
    """The reason is raised, and nothing else is said."""
    with pytest.raises(FileNotFoundError):
        Root(str(tmp_path / "nowhere"))
    gc.collect()


def test_a_workspace_that_nobody_closed_holds_nothing(tmp_path: Path) -> None:
    """A program that opens many workspaces, changes them and lets go of them does not run out of descriptors."""
    place = tmp_path / "workspace"
    place.mkdir()
    holdfast.init(str(place))
    hf = holdfast.open(str(place))
    with hf.transaction("a file", approved_by="me") as tx:
        tx.write("a", b"a")
    assert open_below(place) != []
    del hf, tx
    assert open_below(place) == []
