"""Interrupt a scenario at one place, recover, and judge: old or new, never a mixture, and the books agree.

    arena ──copy──▶ site ──fork──▶ child: open, arm, act ──▶ killed (or done, and then it acknowledges)
                                                 parent: recover ──▶ judge ──▶ violations

A verdict is a list of sentences; empty means that every promise was kept.
The checks are used as they are by the negative controls, which must make them speak.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

import holdfast
from crash.scenarios import Scenario, act, arrange, make_tree, taken_back
from crash.walker import Tree, differences, undated, walk
from holdfast import Holdfast
from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import HoldfastError, SandboxUnavailable
from holdfast.testing import ALL, CHANGES, Fault, FaultyCalls

_HOMES = ("XDG_STATE_HOME", "XDG_CONFIG_HOME")
_AHEAD = 2


class Place(NamedTuple):
    """One workspace with a user around it."""

    root: str

    @property
    def workspace(self) -> str:
        return os.path.join(self.root, "workspace")

    @property
    def journal(self) -> str:
        return os.path.join(self.workspace, ".holdfast", "journal")

    @property
    def shadows(self) -> str:
        return os.path.join(self.workspace, ".holdfast", "shadows")

    @contextmanager
    def open(self, calls: Calls = CALLS) -> Iterator[Holdfast]:
        self.enter()
        with holdfast.open(self.workspace, calls=calls) as hf:
            yield hf

    def enter(self) -> None:
        """Keys and anchors belong to the user; each place has its own."""
        for name in _HOMES:
            os.environ[name] = os.path.join(self.root, name.lower())


class Arena:
    """Fresh places, all alike, and what a scenario makes of one when nobody interrupts it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._count = 0
        self._ready: dict[str, list[Place]] = {}
        self._model = Place(os.path.join(directory, "model"))
        os.mkdir(self._model.root)
        make_tree(self._model.workspace)
        self._model.enter()
        dated = os.stat(self._model.workspace)
        holdfast.init(self._model.workspace)
        recover(self._model)  # the first verb has a little more to do than the others
        os.utime(self._model.workspace, ns=(dated.st_atime_ns, dated.st_mtime_ns))

    def bare(self) -> Place:
        """An empty directory and a user who has never used Holdfast."""
        self._count += 1
        place = Place(os.path.join(self._directory, f"p{self._count}"))
        os.makedirs(place.workspace)
        return place

    def fresh(self, scenario: Scenario) -> Place:
        """A place where the scenario is about to begin.

        One more is made than is given out: Holdfast waits until a file that was just written has settled,
        and the places do that while others are being tried.
        """
        ready = self._ready.setdefault(scenario.name, [])
        while len(ready) < _AHEAD:
            self._count += 1
            ready.append(Place(os.path.join(self._directory, f"p{self._count}")))
            self.furnish(ready[-1])
            prepare(ready[-1], scenario)
        return ready.pop(0)

    def furnish(self, place: Place) -> None:
        """Make a place, here or elsewhere."""
        copy_tree(self._model.root, place.root)

    def outcome(self, scenario: Scenario) -> Outcome:
        """One uninterrupted run: the tree it leaves, and the changing calls it makes."""
        if scenario.has_program and self._directory.startswith("/dev/"):
            pytest.skip("programs run in a shadow, which shows nothing of /dev/shm; root has another place in memory")
        place = self.fresh(scenario)
        calls = FaultyCalls(counted=CHANGES)
        with place.open(calls) as hf:
            try:
                act(scenario, hf)
            except SandboxUnavailable as error:
                pytest.skip(f"no sandbox here: {error}")
        new = walk(place.workspace)
        discard(place)
        return Outcome(undated(new), tuple(calls.trace), calls.points)


def prepare(place: Place, scenario: Scenario) -> None:
    """Let happen what comes before the interruption."""
    with place.open() as hf:
        arrange(scenario, hf)


class Outcome(NamedTuple):
    new: Tree
    trace: tuple[str, ...]
    points: tuple[str, ...]


class Start(NamedTuple):
    """A place just before the interruption, and what the books say then."""

    place: Place
    old: Tree
    entries: int


def start(arena: Arena, scenario: Scenario) -> Start:
    return start_at(arena.fresh(scenario))


def start_at(place: Place) -> Start:
    return Start(place, walk(place.workspace), len(_executions(place)))


def trace_of(arena: Arena, scenario: Scenario) -> tuple[str, ...]:
    """Every call of an uninterrupted run, reading ones included."""
    place = arena.fresh(scenario)
    calls = FaultyCalls(counted=ALL)
    with place.open(calls) as hf:
        calls.arm()
        act(scenario, hf)
    discard(place)
    return tuple(calls.trace)


def interrupted(work: Callable[[], None]) -> bool:
    """Do the work in a child process that may not survive it; True when it was done and acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _as_child(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and said != b"done":
        raise AssertionError(f"the child failed by itself: {said.decode('utf-8', 'replace')}")
    assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGKILL
    return said == b"done"


def _as_child(work: Callable[[], None], writing: int) -> None:
    """Never returns: neither pytest nor anything registered at exit may run twice."""
    try:
        work()
        os.write(writing, b"done")
    except BaseException as error:  # noqa: BLE001 - the parent must hear of it, whatever it is
        os.write(writing, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(0)


def use(place: Place, calls: FaultyCalls, work: Callable[[Holdfast], None], *faults: Fault) -> Callable[[], None]:
    """Work to be interrupted: the faults are armed when the workspace is open."""

    def armed() -> None:
        with place.open(calls) as hf:
            calls.arm(*faults)
            work(hf)

    return armed


def recover(place: Place, calls: Calls = CALLS) -> None:
    with place.open(calls) as hf:
        hf.recover()


def judge(begun: Start, outcome: Outcome, scenario: Scenario, acknowledged: bool) -> list[str]:
    """Everything that must be true after recovery."""
    try:
        recover(begun.place)
    except (HoldfastError, OSError) as error:
        return [f"recovery refused: {type(error).__name__}: {error}"]
    found = walk(begun.place.workspace)
    is_old, is_new = found == begun.old, undated(found) == outcome.new
    if not is_old and not is_new:
        from_old, from_new = differences(found, begun.old), differences(undated(found), outcome.new)
        return [f"a mixed tree; from old: {from_old}; from new: {from_new}"]
    verdict = _judge_books(begun, is_new and scenario.ends_new)
    if acknowledged and scenario.ends_new and not is_new:
        verdict.append("an acknowledged change was lost")
    if is_new and not scenario.ends_new and not is_old:
        verdict.append("a change that failed its health check stayed")
    return verdict


def judge_life_goes_on(begun: Start) -> list[str]:
    """After recovery the next change works, and what was changed can be undone."""
    verdict = []
    with begun.place.open() as hf:
        newest = hf.log(limit=1)
        if len(_ids(hf)) > begun.entries and newest[0].status == "COMPLETED":
            taken_back(hf, newest[0].id)
            found = walk(begun.place.workspace)
            if found != begun.old:
                verdict.append(f"the undo gave another tree: {differences(found, begun.old)}")
        with hf.transaction("life goes on", approved_by="me") as tx:
            tx.write("bystander.txt", b"still alive\n")
        if not hf.audit().ok:
            verdict.append(f"the ledger does not verify after the next change: {hf.audit().message}")
        verdict += (
            f"the tables differ from the ledger after the next change: {it}" for it in hf.rows_unlike_the_ledger()
        )
    with open(os.path.join(begun.place.workspace, "bystander.txt"), "rb") as file:
        if file.read() != b"still alive\n":
            verdict.append("the next change was not made")
    return verdict


def _judge_books(begun: Start, is_new: bool) -> list[str]:
    verdict = []
    left = sorted(set(os.listdir(begun.place.journal)) - {"head"})
    if left:
        verdict.append(f"left in the journal: {left}")
    if os.path.isdir(begun.place.shadows) and os.listdir(begun.place.shadows):
        verdict.append(f"left of shadows: {os.listdir(begun.place.shadows)}")
    with begun.place.open() as hf:
        audit = hf.audit()
        rows = {row.id: row.status for row in hf.log(limit=-1)}
    if not audit.ok:
        verdict.append(f"the ledger does not verify: {audit.message}")
    entries = _executions(begun.place)
    if rows != dict(entries):
        verdict.append(f"the tables say {rows}, the ledger {entries}")
    words = [status for _, status in entries[begun.entries :]]
    allowed = (["COMPLETED"],) if is_new else ([], ["ABORTED"], ["ROLLED_BACK"])
    if words not in allowed:
        verdict.append(f"the ledger says {words} although the tree is {'new' if is_new else 'old'}")
    return verdict


def _executions(place: Place) -> list[tuple[str, str]]:
    """(id, status) of every execution in the ledger, oldest first. One that waited for a person has two entries; the
    last one counts."""
    with place.open() as hf:
        found = [entry.body for entry in hf.pipeline.ledger.entries() if entry.kind == "execution"]
    return list({str(body["execution_id"]): str(body["status"]) for body in found}.items())


def _ids(hf: Holdfast) -> list[str]:
    return [row.id for row in hf.log(limit=-1)]


def kill_in(begun: Start, scenario: Scenario, fault: Fault, counted: frozenset[str] = CHANGES) -> bool:
    """Run the scenario with one kill; True when it was done and acknowledged before that."""
    return interrupted(use(begun.place, FaultyCalls(counted=counted), lambda hf: act(scenario, hf), fault))


def kill_in_recovery(place: Place, fault: Fault) -> bool:
    """Recover with one kill; True when the recovery ended before that."""
    return interrupted(use(place, FaultyCalls(counted=CHANGES), lambda hf: _recover(hf), fault))


def _recover(hf: Holdfast) -> None:
    hf.recover()


def copy_tree(source: str, target: str) -> None:
    """Like `cp -a`: every time, owner, mode and attribute."""
    os.mkdir(target)
    for entry in os.scandir(source):
        there = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), there)
        elif entry.is_dir():
            copy_tree(entry.path, there)
            continue
        else:
            shutil.copyfile(entry.path, there)
        _copy_facts(entry.path, there)
    _copy_facts(source, target)


def _copy_facts(source: str, target: str) -> None:
    found = os.lstat(source)
    if os.geteuid() == 0:
        os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    shutil.copystat(source, target, follow_symlinks=False)


def discard(place: Place) -> None:
    """Remove a place, also directories that are closed to their owner."""
    for directory, names, _ in os.walk(place.root):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(place.root)
