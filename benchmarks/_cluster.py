"""A PostgreSQL of its own for a benchmark: default settings, on loopback, run by an ordinary user, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NewDatabase = Callable[[], str]


@contextmanager
def cluster(place: str) -> Iterator[NewDatabase | None]:
    """A function that makes a database and gives its URL; None where PostgreSQL or its client is not installed."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    initdb = shutil.which("initdb") or (str(binaries[-1] / "initdb") if binaries else None)
    try:
        import psycopg
    except ImportError:
        initdb = None
    if initdb is None:
        yield None
        return
    folder, who = os.path.join(place, "pg"), _somebody()
    os.mkdir(folder)
    if who:
        os.chown(folder, who["user"], who["group"])
        for above in (place, os.path.dirname(place)):
            # Ours alone otherwise, and somebody else has to come through.
            if above == place or os.path.basename(above).startswith("holdfast-bench-"):
                os.chmod(above, 0o711)
    argv = [initdb, "-D", f"{folder}/data", "-U", "bench", "--auth=trust", "-E", "UTF8"]
    subprocess.run(argv, check=True, capture_output=True, cwd=folder, **who)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    argv = [initdb.replace("initdb", "postgres"), "-D", f"{folder}/data", "-p", str(port), "-k", folder]
    argv += ["-c", "listen_addresses=127.0.0.1"]
    server = subprocess.Popen(argv, cwd=folder, stderr=subprocess.DEVNULL, **who)
    made = 0

    def execute(statement: str) -> None:
        with psycopg.connect(f"postgresql://bench@127.0.0.1:{port}/postgres", autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def new() -> str:
        nonlocal made
        made += 1
        execute(f"CREATE DATABASE b{made}")
        return f"postgresql://bench@127.0.0.1:{port}/b{made}"

    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                execute("SELECT 1")
                break
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield new
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()


def _somebody() -> dict[str, Any]:
    """PostgreSQL refuses to be run by root."""
    if os.geteuid():
        return {}
    entry = next(pwd.getpwnam(name) for name in ("postgres", "nobody") if _known(name))
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _known(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())
