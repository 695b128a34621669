"""Trying again: after which endings, and after which pause.

The pause is full jitter: any time between nothing and a bound that doubles with each attempt, so that many who failed
together do not come back together. It is computed from a seed and the attempt's number, never drawn: the same run
replayed waits the same times.

    bound(n) = min(longest, first × 2^(n-1))          after attempt n, counted from 1
    pause(n) = bound(n) × h / 2^64                    h: the first 8 bytes of SHA-256("seed\\0n")

Invariants
  J1  0 ≤ pause(n) ≤ bound(n) ≤ longest, for every n.
  J2  Every ending is in RETRY: a new one cannot be tried again by accident.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from holdfast.model.agent import Ending

FIRST_MS = 1_000
LONGEST_MS = 60_000


class Retry(NamedTuple):
    """Is another attempt with the same agent worth it, and why."""

    again: bool
    why: str


RETRY: dict[Ending, Retry] = {
    "finished": Retry(False, "it ended by itself; whether its work is good is for the checks to say"),
    "failed": Retry(True, "programs fail for reasons that pass"),
    "unauthorized": Retry(False, "the next attempt would have the same key"),
    "model_error": Retry(True, "models are overloaded or out of reach for a while"),
    "limit": Retry(False, "the next attempt would have the same limit"),
    "killed": Retry(True, "something outside ended it"),
}


def worth_a_retry(ending: Ending) -> Retry:
    return RETRY[ending]


def pause_ms(attempt: int, seed: str, *, first_ms: int = FIRST_MS, longest_ms: int = LONGEST_MS) -> int:
    """How long to wait after this attempt failed; attempts count from 1."""
    if attempt < 1 or first_ms < 0 or longest_ms < 0:
        raise ValueError("attempts count from 1, and no pause is negative")
    # Beyond 62 doublings every bound is the longest one; the shift stays small.
    bound = min(longest_ms, first_ms << min(attempt - 1, 62))
    drawn = hashlib.sha256(f"{seed}\0{attempt}".encode("utf-8", "surrogatepass")).digest()[:8]
    return (bound * int.from_bytes(drawn, "big")) >> 64
