"""Limits in words: what a program did too much of, so that nobody takes a flood of output for a program that was slow.

Time, money and turns are no amounts of the sandbox; whoever counts them tells them.
"""

from __future__ import annotations

from holdfast.sandbox.profile import Limits

_UNITS = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


def exceeded(limit: str, limits: Limits) -> str:
    """What was done, as the rest of a sentence that begins with who did it; empty for what is not counted here."""
    match limit:
        case "output":
            return f"wrote more than {_size(limits.output_bytes)} of output"
        case "memory":
            return f"held more than {_size(limits.memory_bytes)} of memory"
        case "disk":
            return f"put more than {_size(limits.disk_bytes)} on the disk"
        case "processes":
            return f"had more than {limits.processes:,} processes at once"
    return ""


def _size(number: int) -> str:
    """As the configuration states it, exactly."""
    unit, worth = next(((unit, worth) for unit, worth in _UNITS if number and number % worth == 0), ("bytes", 1))
    return f"{number // worth:,} {unit}"
