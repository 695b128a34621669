"""A workspace under guard, eyes of our own, and an attacker who strikes at an exact moment.

    ground = guard(tmp_path / "workspace", {"a": b"old"})
    before = ground.tree()
    ground.apply(put("a", b"new"))

The eyes (`tree`) share no code with Holdfast, so a mistake there cannot hide itself here.
"""

from __future__ import annotations

import gc
import os
import signal
import stat
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast.disk.calls import CALLS, Calls
from holdfast.engine.checking import Verified
from holdfast.engine.simulator import Simulated
from holdfast.model.approval import Approval
from holdfast.model.changeset import ChangeSet
from holdfast.model.decision import Decision
from holdfast.model.execution import Execution
from holdfast.model.plan import CommandCheck, HealthCheck, Inline, Plan, Step, Update, Write
from holdfast.wiring import Holdfast

OLD_NS = 1_400_000_000 * 10**9
ME = "tester"
USER = 12345
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


class Thing(NamedTuple):
    """What stands at a path. `mtime_ns` is 0 for directories: work inside them moves it."""

    kind: str
    mode: int
    owner: tuple[int, int]
    content: bytes
    xattrs: tuple[tuple[str, bytes], ...]
    mtime_ns: int


Tree = dict[str, Thing]


def children() -> set[str]:
    """Processes that this one started and has not waited for."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def children_of_others() -> set[str]:
    """Those there are before a test begins: servers that other tests share. Whom only garbage still holds is ended."""
    gc.collect()
    return children()


def put(path: str, data: bytes, mode: int | None = None) -> Write:
    return Write(path, Inline(data), mode)


def swap(path: str, old: bytes, new: bytes) -> Update:
    return Update(path, old, Inline(new))


class Ready(NamedTuple):
    """A change on the threshold; `execute` lands it, once."""

    hf: Holdfast
    simulated: Simulated
    verified: Verified
    decision: Decision
    approval: Approval | None

    @property
    def change_set(self) -> ChangeSet:
        return self.simulated.change_set

    def execute(self) -> Execution:
        return self.hf.execute(
            self.simulated, self.approval, approved_by=ME, verified=self.verified, decision=self.decision
        )


class Ground:
    """One guarded workspace."""

    def __init__(self, path: Path, calls: Calls = CALLS) -> None:
        self.path = path
        self.hf: Holdfast = holdfast.open(str(path), calls=calls)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def state(self) -> Path:
        return self.path / ".holdfast"

    def plan(self, *steps: Step, verify: tuple[CommandCheck, ...] = (), health: tuple[HealthCheck, ...] = ()) -> Plan:
        return Plan("a test", steps, verify=verify, health=health)

    def ready(self, plan: Plan) -> Ready:
        """Simulated, checked, decided and approved: all but the landing, which is where things go wrong."""
        simulated = self.hf.simulate(plan)
        verified = self.hf.verify(simulated)
        decision = self.hf.evaluate(simulated, verified)
        approval = self.hf.approve(decision, by=ME) if decision.verdict == "NEED_APPROVAL" else None
        return Ready(self.hf, simulated, verified, decision, approval)

    def apply(self, *steps: Step, health: tuple[HealthCheck, ...] = ()) -> Execution:
        plan = self.plan(*steps, health=health)
        return self.hf.execute(self.hf.simulate(plan), approved_by=ME, consent=plan.id)

    def tree(self) -> Tree:
        return tree_of(self.path)

    def journal(self) -> list[str]:
        """What the journal holds besides its head; empty when nothing is going on."""
        return sorted(set(os.listdir(self.state / "journal")) - {"head"})

    def reopened(self, calls: Calls = CALLS) -> Ground:
        self.hf.close()
        return Ground(self.path, calls)

    def statuses(self) -> list[str]:
        """How the executions ended, oldest first, as the tables say."""
        return [row.status for row in reversed(self.hf.log(limit=-1))]

    def ledger_statuses(self) -> list[str]:
        """The same, as the ledger says; without entries of executions that waited for a person."""
        ended = (entry.body for entry in self.hf.ledger.entries() if entry.kind == "execution")
        return [str(body["status"]) for body in ended if not body.get("open")]


def guard(path: Path, files: Mapping[str, bytes] | None = None, calls: Calls = CALLS) -> Ground:
    """Make a workspace with these files (a trailing slash is a directory) and put it under guard."""
    path.mkdir(parents=True, exist_ok=True)
    fill(path, files or {})
    holdfast.init(str(path))
    return Ground(path, calls)


def fill(path: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        target = path / name
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        # Old, so that no look has to wait for the clock, and so that a lost time stamp shows.
        os.utime(target, ns=(OLD_NS, OLD_NS))


def tree_of(root: Path) -> Tree:
    """Every path below a directory but for `.holdfast`, with everything a person could mean by "the same"."""
    found: Tree = {}
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        for entry in os.scandir(directory):
            if entry.name == ".holdfast":
                continue
            found[os.path.relpath(entry.path, root)] = thing = thing_at(Path(entry.path))
            if thing.kind == "directory":
                waiting.append(Path(entry.path))
    return found


def thing_at(path: Path) -> Thing:
    about = os.lstat(path)
    kind = _KINDS.get(stat.S_IFMT(about.st_mode), "special")
    content = path.read_bytes() if kind == "file" else os.fsencode(os.readlink(path)) if kind == "symlink" else b""
    names = sorted(os.listxattr(path, follow_symlinks=False)) if kind in ("file", "directory") else []
    xattrs = tuple((name, os.getxattr(path, name)) for name in names)
    mtime = 0 if kind == "directory" else about.st_mtime_ns
    return Thing(kind, stat.S_IMODE(about.st_mode), (about.st_uid, about.st_gid), content, xattrs, mtime)


def contents(tree: Tree) -> dict[str, bytes]:
    """Only the bytes of the files."""
    return {path: thing.content for path, thing in tree.items() if thing.kind == "file"}


class Interloper(Calls):
    """The real kernel, and somebody who acts once, just before or after a certain call.

    `arm("exchange", act)` strikes before the next exchange; `skip=2` lets two of them pass first.
    """

    def __init__(self) -> None:
        self._armed: list[_Strike] = []
        self.struck = 0
        for name in (name for name in vars(Calls) if not name.startswith("_")):
            setattr(self, name, self._watched(name, getattr(CALLS, name)))

    def arm(self, call: str, act: Callable[[], object], *, after: bool = False, skip: int = 0) -> None:
        assert hasattr(CALLS, call), call
        self._armed.append(_Strike(call, act, after, skip))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            due = self._due(name) if self._armed else []
            for strike in due:
                if not strike.after:
                    strike.act()
            result = real(*args, **kwargs)
            for strike in due:
                if strike.after:
                    strike.act()
            return result

        return call

    def _due(self, name: str) -> list[_Strike]:
        due = []
        for strike in [strike for strike in self._armed if strike.call == name]:
            self._armed.remove(strike)
            if strike.skip:
                self._armed.append(strike._replace(skip=strike.skip - 1))
            else:
                self.struck += 1
                due.append(strike)
        return due


class _Strike(NamedTuple):
    call: str
    act: Callable[[], object]
    after: bool
    skip: int


class Refusing(Calls):
    """The real kernel, with one call that answers an error whenever `when` says so."""

    def __init__(self, call: str, error: int, when: Callable[..., bool] = lambda *args, **kwargs: True) -> None:
        self.armed = False
        self.refused = 0
        real = getattr(CALLS, call)

        def refusing(*args: Any, **kwargs: Any) -> Any:
            if self.armed and when(*args, **kwargs):
                self.refused += 1
                raise OSError(error, os.strerror(error))
            return real(*args, **kwargs)

        setattr(self, call, refusing)


def in_child(action: Callable[[], object], *, uid: int | None = None, seconds: float = 60) -> int:
    """Run a function in a forked child, as another user when `uid` is given; its exit status, -9 when it was killed.

    A child that takes too long is killed: nothing may block.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            action()
            status = 0
        except BaseException:  # noqa: BLE001  (the child must never return into the test runner)
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def as_user(public: Path, action: Callable[[Path], object]) -> None:
    """Run with a home and a workspace of an ordinary user; root may do everything and proves nothing."""

    def act() -> None:
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[name] = str(public / "home")
        action(public / "workspace")

    assert in_child(act, uid=USER) == 0


def with_package() -> dict[str, str]:
    """The environment for a Python of our own that must find the same Holdfast."""
    package = str(Path(holdfast.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail instead of hanging: whatever blocks in here is interrupted."""

    def ring(number: int, frame: object) -> None:
        raise AssertionError(f"blocked for more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def rewritten(path: Path, data: bytes) -> None:
    """Edit in place, then put size and modification time back as they were: the stealthiest edit there is."""
    about = os.stat(path)
    assert len(data) == about.st_size
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
