"""Connections under a deadline, which is a moment of time.monotonic.

The deadline covers name, connection and TLS together; every read gets only the time that is left.
"""

from __future__ import annotations

import io
import socket
import time
from typing import NamedTuple

from holdfast.model.path import printable


class _Place(NamedTuple):
    family: int
    place: tuple[object, ...]


def connected(host: str, port: int, deadline: float, *, tls: bool = False) -> socket.socket:
    """A connection to the first of the host's addresses that takes one, or OSError."""
    places = _places(host, port, deadline)
    problem: OSError = OSError("the name has no address")
    for number, place in enumerate(places):
        plain = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            # A name may stand for several addresses; one that swallows packets must leave time for the others.
            plain.settimeout(time_left(deadline) / (len(places) - number))
            plain.connect(place.place)
            _refuse_ourselves(plain)
            return _secured(plain, host, deadline) if tls else plain
        except OSError as error:
            plain.close()
            problem = error
    raise problem


def time_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


def reason_of(error: OSError) -> str:
    """Why a connection failed, as a sentence goes on."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {printable(error.reason or str(error))}"
    words = error.strerror or str(error)
    return printable(words[:1].lower() + words[1:])


class Reader(io.RawIOBase):
    """The bytes of a connection: none after the deadline, and none after `limit` of them."""

    def __init__(self, connection: socket.socket, deadline: float, limit: int) -> None:
        self._connection, self._deadline, self._room = connection, deadline, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        window = buffer[: self._room]
        if not window:
            return 0
        self._connection.settimeout(time_left(self._deadline))
        count = self._connection.recv_into(window)
        self._room -= count
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)


def _refuse_ourselves(connection: socket.socket) -> None:
    """On loopback the kernel may join a client to itself when its own port is the one it asks for."""
    if connection.getsockname() == connection.getpeername():
        raise ConnectionRefusedError(111, "Connection refused")


def _secured(plain: socket.socket, host: str, deadline: float) -> socket.socket:
    import ssl

    plain.settimeout(time_left(deadline))  # OpenSSL is given this for the whole handshake, not for each read
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def _places(host: str, port: int, deadline: float) -> list[_Place]:
    """The addresses behind a name. The resolver knows no deadline, so a real name is looked up in a thread."""
    raw = host.encode("ascii")  # bytes: Python's own IDNA rules have nothing to do here
    try:
        return _resolved(raw, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return _looked_up(raw, port, deadline)


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
    thread.join(time_left(deadline))
    if thread.is_alive():
        raise TimeoutError("the name was not resolved in time")
    if problems:
        raise problems[0]
    return found
