"""Child processes that run items (see `child.py`), always ended with the test that began them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.engine.durable import Database

PROGRAM = str(Path(__file__).parent / "child.py")


@contextmanager
def child(mode: str, database: Database, effects: Path, last: object = "-") -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, PROGRAM, mode, database.state, database.url, str(effects), str(last)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline().strip()
    assert line == word, f"{line!r}: {process.stderr.read() if not line else ''}"


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
