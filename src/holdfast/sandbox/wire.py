"""What is handed to those who make a sandbox: `stage.py` outside of it, `inside.py` in it.

They unpack it by position, since they import nothing; the order of the fields here is the format.
It never leaves this machine or this run, so it has no version.
"""

from __future__ import annotations

import marshal
import os
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import NamedTuple

# kind, source, destination. Kinds: `ro`, `rw` as they are; `own-ro`, `own-rw` with owners as they are on the disk;
# `view` (what the layers give); `scratch` (source: tmp, shm, home); `symlink` (source: its target);
# `over` (what is written to it stays in memory, and goes with the program);
# `hide` (source: empty, void); `proc`, `dev`. In the order in which they are mounted.
# `config` is as `ro`, but for something in /etc that is shown with all others by the one row `etc`.
Row = tuple[str, str, str]
# parent directory, and upper and work relative to it
LayerRow = tuple[str, str, str]


class Spec(NamedTuple):
    """For stage.py."""

    bwrap: str
    shift: int  # 0: an ordinary user
    lonely: bool  # a network namespace without even a loopback
    rows: tuple[Row, ...]
    view: str
    base: str  # what the layers stand on; unused without layers
    layers: tuple[LayerRow, ...]
    masked: tuple[str, ...]
    repository: str  # where the file `.git` of the view leads, inside; empty: it is covered as anything that is masked
    room: int  # bytes of scratch space, 0 for no bound
    head: tuple[str, ...]  # bubblewrap's arguments before the mounts
    tail: tuple[str, ...]  # and after them


class Task(NamedTuple):
    """For inside.py."""

    argv: tuple[str, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    limits: tuple[tuple[str, int], ...]  # names of the resource module
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    alone: bool  # nothing but a loopback may be in the network namespace
    deaf: bool  # not even TCP over loopback
    seccomp: bool
    landlock: bool
    forward: tuple[int, str, str] | tuple[()]  # the port, the socket it leads to, and where forward.py is inside
    ends: tuple[int, ...]  # descriptors that become the program's standard input and output


def packed(spec: Spec, task: Task) -> int:
    """A descriptor from which both can read at any offset; the code of `inside.py` is in it too (see `started`)."""
    fd = os.memfd_create("holdfast-sandbox", os.MFD_CLOEXEC)
    os.write(fd, marshal.dumps((tuple(task), code_of(_INSIDE), tuple(spec)), 2))
    return fd


def started(python: str, path: str) -> tuple[str, ...]:
    """How `python` is told to run `inside.py`, which is at `path` there, before the descriptors.

    Compiled, where it is the Python that compiled it: to do that anew takes longer than its work.
    """
    if os.path.realpath(python) != os.path.realpath(sys.executable):
        return (path,)
    return "-c", _BOOT


_INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside.py")
_BOOT = "import marshal,os,sys;s=int(sys.argv[1]);exec(marshal.loads(os.pread(s,os.fstat(s).st_size,0))[1])"


@cache
def code_of(path: str) -> CodeType:
    """Of a program of ours: from the cache that Python keeps beside a source, while that is of the source as it is."""
    code = SourceFileLoader("__main__", path).get_code("__main__")
    assert code is not None, "what has a source has code"
    return code
