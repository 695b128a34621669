"""Cost: a sandbox with its overlay is ready in a moment, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.process import Command
from sandbox.cell import PLAIN, Cell, mounts

RUNS = 200
READY_MS = 100


@pytest.mark.serial
def test_a_sandbox_is_ready_within_100_ms(cell: Cell) -> None:
    """From the call to the first byte of the program inside, overlay and all checks included; the best of twenty."""
    command = Command(("echo", "x"), cell.view.path, {"PATH": "/usr/bin:/bin"}, 9000)

    def act() -> list[float]:
        ready: list[float] = []
        for _ in range(20):
            started = time.perf_counter()
            run_confined(command, cell.view, PLAIN, on_output=lambda _: ready.append(time.perf_counter() - started))  # noqa: B023
        return ready

    took = sorted(cell.act(act))
    print(f"ready after {took[0] * 1000:.0f} ms at best, {took[10] * 1000:.0f} ms in the middle")
    assert took[0] * 1000 < READY_MS


@pytest.mark.serial
@pytest.mark.long
def test_many_runs_leave_nothing(cell: Cell) -> None:
    """After 200 runs there are no more mounts, processes, descriptors or files than before."""
    command = Command(("true",), cell.view.path, {"PATH": "/usr/bin:/bin"}, 9000)

    def state() -> tuple[list[str], int, list[str]]:
        gc.collect()
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return mounts(cell.place), len(os.listdir("/proc/self/fd")), children

    def act() -> tuple[object, object]:
        run_confined(command, cell.view, PLAIN)
        before = state()
        for _ in range(RUNS):
            assert run_confined(command, cell.view, PLAIN).succeeded
        return before, state()

    before, after = cell.act(act)
    assert after == before
    assert cell.written() == {}
