"""Runs in a Python of its own, so that its peak memory is only Holdfast's: create many files, then undo."""

from __future__ import annotations

import os
import resource
import sys
import time

import holdfast
from holdfast.model.plan import Inline, Plan, Write


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _files(workspace: str) -> int:
    return sum(len(names) for place, _, names in os.walk(workspace) if ".holdfast" not in place)


def main(workspace: str, count: int, limit_mib: int) -> None:
    started = time.monotonic()
    holdfast.init(workspace)
    hf = holdfast.open(workspace)
    plan = Plan("many", tuple(Write(f"d{n // 1000:03}/f{n:06}", Inline(b"%d\n" % n)) for n in range(count)))
    done = hf.execute(hf.simulate(plan), approved_by="me")
    applied, peak = time.monotonic(), _peak_mib()
    assert _files(workspace) == count
    hf.undo(done.id, approved_by="me")
    undone, whole = time.monotonic(), _peak_mib()
    print(f"apply {applied - started:.1f} s, peak {peak} MiB; undo {undone - applied:.1f} s, peak {whole} MiB")
    assert os.listdir(workspace) == [".holdfast"]
    assert peak < limit_mib, f"apply needed {peak} MiB"
    assert whole < limit_mib, f"apply and undo needed {whole} MiB"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
