"""How often what went wrong, and what was tried last."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import NamedTuple

from holdfast.model.path import printable
from holdfast.proxy.refusals import Kind, Refusal

_REMEMBERED = 200


class Silence(NamedTuple):
    """Why the provider did not serve the newest question, and for how long it asked to be left alone."""

    why: str
    asked_ms: int = 0


class Tally:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Kind] = Counter()
        self._refusals: deque[Refusal] = deque(maxlen=_REMEMBERED)
        self._tunnelled = 0
        self._silence: Silence | None = None

    def served(self, silence: Silence | None) -> None:
        """How the provider took the newest question; None where it answered."""
        with self._lock:
            self._silence = silence

    @property
    def silence(self) -> Silence | None:
        with self._lock:
            return self._silence

    def count(self, kind: Kind) -> None:
        with self._lock:
            self._counts[kind] += 1

    def refuse(self, kind: Kind, what: str, message: str) -> None:
        with self._lock:
            self._counts[kind] += 1
            self._refusals.append(Refusal(kind, printable(what)[:200], message))

    def carry(self, size: int) -> None:
        with self._lock:
            self._tunnelled += size

    @property
    def failures(self) -> dict[Kind, int]:
        with self._lock:
            return dict(self._counts)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        with self._lock:
            return tuple(self._refusals)

    @property
    def tunnelled(self) -> int:
        with self._lock:
            return self._tunnelled
