"""One try of a check, and the words for it.

A command gets a clean environment and a private HOME and TMPDIR, so that it finds none of the user's secrets or
settings there and leaves nothing behind; both are removed when it has ended and all its processes are gone.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.sandbox.process import Command, Finished, clean_environment, run

OUTPUT_LIMIT = 4 << 20
GRACE_MS = 500

# done, total, what is going on
Progress = Callable[[int, int, str], None]


class Attempt(NamedTuple):
    """`said` continues a sentence that begins with the command or the URL; `remarks` end it, each after a semicolon.

    `hopeless` means that another try is in vain.
    """

    passed: bool
    said: str
    log: bytes
    exit_code: int | None = None
    remarks: str = ""
    hopeless: bool = False


def silent(done: int, total: int, text: str) -> None:
    """The progress of nobody looking."""


def try_command(argv: tuple[str, ...], directory: str, timeout_ms: int) -> Attempt:
    """Run one command in `directory`. What cannot be started is a failed attempt."""
    import tempfile

    private = tempfile.mkdtemp(prefix="holdfast-check-")
    try:
        home, tmpdir = os.path.join(private, "home"), os.path.join(private, "tmp")
        os.mkdir(home, 0o700)
        os.mkdir(tmpdir, 0o700)
        environment = clean_environment(home, tmpdir=tmpdir)
        finished = run(Command(argv, directory, environment, timeout_ms, OUTPUT_LIMIT, GRACE_MS))
    except InvalidInput as error:
        attempt = Attempt(False, f"could not be run: {error.message}", error.message.encode(), hopeless=True)
    else:
        said = ending(finished, timeout_ms)
        attempt = Attempt(finished.succeeded, said, finished.output, finished.exit_code, _remarks(finished))
    finally:
        leftover = _remove(private)
    return attempt._replace(remarks=attempt.remarks + leftover)


def ending(finished: Finished, timeout_ms: int) -> str:
    """How a program ended, in words."""
    if finished.timed_out:
        return f"did not end within {duration(timeout_ms)} and was killed"
    if finished.signal is not None:
        return f"was killed by {_signal_name(finished.signal)}"
    if finished.exit_code is None:
        return "ended, but its exit code could not be learned"
    return f"exited with {finished.exit_code}"


def shown(argv: tuple[str, ...]) -> str:
    """A command on one line, quoted as a shell would need it."""
    import shlex

    return printable(shlex.join(argv)) or "an empty command"


def duration(milliseconds: int) -> str:
    """350 ms, 1.4 s, 10 s."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.0f} s" if seconds >= 10 or milliseconds % 1000 == 0 else f"{seconds:.1f} s"


def plural(count: int, noun: str, plural_noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {plural_noun}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _remarks(finished: Finished) -> str:
    text = ""
    if finished.left_behind and not finished.timed_out:
        text += f"; {plural(finished.left_behind, 'process', 'processes')} left behind and killed"
    if finished.survivors:
        text += f"; {plural(finished.survivors, 'process', 'processes')} left behind that could not be killed"
    return text


def _remove(directory: str) -> str:
    """Remove a private directory; a remark when something in it resists."""
    import shutil

    try:
        try:
            shutil.rmtree(directory)
        except PermissionError:
            _make_writable(directory)
            shutil.rmtree(directory)
    except OSError as error:
        return f"; its private directory {directory} could not be removed ({error.strerror})"
    return ""


def _make_writable(directory: str) -> None:
    """Package caches are often made read-only. Symlinks are not followed: they may point at the user's files."""
    os.chmod(directory, 0o700)
    for _, names, _, fd in os.fwalk(directory):
        for name in names:
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                os.chmod(name, 0o700, dir_fd=fd)
