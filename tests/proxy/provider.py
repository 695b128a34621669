"""A provider for tests, on loopback: it answers as told, piece by piece, and remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Seen(NamedTuple):
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(found) if found else None


class Break(NamedTuple):
    """The connection ends here, in the middle."""


Piece = bytes | float | threading.Event | Break


class Reply(NamedTuple):
    """`pieces`: bytes are sent, a number waits, an event is waited for. `sized`: with a length instead of chunks."""

    pieces: tuple[Piece, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    sized: bool = False
    # The connection ends after the answer, without a word.
    hangs_up: bool = False


def streamed(*pieces: Piece) -> Reply:
    return Reply(pieces, headers=(("Content-Type", "text/event-stream"),))


@dataclass
class Provider:
    answer: Callable[[Seen], Reply]
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    # Set when a piece could not be delivered any more.
    left: threading.Event = field(default_factory=threading.Event)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients of these tests vanish on purpose."""


@contextmanager
def providing(answer: Callable[[Seen], Reply], context: ssl.SSLContext | None = None) -> Iterator[Provider]:
    provider = Provider(answer)

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            provider.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen = Seen(self.command, self.path, self.headers.items(), body)
            provider.seen.append(seen)
            self._send(provider.answer(seen))

        do_GET = do_POST

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            if reply.sized:
                size = sum(len(piece) for piece in reply.pieces if isinstance(piece, bytes))
                self.send_header("Content-Length", str(size + 100 * (Break() in reply.pieces)))
            else:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for piece in reply.pieces:
                    self._piece(piece, reply.sized)
                if not reply.sized and Break() not in reply.pieces:
                    self.wfile.write(b"0\r\n\r\n")
                self.close_connection = self.close_connection or reply.hangs_up
            except OSError:
                provider.left.set()
                self.close_connection = True

        def _piece(self, piece: Piece, sized: bool) -> None:
            if isinstance(piece, bytes):
                self.wfile.write(piece if sized else b"%x\r\n%s\r\n" % (len(piece), piece))
            elif isinstance(piece, Break):
                self.close_connection = True
            elif isinstance(piece, threading.Event):
                assert piece.wait(20)
            else:
                time.sleep(piece)

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = _Server(("127.0.0.1", 0), Answers)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "https" if context else "http"
    provider.url = f"{scheme}://{'localhost' if context else '127.0.0.1'}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
