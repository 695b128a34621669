"""Real servers on loopback, as good or as bad as a test wants them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

# Gets an accepted connection, after the request was read, and its number, counted from 1.
Behaviour = Callable[[socket.socket, int], None]


class Server:
    """Listens on a free port; every connection is served in a thread of its own."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.requests: list[bytes] = []
        self.stopping = threading.Event()
        self._behaviour = behaviour
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self.stopping.is_set():
                connection.close()
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(5)
            try:
                self.requests.append(connection.recv(65536))
                self._behaviour(connection, len(self.requests))
            except OSError:
                return  # the client went away, as it may

    def stop(self) -> None:
        self.stopping.set()
        with socket.create_connection(self._listener.getsockname()):
            self._threads[0].join()
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Behaviour], Server]]:
    servers: list[Server] = []

    def start(behaviour: Behaviour) -> Server:
        servers.append(Server(behaviour))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def logs() -> dict[str, bytes]:
    """What `save_log` was given, by the digest it returned."""
    return {}


@pytest.fixture
def save_log(logs: dict[str, bytes]) -> Callable[[bytes], str]:
    def save(content: bytes) -> str:
        digest = f"log-{len(logs)}"
        logs[digest] = content
        return digest

    return save
