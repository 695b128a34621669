"""Programs that work for the person at our terminal, with that person's own environment: `ssh`, so far.

    ask       standard input from us, standard output to us       a question and its answer
    attach    the person's terminal, or nothing to read           the work itself; its output untouched, or line by line

Invariants
  G1  No shell. What is in `argv` reaches the program word by word; it is found on the PATH as the person would.
  G2  Standard error is ours, so that what the program says to a person is seen by one.
  G3  If we are killed, so is the program (PR_SET_PDEATHSIG); what it started elsewhere is not ours to end.
  G4  Ctrl-C reaches the program from the terminal; we wait for it, because only it knows how things ended.

No sandbox: unlike `process.run`, everything is inherited. It must never start what a repository or an agent names.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Unsupported
from holdfast.model.path import printable

if TYPE_CHECKING:
    from subprocess import Popen

_PR_SET_PDEATHSIG = 1
_ANSWER_LIMIT = 1 << 20


class Answer(NamedTuple):
    """Negative statuses are signals, as in `subprocess`."""

    status: int
    output: bytes


def ask(argv: Sequence[str], data: bytes) -> Answer:
    """Give a program some bytes and take its answer, which is short."""
    import subprocess

    process = _start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        output, _ = process.communicate(data)
    return Answer(process.returncode, output[:_ANSWER_LIMIT])


def attach(argv: Sequence[str], *, terminal: bool, on_line: Callable[[bytes], None] | None = None) -> int:
    """Run a program in our place; with `on_line` its standard output comes here, a whole line at a time."""
    import subprocess

    stdin = None if terminal else subprocess.DEVNULL
    process = _start(argv, stdin=stdin, stdout=subprocess.PIPE if on_line is not None else None)
    with process:
        while True:
            try:
                if on_line is not None and process.stdout is not None:
                    for line in process.stdout:
                        # What the connection cut off in the middle is no answer.
                        if line.endswith(b"\n"):
                            on_line(line)
                return process.wait()
            except KeyboardInterrupt:
                continue  # G4


def _start(argv: Sequence[str], *, stdin: int | None, stdout: int | None) -> Popen[bytes]:
    import subprocess

    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=stdout, preexec_fn=_ended_with_us())
    except FileNotFoundError:
        raise Unsupported(f"{printable(argv[0])} is not installed here") from None
    except OSError as error:
        raise Unsupported(f"{printable(argv[0])} cannot be started: {error.strerror}") from error
    except ValueError:
        raise Unsupported("a NUL byte cannot be passed to a program") from None


def _ended_with_us() -> Callable[[], None]:
    import ctypes

    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)

    return prepare
