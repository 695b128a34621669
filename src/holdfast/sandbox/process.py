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
      They are looked for among those whose numbers were given since (`newcomers.py`), or among all.
      What could be seen but not killed is counted in `survivors`; so is an unseen holder of the output pipe.
  P5  The program stays a zombie until the sweep is over, so its pid, which names the session, cannot go to a stranger.
  P6  Processes are signalled through a pidfd and recognised again after that was opened; never by pid alone.
  P7  Memory is bounded by `output_limit`, whatever is printed.
  P8  If we are killed with SIGKILL, the kernel kills the program (PR_SET_PDEATHSIG).

What still escapes, when we are not root or it takes trouble: a process that left the session *and* closed our pipe
*and* hides its environment (wiped it, made itself undumpable as ssh-agent does, or belongs to another user by set-uid),
or left the session and was given an older number by somebody who may choose them, as those who restore processes do;
work handed to a daemon that was there before (systemd-run, docker, at);
and, only when we die by SIGKILL, the grandchildren, since P8 reaches the program itself.

Deliberately absent: isolation and resource limits (`confined.py` adds them by what it puts in front of `argv`,
and by a `watch` that is asked again and again while the program runs, and may end it by naming a reason).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.errors import Unsupported
from holdfast.sandbox.family import Family
from holdfast.sandbox.newcomers import Moment
from holdfast.sandbox.output import Capture
from holdfast.sandbox.starting import MARK as MARK
from holdfast.sandbox.starting import Command as Command
from holdfast.sandbox.starting import program_of, start

if TYPE_CHECKING:
    from subprocess import Popen

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_CHUNK = 1 << 16
# A pipeline's last member may write a moment longer than the program that started it.
_SETTLE_S = 0.1
_SCAN_EVERY_S = 0.02
_WATCH_EVERY_S = 0.05
# Longer than any ordinary process needs to die; what still stands then hangs in the kernel, or forks faster than we.
_SWEEP_S = 3.0
_KILL_PAUSE_S = 0.002
_DYING_S = 1.0
# The one that comes most often last: it is given back to its handler last.
_RAISING = (signal.SIGUSR2, signal.SIGUSR1, signal.SIGALRM, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_LAST_READS = 1 + (1 << 20) // _CHUNK  # a pipe holds 1 MiB at most, unless root made it larger


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


def run(
    command: Command,
    *,
    on_output: Callable[[bytes], None] | None = None,
    watch: Watch | None = None,
    ended: Callable[[], bool] | None = None,
) -> Finished:
    """Run to the end or to the deadline. InvalidInput when it cannot be started at all.

    `ended` is asked when the program has exited by itself: whether it is known that nothing of it is left.
    Then nobody is looked for (P4).
    """
    with beside(command, on_output=on_output, watch=watch, ended=ended) as finish:
        return finish()


@contextmanager
def beside(
    command: Command,
    *,
    on_output: Callable[[bytes], None] | None = None,
    watch: Watch | None = None,
    ended: Callable[[], bool] | None = None,
) -> Iterator[Callable[[], Finished]]:
    """The same while the block does something else; calling what it gets waits for the end, once.

    The time it has, the watch and the reading of its output begin with that call.
    However the block is left, nothing of the program is (P4).
    """
    _check_host()
    program = program_of(command)
    mark = f"{MARK}={os.urandom(16).hex()}"
    began = time.monotonic()
    with ExitStack() as stack:
        with _undisturbed():
            process = start(command, program, mark)
            family = Family(process.pid, mark, Moment(process.pid - 1, began))
            running = _Running(process, family, Capture(command.output_limit), on_output)
            stack.callback(running.close)
        yield lambda: _finished(running, command, began, watch, ended)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Handlers that may raise are called when a program that was started is known, or one that is ended is gone.

    Blocking the signals would not do: another thread may get one, and the handler is called in this one nevertheless.
    """
    import threading

    # In any other thread none is called, and none can be set.
    numbers = _RAISING if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in numbers}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    came: list[int] = []
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for one in came:
            handlers[signal.Signals(one)](one, None)


def _finished(
    running: _Running, command: Command, began: float, watch: Watch | None, ended: Callable[[], bool] | None
) -> Finished:
    stopped = running.wait(time.monotonic() + command.timeout_ms / 1000, watch)
    timed_out = not running.exited and not stopped
    duration_ms = int((time.monotonic() - began) * 1000)
    by_itself = running.exited and running.status()[0] is not None
    over = by_itself and ended is not None and ended()
    running.stop(0 if stopped else command.grace_ms / 1000, over=over)
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


def _check_host() -> None:
    """What the invariants stand on; without it nothing is started."""
    try:
        ours = os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        raise Unsupported("/proc is not mounted; processes left behind could not be found") from None
    if not ours:
        raise Unsupported("/proc is that of another pid namespace; processes left behind could not be found")
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        raise Unsupported("SIGCHLD is ignored here; exit codes would be lost, and pids reused too early (P5)")


class _Running:
    """One started program and all that comes from it, until it is reaped."""

    def __init__(
        self, process: Popen[bytes], family: Family, capture: Capture, on_output: Callable[[bytes], None] | None
    ) -> None:
        assert process.stdout is not None  # asked for in _start
        self.capture = capture
        self.exited = False
        self.left_behind: set[int] = set()
        self.survivors = 0
        self._process, self._family, self._on_output = process, family, on_output
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

    def stop(self, grace: float, *, over: bool) -> None:
        """STOPPING: politely, then not; without grace, first of all not: a fork bomb grows while we look around."""
        if grace <= 0 and not self.exited:
            self._killed = True
            self._family.kill([])
        members = [] if over or (self.exited and self._settled()) else self._found()
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
        with _undisturbed():
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
        end = time.monotonic() + _SWEEP_S
        while members and time.monotonic() < end:
            self._family.kill(members)
            time.sleep(_KILL_PAUSE_S)
            members = self._found()
        self._last_words(_DYING_S if self.left_behind or self._killed else 0)
        # The write end is still open: somebody we cannot see holds it.
        self.survivors = len(members) or int(not self._end_of_output)
        self._swept = True

    def _last_words(self, patience: float) -> None:
        """What is left in the pipe. Who is dying is out of sight before its end of the pipe is closed."""
        end = time.monotonic() + patience
        for _ in range(_LAST_READS):
            while not self._end_of_output and not self._step(end) and time.monotonic() < end:
                pass
