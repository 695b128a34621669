"""A second process that copies small files beside this one; only a help, without which the copy is the same, and later.

Invariant O1: however the block is left, the second process is gone; what it did not report is not believed (F3).
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from holdfast.errors import HoldfastError
from holdfast.sandbox.process import Command, beside
from holdfast.sandbox.wire import code_of
from holdfast.workspace import smallfiles
from holdfast.workspace.smallfiles import Done, Piece, Terms

# To start one takes as long as so many files do.
_WORTH_FILES = 1500
# For what is left in its hands when we have nothing more to do: one piece.
_PATIENCE_MS = 60_000
# The code's length comes first, then the code, then what it is to do.
_BOOT = "import marshal,os;exec(marshal.loads(os.read(0,int(os.read(0,12)))))"


@contextmanager
def companion(waiting: int, pieces: list[Piece], terms: Terms) -> Iterator[Callable[[], dict[int, Done]]]:
    """Somebody who takes pieces from the queue too; calling what the block gets waits for him, and is what he did."""
    with ExitStack() as stack:
        if not _is_worth_it(pieces):
            yield dict
            return
        report = os.memfd_create("holdfast-copied", os.MFD_CLOEXEC)
        stack.callback(os.close, report)
        try:
            finish = stack.enter_context(beside(_command(waiting, report, pieces, terms), ended=_starts_nobody))
        except HoldfastError:
            yield dict  # it cannot be started here
            return

        def done() -> dict[int, Done]:
            if not finish().succeeded:
                return {}
            return dict(marshal.loads(os.pread(report, os.fstat(report).st_size, 0)))

        yield done


def _starts_nobody() -> bool:
    """So nobody has to be looked for when it has ended by itself."""
    return True


def _is_worth_it(pieces: list[Piece]) -> bool:
    files = sum(len(names) for _, names in pieces)
    return files >= _WORTH_FILES and len(os.sched_getaffinity(0)) > 1 and bool(sys.executable)


def _command(waiting: int, report: int, pieces: list[Piece], terms: Terms) -> Command:
    code = marshal.dumps(code_of(smallfiles.__file__))
    return Command(
        argv=(os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", _BOOT, str(waiting), str(report)),
        cwd="/",
        env={},
        timeout_ms=_PATIENCE_MS,
        stdin=b"%12d" % len(code) + code + marshal.dumps((pieces, terms)),
        pass_fds=(waiting, report, terms[0], terms[1]),
    )
