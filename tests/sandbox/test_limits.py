"""Limits: what a run uses in all is bounded, and the result names the limit that ended it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.sandbox.profile import Limits, Profile
from sandbox.cell import QUICK, Cell, said

MB = 1 << 20
SMALL = QUICK._replace(memory_bytes=100 * MB, disk_bytes=20 * MB, processes=20)


def bounded(limits: Limits) -> Profile:
    return Profile(limits=limits)


MEMORY = {
    "one process": "b = bytearray()\nwhile True: b += b'x' * (2 << 20); time.sleep(0.002)",
    "many, each a little": "[os.fork() for _ in range(4)]; b = bytearray(os.urandom(12 << 20)); time.sleep(60)",
    "scratch space": "f = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * (2 << 20)); time.sleep(0.002)",
    "home and shared memory": (
        "f = [open(os.environ['HOME'] + '/x', 'wb'), open('/dev/shm/x', 'wb')]\n"
        "while True: [g.write(b'x' * (1 << 20)) for g in f]; time.sleep(0.002)"
    ),
    "files without a name": (
        "fds = [os.memfd_create('x') for _ in range(20)]\n"
        "while True: [os.write(fd, b'x' * (1 << 18)) for fd in fds]; time.sleep(0.002)"
    ),
    "shared pages": "import mmap\nm = mmap.mmap(-1, 1 << 30)\nwhile True: m.write(b'x' * (2 << 20)); time.sleep(0.002)",
}


@pytest.mark.parametrize("way", MEMORY)
def test_memory_is_bounded_for_all_together(cell: Cell, way: str) -> None:
    """However memory is taken, the run ends near its limit and the result says memory, or the space was refused."""
    ran = cell.python("import os, time\n" + MEMORY[way], profile=bounded(SMALL))
    assert ran.limit == "memory" or "No space left" in said(ran), (ran, said(ran))
    assert not ran.succeeded
    assert ran.finished.duration_ms < 10_000


def test_a_huge_allocation_is_refused_by_the_kernel(cell: Cell) -> None:
    """A single request far beyond the limit fails inside; reserving without using does not."""
    ran = cell.python("import mmap; mmap.mmap(-1, 20 << 30, prot=0); b = bytearray(20 << 30)", profile=bounded(SMALL))
    assert "MemoryError" in said(ran)
    assert "line 1" in said(ran) and "mmap.mmap(" not in said(ran).replace("import mmap; mmap.mmap(", "")


def test_pages_that_are_shared_are_counted_once(cell: Cell) -> None:
    """Ten children that share the memory of their parent use it once."""
    code = (
        "import os, time\nb = bytearray(os.urandom(40 << 20))\n"
        "for _ in range(9):\n    if not os.fork(): time.sleep(0.5); os._exit(0)\n"
        "time.sleep(0.5); print('fine')"
    )
    ran = cell.python(code, profile=bounded(SMALL))
    assert (ran.limit, said(ran)) == ("", "fine\n")


@pytest.mark.parametrize(
    "bomb",
    [
        "while True: os.fork()",
        "while True:\n    if os.fork(): os._exit(0) if os.getpid() % 2 else time.sleep(0.001)",
        "while True:\n    try: os.fork() or os.setsid()\n    except OSError: pass",
    ],
)
def test_forking_without_end_ends(cell: Cell, bomb: str) -> None:
    """A fork bomb is ended, the result says processes, and none of it is left."""
    started = time.monotonic()
    mine = f"# {os.urandom(8).hex()}\n"  # others may throw the same bomb at the same time
    ran = cell.python(f"{mine}import os, time\n{bomb}", profile=bounded(SMALL))
    assert ran.limit == "processes" or ran.finished.exit_code != 0, ran
    assert ran.finished.survivors == 0
    assert time.monotonic() - started < 15
    assert not [name for name in os.listdir("/proc") if name.isdigit() and mine.encode() in _command_line(name)]


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


DISK = {
    "many files": "n = 0\nwhile True: n += 1; open(f'f{n}', 'wb').write(b'x' * (1 << 20)); time.sleep(0.005)",
    "one file": "f = open('f', 'wb', 0)\nwhile True: f.write(b'x' * (1 << 20)); time.sleep(0.005)",
    "deleted and still open": (
        "fs = []\nwhile True:\n    f = open('f', 'wb', 0); os.unlink('f'); fs.append(f)\n"
        "    f.write(b'x' * (1 << 20)); time.sleep(0.005)"
    ),
    "empty files": "n = 0\nwhile True: n += 1; open(f'f{n}', 'wb').close(); n % 50 or time.sleep(0.002)",
}


@pytest.mark.parametrize("way", DISK)
def test_the_disk_is_not_filled(cell: Cell, way: str) -> None:
    """However a program writes, it is ended soon after its limit, and the result says disk."""
    before = os.statvfs(cell.place).f_bfree
    ran = cell.python("import os, time\n" + DISK[way], profile=bounded(SMALL))
    assert ran.limit == "disk", (ran, said(ran))
    lost = (before - os.statvfs(cell.place).f_bfree) * os.statvfs(cell.place).f_frsize
    assert lost < 400 * MB


DEEP = """
import os, time
for _ in range(25):
    os.mkdir('d' * 200); os.chdir('d' * 200)
n = 0
while True: n += 1; open(f'f{n}', 'wb').write(b'x' * (1 << 20)); time.sleep(0.005)
"""
CLOSED = """
import os, time
os.mkdir('d'); os.chdir('d'); os.chmod('.', 0o300); n = 0
while True: n += 1; open(f'f{n}', 'wb').write(b'x' * (1 << 20)); time.sleep(0.005)
"""


@pytest.mark.serial
@pytest.mark.parametrize("code", [DEEP, CLOSED], ids=["deeper than a path", "closed to everyone"])
def test_the_disk_is_not_filled_where_nobody_looks(cell: Cell, code: str) -> None:
    """Where we cannot look, all that the disk lost counts, whoever took it."""
    assert cell.python(code, profile=bounded(SMALL)).limit == "disk"


def test_what_was_in_the_layer_before_does_not_count(cell: Cell) -> None:
    """The limit is for what this run writes."""
    code = "open({name!r}, 'wb').write(b'x' * (15 << 20)); import time; time.sleep(0.3)"
    for name in ("a", "b"):
        assert cell.python(code.format(name=name), profile=bounded(SMALL)).limit == ""


def test_printing_without_end_ends(cell: Cell) -> None:
    """Output is bounded, memory for it too, and the result says output."""
    ran = cell.run("yes", profile=bounded(QUICK._replace(output_bytes=5 * MB)))
    assert ran.limit == "output"
    assert ran.finished.output_truncated > 0


def test_open_files_are_bounded(cell: Cell) -> None:
    """More descriptors than allowed are refused by the kernel."""
    ran = cell.python("import os\nfor n in range(500): os.dup(0)", profile=bounded(QUICK._replace(open_files=100)))
    assert "Too many open files" in said(ran)


def test_no_limits_means_no_limits(cell: Cell) -> None:
    """Zero is no limit, not a limit of zero."""
    ran = cell.run("sh", "-c", "echo x > y; seq 1000 | tail -1", profile=bounded(Limits(0, 0, 0, 0, 0, 0)))
    assert (ran.succeeded, said(ran), ran.limit) == (True, "1000\n", "")


def test_a_run_within_its_limits_is_left_alone(cell: Cell) -> None:
    """An ordinary program ends by itself, with its own exit code or signal."""
    assert cell.run("sh", "-c", "exit 3").finished.exit_code == 3
    killed = cell.run("sh", "-c", "kill -ABRT $$")
    assert (killed.finished.exit_code, killed.finished.signal, killed.limit) == (None, 6, "")
