"""Programs that stay: launched on purpose, remembered by identity, ended with everything they started.

    fork ─▶ WAITING (own session, no descriptor of ours) ──go──▶ exec ─▶ RUNNING
                └── we died, or it could not be remembered ──▶ it ends without having begun

An identity is pid, start time and boot: a pid that was given to somebody else since is never signalled.

Invariants
  D1  No shell, explicit environment, no inherited descriptors, signals as they are by default, own session, nobody's
      child: it outlives us, and no zombie of it stays with us. Output goes to a file.
  D2  A program begins only after `remember` returned: killed at any moment, none runs that nobody knows.
  D3  Signals go through a pidfd that was opened before the identity was compared.
  D4  `end` reaches the program, its session and whoever carries its mark in the environment.

What still escapes `end`: a process that left the session and hides its environment (see `process`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.sandbox.family import Family
from holdfast.sandbox.starting import Command, program_of

MARK = "HOLDFAST_SERVICE"
_STATE, _THREADS, _START_TIME = 0, 17, 19  # positions in /proc/PID/stat after the name
_POLL_S = 0.02
_DYING_S = 0.001
_KILL_WAIT_S = 3.0
_GO = b"g"


class Identity(NamedTuple):
    """One process, whatever becomes of its number."""

    pid: int
    started: int
    boot: str


class Daemon(NamedTuple):
    """A launched program, and the mark that all its descendants carry."""

    identity: Identity
    mark: str


class _Start(NamedTuple):
    """What the new process needs: `go` is read, `word` is written, `output` takes what it says."""

    program: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    output: int
    go: int
    word: int


def launch(
    argv: tuple[str, ...], cwd: str, env: Mapping[str, str], output: int, remember: Callable[[Daemon], None]
) -> Daemon:
    """Start a program that outlives us (D2). InvalidInput when it cannot be started at all."""
    mark = os.urandom(16).hex()
    marked = {**env, MARK: mark}
    program = program_of(Command(argv, cwd, marked, 0))
    go, gate = _pipe()
    word, voice = _pipe()
    try:
        _fork_twice(_Start(program, argv, cwd, marked, output, go, voice), word, gate)
        # Only the new process may hold these ends: then our death reads as an end of file on its side, and its on ours.
        go, voice = _closed(go), _closed(voice)
        identity = identity_of(int(_line(word)))
        if identity is None:
            raise InvalidInput(f"{printable(argv[0])} was ended before it began")
        daemon = Daemon(identity, mark)
        remember(daemon)
        os.write(gate, _GO)
        problem = os.read(word, 64)
    finally:
        for fd in (go, gate, word, voice):
            _closed(fd)
    if problem:
        raise InvalidInput(f"{printable(argv[0])} cannot be started: {os.strerror(int(problem))}")
    return daemon


def identity_of(pid: int) -> Identity | None:
    """Who has this pid now; None for nobody, and for a process that has ended and was not collected."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A process whose first thread ended is shown as a zombie although other threads run on.
    if fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) < 2:
        return None
    return Identity(pid, int(fields[_START_TIME]), boot)


def is_alive(identity: Identity) -> bool:
    return identity_of(identity.pid) == identity


def stays(identity: Identity, seconds: float) -> bool:
    """Is it still there after so long?"""
    return not _gone_within([identity], seconds)


def catches(identity: Identity, number: signal.Signals) -> bool:
    """Has the program a handler for this signal? Without one most signals would end it."""
    try:
        with open(f"/proc/{identity.pid}/status", encoding="ascii", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return is_alive(identity) and bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone."""
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if identity_of(identity.pid) != identity:
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def end(daemon: Daemon, grace_s: float) -> bool:
    """SIGTERM to the program, or to what it left behind; SIGKILL to all of them after the grace. True when all is gone.

    A program that is asked politely ends its workers itself; those that stay when it is gone are told too.
    """
    deadline = time.monotonic() + grace_s
    family = _members(daemon)
    polite = [daemon.identity] if daemon.identity in family else family
    while polite and time.monotonic() < deadline:
        for identity in polite:
            send(identity, signal.SIGTERM)
        _gone_within(polite, deadline - time.monotonic())
        family = sorted({*family, *_members(daemon)})
        polite = [identity for identity in family if is_alive(identity)]
    if not polite:
        return True
    for identity in sorted({*family, *_members(daemon)}):
        send(identity, signal.SIGKILL)
    return _gone_within(family, _KILL_WAIT_S) and not _members(daemon)


def _members(daemon: Daemon) -> list[Identity]:
    """Everybody alive who belongs to it, but us. The session counts while its leader lives, who keeps its number."""
    session = daemon.identity.pid if is_alive(daemon.identity) else -1
    pids = Family(session, f"{MARK}={daemon.mark}\0").members()
    found = (identity_of(pid) for pid in pids if pid != os.getpid())
    return [identity for identity in found if identity is not None]


def _gone_within(identities: list[Identity], seconds: float) -> bool:
    """Woken by the end of each; whoever cannot be waited for is looked at again and again."""
    patience = time.monotonic() + seconds
    for identity in identities:
        while is_alive(identity):
            left = patience - time.monotonic()
            if left <= 0:
                return False
            _await_end(identity.pid, left)
    return True


def _await_end(pid: int, seconds: float) -> None:
    import select

    try:
        fd = os.pidfd_open(pid)
    except OSError:
        time.sleep(min(seconds, _POLL_S))
        return
    try:
        ends = select.poll()
        ends.register(fd, select.POLLIN)
        if ends.poll(seconds * 1000):
            time.sleep(_DYING_S)  # its last thread may be a moment behind the first
    finally:
        os.close(fd)


# ── the start ──


def _fork_twice(start: _Start, *ours: int) -> None:
    """The one between ends at once, so that the program is nobody's child here (D1)."""
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                _become(start, ours)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _become(start: _Start, not_ours: tuple[int, ...]) -> NoReturn:
    """In the new process: wait for the word to go, and become the program."""
    try:
        for fd in not_ours:
            os.close(fd)
        _settle_in(start)
        os.write(start.word, b"%d\n" % os.getpid())
        if os.read(start.go, 1) == _GO:
            os.chdir(start.cwd)
            os.execve(start.program, start.argv, start.env)
    except OSError as error:
        os.write(start.word, b"%d" % (error.errno or 0))
    finally:
        os._exit(127)


def _settle_in(start: _Start) -> None:
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((nothing, 0), (start.output, 1), (start.output, 2)):
        os.dup2(fd, standard)
    # Now and not at exec: a lock of ours must not outlive us because this one waits.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in (start.go, start.word):
            _closed(int(name))


def _pipe() -> tuple[int, int]:
    """Both ends above the standard descriptors, which whoever started us may have closed."""
    import fcntl

    ends = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in ends]
    for fd in ends:
        os.close(fd)
    return high[0], high[1]


def _closed(fd: int) -> int:
    """Close it, if it is open: the descriptor that a listing was read from is not, when we come to it."""
    if fd >= 0:
        os.closerange(fd, fd + 1)
    return -1


def _line(fd: int) -> bytes:
    said = b""
    while not said.endswith(b"\n"):
        piece = os.read(fd, 64)
        if not piece:
            raise InvalidInput("the new process ended before it began")
        said += piece
    return said
