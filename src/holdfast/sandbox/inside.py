"""The helper that is the first process inside the sandbox. It starts the program and outlives it.

Run by bubblewrap as pid 1 of its namespace: `python -I -S -B inside.py SPEC REPORT`, or compiled (see `wire`);
it imports nothing of Holdfast.

    CHECKING ──▶ RUNNING ──program ends──▶ COUNTING ──▶ exit: the kernel kills whatever is left
        └── refused                        (100 ms)

What it writes to REPORT, a line each:
    fact NAME VALUE    what the kernel says about this process, before the program starts
    refused WHY        something promised is not so; nothing was started
    failed WHY         the program could not be started
    exit N, signal N   how the program ended
    left N NAMES       processes that were alive after it, and are killed with us

Invariants
  I1  The program starts only when the kernel confirms: no capabilities, no new privileges, the system call filter,
      a network namespace with nothing but a loopback in it (unless the profile says otherwise).
  I2  The program cannot reach this process: signals from inside do not touch pid 1, it is not dumpable,
      and Landlock puts the program in a domain below it. So the report is ours.
  I3  The program gets descriptors 0, 1 and 2, the environment it was given, and nothing else.
      Where its input and output are a conversation, nobody else in here holds an end of them.
"""

# What `ctypes` and `signal` are made of. To import those takes half as long as Python to start; and without
# `annotations` from the future there is one file less to find and read.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import marshal
import os
import resource
import sys
import time

_PR_SET_DUMPABLE = 4
_SETTLE_S = 0.1
_LOOK_EVERY_S = 0.005
_NAMES_TOLD = 5

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
# How many rights each version of Landlock knows, beginning with version 1.
_RIGHTS = (13, 14, 15, 15, 16)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_KIND, _DIRECTORY = 0o170000, 0o040000
_TCP, _SCOPES = 3, 3  # bind and connect; abstract sockets and signals

TYPE_CHECKING = False  # as typing's, whose import takes longer than all of this
if TYPE_CHECKING:
    from holdfast.sandbox.forward import Forwarder


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


class _Library:
    _handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]


# Whole numbers are passed as C's int, bytes as a pointer to them, None as a null pointer.
_syscall = _Function(("syscall", _Library()))  # type: ignore[arg-type]
_prctl = _Function(("prctl", _Library()))  # type: ignore[arg-type]


def main() -> None:
    spec, report = int(sys.argv[1]), int(sys.argv[2])
    raw = os.pread(spec, os.fstat(spec).st_size, 0)
    # wire.Task says what each of them is.
    argv, cwd, env, limits, readable, writable, alone, deaf, seccomp, landlock, forward, ends = marshal.loads(raw)[0]
    os.close(spec)
    os.set_inheritable(report, False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which does nothing to pid 1; Python's own would (I2)
    _do("PR_SET_DUMPABLE", _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    facts = _facts(landlock)
    for name, value in facts.items():
        _say(report, f"fact\t{name} {value}")
    wrong = _wrong(facts, alone, seccomp)
    if wrong:
        _say(report, f"refused\t{wrong}")
        os._exit(125)
    forwarder = _forwarder(report, *forward) if forward else None
    child = os.fork()
    if child == 0:
        try:
            _connect(ends)
            _limit(limits)
            if facts["landlock"]:
                _fence(facts["landlock"], readable, writable, deaf)
            _start(argv, cwd, {**dict(env), "HOLDFAST_RUN": os.environ.get("HOLDFAST_RUN", "")})
        except OSError as error:
            named = f"{error.filename}: " if error.filename else ""
            _say(report, f"failed\t{named}{error.strerror}")
        finally:
            os._exit(125)
    for end in ends:
        os.close(end)
    _watch(child, report, forwarder)


def _facts(landlock: bool) -> dict[str, int]:
    """What the kernel says about this process."""
    status = dict(line.split(":", 1) for line in _read("/proc/self/status").splitlines())
    abi = _syscall(_LANDLOCK_CREATE, None, 0, 1) if landlock else 0
    return {
        "pid": os.getpid(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16) | int(status["CapBnd"], 16),
        "no_new_privileges": int(status["NoNewPrivs"]),
        "seccomp": int(status.get("Seccomp", "0")),
        "landlock": max(0, abi),
        "interfaces": sum(1 for line in _read("/proc/net/dev").splitlines()[2:] if line.split(":")[0].strip() != "lo"),
    }


def _wrong(facts: dict[str, int], alone: bool, seccomp: bool) -> str:
    """What is not as it must be before a program may start (I1)."""
    if facts["pid"] != 1:
        return "this is not the first process of its namespace"
    if facts["capabilities"]:
        return "the program would have capabilities"
    if not facts["no_new_privileges"]:
        return "the program could gain privileges"
    if seccomp and facts["seccomp"] != 2:
        return "the system call filter is not in place"
    if alone and facts["interfaces"]:
        return "the network namespace is not empty"
    return ""


def _forwarder(report: int, port: int, proxy: str, source: str) -> "Forwarder":
    """Listening already; the file is loaded by its path, since nothing is searched for in here."""
    from importlib.machinery import SourceFileLoader

    module = type(sys)("forward")
    try:
        SourceFileLoader("forward", source).exec_module(module)
        made: Forwarder = module.Forwarder(port, proxy)
    except OSError as error:
        _say(report, f"refused\tnobody can listen on port {port} inside: {error.strerror}")
        os._exit(125)
    return made


def _connect(ends: tuple[int, ...]) -> None:
    """The program's side of a conversation: its input and its output."""
    for number, end in enumerate(ends):
        os.dup2(end, number)


def _limit(limits: tuple[tuple[str, int], ...]) -> None:
    for name, value in limits:
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def _fence(abi: int, readable: tuple[str, ...], writable: tuple[str, ...], deaf: bool) -> None:
    """The mounts' allow-list once more, by Landlock: it holds even where a mount is not what we think."""
    every = (1 << _RIGHTS[min(abi, len(_RIGHTS)) - 1]) - 1
    network = _TCP if deaf and abi >= 4 else 0
    # struct landlock_ruleset_attr: files, network, scopes; as much of it as this version knows.
    rules = _number(every, 8) + _number(network, 8) + _number(_SCOPES if abi >= 6 else 0, 8)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    fd = _do("Landlock", _syscall(_LANDLOCK_CREATE, rules, size, 0))
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    devices = _READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL_DEV
    rows = [("/", _READ_DIR), ("/proc", _READ_FILE | _READ_DIR), ("/dev", devices)]
    rows += [(path, reading) for path in readable]
    rows += [(path, every & ~(_MAKE_CHAR | _MAKE_BLOCK)) for path in writable]
    for path, rights in rows:
        _allow(fd, path, rights & every)
    _do("Landlock", _syscall(_LANDLOCK_RESTRICT, fd, 0))
    os.close(fd)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # what is not there, or cannot be entered, needs no permission
    is_directory = os.fstat(fd).st_mode & _KIND == _DIRECTORY
    # struct landlock_path_beneath_attr, which is packed: the rights, and beneath what.
    rule = _number(rights if is_directory else rights & _OF_FILES, 8) + _number(fd, 4)
    _do(path, _syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0))
    os.close(fd)


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, sys.byteorder)


def _start(argv: tuple[str, ...], cwd: str, env: dict[str, str]) -> None:
    """Become the program; an OSError says why not."""
    os.chdir(cwd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                pass  # the descriptor of the listing itself, closed meanwhile
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)
    reason = FileNotFoundError(2, "not found on PATH in the sandbox", argv[0])
    for entry in env.get("PATH", "").split(":"):
        if entry.startswith("/"):
            try:
                os.execve(f"{entry}/{argv[0]}", argv, env)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
    raise reason


def _watch(child: int, report: int, forwarder: "Forwarder | None") -> None:
    """Be the parent of every orphan until the program ends; then say what is left, and end it with us."""
    code = os.waitstatus_to_exitcode(_ended(child, forwarder))
    left = _others()
    end = time.monotonic() + _SETTLE_S
    while left and time.monotonic() < end:
        if forwarder is None:
            time.sleep(_LOOK_EVERY_S)
        else:
            forwarder.carry(_LOOK_EVERY_S)
        left = _others()
    if forwarder is not None:
        forwarder.finish(_SETTLE_S)
    _say(report, f"exit\t{code}" if code >= 0 else f"signal\t{-code}")
    if left:
        _say(report, f"left\t{len(left)} {' '.join(left[:_NAMES_TOLD])}")
    os._exit(code if code >= 0 else 128 - code)


def _ended(child: int, forwarder: "Forwarder | None") -> int:
    """Wait for the program, and carry for it meanwhile; its status."""
    if forwarder is not None:
        forwarder.begin()
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG if forwarder is not None else 0)
        if pid == child:
            return status
        if pid == 0 and forwarder is not None:
            forwarder.carry()


def _others() -> list[str]:
    """The names of the living besides us; what has ended is collected."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return []
    names = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit() and name != "1"):
        try:
            head, _, rest = _read(f"/proc/{pid}/stat").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if rest.split()[0] not in ("Z", "X"):
            names.append("".join(c if c.isprintable() and c != " " else "?" for c in head.partition("(")[2]))
    return names


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _say(report: int, line: str) -> None:
    os.write(report, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")


def _do(what: str, result: int) -> int:
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    main()
