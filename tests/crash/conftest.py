"""Where the crash tests work: in memory where that is a real file system, because `kill -9` cannot see the difference.

A killed process leaves what it wrote in the kernel's memory, synced or not;
what a missing sync loses is the business of the power cuts (see `power.py`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.driver import Arena, Place, discard
from file_systems import mounted, why_not

_MEMORY = "/dev/shm"
Counted = Callable[[int], None]


@pytest.fixture
def kill_points(record_property: Callable[[str, object], None]) -> Counted:
    """Say how many places were tried; the summary of the run adds them up (see `summary.py`)."""
    return lambda count: record_property("kill points", count)


@pytest.fixture
def errors_injected(record_property: Callable[[str, object], None]) -> Counted:
    return lambda count: record_property("errors injected", count)


@pytest.fixture
def power_cuts(record_property: Callable[[str, object], None]) -> Counted:
    return lambda count: record_property("power cuts", count)


@pytest.fixture
def damages(record_property: Callable[[str, object], None]) -> Counted:
    return lambda count: record_property("damaged journals", count)


@pytest.fixture
def memory(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Path]:
    """A directory in memory; on disk where memory has no extended attributes, or the tests were given a file system."""
    if pytestconfig.option.file_system is not None:
        yield tmp_path
        return
    if not why_not("tmpfs"):
        with mounted("tmpfs") as place:
            yield place
        return
    if not _keeps_attributes(_MEMORY):
        yield tmp_path
        return
    directory = tempfile.mkdtemp(prefix="holdfast-crash-", dir=_MEMORY)
    try:
        yield Path(directory)
    finally:
        discard(Place(directory))


@pytest.fixture
def arena(memory: Path) -> Arena:
    return Arena(str(memory))


def _keeps_attributes(directory: str) -> bool:
    try:
        probe = tempfile.mkdtemp(dir=directory)
    except OSError:
        return False
    try:
        os.setxattr(probe, "user.probe", b"1")
        return True
    except OSError:
        return False
    finally:
        shutil.rmtree(probe)
