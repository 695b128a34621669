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

from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast.checks.attempt import Attempt
from holdfast.checks.connect import Reader, connected, reason_of, time_left
from holdfast.model.path import printable
from holdfast.model.plan import HttpCheck

if TYPE_CHECKING:
    import socket
    from http.client import HTTPException, HTTPResponse

BODY_LIMIT = 1 << 20
READ_LIMIT = BODY_LIMIT + (1 << 18)


class _Address(NamedTuple):
    tls: bool
    host: str
    port: int
    named: str
    target: str


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
    with connected(address.host, address.port, deadline, tls=address.tls) as connection:
        request = f"GET {address.target} HTTP/1.1\r\nHost: {address.named}\r\nConnection: close\r\n"
        request += "User-Agent: holdfast\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\r\n"
        connection.settimeout(time_left(deadline))
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


def _response(connection: socket.socket, deadline: float) -> HTTPResponse:
    import http.client

    # HTTPResponse wants a socket, and of it only `makefile`.
    return http.client.HTTPResponse(cast("socket.socket", Reader(connection, deadline, READ_LIMIT)), method="GET")


def _reason(error: OSError | HTTPException) -> str:
    import http.client

    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer broke off"
    if isinstance(error, http.client.HTTPException):
        return "the answer is not HTTP"
    return reason_of(error)
