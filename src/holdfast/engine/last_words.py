"""The end of what a program printed, for the person who must learn why it failed: legible, masked and short."""

from __future__ import annotations

from holdfast.gates.secrets import masked
from holdfast.model.check import masked_words
from holdfast.planning.failures import legible

_MOST_LINES = 15
_MOST_BYTES = 2_000
_CUT = "…"


def last_words(log: bytes) -> tuple[str, ...]:
    """The last lines. Masked before they are cut: half of a secret would not be known as one."""
    text = masked(masked_words("\n".join(legible(log)))).strip("\n")
    lines = text.split("\n") if text.strip() else []
    kept: list[str] = []
    room = _MOST_BYTES
    for line in reversed(lines[-_MOST_LINES:]):
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    left_out = [_CUT] if len(kept) < len(lines) else []
    return tuple(left_out + kept[::-1])
