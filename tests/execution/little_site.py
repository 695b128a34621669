"""A little site: a real HTTP service, a plain process, that reads `site.conf` when it starts or gets SIGHUP.

What the file says is what it answers. A file that begins with "bad" makes it answer 500, "fatal" makes it fall over.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.execution.services import Host, Program
from holdfast.model.plan import Signal
from holdfast.sandbox.daemon import Daemon, end, is_alive
from holdfast.store.running import Running

_PROGRAM = """
import signal, socket, sys
def read(*_):
    global conf
    conf = open("site.conf", "rb").read()
    if conf.startswith(b"fatal"):
        sys.exit("site.conf: fatal indeed")
read()
signal.signal(signal.SIGHUP, read)
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen(16)
while True:
    link, _ = server.accept()
    link.settimeout(2)
    try:
        link.recv(4096)
        word = b"500 Bad" if conf.startswith(b"bad") else b"200 OK"
        link.sendall(b"HTTP/1.0 " + word + b"\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(conf) + conf)
    except OSError:
        pass
    link.close()
"""


class LittleSite(NamedTuple):
    """The site of one workspace."""

    workspace: Path
    port: int

    @property
    def argv(self) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", "-c", _PROGRAM, str(self.port))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def answer(self, seconds: float = 5.0) -> tuple[int, bytes]:
        """Status and body, as soon as it answers."""
        found: list[tuple[int, bytes]] = []

        def asked() -> bool:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=2)
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                found.append((response.status, response.read()))
            except (OSError, HTTPException):
                return False
            finally:
                connection.close()
            return True

        wait_for(asked, seconds)
        return found[-1]

    def is_up(self) -> bool:
        """Does anybody listen?"""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def daemon(self, name: str = "site") -> Daemon | None:
        """Who is remembered as this service."""
        with Root(str(self.workspace / ".holdfast"), CALLS) as state:
            return Running(state).recall(name)

    def processes(self) -> list[int]:
        """Everybody who runs the program with this port, seen with eyes of our own."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:4] == [b"-I", b"-S", b"-c"] and words[5:6] == [b"%d" % self.port]:
                found.append(int(name))
        return found

    def start(self) -> None:
        with self._host() as host:
            host._have(Signal("start", "site"), "", 5000)
        self.answer()

    def stop(self) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.processes())

    @contextmanager
    def _host(self) -> Iterator[Host]:
        with Root(str(self.workspace / ".holdfast"), CALLS) as state:
            yield Host(Running(state), str(self.workspace), {"site": Program("site", self.argv)}, "")

    def configure(self, home: Path, more: str = "") -> None:
        """Say in the user's own configuration how it is started."""
        folder = home / "holdfast"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ", ".join(_quoted(word) for word in self.argv)
        (folder / "config.toml").write_text(f"[services.site]\nstart = [{words}]\n{more}")
        (folder / "config.toml").chmod(0o600)


def little_site(workspace: Path) -> LittleSite:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return LittleSite(workspace, probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_at, "it did not happen in time"
        time.sleep(0.01)


def put_away(daemon: Daemon | None) -> None:
    """End what a test left running."""
    if daemon is not None and is_alive(daemon.identity):
        assert end(daemon, 0.2)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
