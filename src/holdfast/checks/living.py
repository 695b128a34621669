"""A living process, found by its command's name or by the number in a file.

A process is its number and the moment it started: numbers are given again.
Of several with one name the oldest counts, since that is the one that starts and replaces the others.
A zombie is dead.
"""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

from holdfast.checks.attempt import Attempt
from holdfast.model.check import ProcessCheck

_COMM_LENGTH = 15  # what the kernel keeps of a name
_NUMBER = re.compile(rb"\s*([1-9][0-9]{0,9})\s*")
# Positions in /proc/PID/stat after the name.
_STATE, _START = 0, 19


class Living(NamedTuple):
    started: int
    pid: int


def try_process(check: ProcessCheck, directory: str) -> Attempt:
    if check.pid_file:
        return _by_file(check, directory)
    found = sorted(
        process for entry in os.listdir("/proc") if entry.isdigit() and (process := _named(int(entry), check.name))
    )
    if not found:
        return Attempt(False, "is not running", b"")
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return _alive(found[0], others)


def _by_file(check: ProcessCheck, directory: str) -> Attempt:
    try:
        number = _NUMBER.fullmatch(_first_bytes(os.path.join(directory, check.pid_file)))
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else None
        return Attempt(False, f"has no readable file: {(words or str(error)).lower()}", b"")
    if number is None:
        return Attempt(False, "has a file that holds no process number", b"")
    pid = int(number[1])
    process = _named(pid, check.name) if check.name else _living(pid)
    if process is None:
        other = check.name and _living(pid) is not None
        what = f"pid {pid}, which is another program" if other else f"pid {pid}, which is not running"
        return Attempt(False, f"is given as {what}", b"")
    return _alive(process, "")


def _alive(process: Living, others: str) -> Attempt:
    return Attempt(True, f"is running (pid {process.pid}{others})", b"", identity=f"{process.pid}@{process.started}")


def _first_bytes(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a plain file")
        return file.read(64)


def _living(pid: int) -> Living | None:
    """The process if it is alive and not ourselves."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None  # it has ended
    # The name stands in parentheses and may itself contain some.
    fields = text[text.rfind(b")") + 2 :].split()
    if pid == os.getpid() or fields[_STATE] in (b"Z", b"X"):
        return None
    return Living(int(fields[_START]), pid)


def _named(pid: int, name: str) -> Living | None:
    """The process if its command has this name: as the kernel knows it, or as the program was called."""
    try:
        comm = os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n"))
        program = os.fsdecode(_read(f"/proc/{pid}/cmdline").partition(b"\0")[0])
    except OSError:
        return None  # it has ended
    if name != os.path.basename(program) and name[:_COMM_LENGTH] != comm:
        return None
    return _living(pid)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(65536)
