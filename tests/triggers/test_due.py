"""What is due, from the clock and from what happens; and that it is due once, whatever happens to us."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from guarded import guard, in_child
from holdfast.engine.trigger_watch import _rest, watch
from holdfast.engine.triggers import Triggers
from holdfast.errors import Blocked, InvalidInput, Locked, Tampering
from holdfast.model.trigger import Firing, Happened, Told
from holdfast.store.firings import REMEMBERED, WAITING, Firings
from holdfast.testing import FaultyCalls, KillAt
from triggers.posted import HOOK, INBOX, NIGHTLY, NOON, PLANS, watchman

TWO = datetime(2026, 11, 16, 1, 0, tzinfo=UTC)


def test_a_schedule_is_due_once(workspace: Path) -> None:
    """At its moment a schedule starts one run, with the roadmap and the agent of its table; a second look none."""
    with watchman(workspace, NIGHTLY) as man:
        assert man.after(hours=12) == []
        (firing,) = man.after(hours=1, seconds=3)
        assert (firing.trigger, firing.kind, firing.roadmap, firing.agent) == ("nightly", "cron", "R.md", "claude")
        assert (firing.moment_ns, firing.late) == (int(TWO.timestamp()) * 10**9, False)
        assert man.after(seconds=1) == []
        assert man.memory.state_of(firing.id) == ("STARTED", "")
        assert len(man.after(days=1)) == 1


def test_the_next_moment_is_known(workspace: Path) -> None:
    """The next moment is that of the schedule, after the one that was counted; without schedules there is none."""
    with watchman(workspace, NIGHTLY, HOOK) as man:
        assert man.triggers.next(NOON) == TWO
        man.after(hours=13)
        assert man.triggers.next(TWO) == TWO + timedelta(days=1)
        assert man.triggers.next(NOON) == TWO + timedelta(days=1)
        assert Triggers([HOOK], man.memory, lambda: NOON).next(NOON) is None


def test_a_machine_that_slept_starts_one_run(workspace: Path) -> None:
    """For nine nights that were missed there is one run, for the last of them, and it is told as late."""
    with watchman(workspace, NIGHTLY) as man:
        pass
    with watchman(workspace, NIGHTLY, now=NOON + timedelta(days=9)) as man:
        (firing,) = man.after(seconds=0)
        assert firing.late and firing.since_ns == int(TWO.timestamp()) * 10**9
        assert firing.moment_ns == int((TWO + timedelta(days=8)).timestamp()) * 10**9
        assert "earlier moments were missed" in man.told[-1].words
        assert man.after(seconds=1) == []


def test_a_new_schedule_makes_up_for_nothing(workspace: Path) -> None:
    """A trigger that is new, or has another expression than before, begins now."""
    with watchman(workspace, NIGHTLY) as man:
        assert man.after(seconds=1) == []
    other = NIGHTLY._replace(cron="0 11 * * *")
    with watchman(workspace, other, now=NOON + timedelta(days=5)) as man:
        assert man.after(seconds=1) == []
        assert len(man.after(days=1)) == 1


def test_a_clock_that_is_set_back_starts_nothing_twice(workspace: Path) -> None:
    """After the clock went back, a moment that was counted does not come again, and the wait is told."""
    with watchman(workspace, NIGHTLY) as man:
        assert len(man.after(hours=13)) == 1
        assert man.after(hours=-2) == []
        assert man.after(hours=2) == []
    with watchman(workspace, NIGHTLY, now=NOON - timedelta(days=30)) as man:
        assert [words for _, words in man.tales()] == ["its last moment is ahead of the clock: the clock was set back"]


def test_a_delivery_starts_one_run(workspace: Path) -> None:
    """A delivery is due with its body; the same delivery again, also after a restart, is known and starts nothing."""
    event = Happened("hook", "webhook", "d-1", "delivery d-1", b"\0; rm -rf /")
    with watchman(workspace, HOOK) as man:
        assert man.triggers.happened(event) == "noted"
        assert man.triggers.happened(event) == "known"
        (firing,) = man.after(seconds=1)
        assert (firing.body, firing.agent) == (b"\0; rm -rf /", "mine")
        assert man.triggers.happened(event) == "known"
    with watchman(workspace, HOOK) as man:
        assert man.triggers.happened(event) == "known"
        assert man.after(seconds=1) == []
        assert man.triggers.happened(event._replace(key="d-2")) == "noted"


def test_what_waits_is_bounded_and_said(workspace: Path) -> None:
    """A trigger has at most so many firings waiting; the next is refused and can be delivered later."""
    with watchman(workspace, HOOK) as man:
        noted = [man.triggers.happened(Happened("hook", "webhook", f"d-{n}")) for n in range(WAITING + 1)]
        assert noted == ["noted"] * WAITING + ["full"]
        assert len(man.after(seconds=1)) == WAITING
        assert man.triggers.happened(Happened("hook", "webhook", f"d-{WAITING}")) == "noted"


def test_memory_is_bounded_and_forgets_nothing_open(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is settled the newest are remembered, without bodies; what is open stays, however old."""
    monkeypatch.setattr("holdfast.store.firings.REMEMBERED", 5)
    assert REMEMBERED == 10_000
    with watchman(workspace, HOOK) as man:
        man.memory.note(Firing("f-open", "hook", "webhook", 1, 1, body=b"kept"))
        for n in range(12):
            id = f"f-{n}"
            man.memory.note(Firing(id, "hook", "webhook", 1, 1, body=b"x" * 100))
            assert man.memory.move(id, "DUE", "BEGUN") and man.memory.move(id, "BEGUN", "STARTED")
        held = [n for n in range(12) if man.memory.state_of(f"f-{n}")]
        assert held == [7, 8, 9, 10, 11]
        assert [firing.body for firing in man.memory.in_state("STARTED")] == [b""] * 5
        assert [(firing.id, firing.body) for firing in man.memory.in_state("DUE")] == [("f-open", b"kept")]


def test_who_does_not_know_a_trigger_is_refused(workspace: Path) -> None:
    """What happens to a trigger that is not configured, or is of another kind, is an error."""
    with watchman(workspace, HOOK, NIGHTLY) as man:
        for name in ("other", "nightly"):
            with pytest.raises(InvalidInput):
                man.triggers.happened(Happened(name, "webhook", "d"))


def test_a_trigger_that_is_gone_is_told_with_what_it_had_due(workspace: Path) -> None:
    """What was due for a trigger that the configuration has no more is not started, and told."""
    with watchman(workspace, HOOK) as man:
        man.triggers.happened(Happened("hook", "webhook", "d"))
    with watchman(workspace, NIGHTLY) as man:
        assert man.after(seconds=1) == []
        assert man.tales() == [("missed", "the configuration does not have this trigger any more")]
        assert man.after(seconds=1) == [] and len(man.told) == 1


def test_a_start_that_refuses_is_told_and_not_tried_again(workspace: Path) -> None:
    """When the run cannot be started the reason is told and kept; other triggers go on."""
    with watchman(workspace, HOOK, NIGHTLY) as man:
        man.triggers.happened(Happened("hook", "webhook", "d"))

        def refuse(firing: Firing) -> None:
            if firing.trigger == "hook":
                raise Blocked("another run is going on")
            man.started.append(firing)

        man.watch._start = refuse
        man.after(hours=13)
        assert [firing.trigger for firing in man.started] == ["nightly"]
        assert ("failed", "another run is going on") in man.tales()
        (failed,) = man.memory.in_state("FAILED")
        assert man.memory.state_of(failed.id) == ("FAILED", "another run is going on")
        assert man.after(seconds=1) == []


@pytest.mark.long
@pytest.mark.parametrize("point", ["firing-noted", "firing-begun", "starting", "started", "firing-started"])
@pytest.mark.parametrize("kind", ["cron", "webhook", "queue"])
def test_killed_at_any_point_no_run_starts_twice_and_none_is_lost_silently(
    kind: str, point: str, tmp_path: Path
) -> None:
    """Killed with SIGKILL between remembering and starting: after that it is started once, or told as missed."""
    place, log = tmp_path / "workspace", tmp_path / "log"
    guard(place, {"inbox/": b""}).hf.close()
    log.touch()

    def first() -> None:
        calls = FaultyCalls()
        with watchman(place, NIGHTLY, HOOK, INBOX, calls=calls) as man:
            calls.arm(KillAt(point))

            def start(firing: Firing) -> None:
                calls.point("starting")
                with log.open("a") as file:
                    file.write(f"{firing.id}\n")
                calls.point("started")

            man.watch._start = start
            if kind == "webhook":
                man.triggers.happened(Happened("hook", "webhook", "d"))
            if kind == "queue":
                (place / "inbox/q.json").write_text('[{"id": "a", "title": "Do it"}]')
                man.after(seconds=1)
                man.after(seconds=2)
            man.after(hours=13 if kind == "cron" else 0)

    assert in_child(first) == -9
    ran = log.read_text().split()
    with watchman(place, NIGHTLY, HOOK, INBOX, now=NOON + timedelta(hours=14)) as man:
        # The night comes in between; what it starts is not what was killed.
        for _ in range(3):
            man.after(seconds=2)
        wanted = {"webhook": "hook", "cron": "nightly", "queue": "inbox"}[kind]
        ran += [firing.id for firing in man.started if firing.trigger == wanted]
        missed = [told.firing for told in man.told if told.tale == "missed"]
        begun = point != "firing-noted"
        assert len(set(ran)) == len(ran) <= 1
        assert len(missed) == (1 if begun and point != "firing-started" else 0)
        assert ran or missed
        if kind == "queue":
            assert [path.name for path in (place / "inbox").glob("*.json")] == []
            assert len(list((place / "inbox/taken").iterdir())) == 1


def test_two_watches_of_one_workspace_are_one_too_many(workspace: Path) -> None:
    """While one process watches, another is refused with who it is, so nobody takes its work for a crash."""
    with watchman(workspace, HOOK) as man, man.memory.watching():

        def second() -> None:
            other = Firings(man.ground.hf.site.state)
            with pytest.raises(Locked, match=r"watched already \(pid"):
                watch(man.triggers, other, (), man.start, tell=man.told.append, stop=threading.Event())

        assert in_child(second) == 0


def test_the_watch_goes_on_until_it_is_stopped(workspace: Path) -> None:
    """The loop starts what is due by the real clock and ends when it is told to."""
    stop = threading.Event()
    with watchman(workspace, HOOK) as man:
        man.triggers.happened(Happened("hook", "webhook", "d"))

        def start(firing: Firing) -> None:
            man.started.append(firing)
            stop.set()

        watch(man.triggers, man.memory, (), start, tell=man.told.append, stop=stop, poll=0.01)
        assert [firing.trigger for firing in man.started] == ["hook"]


def test_looking_takes_a_twentieth_of_the_time(workspace: Path) -> None:
    """After a round that took long the watch rests longer, but never past the next moment of a schedule."""
    soon = NOON + timedelta(seconds=3)
    assert _rest(None, NOON, 20.0) == 20.0
    assert _rest(soon, NOON, 20.0) == 3.0
    assert _rest(soon, NOON, 1.0) == 1.0
    assert _rest(NOON, soon, 1.0) == 0.0
    stop = threading.Event()

    class Slow:
        trigger = "slow"
        looks = 0

        def look(self, triggers: Triggers, now: datetime) -> Iterator[Told]:
            self.looks += 1
            time.sleep(0.05)
            yield from ()

        def take(self, firing: Firing) -> str:
            return ""

    slow = Slow()
    with watchman(workspace, HOOK) as man:
        threading.Timer(0.8, stop.set).start()
        watch(man.triggers, man.memory, (slow,), man.start, tell=man.told.append, stop=stop, poll=0.0)
    assert slow.looks == 1


def test_a_run_that_takes_long_to_start_makes_nobody_deaf(workspace: Path) -> None:
    """What happens while a run is being started is started right after it, and not after twenty times as long."""
    stop = threading.Event()
    with watchman(workspace, HOOK) as man:
        man.triggers.happened(Happened("hook", "webhook", "first"))

        def start(firing: Firing) -> None:
            man.started.append(firing)
            if len(man.started) == 1:
                time.sleep(0.2)
                man.triggers.happened(Happened("hook", "webhook", "second"))
            else:
                stop.set()

        threading.Timer(2.0, stop.set).start()
        watch(man.triggers, man.memory, (), start, tell=man.told.append, stop=stop, poll=0.01)
        assert len(man.started) == 2


@pytest.mark.parametrize("damage", ["link", "bytes", "state", "version"])
def test_a_memory_that_cannot_be_believed_is_refused(damage: str, workspace: Path, tmp_path: Path) -> None:
    """A link in its place, other bytes, an unknown kind or a later version is tampering, and no run is started."""
    with watchman(workspace, HOOK) as man:
        man.triggers.happened(Happened("hook", "webhook", "d"))
    file = workspace / ".holdfast/triggers/firings.db"
    if damage == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif damage == "bytes":
        file.write_bytes(b"not a database" * 500)
    else:
        with sqlite3.connect(file) as db:
            db.execute("UPDATE firings SET kind='shell'" if damage == "state" else "PRAGMA user_version=9")
        db.close()
    with pytest.raises(Tampering), watchman(workspace, HOOK) as man:
        man.after(seconds=1)


def test_every_note_is_on_the_disk_before_it_is_told(workspace: Path) -> None:
    """The memory is written with the strongest promise SQLite knows, on every connection."""
    with watchman(workspace, HOOK) as man:
        (level,) = man.memory._db.execute("PRAGMA synchronous").fetchone()
        (mode,) = man.memory._db.execute("PRAGMA journal_mode").fetchone()
        assert (level, mode) == (2, "wal")


def test_nothing_happens_where_nothing_happened(workspace: Path) -> None:
    """Triggers of every kind live side by side; a look at an empty workspace starts nothing."""
    with watchman(workspace, NIGHTLY, HOOK, PLANS, INBOX) as man:
        assert man.after(seconds=1) == man.after(seconds=60) == []
        assert man.told == []
