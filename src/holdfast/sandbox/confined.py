"""Run a program in a sandbox, or refuse to.

    Command + View + Profile ──▶ stage.py ──▶ bubblewrap ──▶ inside.py ──▶ the program
                                 mounts        namespaces     checks, rlimits, Landlock

Invariants
  N1  A profile is enforced as a whole or SandboxUnavailable is raised, and then no program was started.
  N2  `enforced` is what the kernel confirmed from inside before the program started, not what we asked for.
  N3  What is run in front of the sandbox gets none of the program's environment (LD_PRELOAD would be ours otherwise).
  N4  A limit that ended the run is named in `limit`; whatever ended it, every process of it is gone.

Deliberately absent: a way to run with less. Who wants that uses `process.run`, and says so in its own name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

from holdfast.errors import InvalidInput, SandboxUnavailable
from holdfast.model.path import printable
from holdfast.sandbox import home, shown
from holdfast.sandbox.process import Command, Finished, Watch, beside
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.stage import become_bubblewrap, works_in_a_copy_of_us
from holdfast.sandbox.syscalls import system_call_filter
from holdfast.sandbox.view import Layer, View
from holdfast.sandbox.watch import Meter, can_watch, rlimits
from holdfast.sandbox.wire import LayerRow, Spec, Task, packed, started

# Asked while a program runs; a word ends it, and says why.
Stop: TypeAlias = Callable[[], str]

SHIFT = 100_000
_BWRAPS = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap")
# With a locale named, Python looks for none; it reads and writes UTF-8 all the same.
_HELPERS_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
_AF_VSOCK = 40
_FIRST_PORT, _LAST_PORT = 1024, 65535


class Confined(NamedTuple):
    """How it ended; `limit` is the limit that ended it, `enforced` what held while it ran.

    `finished.left_behind` counts the processes that were alive when the program ended; `left` has names of some.
    """

    finished: Finished
    limit: str
    enforced: tuple[str, ...]
    left: str = ""

    @property
    def succeeded(self) -> bool:
        return self.finished.succeeded and not self.limit


class _Report(NamedTuple):
    """What the helpers said; see inside.py for the words."""

    facts: dict[str, int]
    refused: str = ""
    failed: str = ""
    exit_code: int | None = None
    signal: int | None = None
    left: int = 0
    names: str = ""


def run_confined(
    command: Command,
    view: View,
    profile: Profile,
    *,
    on_output: Callable[[bytes], None] | None = None,
    stop: Stop | None = None,
    ends: tuple[int, ...] = (),
    begun: Callable[[], None] | None = None,
) -> Confined:
    """Run to the end or to a limit. InvalidInput when there is no such program inside.

    `stop` is asked every 50 ms; a word from it ends the run, and is its `limit`.
    `begun` is called once, when its process is there.
    `ends` are what the program gets as standard input and output instead (`conversation.py`).
    """
    _check(command, view, profile)
    filtered = system_call_filter()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    descriptors = [writing]
    try:
        if filtered.program:
            descriptors.append(_in_memory(filtered.program))
        spec, task = _orders(command, view, profile, descriptors, ends)
        descriptors.append(packed(spec, task))
        helpers = _helper_command(command, view, profile, spec, (*descriptors, *ends), descriptors[-1])
        said = _Said(reading)
        meter = _meter(view, profile)
        watch: Watch = meter if stop is None else lambda pid, printed: stop() or meter(pid, printed)
        with beside(helpers, on_output=on_output, watch=watch, ended=said.it_ended) as finish:
            if begun is not None:
                begun()
            finished = finish()
        if not finished.stopped and not finished.timed_out:
            finished = finished._replace(stopped=meter.last_look())
        return _result(command, profile, finished, said.report())
    finally:
        for fd in (reading, *descriptors):
            os.close(fd)


@cache
def bubblewrap() -> str:
    """The path of bwrap; never searched on PATH, which may name the workspace."""
    for path in _BWRAPS:
        if os.access(path, os.X_OK):
            return path
    raise SandboxUnavailable("bubblewrap is not installed", hint="Install the package bubblewrap (program bwrap).")


def is_real_root() -> bool:
    """Root of the host's own user namespace, whom nobody may be inside. Root in a container is an ordinary user."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def _check(command: Command, view: View, profile: Profile) -> None:
    if not command.argv or not command.argv[0]:
        raise InvalidInput("the command is empty")
    texts = (
        *command.argv,
        *command.env,
        *command.env.values(),
        command.cwd,
        view.path,
        *profile.readable,
        profile.home,
    )
    if any("\0" in text for text in texts):
        raise InvalidInput("a NUL byte cannot be passed to a program")
    homes = (profile.home,) if profile.home else ()
    for path in (
        view.path,
        view.base,
        *(view.repository or ()),
        *profile.readable,
        *profile.overlaid,
        *profile.writable,
        *profile.hidden,
        *homes,
    ):
        if not path.startswith("/") or os.path.normpath(path) != path:
            raise InvalidInput(f"{printable(path)}: a sandbox wants absolute, plain paths")
    shown.check(view)
    if profile.network == "proxy" and not os.path.exists(profile.proxy_socket):
        raise SandboxUnavailable(f"there is no proxy at {printable(profile.proxy_socket)}")
    if profile.forward_port and (profile.network != "proxy" or not _FIRST_PORT <= profile.forward_port <= _LAST_PORT):
        raise InvalidInput(f"port {profile.forward_port} cannot lead to a proxy with network {profile.network}")
    filtered = bool(system_call_filter().program)
    if profile.network != "full" and not filtered and _has_vsock():
        raise SandboxUnavailable("without a system call filter AF_VSOCK would reach the host of this machine")
    if not filtered and not _forbids_namespaces():
        raise SandboxUnavailable("neither this bubblewrap nor a system call filter forbids new user namespaces")
    if not can_watch():
        raise SandboxUnavailable("this kernel does not list the children of a process; limits could not be kept")
    home.check(view, profile)
    for path in (*profile.writable, *homes) if is_real_root() else ():
        if os.stat(path).st_uid != SHIFT:
            raise SandboxUnavailable(
                f"{printable(path)} must belong to uid {SHIFT} to be writable in a sandbox of root's"
            )


@cache
def _forbids_namespaces() -> bool:
    """Whether bubblewrap can (since 0.8). Read, not run: to ask it takes longer than to look."""
    with open(bubblewrap(), "rb") as file:
        return b"disable-userns" in file.read()


@cache
def _has_vsock() -> bool:
    import socket

    try:
        socket.socket(_AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _orders(
    command: Command, view: View, profile: Profile, descriptors: list[int], ends: tuple[int, ...]
) -> tuple[Spec, Task]:
    """What each of the two helpers is to do. `descriptors`: the report, and the filter when there is one."""
    python = shown.interpreter(view.path)
    mounts = shown.rows(view, profile, python)
    readable, writable = shown.fences(mounts)
    spec = Spec(
        bwrap=bubblewrap(),
        shift=SHIFT if is_real_root() else 0,
        lonely=profile.network == "none",
        rows=mounts,
        view=view.path,
        base=view.base,
        layers=tuple(_layer_row(layer) for layer in view.layers),
        masked=shown.hidden_in_view(view, profile),
        repository=shown.REPOSITORY if view.repository is not None else "",
        room=profile.limits.memory_bytes,
        head=_namespaces(profile),
        # The descriptors of task and report follow; the stage adds them.
        tail=(
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *(("--seccomp", str(descriptors[1])) if len(descriptors) > 1 else ()),
            *("--", python.inside, "-I", "-S", "-B", *started(python.here, shown.INSIDE)),
        ),
    )
    task = Task(
        argv=command.argv,
        cwd=command.cwd,
        env=tuple({**command.env, **_own_environment(profile)}.items()),
        limits=rlimits(profile.limits),
        readable=readable,
        writable=writable,
        alone=profile.network != "full",
        deaf=profile.network == "none",
        seccomp=len(descriptors) > 1,
        landlock=True,
        forward=(profile.forward_port, shown.PROXY, shown.FORWARD) if profile.forward_port else (),
        ends=ends,
    )
    return spec, task


def _namespaces(profile: Profile) -> tuple[str, ...]:
    # `none` keeps the network namespace that stage.py made: it has not even a loopback that is up.
    network = ("--share-net",) if profile.network in ("none", "full") else ()
    userns = ("--disable-userns",) if _forbids_namespaces() else ()
    return (
        *("--unshare-all", "--unshare-user", *network, *userns, "--cap-drop", "ALL"),
        # A name that is found in /etc/hosts: many programs ask for the address of their own host.
        *("--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "localhost"),
    )


def _own_environment(profile: Profile) -> dict[str, str]:
    proxy = {"HOLDFAST_PROXY": shown.PROXY} if profile.network == "proxy" else {}
    return {"HOME": shown.HOME, "TMPDIR": "/tmp", **proxy}


def _layer_row(layer: Layer) -> LayerRow:
    parent = os.path.commonpath((layer.upper, layer.work))
    return parent, os.path.relpath(layer.upper, parent), os.path.relpath(layer.work, parent)


def _meter(view: View, profile: Profile) -> Meter:
    written_to = (view.layers[-1].upper if view.layers else view.base, *((profile.home,) if profile.home else ()))
    try:
        return Meter(profile.limits, written_to)
    except OSError as error:
        raise SandboxUnavailable(f"what the program may write to is not there: {error}") from error


def _helper_command(
    command: Command, view: View, profile: Profile, spec: Spec, descriptors: tuple[int, ...], orders: int
) -> Command:
    report = descriptors[0]
    limits = [time for time in (command.timeout_ms, profile.limits.time_ms) if time]
    staged = command._replace(
        argv=(spec.bwrap,),
        cwd="/",
        env=_HELPERS_ENVIRONMENT,
        timeout_ms=min(limits),
        grace_ms=0,
        pass_fds=descriptors,
        become=lambda env: become_bubblewrap(spec, orders, report, env),
    )
    if works_in_a_copy_of_us():
        return staged
    here = os.path.dirname(os.path.abspath(__file__))
    python, stage = shown.interpreter(view.path).here, os.path.join(here, "stage.py")
    return staged._replace(argv=(python, "-I", "-S", "-B", stage, str(orders), str(report)), become=None)


def _in_memory(data: bytes) -> int:
    fd = os.memfd_create("holdfast-filter", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Said:
    """The report so far: what fits into the pipe, for nobody reads it while the program runs."""

    def __init__(self, reading: int) -> None:
        os.set_blocking(reading, False)
        self._reading, self._raw = reading, b""

    def report(self) -> _Report:
        try:
            self._raw += os.read(self._reading, 1 << 20)
        except BlockingIOError:
            pass  # nothing more
        return _heard(self._raw)

    def it_ended(self) -> bool:
        """Whether the first process inside said how the program ended, and then ended itself.

        bubblewrap has waited for it, and the kernel lets nobody wait for the first process of a namespace
        before all others in it are gone. So nobody has to be looked for.
        """
        report = self.report()
        return report.exit_code is not None or report.signal is not None


def _heard(raw: bytes) -> _Report:
    report = _Report({})
    for line in raw.decode("utf-8", "replace").splitlines():
        word, _, rest = line.partition("\t")
        name, _, value = rest.partition(" ")
        if word == "fact":
            report.facts[name] = int(value)
        elif word == "refused":
            report = report._replace(refused=rest)
        elif word == "failed":
            report = report._replace(failed=rest)
        elif word == "exit":
            report = report._replace(exit_code=int(rest))
        elif word == "signal":
            report = report._replace(signal=int(rest))
        elif word == "left":
            report = report._replace(left=int(name), names=value)
    return report


def _result(command: Command, profile: Profile, finished: Finished, report: _Report) -> Confined:
    limit = finished.stopped or ("time" if finished.timed_out else "")
    if report.refused:
        raise SandboxUnavailable(f"the sandbox was refused: {printable(report.refused)}")
    if not report.facts and not limit:
        said = finished.output.decode("utf-8", "replace").strip().splitlines()
        raise SandboxUnavailable(f"bubblewrap failed: {printable(said[-1] if said else 'no reason given')}")
    if report.failed:
        raise InvalidInput(f"{printable(command.argv[0])} cannot be started: {printable(report.failed)}")
    ended = finished._replace(
        exit_code=report.exit_code,
        signal=report.signal if report.exit_code is None else None,
        left_behind=finished.left_behind + report.left,
    )
    if report.exit_code is None and report.signal is None:
        ended = ended._replace(signal=finished.signal or 9)
    if not limit and report.signal == 25:
        limit = "disk"  # SIGXFSZ: one file alone was larger than everything may be
    return Confined(ended, limit, enforced_words(report.facts, profile), report.names)


def enforced_words(facts: dict[str, int], profile: Profile) -> tuple[str, ...]:
    """In the words of `doctor` and of a simulation's report."""
    if not facts:
        return ()
    words = ["files: own mount namespace", "processes: own pid namespace", "no capabilities", "no new privileges"]
    if profile.network != "full":
        words.append(f"network: {profile.network}, own namespace")
    if facts.get("landlock"):
        words.append(f"files again: Landlock {facts['landlock']}")
    if facts.get("seccomp") == 2:
        words.append("system calls: seccomp")
    bounds = profile.limits._asdict()
    named = [name.rpartition("_")[0] or name for name, value in bounds.items() if value and name != "open_files"]
    return (*words, f"limits: {', '.join(named)}")
