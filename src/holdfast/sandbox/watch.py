"""The limits of a run, watched from outside: memory, processes and disk of all its processes together.

The kernel bounds each process (`rlimits`); only together they can be too much, and nobody but us sees them together.
What is over its limit is named, and the whole run ends.

    memory      resident pages of all processes, shared ones counted once; scratch space; files without a name in memory
    processes   how many there are, threads not counted
    disk        what the topmost layer, or the copy, and a home on the disk have grown to, holes in files included,
                since all of it may be kept; open files without a name

Between two looks (50 ms) a run can go beyond a limit by what the machine does in that time.
Looking at the disk takes longer the more there is, so it is done less often then: at most a tenth of the time.
"""

from __future__ import annotations

import os
import stat
import time
from functools import cache

from holdfast.sandbox.profile import Limits
from holdfast.sandbox.shown import SCRATCH

# bubblewrap itself, outside, and `inside.py`.
_OURS = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512
_EACH = 4096
_DISK_SHARE = 10
_DISK_EVERY_S = 0.1
# The kernel's bounds lie beyond the watch's, so that a run is ended by us, who can say why, and not by a failed call.
_BEYOND = 2
_SLACK = 256 << 20
# The kernel counts threads, we count processes.
_THREADS_EACH = 8


def can_watch() -> bool:
    """Whether the kernel tells who came from whom (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def rlimits(limits: Limits) -> tuple[tuple[str, int], ...]:
    """The kernel's bounds for each process. Not the address space: Java, Node and Go reserve far more than they use."""
    rows = [("RLIMIT_CORE", 0)]
    if limits.open_files:
        rows.append(("RLIMIT_NOFILE", limits.open_files))
    if limits.disk_bytes:
        rows.append(("RLIMIT_FSIZE", _BEYOND * limits.disk_bytes + _SLACK))
    if limits.memory_bytes:
        rows.append(("RLIMIT_DATA", _BEYOND * limits.memory_bytes + _SLACK))
    # Before 5.14 processes are counted for the user on the whole host, not for the namespace.
    if limits.processes and _kernel() >= (5, 14):
        rows.append(("RLIMIT_NPROC", limits.processes * _THREADS_EACH))
    return tuple(rows)


class Meter:
    """Asked again and again while a run lasts (`process.Watch`); `places` are the directories it writes to."""

    def __init__(self, limits: Limits, places: tuple[str, ...]) -> None:
        self._limits, self._places = limits, places
        self._free = _free_bytes(places)
        self._next_disk = 0.0
        self._at_start = self._written([]) if limits.disk_bytes else 0

    def __call__(self, pid: int, printed: int) -> str:
        limits = self._limits
        if limits.output_bytes and printed > limits.output_bytes:
            return "output"
        family = descendants(pid, limits.processes + _OURS)
        if limits.processes and len(family) - _OURS > limits.processes:
            return "processes"
        if limits.memory_bytes and self._memory(family) > limits.memory_bytes:
            return "memory"
        return "disk" if limits.disk_bytes and self._disk_is_full(family) else ""

    def last_look(self) -> str:
        """When the run is over: what it did since the look before, or in less time than a look takes."""
        return (
            "disk" if self._limits.disk_bytes and self._written([]) - self._at_start > self._limits.disk_bytes else ""
        )

    def _memory(self, family: list[int]) -> int:
        held = _scratch_bytes(family) + nameless_bytes(family, in_memory=True)
        resident = sum(_resident(pid) for pid in family)
        if held + resident <= self._limits.memory_bytes:
            return held + resident
        # Over it when every page is counted for everyone who has it; now exactly.
        return held + sum(_proportional(pid) for pid in family)

    def _disk_is_full(self, family: list[int]) -> bool:
        if time.monotonic() < self._next_disk:
            return False
        return self._written(family) - self._at_start > self._limits.disk_bytes

    def _written(self, family: list[int]) -> int:
        started = time.monotonic()
        sizes = [_size_of(place) for place in self._places]
        total = sum(size for size, _ in sizes)
        if any(blind for _, blind in sizes):
            # A directory nobody may enter hides what is in it; then all that the disk lost counts.
            total = max(total, self._free - _free_bytes(self._places))
        total += nameless_bytes(family, in_memory=False)
        ended = time.monotonic()
        self._next_disk = ended + max(_DISK_EVERY_S, _DISK_SHARE * (ended - started))
        return total


def descendants(pid: int, enough: int) -> list[int]:
    """All that live below a process; more than `enough` are not looked for, a bomb would win time by it (0: all).

    Orphans stay below: the first process of their namespace adopts them.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting and (not enough or len(found) <= enough):
        parent = waiting.pop()
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                children = [int(child) for child in _text(f"/proc/{parent}/task/{thread}/children").split()]
                found += children
                waiting += children
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended; its children are the first process's by now, and seen at the next look
    return found


def nameless_bytes(family: list[int], *, in_memory: bool) -> int:
    """Files that only an open descriptor keeps: in memory (memfd), or deleted ones on a disk.

    Deleted files in scratch space are neither: they are counted with it.
    """
    seen: dict[tuple[int, int], int] = {}
    elsewhere = {_memory_device(), *(_device_of(_scratch(pid)) for pid in family[:1])}
    for path in (path for pid in family for path in _descriptors(pid)):
        try:
            about = os.stat(path)
        except OSError:
            continue  # closed or ended meanwhile
        ours = about.st_dev == _memory_device() if in_memory else about.st_dev not in elsewhere
        if ours and about.st_nlink == 0 and stat.S_ISREG(about.st_mode):
            seen[about.st_dev, about.st_ino] = about.st_blocks * _BLOCK
    return sum(seen.values())


@cache
def _memory_device() -> int:
    """The file system of files without a name in memory."""
    fd = os.memfd_create("holdfast-watch", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _device_of(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except OSError:
        return 0  # not mounted yet, or ended already


def _scratch(pid: int) -> str:
    """The sandbox's scratch space, as a process inside sees it."""
    return f"/proc/{pid}/root{SCRATCH}"


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _size_of(directory: str) -> tuple[int, bool]:
    """Bytes below a directory, and whether some of it could not be seen. A file counts with its whole length.

    An empty file counts too: file systems run out of them as they run out of bytes.
    """
    total, blind = 0, False
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(os.fspath(waiting.pop())) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    length = about.st_size if stat.S_ISREG(about.st_mode) else 0
                    total += max(length, about.st_blocks * _BLOCK, _EACH)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            blind = True  # closed to us, or so deep that no path reaches it
    return total, blind


def _scratch_bytes(family: list[int]) -> int:
    """Scratch space in use, as the sandbox's own first process sees it."""
    if not family:
        return 0
    try:
        about = os.statvfs(_scratch(family[0]))
    except OSError:
        return 0  # not mounted yet, or ended already
    return (about.f_blocks - about.f_bfree) * about.f_frsize


def _free_bytes(places: tuple[str, ...]) -> int:
    """On all their file systems together, each counted once."""
    disks = {os.stat(place).st_dev: os.statvfs(place) for place in places}
    return sum(about.f_bfree * about.f_frsize for about in disks.values())


def _resident(pid: int) -> int:
    try:
        return int(_text(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _proportional(pid: int) -> int:
    """Resident bytes, each page divided by the number of those who share it."""
    try:
        for line in _text(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return _resident(pid)
    return 0


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
