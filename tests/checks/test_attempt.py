"""The private places of checks: one for each try, gone with it, or with the next process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# A try in a process of its own.
TRY = """
import sys
from holdfast.checks.attempt import try_command
print(try_command(tuple(sys.argv[1:]), "/", 60_000).passed, flush=True)
"""


def _trying(place: Path, *argv: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(place)}
    return subprocess.Popen([sys.executable, "-c", TRY, *argv], env=environment, stdout=subprocess.PIPE, text=True)


def _aged(place: Path) -> list[Path]:
    """What is there, made to look as if it had been there for an hour."""
    found = sorted(place.glob("holdfast-check-*"))
    for path in found:
        os.utime(path, (time.time() - 3600,) * 2)
    return found


def _begun(place: Path, word: str) -> subprocess.Popen[str]:
    child = _trying(place, "/bin/sh", "-c", f"echo > {place}/{word}; exec sleep 30")
    end = time.monotonic() + 30
    while not (place / word).exists():
        assert time.monotonic() < end, "it did not begin"
        time.sleep(0.02)
    return child


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """A private place whose process was killed goes with the first check of another process; a new one stays whole."""
    killed = _begun(tmp_path, "first")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(_aged(tmp_path)) == 1
    assert _trying(tmp_path, "/bin/true").communicate()[0] == "True\n"
    assert list(tmp_path.glob("holdfast-check-*")) == []


def test_a_place_in_use_is_left_alone(tmp_path: Path) -> None:
    """However old it is, as long as its process lives."""
    living = _begun(tmp_path, "first")
    try:
        (place,) = _aged(tmp_path)
        assert _trying(tmp_path, "/bin/true").communicate()[0] == "True\n"
        assert sorted(path.name for path in place.iterdir()) == ["home", "reports", "tmp"]
    finally:
        living.kill()
        living.communicate()
