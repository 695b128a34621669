"""Who lives, who is lost, whose work counts."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.durable.child_words import STEPS, WORKSPACE, ids
from engine.durable.children import child, says, until
from engine.durable.cluster import Cluster
from holdfast.engine.durable import Database, Lease, Queue
from holdfast.engine.durable_database import connect, reachable
from holdfast.engine.durable_engine import DbosEngine
from holdfast.engine.durable_remarks import Remarks
from holdfast.engine.durable_running import home, worker
from holdfast.engine.leases import Leases
from holdfast.errors import Blocked, DatabaseAway, InvalidInput, Locked

Effects = Callable[[], list[str]]
pytestmark = pytest.mark.long

SHORT = Lease(seconds=0.3, beat=0.1)


@pytest.fixture
def leases(database: Database) -> Iterator[Leases]:
    engine = connect(database)
    found = Leases(engine)
    found.create()
    found.create()
    yield found
    engine.dispose()


def test_a_silent_worker_is_given_up_at_the_second_look(leases: Leases) -> None:
    """One look is not enough, beats in time keep a worker, and a life that was given up never beats again."""
    leases.enlist("quick", "1", "h", SHORT)
    leases.enlist("silent", "2", "h", SHORT)
    time.sleep(0.5)
    assert leases.give_up_the_silent() == ()
    assert leases.beat("quick", "1")
    time.sleep(0.15)
    assert leases.give_up_the_silent() == ("silent",)
    assert leases.beat("quick", "1")
    assert not leases.beat("silent", "2")
    assert [row.given_up for row in leases.workers()] == [False, True]
    leases.enlist("silent", "3", "h", SHORT)
    assert leases.beat("silent", "3")
    assert not leases.beat("silent", "2")


def test_a_name_belongs_to_one_machine_while_its_lease_lasts(leases: Leases) -> None:
    """Another machine is refused until the lease is over; the same machine, whose lock is ours, is not."""
    leases.enlist("w", "1", "here", SHORT)
    with pytest.raises(Locked, match="another machine"):
        leases.enlist("w", "2", "there", SHORT)
    leases.enlist("w", "3", "here", SHORT)
    assert not leases.beat("w", "1")
    time.sleep(0.5)
    leases.enlist("w", "4", "there", SHORT)
    leases.retire("w", "3")
    assert [(row.life, row.given_up) for row in leases.workers()] == [("4", False)]
    leases.retire("w", "4")
    assert leases.give_up_the_silent() == ("w",)


def test_tokens_only_grow(leases: Leases) -> None:
    """Without a row it is 1; each renewal makes one newer; the older ones do not count."""
    assert leases.is_newest("a", 1) and not leases.is_newest("a", 2)
    for _ in range(2):
        leases.renew(["a", "b"])
    assert leases.tokens(["a", "b", "c"]) == {"a": 3, "b": 3}
    assert leases.is_newest("a", 3) and not leases.is_newest("a", 1)
    many = [f"i{number}" for number in range(1200)]
    assert leases.tokens([*many, "b"]) == {"b": 3}
    leases.forget(["a"])
    assert leases.is_newest("a", 1)


def test_a_lease_lasts_for_some_beats(sqlite: Database) -> None:
    """A lease that one late beat would end is refused."""
    with pytest.raises(InvalidInput), worker(sqlite, "w", {}, ("work",), Lease(1, 0.5)):
        pass


@pytest.mark.parametrize(("trouble", "lost"), [(DatabaseAway("nobody there"), False), (ValueError("ours"), True)])
def test_an_outage_ends_no_worker_and_anything_else_does(sqlite: Database, trouble: Exception, lost: bool) -> None:
    """Who cannot say that it lives is lost after its lease; while the database is away, nobody can take its work."""
    pool = connect(sqlite)
    engine = DbosEngine(pool, "w", Remarks())
    try:
        engine.leases.create()
        engine.leases.enlist("w", "1", "m", SHORT)

        class Failing(Leases):
            def beat(self, name: str, life: str) -> bool:
                raise trouble

        engine.leases = Failing(pool)
        end = engine.beating("w", "1", "m", SHORT)
        time.sleep(3 * SHORT.seconds)
        end()
        assert engine.lost is lost
    finally:
        engine.close()


def test_a_life_that_nobody_knows_enlists_again(sqlite: Database) -> None:
    """Its row was lost and it was given up by nobody; one that was given up stays so."""
    pool = connect(sqlite)
    engine = DbosEngine(pool, "w", Remarks())
    try:
        engine.leases.create()
        end = engine.beating("w", "1", "m", SHORT)
        time.sleep(2 * SHORT.seconds)
        assert [row.life for row in engine.leases.workers()] == ["1"] and not engine.lost
        engine.leases.retire("w", "1")
        time.sleep(2 * SHORT.seconds)
        end()
        assert engine.lost
    finally:
        engine.close()


def test_what_was_done_under_an_old_token_is_stale(database: Database) -> None:
    """An item that ended although it had been taken away is never told as done."""
    with home(database, "w", {"echo": lambda inside, argument: argument}, (Queue("work"),)) as engine:
        engine.start("w/1", "echo", 5, "work")
        (item,) = engine.wait(["w/1"], 20)
        assert (item.state, item.token) == ("done", 1)
        engine.leases.renew(["w/1"])
        (item,) = engine.wait(["w/1"])
        assert (item.state, item.token, engine.is_newest("w/1", item.token)) == ("stale", 1, False)
        assert engine.items("w/", ("done",)) == ()
        assert [item.id for item in engine.items("w/", ("stale",))] == ["w/1"]


def test_a_frozen_worker_cannot_end_what_was_taken_from_it(
    postgresql: Database, effects: Effects, tmp_path: Path
) -> None:
    """SIGSTOP past the lease, its item is done by another under a new token, SIGCONT: its late result is refused.

    The frozen one learns that it is lost, does not write a further step, and ends by itself.
    """
    states = [tmp_path / name for name in ("a", "b")]
    for state in states:
        state.mkdir(mode=0o700)
    own = [postgresql._replace(state=str(state)) for state in states]
    with home(postgresql, WORKSPACE, {}, (), elsewhere=(Queue("work", each=1),)) as engine:
        with child("worker", own[0], tmp_path / "effects", "frozen") as frozen:
            says(frozen, "up")
            engine.start(f"{WORKSPACE}/0", "work", 1500, "work")
            until(lambda: len(effects()) == 1)
            time.sleep(0.3)  # in the middle of the second step
            frozen.send_signal(signal.SIGSTOP)
            with child("worker", own[1], tmp_path / "effects", "other") as other:
                says(other, "up")
                moved: list[str] = []
                until(lambda: bool(moved.extend(_moved(engine)) or moved))
                assert moved == [f"{WORKSPACE}/0"]
                until(lambda: any(line.split()[1:2] == ["two"] for line in effects()))
                frozen.send_signal(signal.SIGCONT)
                says(frozen, "lost")
                (item,) = engine.wait([f"{WORKSPACE}/0"], 60)
                other.terminate()
        assert (item.state, item.token, item.worker, item.begun) == ("done", 2, "other", item.begun)
        assert engine.is_newest(item.id, 2) and not engine.is_newest(item.id, 1)
        assert item.value == [frozen.pid, other.pid, other.pid]
    done = [tuple(line.split()[1:]) for line in effects()]
    assert done.count(("one", str(frozen.pid), "1")) == 1
    assert {line for line in done if line[1] == str(other.pid)} == {(step, str(other.pid), "2") for step in STEPS[1:]}
    # It did finish its second step, late, and that is what was refused.
    assert ("two", str(frozen.pid), "1") in done
    assert ("three", str(frozen.pid), "1") not in done


def _moved(engine: DbosEngine) -> list[str]:
    time.sleep(0.1)
    return [item.id for item in engine.take_from_the_lost(f"{WORKSPACE}/")]


@pytest.mark.serial
def test_a_database_that_is_starting_is_waited_for(state: Path) -> None:
    """Nobody there is Blocked at once; one that says it is starting up is reached a moment later."""
    cluster = Cluster()
    try:
        engine = connect(Database(str(state), cluster.url("shared")))
        cluster.stop()
        with pytest.raises(Blocked, match="does not answer"):
            reachable(engine)
        starting = threading.Thread(target=cluster.start)
        starting.start()
        until(lambda: _is_heard(cluster.port))
        reachable(engine)
        starting.join()
        engine.dispose()
    finally:
        cluster.remove()


def _is_heard(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.serial
@pytest.mark.long
def test_workers_killed_and_a_database_restarted(effects: Effects, tmp_path: Path, state: Path) -> None:
    """Three workers, one of them killed, the database stopped at once and started again in mid-run: nothing is lost."""
    cluster = Cluster()
    try:
        shared = Database(str(state), cluster.url("shared"))
        own = []
        for number in range(3):
            (tmp_path / f"s{number}").mkdir(mode=0o700)
            own.append(shared._replace(state=str(tmp_path / f"s{number}")))
        file = tmp_path / "effects"
        with (
            child("driver", shared, file, 30) as driver,
            child("worker", own[0], file, "a") as first,
            child("worker", own[1], file, "b"),
            child("worker", own[2], file, "c"),
        ):
            says(driver, "started")
            until(lambda: len(effects()) >= 15)
            first.kill()
            until(lambda: len(effects()) >= 30)
            cluster.stop()
            time.sleep(1.0)
            cluster.start()
            said, error = driver.communicate(timeout=180)
            assert said.split() == ["done"], error
        found = {tuple(line.split()[:2]) for line in effects()}
        assert found == {(item, step) for item in ids(30) for step in STEPS}
    finally:
        cluster.remove()
