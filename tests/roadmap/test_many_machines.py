"""Runs whose work is done on other machines go on whatever happens to those, to the database or to the network.

Every machine has a HOME of its own, and all of them share one real PostgreSQL.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from engine.durable.cluster import Cluster
from holdfast.disk.lock import Lock
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.run import RunEvent, RunOptions, RunStarted
from roadmap.machines import Base, Process, wait_until

pytestmark = pytest.mark.long
_numbers = itertools.count()
LEASE_S = 6.0
_WAITING = "SELECT 'waits' FROM pg_locks WHERE NOT granted AND relation = 'holdfast_blobs'::regclass"
# Work that ended is seen a moment later.
_LATE = """CREATE FUNCTION late() RETURNS trigger AS $$ BEGIN
             IF NEW.name = 'work' AND NEW.status = 'SUCCESS' THEN PERFORM pg_sleep(3); END IF;
             RETURN NEW; END $$ LANGUAGE plpgsql;
           CREATE TRIGGER late BEFORE UPDATE ON dbos.workflow_status FOR EACH ROW EXECUTE FUNCTION late()"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


@pytest.fixture
def based(tmp_path: Path, cluster: Cluster) -> Iterator[Callable[..., Base]]:
    """A base with a fresh database; every process of every machine is gone afterwards."""
    made: list[Base] = []

    def make(**given: object) -> Base:
        made.append(Base(tmp_path / f"lab{len(made)}", cluster.url(f"m{next(_numbers)}"), **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for base in made:
        base.end()


def wide_run(base: Base) -> None:
    """24 independent tasks, six at once, two workers: orders are written all the time while something lands."""
    for name in ("one", "two"):
        base.worker(name)
    run = base.run("--parallel", "6")
    assert run.ended(300) == 0, run.told[-3000:]
    base.check_done()


def test_a_landing_never_ends_the_driver_that_asked_for_it(based: Callable[..., Base]) -> None:
    """The driver waits for its own process's landings, also without `--wait`; every task lands at its first attempt."""
    wide_run(based(tasks=24, seconds=(0.1, 0.8)))


def test_the_driver_waits_for_a_thread_of_its_own_process(
    based: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace that was opened without patience, and is locked by another thread when the first order is written."""
    base = based(tasks=1)
    base.worker("far").says("listens")
    monkeypatch.setenv("HOME", str(base.home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name)
    holder: list[threading.Thread] = []
    with holdfast.open(str(base.workspace), wait=0.0) as hf:

        def land_something(event: RunEvent) -> None:
            if isinstance(event, RunStarted):
                holds = threading.Event()

                def hold() -> None:
                    with Lock(hf.lock_path):
                        holds.set()
                        time.sleep(1.0)

                holder.append(threading.Thread(target=hold))
                holder[0].start()
                assert holds.wait(10)

        options = RunOptions(agent="mine", parallel=2, here=False)
        crew = Crew(watcher=land_something)
        assert hf.runs.start("ROADMAP.md", options, crew, yes=True, database=base.database).state == "FINISHED"
    holder[0].join()


# ── the database is away ──


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Cluster, Base]]:
    """A base with a PostgreSQL of its own, to be stopped and frozen; its tasks take seconds."""
    cluster = Cluster()
    base = Base(tmp_path / "lab", cluster.url("own"), tasks=3, seconds=(1.0, 3.0))
    yield cluster, base
    base.end()
    cluster.remove()


def at_work(base: Base, *workers: str) -> Process:
    """A run of which a worker holds a task."""
    crew = [base.worker(name) for name in workers]
    for worker in crew:
        worker.says("listens")
    run = base.run("--parallel", "2")
    wait_until(lambda: any("works on" in worker.told for worker in crew))
    return run


def test_an_outage_costs_nobody_an_attempt(own: tuple[Cluster, Base]) -> None:
    """A database that is away for longer than the agents work: the run says since when and until when it waits, and
    that it is back; each task lands at its first attempt."""
    cluster, base = own
    run = at_work(base, "one", "two")
    cluster.stop()
    run.says(r"! The database is away since \d\d:\d\d:\d\d; it is waited for until \d\d:\d\d:\d\d", 20)
    assert "its database is away since" in base.tells("status")[1]
    time.sleep(4)
    cluster.start()
    assert run.ended() == 0, run.told[-3000:]
    assert "! The database is back after" in run.told
    assert "Holdfast itself failed" not in run.told
    base.check_done()


@pytest.mark.parametrize(("how", "away"), [("stop", "frozen"), ("stop --now", "stopped"), ("SIGTERM", "stopped")])
def test_a_run_is_stopped_while_its_database_is_away(own: tuple[Cluster, Base], how: str, away: str) -> None:
    """Within seconds, with exit 130; what workers did meanwhile is kept, and lands when the run goes on."""
    cluster, base = own
    run = at_work(base, "one")
    (cluster.stop if away == "stopped" else cluster.freeze)()
    time.sleep(1)
    asked = time.monotonic()
    if how == "SIGTERM":
        run.signal(signal.SIGTERM)
    else:
        assert base.tells(*how.split())[0] == 0
    assert run.ended(30) == 130, run.told
    assert time.monotonic() - asked < 15
    assert "holdfast resume" in run.told
    (cluster.start if away == "stopped" else cluster.thaw)()
    again = base.resume()
    assert again.ended() == 0, again.told[-3000:]
    base.check_done()


@pytest.mark.parametrize("how", ["stop", "stop --now", "SIGTERM"])
def test_a_run_is_stopped_while_a_landing_waits_for_the_database(
    tmp_path: Path, own: tuple[Cluster, Base], how: str
) -> None:
    """Good work could not be fetched before the database stood still: nothing of its landing has begun, so that nobody
    waits for it; it lands when the run goes on."""
    cluster = own[0]
    base = Base(tmp_path / "one", cluster.url("landing"), tasks=1)
    try:
        worker = base.worker("one")
        worker.says("listens")
        base.sql(_LATE)
        run = base.run()
        worker.says("worked")
        with psycopg.connect(base.database) as holder:
            holder.execute("LOCK TABLE holdfast_blobs IN ACCESS EXCLUSIVE MODE")
            wait_until(lambda: holder.execute(_WAITING).fetchall())
            cluster.freeze()
            asked = time.monotonic()
            try:
                if how == "SIGTERM":
                    run.signal(signal.SIGTERM)
                else:
                    assert base.tells(*how.split())[0] == 0
                assert run.ended(30) == 130, run.told
                assert time.monotonic() - asked < 15
            finally:
                cluster.thaw()
        again = base.resume()
        assert again.ended() == 0, again.told[-3000:]
        base.check_done()
    finally:
        base.end()


def test_a_run_that_is_done_ends_whatever_holds_the_database(tmp_path: Path, cluster: Cluster) -> None:
    """The end of the last landing cannot be recorded: the run is told as done, and its process ends."""
    base = Base(tmp_path / "lab", cluster.url("held"), tasks=1)
    try:
        base.worker("one").says("listens")
        run = base.run()
        with psycopg.connect(base.database) as holder:
            wait_until(lambda: base.sql("SELECT 'lands' FROM dbos.workflow_status WHERE name = 'land'"))
            holder.execute("LOCK TABLE dbos.workflow_output IN EXCLUSIVE MODE")
            assert run.ended(40) == 0, run.told
        base.check_done()
    finally:
        base.end()


def test_a_worker_ends_while_its_database_is_away(own: tuple[Cluster, Base]) -> None:
    """SIGTERM, and it is gone within seconds; what it had begun is begun again."""
    cluster, base = own
    run = at_work(base, "one")
    cluster.stop()
    worker = base.machines[0].processes[0]
    worker.signal(signal.SIGTERM)
    worker.ended(25)
    cluster.start()
    base.worker("two")
    assert run.ended() == 0, run.told[-3000:]
    base.check_done()


def test_a_worker_that_was_set_aside_waits_for_its_database_too(own: tuple[Cluster, Base]) -> None:
    """The database goes away while the worker is set aside, and is away when it would listen again: it says so, waits,
    and does the work once both are well."""
    cluster, base = own
    stale = base.machine("stale", commits=False)
    clone = stale.place / "clone"
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "other"], cwd=clone, check=True)
    worker = base.serve(stale)
    worker.says("listens")
    run = base.run("--parallel", "2")
    worker.says("is set aside for 5 s")
    cluster.stop()
    subprocess.run(["git", "fetch", "-q", str(base.workspace), "main"], cwd=clone, check=True)
    worker.says("does not answer", 60)
    assert worker.child.poll() is None, worker.told
    cluster.start()
    assert run.ended() == 0, run.told[-3000:]
    base.check_done()


# ── machines that are not fit ──


def test_a_fresh_machine_works_as_documented(based: Callable[..., Base]) -> None:
    """Nothing was ever started there: it makes the key it lacks, and does the work."""
    base = based(tasks=1)
    machine = base.machine("fresh")
    assert not (machine.home / ".config/holdfast/ledger.key").exists()
    base.serve(machine)
    run = base.run()
    assert run.ended() == 0, run.told
    base.check_done()


def test_a_clone_without_the_commit_gives_tasks_back(based: Callable[..., Base]) -> None:
    """It says what is missing and what to type, is set aside, and costs no attempt; with the commit it works."""
    base = based(tasks=2)
    stale = base.machine("stale", commits=False)
    clone = stale.place / "clone"
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "other"], cwd=clone, check=True)
    worker = base.serve(stale)
    worker.says("listens")
    run = base.run("--parallel", "2")
    worker.says("gives .* back: its clone lacks the commit")
    worker.says("is set aside for 5 s")
    assert f"git -C {clone} fetch --all" in worker.told
    run.says("stale gave it back: its clone lacks the commit")
    assert all(task["attempts"] <= 1 and not task["tried"] for task in base.tasks())
    subprocess.run(["git", "fetch", "-q", str(base.workspace), "main"], cwd=clone, check=True)
    assert run.ended() == 0, run.told
    base.check_done()


def test_a_bad_machine_beside_a_good_one_sinks_nothing(based: Callable[..., Base]) -> None:
    """A clone without the commit fails fast and is set aside; the other one does everything, at the first attempt."""
    base = based(tasks=6, seconds=(0.1, 0.5))
    stale = base.machine("stale", commits=False)
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "other"], cwd=stale.place / "clone", check=True)
    bad = base.serve(stale)
    bad.says("listens")
    run = base.run("--parallel", "3")
    bad.says("is set aside")
    base.worker("good")
    assert run.ended() == 0, run.told
    base.check_done()


def test_a_machine_without_the_agent_gives_the_task_back(based: Callable[..., Base]) -> None:
    """Its own configuration has another one: that is no failure of the task."""
    base = based(tasks=1)
    other = base.machine("other", agent=base.agent.replace("agents.mine", "agents.other"))
    worker = base.serve(other)
    run = base.run()
    worker.says("gives .* back: .*mine")
    base.worker("good")
    assert run.ended() == 0, run.told
    base.check_done()


def test_a_machine_of_another_release_gives_the_task_back(based: Callable[..., Base]) -> None:
    """It cannot read the order: that is no failure of the task, and who can read it does the work."""
    base = based(tasks=1)
    worker = base.worker("far")
    worker.says("listens")
    base.sql(
        """CREATE FUNCTION newer() RETURNS trigger AS $$ BEGIN
             NEW.inputs := replace(NEW.inputs, '"version": 1', '"version": 9');
             RETURN NEW; END $$ LANGUAGE plpgsql;
           CREATE TRIGGER newer BEFORE INSERT ON dbos.workflow_input FOR EACH ROW EXECUTE FUNCTION newer()"""
    )
    run = base.run()
    worker.says("gives .* back: .*this Holdfast reads")
    worker.says("is set aside")
    base.sql("DROP TRIGGER newer ON dbos.workflow_input")
    assert run.ended() == 0, run.told
    base.check_done()


@pytest.mark.parametrize(
    ("agent", "clone", "said"),
    [("", True, "no agent can be given work here"), (None, False, "has no commit")],
    ids=["no agent", "an empty clone"],
)
def test_a_machine_that_is_not_fit_takes_nothing(
    based: Callable[..., Base], agent: str | None, clone: bool, said: str
) -> None:
    """It does not start: exit 5, with what is missing and a hint."""
    base = based(tasks=1)
    worker = base.serve(base.machine("bare", agent=agent, commits=clone))
    assert worker.ended(60) == 5
    assert said in worker.told and "listens" not in worker.told


def test_a_database_without_an_encoding_starts_nothing(tmp_path: Path, cluster: Cluster) -> None:
    """A run and a worker end with exit 2 and what to type instead; nothing is written down of the run."""
    base = Base(tmp_path / "lab", cluster.url("bytes", "SQL_ASCII"))
    try:
        for process in (base.run(), base.worker("far")):
            assert process.ended(60) == 2, process.told
            assert "bytes has the encoding SQL_ASCII" in process.told and "createdb -E UTF8" in process.told
        assert base.document("tasks")["id"] == ""
    finally:
        base.end()


@pytest.mark.root
def test_a_machine_whose_disk_is_full_gives_the_task_back(based: Callable[..., Base]) -> None:
    """It claims nothing more before there is room; then it does the work, at the first attempt."""
    base = based(tasks=1)
    (base.workspace / "large.bin").write_bytes(os.urandom(6 << 20))
    machine = base.machine("full")
    small = machine.place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(small)], check=True)
    try:
        (small / "ballast").write_bytes(b"x" * (5 << 20))
        worker = base.serve(machine, folder=small / "w")
        worker.says("listens")
        run = base.run()
        worker.says("gives .* back: ")
        run.says("full gave it back: ")
        subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
        assert run.ended() == 0, run.told
        worker.kill()
    finally:
        base.machines[-1].end()
        subprocess.run(["umount", "-l", str(small)], check=True)
    base.check_done()


# ── rows that others lose or write ──


def test_a_dead_workers_task_is_taken_over_within_two_leases(based: Callable[..., Base]) -> None:
    """kill -9 in the middle of the work: another worker has it before two leases are over, and no attempt is used."""
    base = based(tasks=1, seconds=(10.0, 10.0))
    first = base.worker("first", lease=LEASE_S)
    first.says("listens")
    run = base.run()
    first.says("works on")
    second = base.worker("second", lease=LEASE_S)
    second.says("listens")
    first.kill()
    died = time.monotonic()
    second.says("works on", 3 * LEASE_S)
    assert time.monotonic() - died < 2 * LEASE_S
    assert run.ended() == 0, run.told
    base.check_done()


def test_queue_rows_that_were_lost_are_asked_for_again(based: Callable[..., Base]) -> None:
    """After a failover that lags the database lacks the orders, their queue and their base: the run goes on."""
    base = based(tasks=2)
    run = base.run("--parallel", "2")
    wait_until(lambda: len(base.orders()) == 2)
    for table in ("dbos.workflow_status", "dbos.queues", "holdfast_blobs"):
        base.sql(f"DELETE FROM {table}")
    base.worker("far")
    assert run.ended() == 0, run.told
    base.check_done()


@pytest.mark.parametrize("table", ["dbos.queues", "holdfast.workers"])
def test_a_row_that_was_lost_under_a_worker_that_lives_holds_nobody_up(based: Callable[..., Base], table: str) -> None:
    """The queue is made again, and the worker enlists again: it does the rest, and no attempt is used."""
    base = based(tasks=3, seconds=(1.0, 2.0))
    run = at_work(base, "one")
    base.sql(f"DELETE FROM {table}")
    assert run.ended() == 0, run.told[-3000:]
    assert base.machines[0].processes[0].child.poll() is None
    base.check_done()


def test_landings_that_somebody_else_marks_done_come_to_an_end(based: Callable[..., Base]) -> None:
    """Whoever writes to the database calls every landing done as soon as it is there: it lands all the same, once."""
    base = based(tasks=2)
    base.sql("CREATE SCHEMA IF NOT EXISTS evil")
    base.worker("far").says("listens")
    base.sql(
        """CREATE FUNCTION evil.done() RETURNS trigger AS $$ BEGIN
             IF NEW.workflow_uuid LIKE '%.land.%' THEN NEW.status := 'SUCCESS'; NEW.output := '[1, {}]'; END IF;
             RETURN NEW; END $$ LANGUAGE plpgsql"""
    )
    base.sql(
        """CREATE TRIGGER evil BEFORE INSERT OR UPDATE ON dbos.workflow_status
           FOR EACH ROW EXECUTE FUNCTION evil.done()"""
    )
    run = base.run("--parallel", "2")
    status = run.ended()
    assert status in (0, 3), run.told
    if status == 3:
        assert "cannot be landed" in run.told
        base.sql("DROP TRIGGER evil ON dbos.workflow_status")
        for task in base.tasks():
            base.tells("review", task["id"], "--yes")
        again = base.resume()
        assert again.ended() == 0, again.told
    subjects = base.git("log", "--format=%s").splitlines()
    assert sorted(subjects) == ["1.1 Create t1.py", "1.2 Create t2.py", "base"]


def test_first_launches_on_a_fresh_database_do_not_race(based: Callable[..., Base]) -> None:
    """A run and four workers that begin at the same moment all begin."""
    base = based(tasks=4)
    machines = [base.machine(f"w{number}") for number in range(4)]
    workers = [base.serve(machine) for machine in machines]
    run = base.run("--parallel", "4")
    for worker in workers:
        worker.says("listens")
    assert run.ended() == 0, run.told
    base.check_done()


def test_status_tells_work_in_line_from_work_under_way(based: Callable[..., Base]) -> None:
    """Without a worker nobody is at work, whatever was begun."""
    base = based(tasks=2, seconds=(6.0, 6.0))
    run = base.run("--parallel", "2")
    wait_until(lambda: len(base.orders()) == 2)
    wait_until(lambda: "0 at work, 2 in line" in base.tells("status")[1], 30)
    base.worker("far")
    wait_until(lambda: "2 at work, 0 landed" in base.tells("status")[1], 30)
    assert run.ended() == 0, run.told


@pytest.mark.soak
@pytest.mark.parametrize("number", range(8))
def test_eight_such_runs_end_well(based: Callable[..., Base], number: int) -> None:
    """The same, eight times: without the wait, half of them died."""
    wide_run(based(tasks=24, seconds=(0.1, 0.8)))
