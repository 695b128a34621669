"""A web server that service actions call: it remembers every request, and answers as a test wants it to."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    line: str  # "POST /publish"
    body: bytes


@dataclass
class Api:
    """`answers`: the status by request line; 204 for every other. A redirect leads to /found."""

    url: str = ""
    answers: dict[str, int] = field(default_factory=dict)
    seen: list[Request] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return [request.line for request in self.seen]


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[Api]:
    """On a free port of the loopback, until the block ends; over TLS it is called localhost."""
    api = Api()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            line = f"{self.command} {self.path}"
            api.seen.append(Request(line, self.rfile.read(int(self.headers.get("Content-Length") or 0))))
            status = api.answers.get(line, 204)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/found")
            self.end_headers()

        # GET too: a redirect that is followed becomes one, and must be seen.
        do_DELETE = do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        api.url = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
