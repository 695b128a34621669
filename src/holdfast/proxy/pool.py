"""Connections to the provider: kept while they are good, so that a request pays for no handshake.

Invariants
  L1  A request is sent at most once: a model that was asked twice is paid twice. A kept connection is looked at before
      it is used; what breaks later is an error for the agent, who may ask again.
  L2  `close` wakes everyone who waits for the provider, also those who are still connecting, and leaves no descriptor.
      (Only the look-up of a name cannot be woken; it takes as long as the system's resolver gives it.)
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time

import h11

from holdfast.proxy.upstream import Origin
from holdfast.proxy.wire import Wire, wake

_HEAD = 1 << 18
_KEPT = 8
# Providers close idle connections after a minute or more; one that is about to be closed is not worth the risk.
_STALE = 30.0


class Pool:
    def __init__(self, origin: Origin, ca_file: str = "") -> None:
        self._origin, self._ca_file = origin, ca_file
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Wire]] = []
        self._busy: set[socket.socket] = set()
        self._context: ssl.SSLContext | None = None
        self._closed = False

    def take(self, timeout: float) -> Wire:
        """A connection nobody else uses; OSError when there is none to be had."""
        return self._kept() or self._made(timeout)

    def join(self, connection: socket.socket) -> None:
        """Have it woken by `close`; ConnectionAbortedError when that has happened already."""
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return
        connection.close()
        raise ConnectionAbortedError("the proxy is closing")

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def give(self, wire: Wire) -> None:
        """Back, to be used again if it is good for another request."""
        if wire.state.our_state is h11.DONE and wire.state.their_state is h11.DONE and not wire.state.trailing_data[0]:
            wire.state.start_next_cycle()
            with self._lock:
                self._busy.discard(wire.socket)
                if not self._closed and len(self._idle) < _KEPT:
                    self._idle.append((time.monotonic(), wire))
                    return
        self.leave(wire.socket)

    def close(self) -> None:
        """Those in use are only woken: their users drop them (L2)."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                wake(connection)
        for _, wire in idle:
            wire.close()

    def _kept(self) -> Wire | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, wire = self._idle.pop()
            self.join(wire.socket)
            if time.monotonic() - since < _STALE and not _has_ended(wire.socket):
                return wire
            self.leave(wire.socket)

    def _made(self, timeout: float) -> Wire:
        origin = self._origin
        places = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        problem: OSError = OSError("the name has no address")
        for family, _, _, _, place in places:
            try:
                plain = self.connected(family, place, timeout)
            except OSError as error:
                problem = error
                continue
            return Wire(self._secured(plain) if origin.tls else plain, h11.CLIENT, _HEAD)
        raise problem

    def connected(self, family: int, place: tuple[object, ...], timeout: float) -> socket.socket:
        """Joined before it is connected, so that `close` ends the wait; the caller leaves it."""
        connection = socket.socket(family, socket.SOCK_STREAM)
        self.join(connection)
        try:
            connection.settimeout(timeout)
            connection.connect(place)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.leave(connection)
            raise
        return connection

    def _secured(self, plain: socket.socket) -> ssl.SSLSocket:
        secured = None
        try:
            context = self._trust()
            # Wrapping takes the descriptor over; `plain` is an empty shell afterwards.
            secured = context.wrap_socket(plain, server_hostname=self._origin.host, do_handshake_on_connect=False)
            self.join(secured)
            secured.do_handshake()
        except BaseException:
            if secured is not None:
                self.leave(secured)
            raise
        finally:
            self.leave(plain)
        return secured

    def _trust(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                self._context = ssl.create_default_context()
                if self._ca_file:
                    self._context.load_verify_locations(self._ca_file)
            return self._context


def _has_ended(connection: socket.socket) -> bool:
    """Between requests a provider has nothing to say; whatever comes then is the end."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))
