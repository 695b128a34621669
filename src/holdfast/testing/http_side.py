"""The HTTP of the scripted model: requests in, answers out, and every thread gone when it closes."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from holdfast.model.agent import Usage
from holdfast.testing.conversation import Json

_MOST = 64 << 20


class Arrived(NamedTuple):
    """A request. Names of headers are in small letters; `key` is the credential, wherever it stood."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    key: str
    query: str


class Answered(NamedTuple):
    """An answer: one document, or a stream of events; `usage` is what it costs."""

    status: int
    document: Json | list[Any] | None
    events: tuple[tuple[str, Json | str], ...] = ()
    retry_after: int | None = None
    usage: Usage = Usage()


class HttpSide:
    """A server on a free port of the loopback."""

    def __init__(self, answer: Callable[[Arrived], Answered]) -> None:
        self.answer = answer
        self.mistakes: list[Exception] = []
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="scripted-model")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def open(self) -> None:
        self._server.server_activate()
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end_all()
        self._server.server_close()

    def wait(self, seconds: float) -> None:
        """Until then, or until the server closes."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    # Joined at the end, after their connections were ended: no thread outlives the block.
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, side: HttpSide) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.side = side
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.server_bind()

    def server_bind(self) -> None:
        """Without the look-up of our own name, which may ask a network."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_all(self) -> None:
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it went by itself

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called in an `except` block: a client that vanished is its own affair, everything else is ours (M5)."""
        import sys

        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, (ConnectionError, TimeoutError)):
            self.side.mistakes.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        side = self.server.side
        body = self._body()
        if body is None:
            return self._send(Answered(415, {"error": {"message": "this encoding is not understood"}}))
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        arrived = Arrived(self.command, url.path, headers, body, _key(headers, url.query), url.query)
        try:
            answered = side.answer(arrived)
        except Exception as error:  # noqa: BLE001  (kept and raised when the block ends)
            side.mistakes.append(error)
            answered = Answered(500, {"error": {"message": f"the scripted model itself failed: {error!r}"}})
        return self._send(answered)

    do_GET = do_HEAD = do_POST

    def log_message(self, *_: object) -> None:
        """Silent: what came is in `seen`."""

    def _body(self) -> bytes | None:
        raw = self._chunked() if "chunked" in self.headers.get("Transfer-Encoding", "") else self._counted()
        match self.headers.get("Content-Encoding", "identity"):
            case "identity":
                return raw
            case "gzip":
                return gzip.decompress(raw)
            case "deflate":
                return zlib.decompress(raw)
        return None

    def _counted(self) -> bytes:
        return self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST))

    def _chunked(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers say nothing to us
        return b"".join(parts)

    def _send(self, answered: Answered) -> None:
        self.send_response(answered.status)
        if answered.retry_after is not None:
            self.send_header("Retry-After", str(answered.retry_after))
        if answered.events:
            return self._stream(answered)
        body = json.dumps(answered.document).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return None

    def _stream(self, answered: Answered) -> None:
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in answered.events:
            text = data if isinstance(data, str) else json.dumps(data)
            event = f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"
            piece = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def _key(headers: Mapping[str, str], query: str) -> str:
    """From the places in which the providers' clients put it."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return token.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if headers.get(name):
            return headers[name]
    return next(iter(parse_qs(query).get("key", [])), "")
