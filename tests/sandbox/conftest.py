"""Cells as root and as an ordinary user, over a layer and over a copy: what stops one need not stop the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.cell import Cell


@pytest.fixture(
    params=["root", "user", *(pytest.param(f"{who}-copy", marks=pytest.mark.long) for who in ("root", "user"))]
)
def cell(request: pytest.FixtureRequest, public: Path) -> Cell:
    """A workspace with secrets, and one layer or a copy."""
    who, _, copied = request.param.partition("-")
    if who == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    return Cell(public / "cell", root=who == "root", copied=bool(copied))
