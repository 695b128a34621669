"""Numbers as people say them."""

from __future__ import annotations


def in_a_row(times: int) -> str:
    """Once, 3 times in a row: what happened once is no row."""
    return "once" if times == 1 else f"{times:,} times in a row"


def counted(number: int, one: str, many: str = "") -> str:
    """1 change, 10,000 changes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
