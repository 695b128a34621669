"""What stands before bubblewrap: makes the mounts of a sandbox in a private namespace, then becomes bubblewrap.

Called in a new process between fork and exec (`starting.py`), so it imports nothing there, and has bound what it calls.
A process that closed itself to inspection, or changed its user, has no /proc/self of its own to write to, nor has
its copy, and to open that would open our memory; and a large one is slow to copy.
Then this is a program, `python -I -S -B stage.py ORDERS REPORT`, so it imports nothing of Holdfast.
Whatever goes wrong is one line `refused` in the report, and nothing is started.

    ordinary user   new user namespace, own uid mapped to itself
    root            new user namespace with a range of unused uids; the workspace is shown through an id-mapped
                    clone of its mount, so that its owners appear inside as they are, and are nobody's outside

Invariants
  S1  The real root is never mapped: sysctl files look only at the uid, and a mapped root could write them.
  S2  Every mount is made in a namespace that ends with the last process in it. The host sees none, nothing is cleaned.
  S3  Every source is cloned before the first mount is made, with the rights we came with:
      a directory that only root may enter on the way to it does not matter, and nothing we mount can hide one.
  S4  Layers are named to the kernel by descriptor and mount point, never by path: no character in a path is special.
  S5  The overlay is mounted by the uid that runs the program, so the kernel copies up with its rights, not with ours.

A layer is used again by the next run; `volatile` leaves a mark that forbids this, since after a power cut
the layer may lack data. Shadows do not outlive a boot, so the mark is removed as soon as the mount is made.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import stat
import sys

TYPE_CHECKING = False  # as typing's, whose import takes as long as the mounts
if TYPE_CHECKING:
    from typing import NoReturn

    from holdfast.sandbox.wire import Spec

_NEWNS, _NEWUSER, _NEWNET = 0x20000, 0x10000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x4000, 1 << 18
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on every architecture
_CLONE, _CLOEXEC, _MOVE_EMPTY_PATH = 1, os.O_CLOEXEC, 4
_ATTR_RDONLY, _ATTR_IDMAP = 1, 0x100000
_PR_SET_PDEATHSIG, _PR_GET_DUMPABLE, _KILL = 1, 3, 9
_UIDS = 65536
_FIRST_TO_GO = 800
_LINKS = 40
_GIT_FILE = "scratch/gitfile"
_SMALL, _LARGE = 1 << 20, 200 << 20
# The staging mount covers one of these; everything we need from there was cloned before (S3).
_STAGES = ("/sys", "/mnt", "/srv", "/media", "/boot")

_libc = ctypes.CDLL(None, use_errno=True)
# Looked up now: the lock of whoever looks up something else while we fork is never opened in the new process.
_unshare, _mount, _prctl, _setns, _syscall = _libc.unshare, _libc.mount, _libc.prctl, _libc.setns, _libc.syscall


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


class Mount:
    """One row of the sandbox's file system; `source` is on the host, `place` is where it stands on the stage."""

    __slots__ = ("content", "destination", "fd", "kind", "place", "source")

    def __init__(self, kind: str, source: str, destination: str) -> None:
        self.kind, self.source, self.destination = kind, source, destination
        self.fd, self.place = -1, ""
        self.content: bytes | None = None

    @property
    def cloned(self) -> bool:
        return self.kind in ("ro", "rw", "own-ro", "own-rw", "base", "layer", "over", "config")

    @property
    def owned(self) -> bool:
        """Whether its owners are to appear inside as they are on the disk."""
        return self.kind in ("own-ro", "own-rw", "base", "over")


def works_in_a_copy_of_us() -> bool:
    """Whether a fork of this process can write to its /proc/self, and takes less time than another interpreter does."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    pages = int(os.read(fd, 128).split()[1])
    os.close(fd)
    return bool(_prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 1) and pages * os.sysconf("SC_PAGE_SIZE") < _LARGE


def main() -> None:
    orders, report = int(sys.argv[1]), int(sys.argv[2])
    spec: Spec = marshal.loads(os.pread(orders, os.fstat(orders).st_size, 0))[2]
    become_bubblewrap(spec, orders, report, dict(os.environ))


def become_bubblewrap(spec: Spec, orders: int, report: int, env: dict[str, str]) -> NoReturn:
    """`orders` and `report` are the descriptors for `inside.py`."""
    try:
        arguments = _prepared(spec)
        _outlive()
        os.execve(arguments[0], [*arguments, str(orders), str(report)], env)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is told, and nothing is started)
        why, name = getattr(error, "strerror", None) or repr(error), getattr(error, "filename", None)
        text = f"refused\t{why}: {name}" if name else f"refused\t{why}"
        os.write(report, text.replace("\n", " ").encode("utf-8", "replace") + b"\n")
    finally:
        os._exit(125)  # never back into a second copy of our caller


def _prepared(spec: Spec) -> list[str]:
    """What to execute, when everything is mounted."""
    bwrap, shift, lonely, rows, view, base, layers, masked, repository, room, head, tail = spec
    _guard()
    namespace = _namespace_of_strangers(shift) if shift else _namespace_of_mine(os.geteuid(), os.getegid())
    _do("a private mount namespace", _unshare(_NEWNS))
    _do("a private mount tree", _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    mounts = [Mount(*row) for row in rows]
    lower = Mount("base", base, "")
    uppers = [Mount("layer", parent, "") for parent, _, _ in layers]
    staged = [mount for mount in (*mounts, *uppers, *([lower] if layers else [])) if mount.cloned]
    for mount in staged:
        mount.content = _content(mount.source) if mount.kind == "config" else None
        if mount.content is None:
            mount.fd = _clone(mount, namespace)
    stage = _set_up(staged)
    _enter(namespace, lonely)
    names = [
        (_layer(f"{mount.place}/{upper}"), _layer(f"{mount.place}/{work}"))
        for mount, (_, upper, work) in zip(uppers, layers, strict=True)
    ]
    if namespace >= 0:
        _drop()
    _scratch(f"{stage}/scratch", room)
    for mount in mounts:
        if mount.kind == "over":
            mount.place = _overlaid(stage, mount.place)
    merged = _overlays(stage, lower.place, names)
    shown = merged or next(mount.place for mount in mounts if mount.destination == view)
    places = [word for mount in mounts if mount.kind != "config" for word in _words(mount, stage, shown)]
    if repository:
        # Made by who runs the program: git believes no `.git` of anybody else's.
        _make(f"{stage}/{_GIT_FILE}", f"gitdir: {repository}\n".encode())
    covers = _covers(stage, shown, view, masked, has_repository=bool(repository))
    return [bwrap, *head, *places, *covers, *tail]


def _guard() -> None:
    """Die with the parent, be the first to go when memory is short, and carry no keys of the user."""
    _do("PR_SET_PDEATHSIG", _prctl(_PR_SET_PDEATHSIG, _KILL, 0, 0, 0))
    fd = os.open("/proc/self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC)
    worth = int(os.read(fd, 16))
    os.close(fd)
    if worth < _FIRST_TO_GO:
        _put("/proc/self/oom_score_adj", str(_FIRST_TO_GO))
    keyctl = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
    if keyctl is not None:
        _syscall(keyctl, 1, None)  # a new session keyring; where there are no keyrings there is nothing to leave


def _outlive() -> None:
    """Give up the signal of `_guard`: bubblewrap asks for it again itself, when its first process is ready to go on.

    Killed before that, it would leave this process waiting for ever. If the parent dies meanwhile, `inside.py` finds
    nobody to report to and starts nothing; then bubblewrap ends too.
    """
    _do("PR_SET_PDEATHSIG", _prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0))


def _namespace_of_mine(uid: int, gid: int) -> int:
    """An ordinary user's own namespace, entered at once. No namespace to map mounts with: -1."""
    _do("a user namespace", _unshare(_NEWUSER))
    _put("/proc/self/setgroups", "deny")
    _put("/proc/self/uid_map", f"{uid} {uid} 1")
    _put("/proc/self/gid_map", f"{gid} {gid} 1")
    return -1


def _namespace_of_strangers(shift: int) -> int:
    """A namespace whose root is the uid `shift`, which owns nothing on this host (S1). A descriptor of it."""
    assert shift > 0
    ready, made = os.pipe()
    wait, done = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0 if _unshare(_NEWUSER) == 0 else ctypes.get_errno()
        os.close(done)
        os.write(made, bytes([status]))
        os.read(wait, 1)  # until the other end is closed
        os._exit(0)
    os.close(made)
    try:
        status = (os.read(ready, 1) or b"\4")[0]  # EINTR: somebody killed it
        if status:
            raise OSError(status, f"a user namespace: {os.strerror(status)}")
        for name in ("uid_map", "gid_map"):
            _put(f"/proc/{child}/{name}", f"0 {shift} {_UIDS}")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready, wait, done):
            os.close(fd)
        os.waitpid(child, 0)


def _clone(mount: Mount, namespace: int) -> int:
    """A detached copy of the mount at a path, with owners as they are when we have a namespace to map them to."""
    # An ordinary user may only clone with everything mounted below: what is under a mount stays hidden from him.
    mapped = mount.owned and namespace >= 0
    depth = 0 if mapped or (mount.kind == "layer" and namespace >= 0) else _AT_RECURSIVE
    path = os.fsencode(mount.source)
    fd = _do(mount.source, _syscall(_OPEN_TREE, _AT_FDCWD, path, _CLONE | _CLOEXEC | depth))
    if mapped:
        attributes = _Attributes(_ATTR_IDMAP, 0, 0, namespace)
        size = ctypes.sizeof(attributes)
        done = _syscall(_MOUNT_SETATTR, fd, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size)
        _do(f"owners cannot be mapped on this file system: {mount.source}", done)
    return fd


def _content(path: str) -> bytes | None:
    """Of a small file that everybody may read. A copy is no mount: bubblewrap reads the list of all for each."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IROTH or found.st_size > _SMALL:
            return None
        data = os.read(fd, _SMALL + 1)
        return data if len(data) == found.st_size else None
    finally:
        os.close(fd)


def _set_up(mounts: list[Mount]) -> str:
    """The stage: a file system of our own in memory, with every clone and a place for what comes later."""
    stage = next(path for path in _STAGES if os.path.isdir(path))
    _do("the stage", _mount(b"none", stage.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755,size=64m"))
    for name in ("scratch", "merged0", "merged1", "empty", "etc"):
        os.mkdir(f"{stage}/{name}", 0o755)
    _make(f"{stage}/void", b"")
    for number, mount in enumerate(mounts):
        mount.place = f"{stage}{mount.destination}" if mount.kind == "config" else f"{stage}/{number}"
        if mount.kind == "config":
            os.makedirs(os.path.dirname(mount.place), 0o755, exist_ok=True)
        if mount.content is not None:
            _make(mount.place, mount.content)
            continue
        if mount.kind == "over":
            os.mkdir(f"{mount.place}-over", 0o755)
        if stat.S_ISDIR(os.fstat(mount.fd).st_mode):
            os.mkdir(mount.place, 0o755)
        else:
            _make(mount.place, b"")
        target = mount.place.encode()
        _do(mount.source, _syscall(_MOVE_MOUNT, mount.fd, b"", _AT_FDCWD, target, _MOVE_EMPTY_PATH))
        os.close(mount.fd)
    return stage


def _make(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444)
    written = os.write(fd, data) if data else 0
    os.close(fd)
    if written != len(data):
        raise OSError(28, f"no room for {path}")


def _enter(namespace: int, lonely: bool) -> None:
    """Go into the namespace with a copy of the stage that it owns; `lonely` is a network with nothing in it."""
    network = _NEWNET if lonely else 0
    if namespace >= 0:
        os.setgroups([])
        _do("the user namespace", _setns(namespace, _NEWUSER))
        os.close(namespace)
        _do("a mount namespace", _unshare(_NEWNS | network))
    elif network:
        _do("a network namespace", _unshare(network))


def _layer(path: str) -> int:
    """A directory of a layer, while we still are who made it: it stands where only its owner may go."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _drop() -> None:
    """Real root becomes the namespace's root, a stranger outside; the signal of `_guard` is lost by this."""
    parent = os.getppid()
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    _do("PR_SET_PDEATHSIG", _prctl(_PR_SET_PDEATHSIG, _KILL, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(125)


def _scratch(place: str, room: int) -> None:
    """Home, temporary files and shared memory: one file system in memory with one bound."""
    size = f"mode=0755,size={room}" if room else "mode=0755"
    _do("scratch space", _mount(b"none", place.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, size.encode()))
    for name, mode in (("tmp", 0o1777), ("shm", 0o1777), ("home", 0o700)):
        os.mkdir(f"{place}/{name}")
        os.chmod(f"{place}/{name}", mode)


def _overlays(stage: str, lower: str, layers: list[tuple[int, int]]) -> str:
    """Layer upon layer; where the topmost view stands, or nothing when there is no layer."""
    for number, (upper, work) in enumerate(layers):
        last = number == len(layers) - 1
        _forget_volatile(work)
        options = f"userxattr,volatile,lowerdir={lower},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
        lower = f"{stage}/merged{number}"
        flags = _MS_NOSUID | _MS_NODEV | (0 if last else _MS_RDONLY)
        mounted = _mount(b"overlay", lower.encode(), b"overlay", flags, options.encode())
        _do("the overlay file system", mounted)
        _forget_volatile(work)
        # The kernel's workbench is closed to everyone; its owner shall be able to remove it with ordinary means.
        os.chmod(f"/proc/self/fd/{work}/work", 0o700)
        os.close(upper)
        os.close(work)
    return lower if layers else ""


def _overlaid(stage: str, lower: str) -> str:
    """Where a directory stands that may be written to, and stays as it is. On a host that refuses overlays it looks
    empty, which costs a program time and nothing else."""
    upper = f"{stage}/scratch/{lower.rpartition('/')[2]}"
    for place in (upper, f"{upper}-work"):
        os.mkdir(place, 0o700)
    options = f"userxattr,lowerdir={lower},upperdir={upper},workdir={upper}-work"
    place = f"{lower}-over"
    if _mount(b"overlay", place.encode(), b"overlay", _MS_NOSUID | _MS_NODEV, options.encode()) == 0:
        return place
    return upper


def _forget_volatile(work: int) -> None:
    inside = f"/proc/self/fd/{work}/work/incompat"
    try:
        os.unlink(f"{inside}/volatile/dirty")
        os.rmdir(f"{inside}/volatile")
        os.rmdir(inside)
    except FileNotFoundError:
        pass


def _words(mount: Mount, stage: str, shown: str) -> tuple[str, ...]:
    """A mount as bubblewrap's arguments."""
    kind, destination = mount.kind, mount.destination
    if kind in ("ro", "own-ro"):
        return "--ro-bind", mount.place, destination
    if kind in ("rw", "own-rw", "over"):
        return "--bind", mount.place, destination
    if kind == "view":
        return "--bind", shown, destination
    if kind == "scratch":
        return "--bind", f"{stage}/scratch/{mount.source}", destination
    if kind == "symlink":
        return "--symlink", mount.source, destination
    if kind in ("hide", "etc"):
        return "--ro-bind", f"{stage}/{mount.source}", destination
    return f"--{kind}", destination  # proc, dev


def _covers(stage: str, shown: str, view: str, masked: tuple[str, ...], *, has_repository: bool) -> list[str]:
    """Empty, read-only things over what shall look empty, and over the file `.git` one that leads to our repository.

    A path that is not there gets no cover: to make a place for one would be a change in the layer.
    """
    words: list[str] = []
    for name in masked:
        target = _followed(shown, view, name)
        try:
            mode = os.lstat(f"{shown}/{target}").st_mode if target else 0
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # not there, or where the program cannot go either
        if mode:
            file = _GIT_FILE if has_repository and target == ".git" else "void"
            cover = "empty" if stat.S_ISDIR(mode) else file
            words += ["--ro-bind", f"{stage}/{cover}", f"{view}/{target}"]
    return words


def _followed(shown: str, view: str, name: str) -> str:
    """A path in the view with every symbolic link followed as the program would; empty when it leads out of it."""
    done: list[str] = []
    waiting = name.split("/")
    links = 0
    while waiting:
        part = waiting.pop(0)
        if part == "..":
            if not done:
                return ""
            done.pop()
        elif part not in ("", "."):
            done.append(part)
            try:
                target = os.readlink("/".join((shown, *done)))
            except OSError:
                continue  # no link, or nothing there; whoever mounts on it will know
            links += 1
            if links > _LINKS:
                return ""
            done.pop()
            if target.startswith("/"):
                if not f"{target}/".startswith(f"{view}/"):
                    return ""
                done, target = [], target[len(view) :]
            waiting = target.split("/") + waiting
    return "/".join(done)


def _put(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _do(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    main()
