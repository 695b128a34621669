"""The one place that starts programs.

    RUNNING ──exit──▶ SETTLING ──▶ STOPPING ──▶ SWEPT ──▶ REAPED
       │              (100 ms)     (TERM, grace)  (KILL)
       └──deadline, limit─────────────▲

Invariants
  P1  No shell. What is in `argv` reaches the program byte for byte; the program is an absolute path before the fork.
  P2  Environment, descriptors, terminal, ignored and blocked signals are not inherited.
      The umask, the niceness and the resource limits are, but for core files, which are off.
  P3  The deadline is kept while the program runs, also when it prints without end or ignores SIGTERM.
  P4  When `run` returns or raises, everything the program started is dead, as far as it can be found:
      by session (children, groups, jobs) and by a mark in the environment (daemons that made a new session).
      What could be seen but not killed is counted in `survivors`; so is an unseen holder of the output pipe.
  P5  The program stays a zombie until the sweep is over, so its pid, which names the session, cannot go to a stranger.
  P6  Processes are signalled through a pidfd and recognised again after that was opened; never by pid alone.
  P7  Memory is bounded by `output_limit`, whatever is printed.
  P8  If we are killed with SIGKILL, the kernel kills the program (PR_SET_PDEATHSIG).

What still escapes, when we are not root or it takes trouble: a process that left the session *and* closed our pipe
*and* hides its environment (wiped it, made itself undumpable as ssh-agent does, or belongs to another user by set-uid);
work handed to a daemon that was there before (systemd-run, docker, at);
and, only when we die by SIGKILL, the grandchildren, since P8 reaches the program itself.

Why `preexec_fn`: there is no other way to ask for P8 without a helper program between us and the child.
It is unsafe where other threads hold locks during the fork; it therefore calls only what was loaded and bound before.
P8 is tied to the thread that called `run`, which waits here until the program is gone.

Deliberately absent: isolation and resource limits (`confined.py` adds them by what it puts in front of `argv`,
and by a `watch` that is asked again and again while the program runs, and may end it by naming a reason).
"""

from __future__ import annotations

import os
import select
import signal
import stat
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.errors import InvalidInput, Unsupported
from holdfast.model.path import printable
from holdfast.sandbox.family import Family
from holdfast.sandbox.output import Capture

if TYPE_CHECKING:
    from subprocess import Popen

MARK = "HOLDFAST_RUN"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 16
# A pipeline's last member may write a moment longer than the program that started it.
_SETTLE_S = 0.1
_SCAN_EVERY_S = 0.02
_WATCH_EVERY_S = 0.05
# Longer than any ordinary process needs to die; what still stands then hangs in the kernel, or forks faster than we.
_SWEEP_S = 3.0
_KILL_PAUSE_S = 0.002
_DYING_S = 1.0
_LAST_READS = 1 + (1 << 20) // _CHUNK  # a pipe holds 1 MiB at most, unless root made it larger
_RESET_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)


class Command(NamedTuple):
    """A program to run. `env` is the whole environment; `output_limit` bytes of output are kept.

    `stdin` is all it can read; `pass_fds` are descriptors it gets besides 0, 1 and 2, under the same numbers.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_ms: int
    output_limit: int = 1 << 20
    grace_ms: int = 1000
    stdin: bytes = b""
    pass_fds: tuple[int, ...] = ()


# Given the program's pid and the bytes printed so far; the reason to end it, or nothing.
Watch: TypeAlias = Callable[[int, int], str]


class Finished(NamedTuple):
    """How it ended. Neither exit code nor signal: the status could not be learned, which is never a success.

    `output` is head and tail with a line between them that says how much (`output_truncated`) was left out.
    `left_behind` counts processes found alive after the program's end, and ended;
    `survivors` those that could not be ended. `stopped` is the reason the watch gave for ending it.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ms: int
    output: bytes
    output_truncated: int
    left_behind: int
    survivors: int
    stopped: str = ""

    @property
    def succeeded(self) -> bool:
        """It ended by itself, in time, with 0, and nothing of it still runs."""
        return self.exit_code == 0 and not self.timed_out and not self.survivors and not self.stopped


def clean_environment(home: str, path: str | None = None, tmpdir: str | None = None) -> dict[str, str]:
    """The environment of a program that shall know nothing of ours: no keys, no tokens, no agent sockets.

    Without `path` our own PATH is used, less its relative and empty entries: those name whatever stands in `cwd`.
    """
    wanted = os.environ.get("PATH", "") if path is None else path
    absolute = ":".join(entry for entry in wanted.split(":") if entry.startswith("/"))
    return {"PATH": absolute or DEFAULT_PATH, "HOME": home, "LANG": "C.UTF-8", "TMPDIR": tmpdir or home}


def run(command: Command, *, on_output: Callable[[bytes], None] | None = None, watch: Watch | None = None) -> Finished:
    """Run to the end or to the deadline. InvalidInput when it cannot be started at all."""
    _check_host()
    program = program_of(command)
    mark = f"{MARK}={os.urandom(16).hex()}"
    started = time.monotonic()
    running = _Running(_start(command, program, mark), mark, Capture(command.output_limit), on_output)
    try:
        stopped = running.wait(started + command.timeout_ms / 1000, watch)
        timed_out = not running.exited and not stopped
        duration_ms = int((time.monotonic() - started) * 1000)
        running.stop(0 if stopped else command.grace_ms / 1000)
        exit_code, by_signal = running.status()
        return Finished(
            exit_code=exit_code,
            signal=by_signal,
            timed_out=timed_out,
            duration_ms=duration_ms,
            output=running.capture.text(),
            output_truncated=running.capture.left_out,
            left_behind=len(running.left_behind),
            survivors=running.survivors,
            stopped=stopped,
        )
    finally:
        running.close()


def _check_host() -> None:
    """What the invariants stand on; without it nothing is started."""
    if not os.path.isdir("/proc/self/fd"):
        raise Unsupported("/proc is not mounted; processes left behind could not be found")
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        raise Unsupported("SIGCHLD is ignored here; exit codes would be lost, and pids reused too early (P5)")


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


def _start(command: Command, program: str, mark: str) -> Popen[bytes]:
    import subprocess

    name, _, value = mark.partition("=")
    stdin = _readable(command.stdin) if command.stdin else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command.argv,
            executable=program,
            cwd=command.cwd,
            env={**command.env, name: value},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            close_fds=True,
            pass_fds=command.pass_fds,
            start_new_session=True,
            preexec_fn=_preparation(),
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


def _preparation() -> Callable[[], None]:
    """What the child does between fork and exec; everything it needs is bound here, before the fork."""
    import ctypes
    import resource

    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()
    hard_core = resource.getrlimit(resource.RLIMIT_CORE)[1]

    def prepare() -> None:
        if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError("PR_SET_PDEATHSIG is refused")
        if os.getppid() != parent:
            os._exit(127)  # we died before the line above took effect; nobody reads this status
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        # A crash must not leave a core file in the user's directory.
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard_core))

    return prepare


class _Running:
    """One started program and all that comes from it, until it is reaped."""

    def __init__(
        self, process: Popen[bytes], mark: str, capture: Capture, on_output: Callable[[bytes], None] | None
    ) -> None:
        assert process.stdout is not None  # asked for in _start
        self.capture = capture
        self.exited = False
        self.left_behind: set[int] = set()
        self.survivors = 0
        self._process, self._family, self._on_output = process, Family(process.pid, mark), on_output
        self._pipe = process.stdout
        self._end_of_output = self._swept = self._killed = False
        os.set_blocking(self._pipe.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._pipe.fileno(), select.POLLIN)
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except OSError as error:
            self._pidfd = -1
            self.close()
            raise Unsupported(f"the process cannot be watched: {error.strerror}") from error
        self._poll.register(self._pidfd, select.POLLIN)

    def wait(self, deadline: float, watch: Watch | None) -> str:
        """RUNNING: until the program has exited, the deadline is over, or the watch gave a reason to end it."""
        due = time.monotonic() + _WATCH_EVERY_S
        while not self.exited and time.monotonic() < deadline:
            self._step(deadline if watch is None else min(deadline, due))
            if watch is not None and time.monotonic() >= due and not self.exited:
                reason = watch(self._process.pid, self.capture.total)
                if reason:
                    return reason
                due = time.monotonic() + _WATCH_EVERY_S
        return ""

    def stop(self, grace: float) -> None:
        """STOPPING: politely, then not; without grace, first of all not: a fork bomb grows while we look around."""
        if grace <= 0 and not self.exited:
            self._killed = True
            self._family.kill([])
        members = [] if self.exited and self._settled() else self._found()
        for pid in members:
            self._family.send(pid, signal.SIGTERM)
        patience = time.monotonic() + grace
        while members and time.monotonic() < patience:
            self._listen(min(time.monotonic() + _SCAN_EVERY_S, patience))
            members = self._found()
        self._sweep(members)

    def _settled(self) -> bool:
        """SETTLING: whether all the rest ends by itself in a moment; then nothing was left behind."""
        end = time.monotonic() + _SETTLE_S
        while not self._end_of_output and time.monotonic() < end:
            self._step(end)
        while self._family.members():
            if time.monotonic() >= end:
                return False
            self._listen(min(time.monotonic() + _SCAN_EVERY_S, end))
        return True

    def status(self) -> tuple[int | None, int | None]:
        """Exit code or signal; neither when the kernel gave it to nobody (SIGCHLD ignored) or the program hangs."""
        try:
            result = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return None, None
        if result is None:
            return None, None
        return (result.si_status, None) if result.si_code == os.CLD_EXITED else (None, result.si_status)

    def close(self) -> None:
        """Also the way out of an exception: nothing keeps running, no descriptor stays open, no zombie stays."""
        self._on_output = None
        try:
            if not self._swept:
                self._sweep(self._found())
        finally:
            self._process.poll()
            self._pipe.close()
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1

    def _listen(self, until: float) -> None:
        while time.monotonic() < until:
            self._step(until)

    def _step(self, until: float) -> bool:
        """Wait for one event at most until then; True when output was read."""
        progress = False
        for fd, _ in self._poll.poll(max(0.0, until - time.monotonic()) * 1000):
            if fd == self._pidfd:
                self.exited = True
                self._poll.unregister(fd)
            else:
                progress = self._read(fd)
        return progress

    def _read(self, fd: int) -> bool:
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._end_of_output = True
            self._poll.unregister(fd)
            return False
        self.capture.add(chunk)
        if self._on_output is not None:
            self._on_output(chunk)
        return True

    def _found(self) -> list[int]:
        """Everything alive that came from the program; remembers who else was there than the program itself."""
        found = self._family.members()
        self.left_behind.update(pid for pid in found if pid != self._process.pid)
        return found

    def _sweep(self, members: list[int]) -> None:
        """SWEPT: SIGKILL until nothing is found; then take what is left in the pipe."""
        self._swept = True
        end = time.monotonic() + _SWEEP_S
        while members and time.monotonic() < end:
            self._family.kill(members)
            time.sleep(_KILL_PAUSE_S)
            members = self._found()
        self._last_words(_DYING_S if self.left_behind or self._killed else 0)
        # The write end is still open: somebody we cannot see holds it.
        self.survivors = len(members) or int(not self._end_of_output)

    def _last_words(self, patience: float) -> None:
        """What is left in the pipe. Who is dying is out of sight before its end of the pipe is closed."""
        end = time.monotonic() + patience
        for _ in range(_LAST_READS):
            while not self._end_of_output and not self._step(end) and time.monotonic() < end:
                pass
