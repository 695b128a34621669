"""A PostgreSQL of its own, run by an ordinary user, on loopback only; it can be stopped and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def program(name: str) -> str | None:
    """One of PostgreSQL's own; Debian keeps them beside the path."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which(name) or (str(binaries[-1] / name) if binaries else None)


class Cluster:
    """Use `url(name)` for a database that is made when it is first asked for."""

    def __init__(self) -> None:
        initdb = program("initdb")
        if initdb is None:
            pytest.skip("PostgreSQL is not installed")
        self._bin = Path(initdb).parent
        self._place = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._who: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = _ordinary_user()
            os.chown(self._place, entry.pw_uid, entry.pw_gid)
            self._who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        self.port = free_port()
        options = ["-U", "app", "--no-sync", "--auth=trust", "-E", "UTF8"]
        argv = [self._bin / "initdb", "-D", str(self._place / "data"), *options]
        subprocess.run(argv, check=True, capture_output=True, cwd=self._place, **self._who)
        self.start()

    def start(self) -> None:
        argv = [str(self._bin / "postgres"), "-D", str(self._place / "data"), "-p", str(self.port)]
        argv += ["-k", str(self._place), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        self.process = subprocess.Popen(argv, cwd=self._place, stderr=subprocess.DEVNULL, **self._who)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline and self.process.poll() is None, "PostgreSQL does not start"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self._execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _execute(self, statement: LiteralString) -> None:
        with psycopg.connect(f"postgresql://app@127.0.0.1:{self.port}/postgres", autocommit=True) as connection:
            connection.execute(statement)

    def stop(self) -> None:
        """At once, as after a crash."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def freeze(self) -> None:
        """Every process of it stands still: connections stay open, and nobody answers."""
        self._all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._all(signal.SIGCONT)

    def _all(self, number: signal.Signals) -> None:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in (self.process.pid, *map(int, path.read_text().split())):
            with suppress(ProcessLookupError):  # the process of a connection that has just ended
                os.kill(pid, number)

    def url(self, name: str, encoding: str = "") -> str:
        assert name.isalnum()
        other = f" TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'" if encoding else ""
        self._execute(f"CREATE DATABASE {name}{other}")  # type: ignore[arg-type]
        return f"postgresql://app@127.0.0.1:{self.port}/{name}"

    def remove(self) -> None:
        if self.process.poll() is None:
            self.thaw()
            self.stop()
        shutil.rmtree(self._place)


def _ordinary_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("there is no ordinary user to run PostgreSQL as")
