"""One GET, under one deadline.

Invariants
  W1  The deadline covers all of it: name, connection, TLS, headers, body.
      Every single read gets only the time that is left, so a server that trickles gains nothing.
  W2  Memory is bounded by READ_LIMIT, whatever the server sends (endless headers, negative chunk sizes).
  W3  The address asked is the address in the plan: no redirect is followed, no proxy from the environment is used,
      no credentials are sent.
  W4  Whatever a server does is an answer or a failed attempt, never an exception.

An answer counts when it is whole: a body that breaks off or does not end in time is a failure.
Of a body longer than BODY_LIMIT only the beginning is looked at.
"""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast.checks.attempt import Attempt
from holdfast.model.path import printable
from holdfast.model.plan import HttpCheck

if TYPE_CHECKING:
    from http.client import HTTPResponse

BODY_LIMIT = 1 << 20
READ_LIMIT = BODY_LIMIT + (1 << 18)


class _Address(NamedTuple):
    tls: bool
    host: str
    port: int
    named: str
    target: str


class _Place(NamedTuple):
    family: int
    place: tuple[object, ...]


class _Answer(NamedTuple):
    status: int
    body: bytes


class _BadUrl(ValueError):
    """A URL that no attempt can make better."""


def try_get(check: HttpCheck, deadline: float) -> Attempt:
    """Ask once; `deadline` is a moment of time.monotonic."""
    import http.client

    try:
        answer = _ask(_address(check.url), deadline)
    except _BadUrl as error:
        return Attempt(False, str(error), b"", hopeless=True)
    except TimeoutError:
        return Attempt(False, "did not answer in time", b"")
    except (OSError, http.client.HTTPException) as error:
        return Attempt(False, f"failed: {_reason(error)}", b"")
    except ValueError:
        # http.client lets some of these through, for instance for a negative chunk size.
        return Attempt(False, "failed: the answer is not HTTP", b"")
    return _judged(check, answer)


def _judged(check: HttpCheck, answer: _Answer) -> Attempt:
    said = f"answered {answer.status}"
    if answer.status != check.status:
        return Attempt(False, said, answer.body)
    if check.contains and check.contains.encode("utf-8", "surrogateescape") not in answer.body:
        return Attempt(False, f"{said} without the text {printable(repr(check.contains))}", answer.body)
    return Attempt(True, said, answer.body)


def _address(url: str) -> _Address:
    from urllib.parse import urlsplit

    # Anything else could smuggle a header into the request or a control code onto the screen.
    if not all("!" <= character <= "~" for character in url):
        raise _BadUrl("is not a URL: blanks, control codes and other alphabets must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _BadUrl(f"is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _BadUrl("is not a URL that begins with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise _BadUrl("contains a user name or password; these would be shown and logged")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Address(tls, parts.hostname, port or (443 if tls else 80), parts.netloc, target)


def _ask(address: _Address, deadline: float) -> _Answer:
    with _connected(address, deadline) as connection:
        request = f"GET {address.target} HTTP/1.1\r\nHost: {address.named}\r\nConnection: close\r\n"
        request += "User-Agent: holdfast\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\r\n"
        connection.settimeout(_left(deadline))
        connection.sendall(request.encode("ascii"))
        with _response(connection, deadline) as response:
            response.begin()
            return _Answer(response.status, _body(response))


def _body(response: HTTPResponse) -> bytes:
    from http.client import IncompleteRead

    body = response.read(BODY_LIMIT)
    # A read with a limit does not complain when the promised length is not reached.
    if len(body) < BODY_LIMIT and response.length:
        raise IncompleteRead(body, response.length)
    return body


def _connected(address: _Address, deadline: float) -> socket.socket:
    places = _places(address, deadline)
    problem: OSError = OSError("the name has no address")
    for number, place in enumerate(places):
        plain = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            # A name may stand for several addresses; one that swallows packets must leave time for the others.
            plain.settimeout(_left(deadline) / (len(places) - number))
            plain.connect(place.place)
            return _secured(plain, address.host, deadline) if address.tls else plain
        except OSError as error:
            plain.close()
            problem = error
    raise problem


def _secured(plain: socket.socket, host: str, deadline: float) -> socket.socket:
    import ssl

    plain.settimeout(_left(deadline))  # OpenSSL is given this for the whole handshake, not for each read
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def _places(address: _Address, deadline: float) -> list[_Place]:
    """The addresses behind a name. The resolver knows no deadline, so a real name is looked up in a thread."""
    host = address.host.encode("ascii")  # bytes: Python's own IDNA rules have nothing to do here
    try:
        return _resolved(host, address.port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return _looked_up(host, address.port, deadline)


def _resolved(host: bytes, port: int, flags: int) -> list[_Place]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [_Place(family, place) for family, _, _, _, place in found]


def _looked_up(host: bytes, port: int, deadline: float) -> list[_Place]:
    import threading

    found: list[_Place] = []
    problems: list[OSError] = []

    def look() -> None:
        try:
            found.extend(_resolved(host, port, 0))
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_left(deadline))
    if thread.is_alive():
        raise TimeoutError("the name was not resolved in time")
    if problems:
        raise problems[0]
    return found


class _Reader(io.RawIOBase):
    """The bytes of a connection, none after the deadline (W1) and none after READ_LIMIT (W2)."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline, self._room = connection, deadline, READ_LIMIT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        window = buffer[: self._room]
        if not window:
            return 0
        self._connection.settimeout(_left(self._deadline))
        count = self._connection.recv_into(window)
        self._room -= count
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)


def _response(connection: socket.socket, deadline: float) -> HTTPResponse:
    import http.client

    # HTTPResponse wants a socket, and of it only `makefile`.
    return http.client.HTTPResponse(cast("socket.socket", _Reader(connection, deadline)), method="GET")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


def _reason(error: Exception) -> str:
    import http.client
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {printable(error.reason or str(error))}"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer broke off"
    if isinstance(error, http.client.HTTPException):
        return "the answer is not HTTP"
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(words[:1].lower() + words[1:])
