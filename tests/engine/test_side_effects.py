"""Trying, checking, deciding, refusing: none of it leaves anything behind, in the workspace or on the host."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.papers import configure, listing, nothing_changes, refused
from guarded import ME, Ground, Refusing, at_most, children, children_of_others, guard, put
from holdfast.engine.checking import ShadowKind
from holdfast.errors import ApprovalNeeded, Blocked, Denied, HoldfastError, VerificationFailed
from holdfast.model.plan import Chmod, CommandCheck, Delete, Move, Plan, Run, Step, Symlink
from holdfast.store.dossier import Dossiers

_FILES = {"a": b"old a\n", "d/b": b"old b\n", "d/c": b"old c\n", "run.sh": b"#!/bin/sh\n", "empty/": b""}
_STEPS: tuple[Step, ...] = (
    put("a", b"new\n"),
    Delete("d", recursive=True),
    Move("run.sh", "bin/run"),
    Symlink("current", "bin/run"),
    Chmod("empty", 0o700),
)
_COMMAND = Run(("/bin/sh", "-e", "-c", "echo new > a; rm -r d; mkdir -p x/y; mv run.sh x; chmod 700 empty; ln -s x z"))
_FAILS = CommandCheck(("/bin/false",))
_PASSES = CommandCheck(("/bin/sh", "-c", "echo junk > a; mkdir made; rm -rf d; test -e bin/run"))


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """With temporary files in a place of their own, so that each of them is ours."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)  # asked for again
    ground = guard(tmp_path / "workspace", _FILES)
    yield ground
    ground.hf.close()


# ── nothing in the workspace ──


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_a_command_that_was_only_simulated_changed_nothing(ground: Ground, kind: ShadowKind) -> None:
    """Whatever a command did in a shadow, the workspace has every byte, mode, owner, time and inode as before."""
    with nothing_changes(ground):
        found = ground.hf.simulate(ground.plan(_COMMAND), shadow=kind)
        assert len(found.change_set.changes) > 6


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_a_command_that_failed_changed_nothing(ground: Ground, kind: ShadowKind) -> None:
    """One that does half of its work and fails blocks the plan, and leaves no trace."""
    with nothing_changes(ground), pytest.raises(Blocked, match="exited with 3"):
        ground.hf.simulate(ground.plan(Run(("/bin/sh", "-c", "echo half > a; rm -r d; exit 3"))), shadow=kind)


@pytest.mark.parametrize("check", [_PASSES, _FAILS], ids=["passing", "failing"])
def test_checks_leave_the_workspace_alone(ground: Ground, check: CommandCheck) -> None:
    """Checks see what would land, write what they like, and none of it reaches the workspace."""
    with nothing_changes(ground):
        found = ground.hf.simulate(ground.plan(*_STEPS, verify=(check,)))
        verified = ground.hf.verify(found)
    assert [receipt.passed for receipt in verified.receipts] == [check is _PASSES]


def test_deciding_and_answering_leave_the_workspace_alone(ground: Ground) -> None:
    """A decision, a yes and a no are papers; no file of the user's is touched."""
    with nothing_changes(ground):
        decision = ground.hf.evaluate(ground.hf.simulate(ground.plan(*_STEPS)))
        ground.hf.approve(decision, by=ME)
        ground.hf.reject(decision, by=ME)


class Refusal(NamedTuple):
    """How an execution is stopped before its first move, and how that ends."""

    error: type[HoldfastError]
    status: int
    config: str = ""
    verify: tuple[CommandCheck, ...] = ()
    says_no: bool = False


_REFUSALS = {
    "not approved": Refusal(ApprovalNeeded, 3),
    "denied": Refusal(Denied, 4, '[policy]\nforbidden = ["a"]\n'),
    "rejected": Refusal(Blocked, 5, says_no=True),
    "verification fails": Refusal(VerificationFailed, 6, verify=(_FAILS,)),
}


@pytest.mark.parametrize("steps", [_STEPS, (_COMMAND,)], ids=["file steps", "a command"])
@pytest.mark.parametrize("refusal", _REFUSALS.values(), ids=_REFUSALS)
def test_a_refused_execution_changed_nothing(ground: Ground, steps: tuple[Step, ...], refusal: Refusal) -> None:
    """Not approved, denied, rejected, failed in the shadow: the documented status, and nothing changed."""
    if refusal.config:
        configure(refusal.config)
    hf = ground.hf
    with nothing_changes(ground):
        found = hf.simulate(ground.plan(*steps, verify=refusal.verify))
        verified = hf.verify(found)
        decision = hf.evaluate(found, verified)
        if refusal.says_no:
            hf.reject(decision, by=ME, reason="not today")
        with refused(ground, refusal.error, refusal.status):
            hf.execute(found, verified=verified, decision=decision)


@pytest.mark.parametrize("performed", [1, 3, 5])
def test_an_execution_that_fails_in_the_middle_restores_every_time(tmp_path: Path, performed: int) -> None:
    """The disk refuses some way into the flips: bytes, modes, times and inodes are what they were."""
    calls = Refusing("exchange", errno.EIO)
    ground = guard(tmp_path / "workspace", {**_FILES, **{f"f{n}": b"old" for n in range(6)}}, calls)
    left = performed
    real = calls.exchange

    def exchange(*args: object, **options: object) -> None:
        nonlocal left
        calls.armed = left == 0
        left -= 1
        real(*args, **options)  # type: ignore[arg-type]

    setattr(calls, "exchange", exchange)  # noqa: B010
    found = ground.hf.simulate(ground.plan(*(put(f"f{n}", b"new") for n in range(6)), *_STEPS))
    with refused(ground, VerificationFailed, 6, "rolled back", ending="ROLLED_BACK"):
        ground.hf.execute(found, approved_by=ME)
    assert calls.refused == 1
    ground.hf.close()


def test_a_failing_health_check_restores_every_time(ground: Ground) -> None:
    """Files stood in the new version while their health was checked; all of it is taken back, times included."""
    plan = Plan("a test", (*_STEPS, Run(("/bin/touch", "more"))), health=(_FAILS._replace(within_ms=100),))
    found = ground.hf.simulate(plan)
    with refused(ground, VerificationFailed, 6, ending="ROLLED_BACK"):
        ground.hf.execute(found, approved_by=ME)


# ── nothing on the host ──


class Host(NamedTuple):
    """What a program could leave behind."""

    mounts: tuple[str, ...]
    descriptors: int
    children: frozenset[str]
    working_here: tuple[str, ...]
    temporary: tuple[str, ...]
    shadows: tuple[str, ...]
    journal: tuple[str, ...]

    def _elsewhere(self) -> Host:
        return self._replace(mounts=(), descriptors=0, children=frozenset())


def _host(ground: Ground) -> Host:
    shadows = ground.state / "shadows"
    return Host(
        mounts=tuple(Path("/proc/self/mountinfo").read_text().splitlines()),
        descriptors=len(list(_descriptors(ground))),
        children=frozenset(children()),
        working_here=tuple(_processes(str(ground.path))),
        temporary=tuple(os.listdir(tempfile.gettempdir())),
        shadows=tuple(os.listdir(shadows)) if shadows.exists() else (),
        journal=tuple(ground.journal()),
    )


def _descriptors(ground: Ground) -> Iterator[str]:
    """But for directories of the workspace: a few of those are kept open, by a cache that is bounded. Those of shadows
    count."""
    for name in os.listdir("/proc/self/fd"):
        try:
            place = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that lists them
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            place = "too deep to be spelled"  # of another test
        if not (place.startswith(f"{ground.path}/") and os.path.isdir(place)) or "/shadows" in place:
            yield place


def _processes(word: str) -> Iterator[str]:
    """Those, besides ourselves, that say this word, or stand or hold something open below it."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        if int(name) != os.getpid() and word in _about(f"/proc/{name}"):
            yield name


def _about(process: str) -> str:
    try:
        links = [f"{process}/cwd", f"{process}/root"]
        said = Path(f"{process}/cmdline").read_bytes().decode(errors="replace")
        return "\n".join([said, *(os.readlink(link) for link in links)])
    except OSError:
        return ""  # it ended meanwhile, or is somebody else's


@contextmanager
def _nothing_is_left(ground: Ground) -> Iterator[None]:
    _dry_run(ground, 0)
    _dry_run(ground, 0, _COMMAND)  # what is loaded and opened once is loaded and open
    children_of_others()
    before, here = _host(ground), listing(ground.path)
    yield
    after = _host(ground)
    # Mounts of other tests may come and go; ours would name the workspace.
    assert [line for line in set(after.mounts) - set(before.mounts) if str(ground.path) in line] == []
    assert after.descriptors <= before.descriptors
    assert after.children <= before.children
    assert after._elsewhere() == before._elsewhere()
    assert after.shadows == after.working_here == after.temporary == ()
    assert listing(ground.path) == here


def _dry_run(ground: Ground, number: int, *more: Step) -> None:
    found = ground.hf.simulate(ground.plan(*_STEPS[:1], put("n", b"%d" % number), *more))
    assert found.report.status == "SUCCESS"


def test_many_dry_runs_leave_nothing_behind(ground: Ground) -> None:
    """Two hundred dry runs and twenty with commands leave no mount, process, file or descriptor."""
    with _nothing_is_left(ground):
        for number in range(200):
            _dry_run(ground, number)
        for number in range(20):
            kind: ShadowKind = "copy" if number % 4 == 0 else "overlay"
            ground.hf.simulate(ground.plan(put("n", b"%d" % number), _COMMAND), shadow=kind)


def test_dry_runs_that_fail_leave_nothing_behind(ground: Ground) -> None:
    """Blocked plans, failing commands, commands over time, and failing checks clean up as well."""
    plans = (
        ground.plan(Delete("nowhere")),
        ground.plan(Run(("/bin/sh", "-c", "echo > a; exit 1"))),
        ground.plan(Run(("/nonexistent",))),
        ground.plan(Run(("/bin/sh", "-c", "sleep 60 & sleep 60"), within_ms=200)),
    )
    with _nothing_is_left(ground):
        for plan in plans:
            with pytest.raises(Blocked):
                ground.hf.simulate(plan)
        failing = ground.hf.simulate(ground.plan(*_STEPS, verify=(_FAILS,)))
        assert not ground.hf.verify(failing).receipts[0].passed


# ── killed in the middle ──


def _is_true_within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


def _killed_while(ground: Ground, act: Callable[[Ground], object], begun: Callable[[], bool]) -> None:
    """A process of its own does it, and is killed as soon as it is at the place."""
    child = os.fork()
    if child == 0:
        try:
            act(Ground(ground.path))
        finally:
            os._exit(1)
    try:
        assert _is_true_within(30, begun)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_a_killed_simulation_is_swept_by_the_next_verb(ground: Ground, kind: ShadowKind) -> None:
    """Holdfast is killed while a command runs: the command ends with it, and the next verb removes the shadow."""
    token = f"holdfast-{os.urandom(6).hex()}"
    plan = ground.plan(Run(("/bin/sh", "-c", f"echo > begun; sleep 300; : {token}")))
    shadows = ground.state / "shadows"
    before = listing(ground.path)
    with at_most(60):
        _killed_while(
            ground, lambda there: there.hf.simulate(plan, shadow=kind), lambda: any(shadows.glob("h-*/*/*/begun"))
        )
    assert _is_true_within(10, lambda: not list(_processes(token)))
    assert len(os.listdir(shadows)) == 1
    ground.hf.recover()
    assert os.listdir(shadows) == []
    assert listing(ground.path) == before
    assert ground.hf.simulate(ground.plan(_COMMAND), shadow=kind).report.status == "SUCCESS"


def test_a_dossier_that_was_half_written_is_swept_by_the_next_verb(ground: Ground) -> None:
    """One whose writer was killed goes; one that somebody is writing right now stays, and gets its name."""
    shelf = ground.state / "simulations"

    def pieces() -> Iterator[bytes]:
        yield b"half"
        time.sleep(300)

    _killed_while(
        ground,
        lambda there: Dossiers(there.hf.site.state, "simulations").write("s-aaaa", [("0", pieces())]),
        lambda: any(shelf.glob("new-*/0")),
    )

    def meanwhile() -> Iterator[bytes]:
        yield b"one "
        assert len(os.listdir(shelf)) == 2
        ground.hf.recover()
        yield b"two"

    other = Ground(ground.path)
    Dossiers(other.hf.site.state, "simulations").write("s-bbbb", [("0", meanwhile())])
    assert os.listdir(shelf) == ["s-bbbb"]
    assert (shelf / "s-bbbb/0").read_bytes() == b"one two"
    other.hf.close()
