"""No room on the disk: told as that, whatever it came as; nobody failed, no attempt is used, and the run goes on."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegated import FILES
from driven_run import Sitting, worked
from guarded import Ground, guard
from holdfast.cli.run_told import ending_of
from holdfast.engine.driver import LAND
from holdfast.engine.expedition import worked as worked_on
from holdfast.engine.grounds import Grounds, Place
from holdfast.engine.orders import Order, packed
from holdfast.engine.room import GO_ON, is_full, require_room, stopped_for_room, told_as_full
from holdfast.engine.run_standing import standing_of
from holdfast.engine.work import Workbench
from holdfast.errors import Blocked, Conflict, DiskFull, HoldfastError
from holdfast.model.run import RunOptions, TaskFailed
from holdfast.store.adapters import Adapters
from holdfast.store.database import Records, in_our_words
from holdfast.testing import HandEngine, ScriptedAgent
from holdfast.wiring.opening import pipeline_at

ONE = "# R\n\n- [ ] One\n"
ORDER = Order("u-1", "one", 1, 1, "scripted", "One", "Make answer() return 42.", mends=1, within_ms=60_000)


def caused(error: HoldfastError, cause: BaseException) -> HoldfastError:
    error.__cause__ = cause
    return error


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": ONE.encode(), **FILES})
    yield found
    found.hf.close()


# ── what it is ──


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (full(), True),
        (OSError(errno.EDQUOT, "quota"), True),
        (caused(Blocked("it cannot be prepared"), full()), True),
        (caused(HoldfastError("not recorded"), caused(Blocked("no"), full())), True),
        (DiskFull("no room"), True),
        (OSError(errno.EIO, "broken"), False),
        (caused(Blocked("a gate"), OSError(errno.EACCES, "no")), False),
        (Conflict("it moved"), False),
    ],
    ids=str,
)
def test_a_full_disk_is_found_among_the_causes(error: BaseException, expected: bool) -> None:
    """However often it was wrapped (Z1); nothing else is taken for one."""
    assert is_full(error) is expected


def test_a_database_without_room_says_so(tmp_path: Path) -> None:
    """SQLite's own word for it is ours too, and is no gate."""
    db = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    db.execute("CREATE TABLE t(x)")
    db.execute("PRAGMA max_page_count = 2")
    with pytest.raises(DiskFull, match="full"), in_our_words():
        db.execute("INSERT INTO t VALUES(?)", (b"x" * 100_000,))
    db.close()


def test_a_change_of_an_adapter_without_room_leaves_nothing_half_done(tmp_path: Path) -> None:
    """A connection that finds no room is opened again, and every change is there once, whole."""
    state = tmp_path / "state"
    state.mkdir()
    records = Records(str(state))
    pages = records.connection.execute("PRAGMA page_count").fetchone()[0]
    records.connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    adapters = Adapters(records)

    def fill() -> None:
        for number in range(1_000):
            adapters.change(f"agent-{number}-{'x' * 200}", lambda row: (row, None))

    fill()
    assert len(adapters.all()) == 1_000
    adapters.change("mine", lambda row: (row._replace(failures=row.failures + 1), None))
    assert adapters.get("mine").failures == 1
    records.close()


def test_only_a_full_disk_is_told_as_one() -> None:
    """With how to go on, and whether anything was changed; what is not about room stays what it was."""
    with (
        pytest.raises(DiskFull, match="it cannot be landed: applied") as caught,
        told_as_full("it cannot be landed", GO_ON),
    ):
        raise caused(HoldfastError("applied", changed=True), full())
    assert (caught.value.changed, "holdfast resume" in caught.value.hint) == (True, True)
    with pytest.raises(Conflict), told_as_full("it cannot be landed"):
        raise Conflict("it moved")
    with pytest.raises(OSError, match="broken"), told_as_full("it cannot be landed"):
        raise OSError(errno.EIO, "broken")


def test_a_disk_with_room_is_none_that_is_full(tmp_path: Path) -> None:
    """An attempt that failed where there is room failed for another reason."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    require_room(descriptor)
    os.close(descriptor)


# ── what follows ──


class Item:
    id, token, stopping = "x", 1, False


@pytest.mark.parametrize(
    "error",
    [full(), caused(Blocked("the change could not be prepared"), full()), DiskFull("holdfast.db: full")],
    ids=str,
)
def test_work_without_room_is_no_verdict_on_the_work(ground: Ground, error: BaseException) -> None:
    """Neither a gate nor a failure of the agent: it is raised, in our words, for whoever drives."""

    def place(order: Order) -> Place:
        raise error

    bench = Workbench(place, {}, lambda order: lambda happening: None)  # type: ignore[arg-type]
    with pytest.raises(DiskFull) as caught:
        worked_on(bench, Item(), packed(ORDER))  # type: ignore[arg-type]
    assert "gate" not in caught.value.message


def test_an_attempt_that_met_a_full_disk_is_nobodys_failure(ground: Ground) -> None:
    """The agent could not write: its breaker counts nothing, and it is told as what it is (Z2)."""

    class Unlucky(ScriptedAgent):
        def work(self, request, bench):  # type: ignore[no-untyped-def]
            result = super().work(request, bench)
            raise caused(Blocked("the transcript cannot be kept"), full()) if result else result

    bench = Workbench(
        Grounds(str(ground.path), pipeline_at), {"scripted": Unlucky()}, lambda order: lambda happening: None
    )
    for _ in range(4):  # more often than a breaker bears
        with pytest.raises(DiskFull, match="scripted cannot work: the transcript"):
            worked_on(bench, Item(), packed(ORDER))  # type: ignore[arg-type]


def without_room(engine: HandEngine, id: str) -> None:
    engine.fail(id, "it cannot be worked on: No space left on device", DiskFull.code)


def test_a_full_disk_stops_the_run_and_uses_no_attempt(ground: Ground) -> None:
    """It is told with how to go on, exit 5; with room again the same run goes on to its end, in the first attempt."""
    sitting = Sitting(ground, ONE, options=RunOptions(attempts=1))
    run = sitting.drive({"One": [without_room]})
    record = sitting.record("One")
    assert (run.state, record.state, record.attempt, record.tried) == ("STOPPED", "PENDING", 0, ())
    assert stopped_for_room(run) and "No space left on device" in run.because
    assert not [event for event in sitting.events if isinstance(event, TaskFailed)]
    ending = ending_of(standing_of(ground.hf.site, ground.hf.pipeline.records, run), interrupted=False)
    assert (ending.status, ending.next) == (5, "holdfast resume")
    assert "the disk is full" in ending.words and "Make room" in ending.words
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert (after.record("One").state, after.record("One").attempt) == ("COMPLETED", 1)


def test_a_landing_without_room_is_begun_again_when_the_run_goes_on(ground: Ground) -> None:
    """How far it came is not known: it is still under way in the book, and nothing else is done with the task (D3)."""
    sitting = Sitting(ground, ONE)
    run = sitting.drive({"One": [worked(), without_room]})
    record = sitting.record("One")
    assert (run.state, record.state, record.landing, len(sitting.landings())) == ("STOPPED", "VALIDATING", True, 1)
    after = sitting.again()
    assert after.drive().state == "FINISHED" and after.record("One").state == "COMPLETED"
    landings = [asked.id for asked in after.engine.asked if asked.function == LAND]
    assert len(set(landings)) == 2 and len(after.works()) == 1


def test_a_full_disk_elsewhere_stops_nobody_here(ground: Ground) -> None:
    """The task waits, without an attempt, for the worker to have room; the others go on."""
    sitting = Sitting(ground, "# R\n\n- [ ] One\n- [ ] Two\n", told_here={})
    sitting.later_ns = 3_600 * 10**9
    told = sitting.driver._outcomes._told_here
    assert isinstance(told, dict)

    def landed_here(engine: HandEngine, id: str) -> None:
        told[id] = {"kind": "landed", "execution": f"e-{id}", "commit": "", "files": 1, "remarks": [], "together": [],
                    "version": 1}  # fmt: skip
        engine.end(id, told[id])

    run = sitting.drive({"One": [without_room, worked(), landed_here], "Two": [worked(), landed_here]})
    assert run.state == "FINISHED" and set(sitting.states().values()) == {"COMPLETED"}
    assert (sitting.record("One").attempt, sitting.record("One").tried) == (1, ())
