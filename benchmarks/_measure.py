"""What the benchmarks share: a place to work, taking turns, and ratios against goals.

    with arena(None) as place: …            a default ext4 in a loop image (root), or a plain directory
    medians = turns(rounds, {"a": f, "b": g})   f and g return seconds; they take turns, medians count

Everything is compared inside one run: a busy machine then slows all contestants alike.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

Timed = Callable[[], float]
_ENDING = (signal.SIGTERM, signal.SIGHUP)
# Children must run the Holdfast that stands beside the benchmarks.
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, "src"))


class Arena(NamedTuple):
    """Where to work, and what a reader must know about it."""

    path: str
    about: str


class Verdict(NamedTuple):
    """One goal: a number, its limit, and what was compared."""

    what: str
    value: float
    limit: float
    unit: str = "×"

    @property
    def ok(self) -> bool:
        return self.value <= self.limit

    def line(self) -> str:
        number = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"  {'ok    ' if self.ok else 'MISSED'}  {number:>8} {self.unit:<8} goal ≤ {self.limit:<6g}  {self.what}"


@contextmanager
def arena(directory: str | None, size: str = "4G") -> Iterator[Arena]:
    """A journaled ext4 of default making where root is had; otherwise `directory`, whatever it is.

    It is gone afterwards, also when somebody ends the benchmark: `timeout`, a terminal that closes, Ctrl-C.
    """
    with _ended_in_order():
        if directory is None and os.geteuid() == 0 and shutil.which("mkfs.ext4"):
            with _loop_image(size) as path:
                yield Arena(path, "ext4 with default options in a loop image")
            return
        place = tempfile.mkdtemp(prefix="holdfast-bench-", dir=directory)
        try:
            yield Arena(place, f"{_file_system(place)} at {directory or tempfile.gettempdir()}; no loop image")
        finally:
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP leave by the way that Ctrl-C takes, past everything that cleans up; once, so that a second
    one does not end the cleaning. A child that was forked in here has nothing to clean: it just ends."""
    owner = os.getpid()

    def leave(number: int, frame: object) -> None:
        if os.getpid() != owner:
            os._exit(128 + number)
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in _ENDING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _loop_image(size: str) -> Iterator[str]:
    # Not in the temporary directory, which may be memory: a flush must reach a device.
    folder = tempfile.mkdtemp(prefix="holdfast-bench-", dir="/var/tmp")
    image, mount = os.path.join(folder, "image"), os.path.join(folder, "mount")
    os.mkdir(mount)
    try:
        run(["truncate", "-s", size, image])
        run(["mkfs.ext4", "-q", "-F", image])
        try:
            run(["mount", "-o", "loop", image, mount])
            yield mount
        finally:
            if os.path.ismount(mount):
                # Lazily: a contestant that failed may still hold something open until this process ends.
                run(["umount", "--lazy", mount])
    finally:
        shutil.rmtree(folder)


def _file_system(path: str) -> str:
    found = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def run(argv: list[str], **options: object) -> None:
    """A command that must succeed; its output is shown only when it does not."""
    done = subprocess.run(argv, capture_output=True, env=environment(), **options)  # type: ignore[call-overload]
    if done.returncode:
        said = done.stderr.decode(errors="replace")[-2000:]
        raise SystemExit(f"{' '.join(argv[:6])}: exit {done.returncode}\n{said}")


# A small program of its own: Linux counts what the parent had in memory when it started a child as the child's peak.
_PEAK = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet), 0)
print(usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_of(argv: list[str]) -> int:
    """Bytes: the largest resident set of a command (its path in full) that must succeed."""
    measured = [sys.executable, "-S", "-c", _PEAK, *argv]
    done = subprocess.run(measured, env=environment(), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv[:6])}: exit {done.returncode}")
    return int(done.stdout)


def environment() -> dict[str, str]:
    """As a user has it: with byte code kept, without this shell's git settings."""
    dropped = ("PYTHONDONTWRITEBYTECODE",)
    kept = {key: value for key, value in os.environ.items() if key not in dropped and not key.startswith("GIT_")}
    git = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    return {**kept, **git, "LC_ALL": "C.UTF-8", "PYTHONPATH": SOURCE}


def clocked(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def on_the_processor(work: Callable[[], object]) -> Timed:
    """For what waits for nothing: processor time, so that a busy machine counts less."""

    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return once


def turns(rounds: int, contestants: Mapping[str, Timed]) -> dict[str, float]:
    """The median time of each contestant, in seconds; a first turn of everybody warms up and does not count."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, work in contestants.items():
            seconds = work()
            if number:
                samples[name].append(seconds)
    return {name: statistics.median(times) for name, times in samples.items()}


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if seconds < 10 else f"{seconds * 1e3:,.0f}"
