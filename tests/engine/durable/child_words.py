"""What `child.py` and the tests that start it agree upon."""

from __future__ import annotations

from holdfast.engine.durable import Lease

WORKSPACE = "w-child"
STEPS = ("one", "two", "three")
ITEMS = 60
LEASE = Lease(seconds=2.0, beat=0.4)


def ids(count: int) -> list[str]:
    return [f"{WORKSPACE}/{number}" for number in range(count)]
