"""Where benchmarks work is gone when they end, however they are ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from _measure import arena
with arena(sys.argv[2] or None, "64M") as place:
    print(place.path, flush=True)
    time.sleep(60)
"""


def ended(directory: str, number: int) -> tuple[Path, int]:
    """The place of a benchmark that got this signal, and the exit status of the benchmark."""
    command = [sys.executable, "-c", PROGRAM, str(BENCHMARKS), directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        place = Path(child.stdout.readline().strip())
        child.send_signal(number)
        child.stdout.read()
        return place, child.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """`timeout` sends SIGTERM, a terminal that closes SIGHUP: the directory goes, and the status says which it was."""
    place, status = ended(str(tmp_path), number)
    assert (status, place.parent, list(tmp_path.iterdir())) == (128 + number, tmp_path, [])


@pytest.mark.root
def test_a_benchmark_that_is_ended_takes_its_loop_image_with_it() -> None:
    """Neither the mount nor the folder of the image stays behind."""
    if os.geteuid() or not shutil.which("mkfs.ext4") or not os.path.exists("/dev/loop-control"):
        pytest.skip("no loop image can be mounted here")
    place, status = ended("", signal.SIGTERM)
    assert place.name == "mount" and status == 128 + signal.SIGTERM
    assert not place.parent.exists()
    assert str(place) not in Path("/proc/self/mountinfo").read_text()
