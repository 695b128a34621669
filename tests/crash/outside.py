"""The same kills from outside: strace stops a real program at the n-th system call of a kind.

A shim sees only the calls it was built to see; the kernel sees all, those of the database and of Python included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crash import child
from crash.driver import Place

CHANGING = """openat open creat write pwrite64 writev pwritev mkdir mkdirat unlink unlinkat rmdir rename renameat
    renameat2 symlink symlinkat link linkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utimensat utime
    utimes fsync fdatasync syncfs sync_file_range ftruncate truncate fallocate setxattr fsetxattr lsetxattr
    copy_file_range""".split()
_LOOKS = ("newfstatat", "lstat", "statx")
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)")


class Stop(NamedTuple):
    """Kill at the n-th call of this kind since the program began."""

    call: str
    number: int


def stops(place: Place, log: Path, *what: str) -> list[Stop]:
    """Every call after the mark that can change a disk, found in one uninterrupted run."""
    traced = ",".join((*CHANGING, *_LOOKS))
    # A call that this architecture does not have is no reason to stop.
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace=?{traced.replace(',', ',?')}"]
    assert _run(place, command, *what) == b"done"
    return list(_stops(log.read_text(errors="replace")))


def killed(place: Place, stop: Stop, *what: str) -> bytes:
    """Run it with that kill; what it printed before."""
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={stop.call}"]
    return _run(place, [*command, "-e", f"inject={stop.call}:signal=SIGKILL:when={stop.number}"], *what)


def _run(place: Place, tracer: list[str], *what: str) -> bytes:
    place.enter()
    tests = str(Path(__file__).parent.parent)
    # Byte code is written once and found afterwards, so that every run makes the same calls.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path[1:]]), "PYTHONHASHSEED": "0"}
    action, *rest = what
    command = [*tracer, sys.executable, child.__file__, action, place.workspace, *rest]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    ).stdout


def _stops(text: str) -> Iterator[Stop]:
    seen: Counter[str] = Counter()
    counting = False
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        call, arguments = found.groups()
        if call in _LOOKS:
            counting = counting or child.BEGIN in arguments
            continue
        seen[call] += 1
        if counting and _changes(call, arguments):
            yield Stop(call, seen[call])


def _changes(call: str, arguments: str) -> bool:
    """An open for reading changes nothing; the last word to the parent is no change either."""
    if call in ("open", "openat"):
        return "O_CREAT" in arguments or "O_TRUNC" in arguments
    return not (call == "write" and arguments.startswith("1, "))
