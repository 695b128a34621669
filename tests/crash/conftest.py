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
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, or on disk where memory has no extended attributes."""
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


@pytest.fixture
def disk_arena(tmp_path: Path) -> Arena:
    """An arena on whatever disk the tests have."""
    return Arena(str(tmp_path))


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
