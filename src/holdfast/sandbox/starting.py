"""A program as it is wanted, and its start: the way from our process to the new one.

Why `preexec_fn`: there is no other way to ask for P8 without a helper program between us and the child.
It is unsafe where other threads hold locks during the fork; it therefore calls only what was loaded and bound before.
It makes a start three times as expensive, since our memory is copied for a moment. A kill by another process that
waits for our end would be cheaper, but that one can be killed first; a signal from the kernel that we ask for when the
start is over (F_SETOWN) would come too late for who dies during it.
P8 is tied to the thread that called `run`, which waits there until the program is gone.

What stands before a sandbox (`stage.py`) is done there too: it needs no interpreter of its own then, which takes longer
to start than all of its work. Its descriptors are only the program's own from the first moment on, and nothing of ours
is collected in the new process: a forgotten file that is closed there closes a number that is somebody else's by now.
"""

from __future__ import annotations

import gc
import os
import signal
import stat
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from holdfast.errors import InvalidInput, Unsupported
from holdfast.model.path import printable

if TYPE_CHECKING:
    from subprocess import Popen

MARK = "HOLDFAST_RUN"

_PR_SET_PDEATHSIG = 1
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
# Not the C library's own; and the two that every Python ignores are given back by every start.
_RESETTABLE = tuple(sorted(signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}))


class Command(NamedTuple):
    """A program to run. `env` is the whole environment; `output_limit` bytes of output are kept.

    `stdin` is all it can read; `pass_fds` are descriptors it gets besides 0, 1 and 2, under the same numbers.
    `become` is called in the new process with its environment, in place of the start of the program: it never returns.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_ms: int
    output_limit: int = 1 << 20
    grace_ms: int = 1000
    stdin: bytes = b""
    pass_fds: tuple[int, ...] = ()
    become: Callable[[dict[str, str]], NoReturn] | None = None


def program_of(command: Command) -> str:
    """The absolute path of the program, or InvalidInput with the reason it cannot be started."""
    if not command.argv or not command.argv[0]:
        raise InvalidInput("the command is empty")
    for text in (*command.argv, *command.env, *command.env.values(), command.cwd):
        _check_text(text)
    if any(not name or "=" in name for name in command.env):
        raise InvalidInput("an environment variable has a name that is empty or contains '='")
    name = command.argv[0]
    if not os.path.isdir(command.cwd):
        raise InvalidInput(f"{printable(command.cwd)} is not a directory to run a command in")
    if "/" in name:
        candidates = [os.path.join(os.path.abspath(command.cwd), name)]
    else:
        entries = command.env.get("PATH", "").split(":")
        candidates = [os.path.join(entry, name) for entry in entries if entry.startswith("/")]
    return _first_executable(name, candidates)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise InvalidInput(f"{printable(text)}: a NUL byte cannot be passed to a program")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidInput(f"{printable(text)}: this text cannot be passed to a program") from None


def _first_executable(name: str, candidates: list[str]) -> str:
    reason = "not found" if "/" in name else "not found on PATH"
    for candidate in candidates:
        try:
            mode = os.stat(candidate).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and os.access(candidate, os.X_OK):
            return candidate
        reason = "not executable" if stat.S_ISREG(mode) else "not a file"
    raise InvalidInput(f"{printable(name)}: {reason}")


def start(command: Command, program: str, mark: str) -> Popen[bytes]:
    """The new process, with a pipe for its output. InvalidInput and Unsupported say why there is none."""
    import subprocess

    name, _, value = mark.partition("=")
    env = {**command.env, name: value}
    stdin = _readable(command.stdin) if command.stdin else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command.argv,
            executable=program,
            cwd=command.cwd,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            close_fds=True,
            pass_fds=command.pass_fds,
            start_new_session=True,
            preexec_fn=_preparation(command, env),
        )
    except OSError as error:
        raise InvalidInput(f"{printable(command.argv[0])} cannot be started: {error.strerror}") from error
    except subprocess.SubprocessError as error:
        raise Unsupported(f"{printable(command.argv[0])} cannot be started safely: {error}") from error
    finally:
        if stdin >= 0:
            os.close(stdin)


def _readable(data: bytes) -> int:
    """A descriptor to read this from. A file in memory and not a pipe: nobody has to write while the program reads."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _preparation(command: Command, env: dict[str, str]) -> Callable[[], None]:
    """What the child does between fork and exec; everything it needs is bound here, before the fork.

    It does only what has an effect: whatever it touches there is memory of ours, which is copied for it page by page.
    """
    import resource

    prctl, parent = _prctl(), os.getpid()
    soft_core, hard_core = resource.getrlimit(resource.RLIMIT_CORE)
    become, kept = command.become, {0, 1, 2, *command.pass_fds}
    blocked, ignored = _signals()
    # Handlers of ours end with the exec, and where there is none they would be called.
    reset = ignored if become is None else ignored.union(_HANDLED)

    def prepare() -> None:
        if prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0):
            raise OSError("PR_SET_PDEATHSIG is refused")
        if os.getppid() != parent:
            os._exit(127)  # we died before the line above took effect; nobody reads this status
        if blocked:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in reset:
            signal.signal(number, signal.SIG_DFL)
        if soft_core:  # a crash must not leave a core file in the user's directory
            resource.setrlimit(resource.RLIMIT_CORE, (0, hard_core))
        if become is not None:
            gc.disable()
            # Also the pipe on which the start of the program is awaited: from now on the deadline is kept.
            for name in os.listdir("/proc/self/fd"):
                if int(name) not in kept:
                    os.closerange(int(name), int(name) + 1)  # the listing's own is closed already
            become(env)

    return prepare


@cache
def _prctl() -> Callable[[int, int, int, int, int], int]:
    import ctypes

    return ctypes.CDLL(None).prctl


def _signals() -> tuple[bool, frozenset[int]]:
    """Whether this thread blocks any, and which ones we ignore: as the kernel has it, whoever asked for that."""
    with open("/proc/thread-self/status", "rb", buffering=0) as file:
        status = file.read()
    blocked, ignored = (int(status.partition(name)[2][:16], 16) for name in (b"\nSigBlk:\t", b"\nSigIgn:\t"))
    return blocked != 0, frozenset(number for number in _RESETTABLE if ignored >> (number - 1) & 1)
