"""The agent's side of the proxy, in tests: a client on its unix socket, and a proxy before a provider."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.model.agent import APIS
from holdfast.proxy.server import ModelProxy
from holdfast.proxy.upstream import Price, Secret, Upstream

KEY = "true-key-7f3a9c2e51d84b60"
TOKEN = "throw-away-0123456789abcdef"
# A dollar for a million tokens in, two out: a token in costs one millionth of a dollar.
PRICES = (Price("m-", 1_000_000, 2_000_000),)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, object]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def words(self) -> str:
        """The message of an error, in any of the three forms."""
        error = self.document["error"]
        assert isinstance(error, dict)
        return str(error["message"])


class Client(http.client.HTTPConnection):
    """HTTP over the unix socket; the name is what a client inside the sandbox would call it."""

    def __init__(self, path: str, timeout: float = 20) -> None:
        super().__init__("127.0.0.1:8080", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def ask(self, path: str, body: object = None, **headers: str) -> Answer:
        """POST as JSON with the token, or GET where there is no body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if not named.keys() & {"authorization", "x-api-key", "x-goog-api-key"}:
            named["authorization"] = f"Bearer {TOKEN}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.request("GET" if data is None else "POST", path, data, {"content-type": "application/json", **named})
        response = self.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


@contextlib.contextmanager
def private_place() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="hf-proxy-") as folder:
        yield os.path.join(folder, "s")


@contextlib.contextmanager
def asking(path: str, timeout: float = 20) -> Iterator[Client]:
    with contextlib.closing(Client(path, timeout)) as client:
        yield client


def upstream(url: str, **more: object) -> Upstream:
    return Upstream(url, APIS, Secret(KEY), PRICES)._replace(**more)  # type: ignore[arg-type]


@contextlib.contextmanager
def proxied(url: str, *args: object, **options: object) -> Iterator[tuple[ModelProxy, Client]]:
    """A proxy before the provider at `url`, and a client of it."""
    with (
        private_place() as path,
        ModelProxy(path, upstream(url), TOKEN, *args, **options) as proxy,  # type: ignore[arg-type]
        asking(path) as client,
    ):
        yield proxy, client


def raw(path: str, data: bytes, timeout: float = 10) -> bytes:
    """Bytes as they are, and everything that comes back until the proxy closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(path)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found
