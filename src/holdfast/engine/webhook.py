"""Webhooks: a door on the loopback through which others say that something happened.

    POST /hooks/NAME
    Authorization: Bearer TOKEN                      (store.hook_tokens)
    Idempotency-Key: ID                              or X-GitHub-Delivery, X-Delivery-Id

    202 accepted, durable · 200 this delivery is known, nothing starts · 400 · 401 · 405 · 408 · 413 · 429 · 503

Invariants
  B1  It listens on 127.0.0.1 alone. Without the token of that very hook nothing is learnt, not even which hooks exist.
  B2  Tokens are compared in constant time, for a hook that does not exist too.
  B3  A body is data, at most BODY bytes of it; nothing in it is looked at, and none of it is read without the token.
  B4  A request has `within` seconds in all, however it drips. At most CONNECTIONS are open; one more ends the oldest.
  B5  202 is said after the delivery is durable. No delivery id, no start: a replay could not be told from a call.
  B6  `close` ends and joins every thread.
  B7  Whoever is heard is answered; what HEAD asks is answered without a body. A delivery that cannot be made durable
      is a 503, and never silence: the sender then knows that it must come again.
"""

from __future__ import annotations

import hmac
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple

import h11

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.model.configuration import WEBHOOK_PORT
from holdfast.model.trigger import Happened
from holdfast.model.trigger_settings import TriggerSettings
from holdfast.proxy.wire import Wire
from holdfast.store.firings import Noted
from holdfast.store.hook_tokens import load_or_create_token, token_path

BODY = 64 << 10
CONNECTIONS = 16
WITHIN_SECONDS = 10.0
_HEAD = 16 << 10
_LINGER_SECONDS = 0.5
_LOOK_AGAIN = 0.1
_PREFIX = b"/hooks/"
_DELIVERY_HEADERS = (b"idempotency-key", b"x-github-delivery", b"x-delivery-id")
_DELIVERY = re.compile(rb"[\x21-\x7e]{1,200}")
_NOBODY = "-" * 43


class _Answer(Exception):
    """How a request ends. It never leaves this module."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class _Call(NamedTuple):
    name: str
    delivery: str


class Hooks:
    """Listens from the moment it is entered until it is closed. `deliver` is called from its threads."""

    def __init__(
        self,
        tokens: Mapping[str, str],
        deliver: Callable[[Happened], Noted],
        *,
        port: int = WEBHOOK_PORT,
        within: float = WITHIN_SECONDS,
    ) -> None:
        self._tokens, self._deliver, self._within = dict(tokens), deliver, within
        self._changed = threading.Condition()
        self._open: dict[Wire, threading.Thread] = {}
        # Have answered, and are about to end.
        self._leaving: set[threading.Thread] = set()
        self._closing = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(CONNECTIONS)
        except OSError as error:
            self._socket.close()
            raise InvalidInput(
                f"webhooks cannot be heard on port {port}: {error.strerror}",
                hint="Choose another one in your own config.toml: [run] webhook_port = 4654",
            ) from error
        self._door = threading.Thread(target=self._accept, name="holdfast-hooks", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> Hooks:
        self._door.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No more calls; those that are being answered end now (B6)."""
        self._closing = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass  # nobody ever connected
        self._socket.close()
        if self._door.ident is not None:
            self._door.join()
        with self._changed:
            left = list(self._open)
            threads = {*self._open.values(), *self._leaving}
        for wire in left:
            wire.end()
        for thread in threads:
            thread.join()

    # ── connections ──

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if not self._closing:
                    time.sleep(_LOOK_AGAIN)  # no descriptors left: those in use must first come back
                continue
            wire = Wire(connection, h11.SERVER, _HEAD)
            thread = threading.Thread(target=self._serve, args=(wire,), name="holdfast-hook", daemon=True)
            self._place(wire, thread)
            thread.start()

    def _place(self, wire: Wire, thread: threading.Thread) -> None:
        """A place for it, which the oldest has to leave when all are taken (B4)."""
        with self._changed:
            while len(self._open) >= CONNECTIONS:
                next(iter(self._open)).end()
                self._changed.wait(_LOOK_AGAIN)
            self._open[wire] = thread
            self._leaving = {thread for thread in self._leaving if thread.is_alive()}

    def _serve(self, wire: Wire) -> None:
        try:
            self._answer(wire, time.monotonic() + self._within)
        except OSError:
            pass  # whoever called is gone, and so is the one who would read our answer
        finally:
            with self._changed:
                self._leaving.add(self._open.pop(wire))
                self._changed.notify_all()
            wire.close()

    def _answer(self, wire: Wire, deadline: float) -> None:
        request = None
        try:
            request = _request(wire, deadline)
            status, words = 202, self._heard(wire, request, deadline)
        except _Answer as answer:
            status, words = answer.status, answer.words
        except TimeoutError:
            status, words = 408, "the request was not here in time"
        except h11.RemoteProtocolError as error:
            status, words = error.error_status_hint, "this is no request"
        except HoldfastError as error:
            status, words = 503, error.message
        if wire.state.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            _send(wire, status, words, body=request is None or request.method != b"HEAD")

    # ── one request ──

    def _heard(self, wire: Wire, request: h11.Request, deadline: float) -> str:
        """What was made of it; _Answer for everything but a new delivery."""
        call = self._allowed(request)
        body = _body(wire, request, deadline)
        try:
            noted = self._deliver(Happened(call.name, "webhook", call.delivery, f"delivery {call.delivery}", body))
        except OSError as error:  # of the disk, not of this connection
            raise _Answer(503, f"the delivery could not be kept: {error.strerror}") from None
        if noted == "known":
            raise _Answer(200, "this delivery is known; nothing is started")
        if noted == "full":
            raise _Answer(429, "too many deliveries of this hook wait already")
        return "accepted"

    def _allowed(self, request: h11.Request) -> _Call:
        """Which hook is called with which delivery, or the _Answer that it is not to be."""
        path = request.target.partition(b"?")[0]
        name = path[len(_PREFIX) :].decode("ascii", "replace") if path.startswith(_PREFIX) else ""
        token = self._tokens.get(name, _NOBODY)
        given = _values(request, b"authorization")
        matches = len(given) == 1 and hmac.compare_digest(given[0], f"Bearer {token}".encode("ascii"))
        if not matches or name not in self._tokens:
            raise _Answer(401, "the token is missing or wrong")
        if request.method != b"POST":
            raise _Answer(405, "only POST is understood")
        found = [value for header in _DELIVERY_HEADERS for value in _values(request, header)]
        if len(found) != 1 or not _DELIVERY.fullmatch(found[0]):
            raise _Answer(400, "exactly one delivery id is needed, as Idempotency-Key, of at most 200 plain characters")
        return _Call(name, found[0].decode("ascii"))


def tokens_of(settings: Iterable[TriggerSettings]) -> dict[str, str]:
    """The token of every webhook; one that has none yet gets one."""
    names = [trigger.name for trigger in settings if trigger.kind == "webhook"]
    return {name: load_or_create_token(token_path(name)) for name in names}


def _request(wire: Wire, deadline: float) -> h11.Request:
    request = wire.next_event(deadline)
    if not isinstance(request, h11.Request):
        raise _Answer(400, "this is no request")
    return request


def _values(request: h11.Request, name: bytes) -> list[bytes]:
    return [bytes(value) for header, value in request.headers if header == name]


def _body(wire: Wire, request: h11.Request, deadline: float) -> bytes:
    """The whole body, or _Answer when it is more than BODY bytes."""
    length = _values(request, b"content-length")
    if length and int(length[0]) > BODY:
        raise _Answer(413, f"a body has at most {BODY:,} bytes")
    if wire.state.they_are_waiting_for_100_continue:
        wire.send(h11.InformationalResponse(status_code=100, headers=[]))
    body = bytearray()
    while isinstance(event := wire.next_event(deadline), h11.Data):
        body += event.data
        if len(body) > BODY:
            raise _Answer(413, f"a body has at most {BODY:,} bytes")
    if not isinstance(event, h11.EndOfMessage):
        raise _Answer(400, "the request broke off")
    return bytes(body)


def _send(wire: Wire, status: int, words: str, *, body: bool) -> None:
    document = {"accepted": status == 202, "because": words}
    data = json.dumps(document).encode("ascii") + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Connection", "close")]
    if status == 405:
        headers.append(("Allow", "POST"))
    if status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    wire.send(h11.Response(status_code=status, headers=headers))
    if body:
        wire.send(h11.Data(data=data))
    wire.send(h11.EndOfMessage())
    _linger(wire.socket)


def _linger(connection: socket.socket) -> None:
    """Closing with bytes unread would reset the connection, and the answer would be lost on its way."""
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + _LINGER_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(BODY):
            return
