"""Counts, sizes, durations and states as people read them."""

from __future__ import annotations

from holdfast.cli.screen import shown
from holdfast.model.words import counted
from holdfast.store.database import Row

count = counted


def proven_as_before(paths: int) -> str:
    """What a rollback may say of itself: only of paths that were looked at, and how many those are."""
    return f"{count(paths, 'path')} proven byte for byte as before"


def size(number: int) -> str:
    """512 bytes, 12 KB, 3.4 MB."""
    if number < 1000:
        return count(number, "byte")
    for unit in ("KB", "MB", "GB"):
        number_f = number / 1000
        if number_f < 1000 or unit == "GB":
            return f"{number_f:.1f} {unit}" if number_f < 10 else f"{number_f:,.0f} {unit}"
        number //= 1000
    raise AssertionError("GB is the last unit")


def duration(milliseconds: int) -> str:
    """12 ms, 1.4 s, 2 min 5 s."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds // 60_000} min {milliseconds % 60_000 // 1000} s"


def unverified(why: str) -> str:
    """As the live lines and tables of a run say it; empty where there is no reason."""
    return f"unverified: {shown(' '.join(why.split()))}" if why else ""


_STATES = {
    "ROLLED_BACK": "rolled back",
    "ABORTED": "not applied",
    "PARTIAL": "left in part",  # a row of the first release
    "FAILED": "failed",
}


def state(row: Row) -> str:
    """How an execution stands now."""
    if row.landed:
        applied = "applied" if row.status == "COMPLETED" else "partial"
        return applied if row.live else "undone"
    return _STATES.get(row.status, row.status.lower())
