"""SIGKILL around service actions: after recovery the files are exactly old or new, and the service runs with them.

One place serves many kills: what recovery leaves is where the next one begins.
Kills begin when the files are in place; what comes before that has no service in it (see `test_kill`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from crash.driver import interrupted
from execution.little_site import LittleSite, little_site, put_away
from guarded import ME, Ground, guard, put
from holdfast.engine.job import job_of
from holdfast.errors import VerificationFailed
from holdfast.model.plan import HealthCheck, HttpCheck, Launch, Plan, Service, Signal
from holdfast.testing import CHANGES, At, Fault, FaultyCalls, Kill, KillAt
from holdfast.wiring import Holdfast

Counted = Callable[[int], None]
RESTART = Service(Signal("restart", "site"), Signal("restart", "site"), 5000)
# Every fifth kill in `make test`, every one in `make crash`; with the named points that is over 60 and over 280.
EVERY = [pytest.param(5, marks=pytest.mark.crash), pytest.param(1, marks=pytest.mark.crash_full)]
_POINTS = ("action-begun", "action-done", "commit", "committed", "ledger.durable", "in-ledger", "in-tables", "put-away")
_POINTS_BACK = ("rolled-back", "aborted", "action-taken-back", "ledger.durable", "in-ledger", "in-tables", "put-away")


class Place(NamedTuple):
    """A workspace with a running site, and another program that plans may launch."""

    path: Path
    site: LittleSite
    other: LittleSite

    def conf(self) -> bytes:
        return (self.path / "site.conf").read_bytes()

    def change(self, hf: Holdfast, text: bytes, *, well: bool) -> None:
        """New files, a restart, a launch; not well, health fails and all of it goes back."""
        health: tuple[HealthCheck, ...] = () if well else (HttpCheck(self.site.url, 204, within_ms=1, every_ms=1),)
        steps = (put("site.conf", text), Service(Launch(self.other.argv)), RESTART)
        try:
            hf.pipeline.execute(job_of(hf.simulate(Plan("under test", steps, health=health))), approved_by=ME)
            hf.pipeline.raise_failure()
        except VerificationFailed:
            assert not well

    def judged(self, old: bytes, new: bytes, patience: float = 5.0) -> list[str]:
        """Everything that must be true after recovery; sentences about what is not."""
        ground = Ground(self.path)
        rows = ground.hf.log(limit=-1)
        audit = ground.hf.audit()
        agree = ground.statuses() == ground.ledger_statuses()
        journal = ground.journal()
        ground.hf.close()
        verdict = [] if audit.ok and agree and not journal else [f"books: {audit.message}, {agree}, {journal}"]
        found = self.conf()
        if found not in (old, new):
            return [*verdict, f"a mixed tree: {found!r}"]
        served = self.site.answer(patience)
        if served != (200, found):
            verdict.append(f"the site serves {served}, the file says {found!r}")
        if len(self.site.processes()) != 1:
            verdict.append(f"the site runs {len(self.site.processes())} times")
        stands = [row for row in rows if row.status == "COMPLETED" and row.live and not row.summary["undoes"]]
        if bool(stands) != (found == new):
            verdict.append(f"the books say {rows[0].status}, the file says {found!r}")
        if len(self.other.processes()) != len(stands):
            verdict.append(f"{len(self.other.processes())} launched programs for {len(stands)} executions that stand")
        return verdict


@pytest.fixture
def place(memory: Path, home: Path) -> Iterator[Place]:
    ground = guard(memory / "workspace", {"site.conf": b"zero"})
    ground.hf.close()
    made = Place(ground.path, little_site(ground.path), little_site(ground.path))
    made.site.configure(home / "xdg_config_home")
    made.site.start()
    yield made
    made.site.stop()
    made.other.stop()


def child(place: Place, work: Callable[[Holdfast], None], first: str, fault: Fault) -> bool:
    """Work that is killed by the fault, which counts from the point `first` on; True when it got through."""
    calls = FaultyCalls(counted=CHANGES)

    def armed() -> None:
        ground = Ground(place.path, calls)
        calls.arm(At(first, lambda: calls.arm(fault)))
        work(ground.hf)
        ground.hf.close()

    return interrupted(armed)


def recovered(place: Place) -> None:
    ground = Ground(place.path)
    ground.hf.recover()
    ground.hf.close()


def undone(place: Place) -> None:
    """Back to the beginning, when the change came through."""
    ground = Ground(place.path)
    for row in ground.hf.log(limit=-1):
        if row.status == "COMPLETED" and row.live and not row.summary["undoes"]:
            ground.hf.undo(row.id, approved_by="me")
    ground.hf.close()
    assert not place.other.processes()


def verdicts(place: Place, every: int, *, well: bool) -> Iterator[str | None]:
    """Kill before every change of the disk from the moment that the files are in place; None counts a kill."""
    number, through = 1 - every, False
    while not through:
        number += every
        old, new = place.conf(), b"v%d" % number
        through = child(place, lambda hf, new=new: place.change(hf, new, well=well), "applied", Kill(number))
        recovered(place)
        yield None
        yield from (f"killed before change {number}: {what}" for what in place.judged(old, new))
        undone(place)


@pytest.mark.long
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("well", [True, False])
def test_killed_around_every_fact(place: Place, kill_points: Counted, well: bool, every: int) -> None:
    """Killed before any change of the disk from the first action on: one site, with the files that stand."""
    found = list(verdicts(place, every, well=well))
    assert [what for what in found if what is not None] == []
    kill_points(found.count(None))
    assert found.count(None) * every >= 35


@pytest.mark.crash
@pytest.mark.parametrize(
    ("well", "point"), [*((True, point) for point in _POINTS), *((False, point) for point in _POINTS_BACK)]
)
def test_killed_at_a_named_point(place: Place, kill_points: Counted, well: bool, point: str) -> None:
    """Killed at a named point, also between the rollback of the files and that of the services."""
    assert not child(place, lambda hf: place.change(hf, b"new", well=well), "applied", KillAt(point))
    recovered(place)
    assert place.judged(b"zero", b"new") == []
    kill_points(1)


@pytest.mark.long
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("first", ["action-begun", "action-done", "aborted"])
def test_recovery_is_killed_and_runs_again(place: Place, kill_points: Counted, first: str, every: int) -> None:
    """A recovery that is itself killed, before any change of the disk that it makes, is finished by the next one."""
    number, kills, through = 1 - every, 0, False
    while not through:
        number, kills = number + every, kills + 1
        assert not child(place, lambda hf: place.change(hf, b"new", well=False), "applied", KillAt(first))
        through = interrupted(_recovering(place, FaultyCalls(counted=CHANGES), Kill(number)))
        recovered(place)
        assert place.judged(b"zero", b"new") == [], f"{first}, then recovery before its change {number}"
    kill_points(kills)


def _recovering(place: Place, calls: FaultyCalls, fault: Fault) -> Callable[[], None]:
    def work() -> None:
        ground = Ground(place.path, calls)
        calls.arm(fault)
        ground.hf.recover()
        ground.hf.close()

    return work


@pytest.mark.long
@pytest.mark.parametrize("every", EVERY)
def test_an_undo_is_killed_around_every_fact(place: Place, kill_points: Counted, every: int) -> None:
    """Killed anywhere in the actions of an undo: the change stands with its services, or is gone with them."""
    number, kills, through = 1 - every, 0, False
    while not through:
        number, kills = number + every, kills + 1
        new = b"v%d" % number
        assert child(place, lambda hf, new=new: place.change(hf, new, well=True), "never", Kill(1))
        through = child(place, lambda hf: _undo_newest(hf), "applied", Kill(number))
        recovered(place)
        assert place.judged(b"zero", new) == [], f"killed before change {number}"
        undone(place)
    kill_points(kills)


def _undo_newest(hf: Holdfast) -> None:
    hf.undo(hf.log(limit=1)[0].id, approved_by="me")


def test_the_judge_sees_a_service_with_other_files(place: Place) -> None:
    """The eyes of these tests can fail: a site that was not restarted, or runs twice, or not, is found."""
    assert place.judged(b"zero", b"new") == []
    (place.path / "site.conf").write_bytes(b"one")
    assert place.judged(b"one", b"new") != []
    (place.path / "site.conf").write_bytes(b"zero")
    daemon = place.site.daemon()
    put_away(daemon)
    with pytest.raises(AssertionError):
        place.judged(b"zero", b"new", patience=0.2)
