"""The ledger against the machine: appends against a raw append with fdatasync, `verify` against `sha256sum`.

    python benchmarks/ledger.py --dir /a/directory/on/the/file/system/in/question

All numbers come from one run; contestants take turns, and medians are compared, so that a busy machine hits both.
Goals: append ≤ 1.2 × raw, verify ≤ 1.0 × sha256sum, the check before each change ≤ 5 ms while nobody touched the file.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

from holdfast.store.chain import Record
from holdfast.store.ledger import LEDGER_NAME, Ledger

KEY = bytes(range(32))
SMALL, LARGE = 300, 2048  # bytes a line
OVERHEAD = 175  # what a line costs besides the filler


def record(number: int, size: int) -> Record:
    body = {"execution_id": f"x-{number:08d}", "note": "n" * (size - OVERHEAD)}
    return Record("execution", dict(body), 1_700_000_000_000_000_000 + number)


def ledger_in(folder: str) -> Ledger:
    os.makedirs(folder, 0o700, exist_ok=True)
    return Ledger(folder, KEY, "bench", os.path.join(folder, "anchors", "bench"))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def turns(rounds: int, *contestants: Callable[[], object]) -> list[float]:
    """The median time of each contestant, in seconds."""
    samples: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for times, work in zip(samples, contestants, strict=True):
            times.append(timed(work))
    return [statistics.median(times) for times in samples]


def raw_append(path: str, reserved: bool) -> Callable[[], None]:
    """What no ledger can beat: one write of the same size at the end of a file, and fdatasync."""
    line = b"r" * (SMALL - 1) + b"\n"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    keep_size = 1
    if reserved and ctypes.CDLL(None).fallocate(fd, keep_size, ctypes.c_int64(0), ctypes.c_int64(64 << 20)):
        print("(this file system cannot reserve space: the first line is a plain append)")

    def append() -> None:
        os.pwrite(fd, line, os.lseek(fd, 0, os.SEEK_END))
        os.fdatasync(fd)

    return append


def appends(folder: str, rounds: int) -> None:
    ledger = ledger_in(os.path.join(folder, "append"))
    one, hundred = record(1, SMALL), [record(n, SMALL) for n in range(100)]
    reserved, plain, ours = turns(
        rounds,
        raw_append(os.path.join(folder, "reserved"), True),
        raw_append(os.path.join(folder, "plain"), False),
        lambda: ledger.append(*one),
    )
    (group,) = turns(max(1, rounds // 10), lambda: ledger.append_many(hundred))
    _row("raw append + fdatasync, preallocated", reserved, reserved)
    _row("raw append + fdatasync, plain", plain, reserved)
    _row("append (goal 1.20)", ours, reserved)
    _row("append_many(100), a record", group / 100, reserved)


def _row(name: str, seconds: float, floor: float) -> None:
    print(f"{name:38} {seconds * 1e6:9.1f} µs   {seconds / floor:5.2f} × preallocated")


def verification(folder: str, rounds: int, count: int, size: int) -> None:
    place = os.path.join(folder, f"verify{size}")
    ledger = ledger_in(place)
    for start in range(0, count, 1000):
        ledger.append_many([record(n, size) for n in range(start, min(start + 1000, count))])
    path = os.path.join(place, LEDGER_NAME)
    assert ledger.verify().ok
    ledger.require_whole()
    theirs, ours, tail, untouched = turns(
        rounds,
        lambda: subprocess.run(["sha256sum", path], stdout=subprocess.DEVNULL, check=True),
        ledger.verify,
        ledger.head,
        ledger.require_whole,
    )

    def touched() -> None:
        os.utime(path)
        ledger.require_whole()

    (walked,) = turns(rounds, touched)
    print(f"{count:,} records of {os.path.getsize(path) / count:.0f} B")
    print(f"  sha256sum, process included          {theirs * 1e3:9.1f} ms")
    print(f"  verify                               {ours * 1e3:9.1f} ms   {ours / theirs:5.2f} × sha256sum (goal 1.00)")
    print(f"  head, from the tail                  {tail * 1e6:9.1f} µs")
    print(f"  check before a change, untouched     {untouched * 1e3:9.2f} ms   (goal 5)")
    print(f"  check before a change, touched       {walked * 1e3:9.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to work (default: the temporary directory)")
    parser.add_argument("--rounds", type=int, default=300, help="appends to time (default: %(default)s)")
    parser.add_argument("--records", type=int, default=100_000, help="records to verify (default: %(default)s)")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ledger-", dir=options.dir)
    try:
        appends(folder, options.rounds)
        for size in (SMALL, LARGE):
            verification(folder, 7, options.records, size)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
