"""Ports, databases, services and processes are asked for real; what was healthy must stay so while it settles."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from certificates import certificate
from holdfast.checks.health import check_health
from holdfast.checks.unit import BOOTED, judged
from holdfast.model.check import DatabaseCheck, HealthCheck, HttpCheck, ProcessCheck, ServiceCheck, TcpCheck
from holdfast.model.execution import Receipt
from servers import listening

Health = Callable[[HealthCheck], Receipt]
Serve = Callable[..., Any]
PASSWORD = "s3cret-word"


@pytest.fixture
def healthy(workspace: Path, save_log: Callable[[bytes], str], logs: dict[str, bytes]) -> Health:
    """One check against the real host; whatever it says must not contain the password."""

    def run(check: HealthCheck) -> Receipt:
        (receipt,) = check_health([check], directory=str(workspace), tree_digest="tree-9", save_log=save_log)
        assert PASSWORD not in repr(receipt)
        assert PASSWORD.encode() not in logs[receipt.log_digest]
        return receipt

    return run


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("the server did not start")


def test_https_must_be_vouched_for(healthy: Health, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer over TLS counts only from a server whose certificate is trusted."""
    both, alone = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    with listening(context) as api:
        api.answers["GET /health"] = 200
        check = HttpCheck(f"{api.url}/health", within_ms=500)
        stranger = healthy(check)
        assert not stranger.passed
        assert "certificate" in stranger.detail
        assert api.seen == []
        monkeypatch.setenv("SSL_CERT_FILE", alone)
        assert healthy(check).passed


class TestTcp:
    def test_a_listening_port_passes_and_a_closed_one_fails(self, healthy: Health) -> None:
        """Somebody listens, or nobody does; the receipt says which."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            receipt = healthy(TcpCheck("127.0.0.1", port))
            assert (receipt.passed, receipt.kind) == (True, "tcp")
            assert receipt.detail.startswith(f"TCP 127.0.0.1:{port} accepts connections")
        receipt = healthy(TcpCheck("127.0.0.1", port, within_ms=200))
        assert not receipt.passed
        assert "connection refused" in receipt.detail

    def test_a_port_that_closes_while_it_settles_fails(self, healthy: Health) -> None:
        """One good answer is not enough where a settling window is asked for."""
        listener = socket.create_server(("127.0.0.1", 0))
        check = TcpCheck("127.0.0.1", listener.getsockname()[1], within_ms=2000, settle_ms=2000)
        timer = threading.Timer(0.4, listener.close)
        timer.start()
        # The kernel completes connections until the listener is really gone, which needs nobody to be in accept().
        receipt = healthy(check)
        timer.join()
        assert not receipt.passed
        assert "accepts connections after" in receipt.detail
        assert "into its settling window of 2 s" in receipt.detail


class TestHttp:
    def test_it_must_answer_well_for_the_whole_window(self, healthy: Health, serve: Serve) -> None:
        """A server that turns bad during its window fails, with both answers in the receipt."""
        good, bad = (b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status for status in (200, 500))
        server = serve(lambda connection, number: connection.sendall(good if number < 3 else bad))
        receipt = healthy(HttpCheck(server.url, settle_ms=1000, every_ms=100))
        assert not receipt.passed
        assert "answered 200 after" in receipt.detail
        assert re.search(r", but answered 500 \d+ ms into its settling window of 1 s$", receipt.detail)

    def test_it_passes_when_it_stays_well(self, healthy: Health, serve: Serve) -> None:
        """The window is waited out, with looks in between, and the receipt says so."""
        good = b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n"
        server = serve(lambda connection, _: connection.sendall(good))
        receipt = healthy(HttpCheck(server.url, settle_ms=400))
        assert receipt.passed
        assert receipt.duration_ms >= 400
        assert receipt.detail.endswith(", and stayed so for 400 ms")
        assert len(server.requests) > 3


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes with a name of their own that live as long as they are told."""
    directory = tmp_path_factory.mktemp("mortal")
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, seconds: float) -> subprocess.Popen[bytes]:
        link = directory / name
        if not link.exists():
            shutil.copy(shutil.which("sleep") or "/bin/sleep", link)
        started.append(subprocess.Popen([link, str(seconds)]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


class TestProcess:
    def test_it_is_found_by_name(self, healthy: Health, mortal: Callable[..., subprocess.Popen[bytes]]) -> None:
        """A process is known by its command's name; a name that nobody has is not running."""
        process = mortal("hf-worker-one", 30)
        receipt = healthy(ProcessCheck("hf-worker-one"))
        assert receipt.passed
        assert f"process hf-worker-one is running (pid {process.pid})" in receipt.detail
        assert not healthy(ProcessCheck("hf-nobody", within_ms=100)).passed

    def test_one_that_dies_while_it_settles_fails(
        self, healthy: Health, mortal: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """A process that is alive at first and dies within the window is not healthy, also while it is a zombie."""
        mortal("hf-short-lived", 0.5)
        receipt = healthy(ProcessCheck("hf-short-lived", settle_ms=3000))
        assert not receipt.passed
        assert "is running (pid" in receipt.detail
        assert "but is not running" in receipt.detail
        assert "into its settling window of 3 s" in receipt.detail

    def test_one_that_is_started_again_fails(
        self, healthy: Health, workspace: Path, mortal: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """A process that dies and is replaced during the window is not the one that was healthy."""
        first = mortal("hf-restarted", 30)
        (workspace / "app.pid").write_text(f"{first.pid}\n")

        def restart() -> None:
            second = mortal("hf-restarted", 30)
            while b"hf-restarted" not in Path(f"/proc/{second.pid}/cmdline").read_bytes():
                time.sleep(0.001)  # exec gives it its words a moment after our call returns
            (workspace / "new.pid").write_text(f"{second.pid}\n")
            os.replace(workspace / "new.pid", workspace / "app.pid")
            first.kill()

        timer = threading.Timer(0.3, restart)
        timer.start()
        receipt = healthy(ProcessCheck("hf-restarted", "app.pid", settle_ms=2000))
        timer.join()
        assert not receipt.passed
        assert "was replaced" in receipt.detail

    @pytest.mark.parametrize("content", ["", "nonsense", "-1", "0", "4194999"])
    def test_a_pid_file_must_name_a_living_process(self, healthy: Health, workspace: Path, content: str) -> None:
        """An empty, odd or stale file is no process."""
        (workspace / "app.pid").write_text(content)
        assert not healthy(ProcessCheck(pid_file="app.pid", within_ms=60)).passed

    def test_a_pid_file_of_another_program_fails(
        self, healthy: Health, workspace: Path, mortal: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """A number that was given to another program since is recognised where the name is given too."""
        (workspace / "app.pid").write_text(str(mortal("hf-other", 30).pid))
        assert healthy(ProcessCheck(pid_file="app.pid")).passed
        receipt = healthy(ProcessCheck("hf-mine", "app.pid", within_ms=60))
        assert not receipt.passed
        assert "another program" in receipt.detail

    def test_a_pipe_in_place_of_the_file_does_not_hang(self, healthy: Health, workspace: Path) -> None:
        """Only a plain file is read."""
        os.mkfifo(workspace / "app.pid")
        assert not healthy(ProcessCheck(pid_file="app.pid", within_ms=60)).passed


class TestService:
    def test_without_systemd_it_cannot_run_and_fails(self, healthy: Health) -> None:
        """Where systemd does not run, the check says so at once and is not passed."""
        if os.path.isdir(BOOTED):
            pytest.skip("systemd runs on this host")
        receipt = healthy(ServiceCheck("nginx", within_ms=10_000))
        assert not receipt.passed
        assert receipt.detail == "service nginx cannot run here: systemd is not running on this host"
        assert receipt.duration_ms < 1000

    def test_a_running_systemd_is_asked(self, healthy: Health) -> None:
        """Where systemd runs, its own journal service is active and an invented one is not known."""
        if not os.path.isdir(BOOTED):
            pytest.skip("systemd does not run on this host")
        assert healthy(ServiceCheck("systemd-journald.service")).passed
        assert "not known" in healthy(ServiceCheck("hf-none.service", within_ms=200)).detail

    @pytest.mark.parametrize(
        ("shown", "passed", "said"),
        [
            (
                b"LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=7\n",
                True,
                "is active (running), pid 7",
            ),
            (b"LoadState=loaded\nActiveState=failed\nSubState=failed\nMainPID=0\n", False, "is failed (failed)"),
            (
                b"LoadState=loaded\nActiveState=activating\nSubState=auto-restart\n",
                False,
                "is activating (auto-restart)",
            ),
            (b"LoadState=not-found\nActiveState=inactive\n", False, "is not known to systemd"),
            (b"", False, "is unknown (unknown)"),
        ],
    )
    def test_what_systemd_says_is_judged(self, shown: bytes, passed: bool, said: str) -> None:
        """Only an active unit passes, and the receipt says in which state it is."""
        attempt = judged(shown)
        assert (attempt.passed, attempt.said) == (passed, said)

    def test_another_invocation_is_another_identity(self) -> None:
        """A unit that was started anew is told from the one that was healthy before."""
        shown = b"LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=7\nInvocationID="
        assert judged(shown + b"a").identity == judged(shown + b"a").identity != judged(shown + b"b").identity


class TestSqlite:
    def _database(self, path: Path, mode: str = "delete") -> None:
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA journal_mode={mode}")
            connection.execute("CREATE TABLE t (a TEXT)")
            connection.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 200)
        connection.close()

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    def test_a_sound_database_passes_and_is_left_as_it_was(self, healthy: Health, workspace: Path, mode: str) -> None:
        """The check reads only: no file appears beside the database and none of its bytes change."""
        self._database(workspace / "app.db", mode)
        before = (workspace / "app.db").read_bytes()
        receipt = healthy(DatabaseCheck("sqlite:app.db"))
        assert receipt.passed
        assert "database sqlite:app.db passed quick_check" in receipt.detail
        assert os.listdir(workspace) == ["app.db"]
        assert (workspace / "app.db").read_bytes() == before

    def test_a_database_in_use_passes(self, healthy: Health, workspace: Path) -> None:
        """One whose log is open elsewhere is read together with its log."""
        self._database(workspace / "app.db", "wal")
        connection = sqlite3.connect(workspace / "app.db")
        connection.execute("INSERT INTO t VALUES ('y')")
        connection.commit()
        assert healthy(DatabaseCheck(f"sqlite:///{workspace}/app.db".replace("////", "///"))).passed
        connection.close()

    def test_a_damaged_or_missing_database_fails(self, healthy: Health, workspace: Path) -> None:
        """Damage, an empty file, another format, a directory and nothing at all are told apart."""
        self._database(workspace / "bad.db")
        data = bytearray((workspace / "bad.db").read_bytes())
        data[4096:12288] = b"\xff" * 8192
        (workspace / "bad.db").write_bytes(data)
        (workspace / "empty.db").write_bytes(b"")
        (workspace / "text.db").write_bytes(b"hello" * 100)
        (workspace / "dir.db").mkdir()
        for name, said in {
            "bad": "", "empty": "is an empty file", "text": "is not an SQLite database", "dir": "is not a file",
            "none": "cannot be opened",
        }.items():  # fmt: skip
            receipt = healthy(DatabaseCheck(f"sqlite:{name}.db", within_ms=100))
            assert not receipt.passed, name
            assert said in receipt.detail


class Running(NamedTuple):
    port: int
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD]
    process = subprocess.Popen(argv, cwd=tmp_path_factory.mktemp("redis"), stdout=subprocess.DEVNULL)
    wait_for(port, process)
    yield Running(port, process)
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def secure_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """One that speaks TLS only: its port, and the certificate that vouches for it."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    port, folder = free_port(), tmp_path_factory.mktemp("secure")
    both, alone = certificate(folder)
    tls = ["--tls-cert-file", both, "--tls-key-file", both, "--tls-ca-cert-file", alone, "--tls-auth-clients", "no"]
    argv = ["redis-server", "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--save", "", *tls]
    process = subprocess.Popen([*argv, "--requirepass", PASSWORD], cwd=folder, stdout=subprocess.DEVNULL)
    wait_for(port, process)
    yield port, alone
    process.kill()
    process.wait()


class TestRedis:
    def test_over_tls_it_must_be_vouched_for(
        self, healthy: Health, secure_redis: tuple[int, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """rediss:// is answered by a server whose certificate is trusted, for its name, and by no other."""
        port, vouches = secure_redis
        url = f"rediss://:{PASSWORD}@localhost:{port}/2"
        stranger = healthy(DatabaseCheck(url, within_ms=300))
        assert not stranger.passed
        assert "certificate" in stranger.detail
        monkeypatch.setenv("SSL_CERT_FILE", vouches)
        assert "answered PONG" in healthy(DatabaseCheck(url)).detail
        elsewhere = healthy(DatabaseCheck(url.replace("localhost", "127.0.0.1"), within_ms=300))
        assert not elsewhere.passed
        plain = healthy(DatabaseCheck(url.replace("rediss", "redis"), within_ms=300))
        assert not plain.passed

    def test_it_answers_to_who_may_ask(self, healthy: Health, redis: Running) -> None:
        """With the password it answers PONG, in the database asked for; the receipt shows no password."""
        receipt = healthy(DatabaseCheck(f"redis://:{PASSWORD}@127.0.0.1:{redis.port}/2"))
        assert receipt.passed
        assert f"database redis://:***@127.0.0.1:{redis.port}/2 answered PONG" in receipt.detail

    def test_the_password_comes_from_its_file(self, healthy: Health, redis: Running, workspace: Path) -> None:
        """The first line of the file is the password, read when the check runs; without a file there is no answer."""
        (workspace / "word").write_text(f"{PASSWORD}\nmore\n")
        url = f"redis://127.0.0.1:{redis.port}"
        assert healthy(DatabaseCheck(url, "word")).passed
        assert healthy(DatabaseCheck(url, str(workspace / "word"))).passed
        os.mkfifo(workspace / "pipe")
        (workspace / "empty").write_text("")
        for name in ("none", "pipe", "empty"):
            receipt = healthy(DatabaseCheck(url, name, within_ms=60))
            assert not receipt.passed
            assert "has no readable password file" in receipt.detail

    @pytest.mark.parametrize(
        ("login", "said"),
        [("", "NOAUTH"), (f"wrong:{PASSWORD}x@", "WRONGPASS"), (f":{PASSWORD}@/999", "DB index is out of range")],
    )
    def test_it_refuses_who_may_not(self, healthy: Health, redis: Running, login: str, said: str) -> None:
        """What the server refuses is a failure, in the server's words."""
        who, _, database = login.partition("/")
        receipt = healthy(DatabaseCheck(f"redis://{who}127.0.0.1:{redis.port}/{database}", within_ms=100))
        assert not receipt.passed
        assert said in receipt.detail

    @pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 400 Bad\r\n\r\n", b"+PONG", b"-ERR \x1b[2J\r\n", b"x" * 100_000])
    def test_something_else_is_no_redis(self, healthy: Health, serve: Serve, raw: bytes) -> None:
        """A server that answers otherwise, or not at all, fails and can do nothing to the screen."""
        server = serve(lambda connection, _: connection.sendall(raw))
        receipt = healthy(DatabaseCheck(server.url.replace("http", "redis"), within_ms=200))
        assert not receipt.passed
        assert "\x1b" not in receipt.detail


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Running]:
    """A server of its own, run by an ordinary user, on loopback only."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    initdb = shutil.which("initdb") or (str(binaries[-1] / "initdb") if binaries else None)
    if initdb is None:
        pytest.skip("PostgreSQL is not installed")
    import tempfile

    place = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    who: dict[str, Any] = {}
    if os.geteuid() == 0:
        entry = _ordinary_user()
        os.chown(place, entry.pw_uid, entry.pw_gid)
        who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    port = free_port()
    try:
        (place / "word").write_text(PASSWORD)
        (place / "word").chmod(0o644)
        options = ["-U", "app", "--no-sync", "--auth=scram-sha-256", f"--pwfile={place}/word", "-E", "UTF8"]
        subprocess.run([initdb, "-D", str(place / "data"), *options], check=True, capture_output=True, cwd=place, **who)
        argv = [initdb.replace("initdb", "postgres"), "-D", str(place / "data"), "-p", str(port), "-k", str(place)]
        argv += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=10"]
        process = subprocess.Popen(argv, cwd=place, stderr=subprocess.DEVNULL, **who)
        wait_for(port, process)
        yield Running(port, process)
        process.send_signal(signal.SIGQUIT)
        process.wait()
    finally:
        shutil.rmtree(place)


def _ordinary_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("there is no ordinary user to run PostgreSQL as")


class TestPostgresql:
    def test_it_answers_to_who_may_ask(self, healthy: Health, postgresql: Running, workspace: Path) -> None:
        """A real connection is made and a query answered; the receipt shows no password."""
        pytest.importorskip("psycopg")
        (workspace / "word").write_text(f"{PASSWORD}\n")
        url = f"postgresql://app@127.0.0.1:{postgresql.port}/postgres"
        receipt = healthy(DatabaseCheck(url, "word", settle_ms=300))
        assert receipt.passed, receipt.detail
        assert f"database postgresql://app@127.0.0.1:{postgresql.port}/postgres answered SELECT 1" in receipt.detail

    @pytest.mark.parametrize(
        ("user", "word", "database", "said"),
        [
            ("app", f"{PASSWORD}x", "postgres", "password authentication failed"),
            ("app", PASSWORD, "none", 'database "none" does not exist'),
        ],
    )
    def test_it_refuses_who_may_not(
        self, healthy: Health, postgresql: Running, user: str, word: str, database: str, said: str
    ) -> None:
        """What the server refuses is a failure, in the server's words and without the password."""
        pytest.importorskip("psycopg")
        url = f"postgresql://{user}:{word}@127.0.0.1:{postgresql.port}/{database}"
        receipt = healthy(DatabaseCheck(url, within_ms=1500, every_ms=5000))
        assert not receipt.passed
        assert said in receipt.detail

    def test_a_closed_port_fails(self, healthy: Health) -> None:
        """Nobody there is said as such."""
        pytest.importorskip("psycopg")
        receipt = healthy(DatabaseCheck(f"postgresql://app@127.0.0.1:{free_port()}/x", within_ms=300))
        assert not receipt.passed
        assert "refused" in receipt.detail

    def test_a_server_that_is_silent_is_given_up_in_time(self, healthy: Health, serve: Serve) -> None:
        """The deadline holds although the client library knows only whole seconds."""
        pytest.importorskip("psycopg")
        server = serve(lambda connection, _: server.stopping.wait(5))
        url = server.url.replace("http", "postgresql").replace("//", "//app@")
        receipt = healthy(DatabaseCheck(f"{url}/x", within_ms=400))
        assert not receipt.passed
        assert "did not answer in time" in receipt.detail
        assert receipt.duration_ms < 1500
        server.stopping.set()
