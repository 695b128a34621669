"""One try of a check, and the words for it.

A command gets a clean environment and a private HOME and TMPDIR, so that it finds none of the user's secrets or
settings there and leaves nothing behind; both are removed when it has ended and all its processes are gone,
or by whoever tries a command later, if we were killed.
Whoever isolates the command (`run`) may put a home and a TMPDIR of its own in their place.
Reports it shall leave for us go to a directory of the same kind, which it is told by the word REPORTS in its arguments.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

from holdfast.checks.tree import read_beneath
from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.sandbox.process import Command, Finished, clean_environment, run

OUTPUT_LIMIT = 4 << 20
REPORT_LIMIT = 32 << 20
GRACE_MS = 500
_PREFIX = "holdfast-check-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TO_LOCK_S = 60
REPORTS = "{reports}"
# Tells whoever isolates a command which directory it must be able to write for its reports.
REPORTS_VARIABLE = "HOLDFAST_REPORTS"

# done, total, what is going on
Progress = Callable[[int, int, str], None]
# Runs a command to its end, as `sandbox.process.run` does; InvalidInput when it cannot be started.
Run: TypeAlias = Callable[[Command], Finished]


class Attempt(NamedTuple):
    """`said` continues a sentence that begins with the command or the URL; `remarks` end it, each after a semicolon.

    `hopeless` means that another try is in vain.
    `identity` tells one living thing from its successor; a settling window wants the same one all along.
    `reports` are the files the command was asked to leave, those that it left.
    `timed_out` and `survived` (a process of it could not be ended) are never a success, whatever a report says.
    """

    passed: bool
    said: str
    log: bytes
    exit_code: int | None = None
    remarks: str = ""
    hopeless: bool = False
    identity: str = ""
    reports: tuple[tuple[str, bytes], ...] = ()
    timed_out: bool = False
    survived: bool = False


def silent(done: int, total: int, text: str) -> None:
    """The progress of nobody looking."""


def try_command(
    argv: tuple[str, ...],
    directory: str,
    timeout_ms: int,
    *,
    run: Run = run,
    env: tuple[tuple[str, str], ...] = (),
    reports: tuple[str, ...] = (),
) -> Attempt:
    """Run one command in `directory`. What cannot be started is a failed attempt."""
    private, held = _private_place()
    try:
        home, tmpdir, left = (os.path.join(private, name) for name in ("home", "tmp", "reports"))
        for path in (home, tmpdir, left):
            os.mkdir(path, 0o700)
        environment = {**clean_environment(home, tmpdir=tmpdir), **dict(env)}
        if reports:
            argv = tuple(word.replace(REPORTS, left) for word in argv)
            environment[REPORTS_VARIABLE] = left
            _let_the_sandbox_write(left)
        finished = run(Command(argv, directory, environment, timeout_ms, OUTPUT_LIMIT, GRACE_MS))
        files = tuple(_left_behind(private, reports))
    except InvalidInput as error:
        attempt = Attempt(False, f"could not be run: {error.message}", error.message.encode(), hopeless=True)
    else:
        said = ending(finished, timeout_ms)
        attempt = Attempt(
            passed=finished.succeeded,
            said=said,
            log=finished.output,
            exit_code=finished.exit_code,
            remarks=_remarks(finished),
            reports=files,
            timed_out=finished.timed_out,
            survived=finished.survivors > 0,
        )
    finally:
        leftover = _remove(private)
        os.close(held)
    return attempt._replace(remarks=attempt.remarks + leftover)


def _private_place() -> tuple[str, int]:
    """A new directory, and the lock on it, which the kernel gives up when we are killed."""
    import tempfile

    _sweep(tempfile.gettempdir())
    private = tempfile.mkdtemp(prefix=_PREFIX)
    held = os.open(private, _DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_SH)
    return private, held


@cache
def _sweep(folder: str) -> None:
    """Once a process: remove what others left who were killed. Who has just made one has a minute to lock it."""
    with os.scandir(os.fspath(folder)) as entries:
        ours = [entry.path for entry in entries if entry.name.startswith(_PREFIX) and _is_old(entry)]
    for path in ours:
        try:
            held = os.open(path, _DIRECTORY)
        except OSError:
            continue  # somebody else was quicker
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except OSError:
            continue  # in use
        finally:
            os.close(held)


def _is_old(entry: os.DirEntry[str]) -> bool:
    try:
        about = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and about.st_mtime < time.time() - _TO_LOCK_S


def _let_the_sandbox_write(directory: str) -> None:
    """Root is somebody else inside a sandbox (see sandbox.confined), and what is written there must be that one's."""
    from holdfast.sandbox.confined import SHIFT, is_real_root

    if is_real_root():
        os.chown(directory, SHIFT, SHIFT)


def _left_behind(private: str, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """The reports that are there. The command may have put anything in their place; only plain files are read."""
    if not names:
        return
    root = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            try:
                yield name, read_beneath(root, f"reports/{name}", REPORT_LIMIT)
            except OSError:
                continue  # not left; the test gate says that there is none
    finally:
        os.close(root)


def ending(finished: Finished, timeout_ms: int) -> str:
    """How a program ended, in words."""
    if finished.timed_out:
        return f"did not end within {duration(timeout_ms)} and was killed"
    if finished.signal is not None:
        return f"was killed by {_signal_name(finished.signal)}"
    if finished.exit_code is None:
        return "ended, but its exit code could not be learned"
    return f"exited with {finished.exit_code}"


def without_reports(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What a person would type: where we want our reports is no part of that, and the word for it says nothing."""
    return tuple(word for word in argv if REPORTS not in word)


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
