"""Numbers as people say them."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """1 change, 10,000 changes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
