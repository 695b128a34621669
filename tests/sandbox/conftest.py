"""One cell as root, one as an ordinary user: what stops one need not stop the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.cell import Cell


@pytest.fixture(params=["root", "user"])
def cell(request: pytest.FixtureRequest, public: Path) -> Cell:
    """A workspace with secrets and one layer."""
    root = request.param == "root"
    if root and os.geteuid() != 0:
        pytest.skip("needs root")
    return Cell(public / "cell", root=root)
