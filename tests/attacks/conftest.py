"""Where an ordinary user can work: outside the test runner's private directories."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import USER


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory with `home` and `workspace` that belong to an ordinary user; removed afterwards."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    place.chmod(0o755)
    for name in ("home", "workspace"):
        (place / name).mkdir()
        os.chown(place / name, USER, USER)
    yield place
    shutil.rmtree(place)
