"""What this host really enforces: found out by trying, once in the life of a process.

A program in a sandbox tries to get out in each way; what the kernel answered is what is told.
Nothing is concluded from versions or settings, but for the reasons given when something does not work.
"""

from __future__ import annotations

import os
import socket
import tempfile
from functools import cache
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.sandbox import shown
from holdfast.sandbox.confined import SHIFT, Confined, is_real_root, run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.syscalls import system_call_filter
from holdfast.sandbox.view import Layer, View

_TIME_MS = 10_000
_ESSENTIAL = ("files", "network", "processes", "privileges", "limits")
_LIMITS = Limits(time_ms=_TIME_MS, memory_bytes=96 << 20, processes=20, disk_bytes=32 << 20)
# Each line: a name, and whether it was refused. Standard library only, and as little of it as possible.
_TRIES = """
import ctypes, os, socket, sys
def refused(name, attempt):
    try:
        attempt()
        print(name, 0)
    except OSError:
        print(name, 1)
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), "")
libc = ctypes.CDLL(None, use_errno=True)
hidden, outside = sys.argv[1:]
refused("hidden", lambda: open(hidden).read(1) or check(-1))
refused("outside", lambda: os.stat(outside))
refused("system", lambda: open("/usr/.holdfast", "w"))
refused("tcp", lambda: socket.create_connection(("127.0.0.1", 9), 1))
refused("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
refused("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
refused("namespace", lambda: check(libc.unshare(0x10000000)))
refused("sysctl", lambda: open("/proc/sys/kernel/core_pattern", "r+"))
open("written", "w").close()
"""
_CALL = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2).sendall(b'x')"
_PORT = 4001
_GREED = "b = bytearray(); c = b'x' * (4 << 20)\nimport time\nwhile True: b += c; time.sleep(0.001)"


class Guarantee(NamedTuple):
    """One promise. `how` it is kept, or why it is not."""

    what: str
    enforced: bool
    how: str

    @property
    def line(self) -> str:
        return f"{self.what}: {'enforced' if self.enforced else 'NOT enforced'}, {self.how}"


class Enforcement(NamedTuple):
    """Everything `doctor` says about the sandbox."""

    guarantees: tuple[Guarantee, ...]

    @property
    def sandboxed(self) -> bool:
        """Programs can be confined here; some way in which more could be done may still be missing."""
        return all(
            row.enforced for row in self.guarantees if row.what in ("files", "network", "processes", "privileges")
        )

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(row.line for row in self.guarantees)


@cache
def probe(directory: str = "") -> Enforcement:
    """Try it out. `directory`: a place on the file system that will hold layers; any temporary one without."""
    with tempfile.TemporaryDirectory(prefix="holdfast-probe-", dir=directory or None) as place:
        os.close(os.open(f"{place}/secret", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        base, copy = _workspace(place, "base", 0), _workspace(place, "copy", _shift())
        layer = Layer(_made(place, "upper", _shift()), _made(place, "work", _shift()))
        view = View(base, base, (layer,), ("hidden",), _shift())
        try:
            tried, layers = _attempt(view, place), Guarantee("layers", True, "overlay file system")
        except HoldfastError as error:
            layers = Guarantee("layers", False, f"the workspace must be copied ({error.message})")
            view = View(copy, copy, (), ("hidden",), _shift())
            try:
                tried = _attempt(view, place)
            except HoldfastError as final:
                return Enforcement((layers, *_nothing(final.message)))
        return Enforcement((layers, *_found(tried), _limits(view, tried), _model_proxy(view, place)))


def _shift() -> int:
    return SHIFT if is_real_root() else 0


def _attempt(view: View, place: str) -> Confined:
    python = shown.interpreter(view.path)
    argv = (python.inside, "-I", "-S", "-B", "-c", _TRIES, f"{view.path}/hidden", f"{place}/secret")
    return run_confined(Command(argv, view.path, {}, _TIME_MS), view, Profile(limits=_LIMITS))


def _found(tried: Confined) -> tuple[Guarantee, ...]:
    words = tried.finished.output.decode("utf-8", "replace").split()
    held = {name for name, value in zip(words[::2], words[1::2], strict=False) if value == "1"}
    landlock = next((word for word in tried.enforced if "Landlock" in word), "")
    seccomp = system_call_filter()
    who = f"uid {SHIFT} on the host" if is_real_root() else "your own uid, without any capability"
    vsock = "no AF_VSOCK" if "vsock" in held else f"AF_VSOCK is open ({seccomp.missing})"
    alone = any("pid namespace" in word for word in tried.enforced)
    return (
        Guarantee("files", {"hidden", "outside", "system"} <= held, f"bubblewrap: an allow-list, {who}"),
        Guarantee("files twice", bool(landlock), landlock.partition(": ")[2] or "this kernel has no Landlock"),
        Guarantee("network", {"tcp", "udp"} <= held, "an empty network namespace: no TCP, UDP, DNS, host sockets"),
        Guarantee("machine's host", "vsock" in held, vsock),
        Guarantee("processes", alone, "own pid namespace; all end with it"),
        Guarantee("privileges", {"namespace", "sysctl"} <= held, "no capabilities, no new ones, no user namespaces"),
        Guarantee("system calls", bool(seccomp.program), seccomp.missing or "seccomp"),
    )


def _limits(view: View, tried: Confined) -> Guarantee:
    python = shown.interpreter(view.path)
    argv = (python.inside, "-I", "-S", "-B", "-c", _GREED)
    try:
        greedy = run_confined(Command(argv, view.path, {}, _TIME_MS), view, Profile(limits=_LIMITS))
    except HoldfastError as error:
        return Guarantee("limits", False, error.message)
    how = "time, output, memory, processes, disk: looked at every 50 ms; one process by the kernel"
    return Guarantee("limits", greedy.limit == "memory" and bool(tried.enforced), how)


def _model_proxy(view: View, place: str) -> Guarantee:
    """What agents need: a program that knows only TCP reaches a socket of ours, from a network of its own."""
    python = shown.interpreter(view.path)
    argv = (python.inside, "-I", "-S", "-B", "-c", _CALL, str(_PORT))
    path = f"{place}/proxy"
    profile = Profile(network="proxy", proxy_socket=path, forward_port=_PORT, limits=_LIMITS)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
            _listen(proxy, place, "proxy")
            called = run_confined(Command(argv, view.path, {}, _TIME_MS), view, profile)
            peer, _ = proxy.accept()
            with peer:
                reached = called.succeeded and peer.recv(1) == b"x"
    except (HoldfastError, OSError) as error:
        return Guarantee("model proxy", False, str(error))
    return Guarantee("model proxy", reached, "a port of the sandbox's own loopback leads to us, and nowhere else")


def _listen(server: socket.socket, place: str, name: str) -> None:
    """At a file that is named through its directory, since the kernel takes only short names."""
    directory = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server.bind(f"/proc/self/fd/{directory}/{name}")
        server.listen()
        server.settimeout(1)
    finally:
        os.close(directory)


def _nothing(why: str) -> tuple[Guarantee, ...]:
    return tuple(Guarantee(what, False, why) for what in _ESSENTIAL)


def _workspace(place: str, name: str, owner: int) -> str:
    path = _made(place, name, owner)
    fd = os.open(f"{path}/hidden", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    os.write(fd, b"x")
    os.close(fd)
    return path


def _made(place: str, name: str, owner: int) -> str:
    """A directory that belongs to whoever will write to it."""
    path = os.path.join(place, name)
    os.mkdir(path, 0o755)
    if owner:
        os.chown(path, owner, owner)
    return path
