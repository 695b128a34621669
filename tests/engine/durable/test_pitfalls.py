"""Each pitfall of the engine that was measured and chosen has a test here or beside (numbers as in docs/adr/0012)."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from engine.durable.children import alive, child, says, until
from holdfast.engine.durable import ENGINE_VERSION, Database, Inside, Queue
from holdfast.engine.durable_database import connect
from holdfast.engine.durable_dbos import desk
from holdfast.engine.durable_running import home
from holdfast.errors import Blocked, Interrupted, Locked, Tampering
from holdfast.model.canonical import Json

pytestmark = pytest.mark.long

W = "w-test"
GOLDEN = Path(__file__).parent / "golden"


def echo(inside: Inside, argument: Json) -> Json:
    return inside.step("note", lambda: argument)


def three(inside: Inside, argument: Json) -> Json:
    return [inside.step(name, lambda made=name: f"made now: {made}") for name in ("one", "two", "three")]


class TestSqlite:
    """2: how the file is opened."""

    def test_every_connection_is_durable_and_patient(self, sqlite: Database) -> None:
        """WAL, FULL, foreign keys, a busy time-out, and writers that take turns from their first statement."""
        engine = connect(sqlite)
        with engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            found = {name: raw.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
            assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 60_000}
            assert raw.isolation_level == "IMMEDIATE"
        engine.dispose()

    def test_tables_are_made_all_together_or_not_at_all(self, sqlite: Database) -> None:
        """Whoever is ended while the engine makes its tables leaves none, so that the next start makes them."""
        engine = connect(sqlite)

        def half(table: str) -> None:
            with engine.begin() as connection:
                connection.execute(text(f"CREATE TABLE {table} (x INTEGER)"))
                connection.execute(text(f"ALTER TABLE {table} ADD COLUMN y INTEGER"))
                connection.execute(text(f"INSERT INTO {table} VALUES (1, 2)"))
                raise Interrupted("here")

        with pytest.raises(Interrupted):
            half("one")
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar() == 0
        engine.dispose()
        with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as made:
            made.start(f"{W}/1", "echo", 1, "work")

    def test_its_files_are_private(self, sqlite: Database) -> None:
        """The database and its companions are 0600 while an engine runs, whatever the umask."""
        before = os.umask(0)
        try:
            with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
                engine.start(f"{W}/1", "echo", 1, "work")
                assert engine.wait([f"{W}/1"], 20)
                files = sorted(Path(sqlite.state).glob("engine.db*"))
                assert [file.name for file in files] == ["engine.db", "engine.db-shm", "engine.db-wal"]
                assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        finally:
            os.umask(before)

    def test_a_file_that_others_may_read_is_refused(self, sqlite: Database) -> None:
        """Who could write the database decides what runs: an open one, or a link, is tampering."""
        file = Path(sqlite.state, "engine.db")
        file.touch()
        file.chmod(0o644)
        with pytest.raises(Tampering), home(sqlite, W, {}, ()):
            pass
        file.rename(file.with_name("real"))
        file.symlink_to("real")
        with pytest.raises(Tampering), home(sqlite, W, {}, ()):
            pass


class TestOneProcess:
    """3 and 4: one process for each executor id, one launch at a time."""

    def test_a_second_home_is_refused_also_when_the_first_is_frozen(self, database: Database, tmp_path: Path) -> None:
        """The kernel's lock holds as long as the process lives, and is gone with it."""
        with child("hold", database, tmp_path / "none") as first:
            says(first, "up")
            first.send_signal(signal.SIGSTOP)
            with pytest.raises(Locked, match="home:w-child runs already"), home(database, "w-child", {}, ()):
                pass
            with desk(database) as other:
                assert other.items() == ()
            first.kill()
            first.wait()
        with home(database, "w-child", {}, ()) as engine:
            assert engine.executor == "home:w-child"

    def test_first_launches_at_once_on_a_fresh_database(self, database: Database, tmp_path: Path) -> None:
        """Four workspaces of one database that are started together for the first time all come up."""
        code = (
            "import sys\nfrom holdfast.engine.durable import Database\n"
            "from holdfast.engine.durable_running import home\n"
            "with home(Database(sys.argv[1], sys.argv[2]), sys.argv[3], {}, ()): print('up')"
        )
        argv = [sys.executable, "-c", code, database.state, database.url]
        started = [
            subprocess.Popen([*argv, f"w-{number}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for number in range(4)
        ]
        ended = [process.communicate(timeout=120) for process in started]
        assert [out for out, _ in ended] == ["up\n"] * 4, [error for _, error in ended]


class TestVersions:
    """5: releases."""

    def test_the_version_is_ours(self, sqlite: Database) -> None:
        """Items carry our number and not a hash of the source; what an older release left is named."""
        with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
            engine.start(f"{W}/1", "echo", 1, "nobody")
            engine.start(f"{W}/2", "echo", 1, "nobody")
            assert {item.version for item in engine.items()} == {ENGINE_VERSION}
            with sqlite3.connect(Path(sqlite.state, "engine.db")) as raw:
                raw.execute(
                    "UPDATE workflow_status SET application_version = 'holdfast-0' WHERE workflow_uuid LIKE '%/1'"
                )
            raw.close()
            assert [item.id for item in engine.outdated(f"{W}/")] == [f"{W}/1"]

    @pytest.mark.parametrize("history", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
    def test_histories_of_this_version_are_continued(self, history: Path, sqlite: Database) -> None:
        """An item that was killed after its first step in a release of this version goes on with the second today."""
        raw = sqlite3.connect(Path(sqlite.state, "engine.db"))
        raw.executescript(history.read_text())
        raw.close()
        Path(sqlite.state, "engine.db").chmod(0o600)
        with home(sqlite, W, {"three": three}, (Queue("work", each=1),)) as engine:
            assert engine.outdated("") == ()
            (item,) = engine.wait([f"{W}/half"], 20)
            done = engine.find(f"{W}/done")
            engine.signal(f"{W}/wait", "now")
            (waited,) = engine.wait([f"{W}/wait"], 20)
        assert item.value == ["made long ago: one", "made now: two", "made now: three"]
        assert done is not None and (done.state, done.value) == ("done", "kept")
        assert waited.value == "now"

    def test_there_is_a_history(self) -> None:
        """The number that is written today has its golden history."""
        assert (GOLDEN / f"{ENGINE_VERSION}.sql").exists()


def test_many_restarts_give_nothing_up(sqlite: Database) -> None:
    """8: an item that was begun far more often than the engine's default bound still goes on."""
    with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
        engine.await_signal(f"{W}/wait", 1000, W)
        until(lambda: engine.items(f"{W}/wait")[0].state == "running")
    with sqlite3.connect(Path(sqlite.state, "engine.db")) as raw:
        raw.execute("UPDATE workflow_status SET recovery_attempts = 1000")
    raw.close()
    with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
        engine.signal(f"{W}/wait", "yes")
        (item,) = engine.wait([f"{W}/wait"], 20)
    assert (item.value, item.begun) == ("yes", 1001)


def test_waits_hold_no_slot(database: Database) -> None:
    """6 and 7: with fifty waits open, a queue of one still works, and leaving takes no longer for them."""
    with home(database, W, {"echo": echo}, (Queue("work", each=1),)) as engine:
        for number in range(50):
            engine.await_signal(f"{W}/wait{number}", 1_000_000, W)
        until(lambda: len(engine.items(f"{W}/wait", ("running",))) == 50)
        engine.start(f"{W}/1", "echo", 1, "work")
        assert engine.wait([f"{W}/1"], 20)
        began = time.monotonic()
    assert time.monotonic() - began < 8


class TestPickles:
    """10: write access to the database must not be code execution."""

    def test_only_json_is_written(self, sqlite: Database) -> None:
        """Every row says that it is our JSON."""
        with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
            engine.start(f"{W}/1", "echo", {"a": 1}, "work")
            assert engine.wait([f"{W}/1"], 20)
        with sqlite3.connect(Path(sqlite.state, "engine.db")) as raw:
            kinds = raw.execute("SELECT serialization FROM workflow_status").fetchall()
            kinds += raw.execute("SELECT serialization FROM operation_outputs").fetchall()
        raw.close()
        assert set(kinds) == {("holdfast_json",)}

    def test_a_planted_pickle_is_not_run(self, sqlite: Database, tmp_path: Path) -> None:
        """A row that says it is a pickle is refused: the item fails or is stale, and the pickle's code never runs."""
        mark = tmp_path / "mark"
        planted = base64.b64encode(pickle.dumps(_Harmless(str(mark)))).decode()
        with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
            engine.start(f"{W}/output", "echo", 1, "work")
            assert engine.wait([f"{W}/output"], 20)
            engine.start(f"{W}/input", "echo", 1, "later")
        with sqlite3.connect(Path(sqlite.state, "engine.db")) as raw:
            raw.execute("UPDATE workflow_status SET serialization = 'py_pickle', queue_name = 'work'")
            raw.execute("UPDATE workflow_output SET output = ?", (planted,))
            raw.execute("UPDATE workflow_input SET inputs = ?", (planted,))
        raw.close()
        with home(sqlite, W, {"echo": echo}, (Queue("work"),)) as engine:
            (failed,) = engine.wait([f"{W}/input"], 20)
            (output,) = engine.wait([f"{W}/output"], 20)
        assert (failed.state, output.state, output.value) == ("failed", "stale", None)
        assert not mark.exists()


class _Harmless:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_a_killed_engine_leaves_no_program(sqlite: Database, tmp_path: Path) -> None:
    """11: what a step started through the sandbox dies with the process that ran the step."""
    effects = tmp_path / "effects"
    effects.touch()
    with child("spawn", sqlite, effects) as process:
        until(lambda: effects.read_text().startswith("spawned ") and effects.read_text().endswith("\n"))
        pid = int(effects.read_text().split()[1])
        assert alive(pid)
        process.kill()
        process.wait()
        until(lambda: not alive(pid), 10)


def test_a_desk_needs_no_engine_and_others_no_import() -> None:
    """13: the port itself imports neither the library nor SQLAlchemy."""
    program = (
        "import sys, holdfast.engine.durable, holdfast.engine.leases, holdfast.engine.durable_running\n"
        "print(*{'dbos', 'sqlalchemy', 'asyncio'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_environment_does_not_steer(sqlite: Database) -> None:
    """A variable that would choose another executor id or version is refused, by name."""
    code = (
        "import sys; from holdfast.engine.durable import Database; from holdfast.engine.durable_dbos import desk\n"
        "with desk(Database(sys.argv[1])): pass"
    )
    environment = {**os.environ, "DBOS__VMID": "another"}
    argv = [sys.executable, "-c", code, sqlite.state]
    ran = subprocess.run(argv, capture_output=True, text=True, env=environment)
    assert ran.stderr.splitlines()[-1] == (
        f"{Blocked.__module__}.Blocked: the environment steers the engine: DBOS__VMID"
    )


def test_nothing_of_ours_is_on_the_queue_of_everybody(database: Database) -> None:
    """Recovered or not, an item and a wait keep the queue they were put in, and one that was in none gets a queue of
    this home: a landing stays at home."""
    landing = Queue(f"landing:{W}", each=1, total=1)

    def slow(inside: Inside, argument: Json) -> Json:
        while not inside.stopping:
            time.sleep(0.01)
        return inside.step("never", lambda: None)

    with home(database, W, {"slow": slow}, (landing,)) as engine:
        engine.start(f"{W}/1", "slow", None, landing.name)
        engine.start_here(f"{W}/here", "slow", None)
        engine.await_signal(f"{W}/wait", 1000, W)
        until(lambda: [item.state for item in engine.items(f"{W}/")] == ["running"] * 3)
    with home(database, W, {"slow": slow}, (landing,)) as engine:
        until(lambda: {item.begun for item in engine.items(f"{W}/")} == {2})
        assert {item.queue for item in engine.items(f"{W}/")} == {landing.name, f"waits:{W}"}
