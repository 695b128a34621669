"""Runs in a Python of its own, so that its peak memory is only Holdfast's: make many files, or undo that."""

from __future__ import annotations

import os
import sys
import time

import holdfast
from holdfast.model.plan import Inline, Plan, Write


def _files(workspace: str) -> int:
    return sum(len(names) for place, _, names in os.walk(workspace) if ".holdfast" not in place)


def _apply(workspace: str, count: int) -> None:
    holdfast.init(workspace)
    with holdfast.open(workspace) as hf:
        plan = Plan("many", tuple(Write(f"d{n // 1000:03}/f{n:06}", Inline(b"%d\n" % n)) for n in range(count)))
        hf.execute(hf.simulate(plan), approved_by="me")
    assert _files(workspace) == count


def _undo(workspace: str) -> None:
    with holdfast.open(workspace) as hf:
        hf.undo(hf.log()[0].id, approved_by="me")
    assert os.listdir(workspace) == [".holdfast"]


def _peak_mib() -> int:
    """Of this program only: `getrusage` also counts what the process that started us had in use."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) // 1024


def main(verb: str, workspace: str, count: int, limit_mib: int) -> None:
    started = time.monotonic()
    if verb == "apply":
        _apply(workspace, count)
    else:
        _undo(workspace)
    peak = _peak_mib()
    print(f"{verb} of {count} paths: {time.monotonic() - started:.1f} s, peak {peak} MiB")
    assert peak < limit_mib, f"{verb} needed {peak} MiB"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
