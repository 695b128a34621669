"""What several tests of the engine stand on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import guard
from holdfast.store.large_blobs import LargeBlobs


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[LargeBlobs]:
    """Where machines meet."""
    found = guard(tmp_path / "stock")
    yield LargeBlobs(found.hf.site.state)
    found.hf.close()
