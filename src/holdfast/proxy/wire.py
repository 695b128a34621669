"""One HTTP/1.1 connection under deadlines, either end of it.

A deadline is a moment of time.monotonic. Framing, header limits and the rules of the protocol are h11's.

Invariant V1: `watch` is the other party. When it goes away while we wait, `Gone` ends the wait at once.
A client that only closes its sending half looks the same through a forwarder, and counts as gone; HTTP clients do not.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import TypeAlias

import h11

_PIECE = 1 << 16
_SENDING = 120.0
_AWAY = select.POLLRDHUP | select.POLLHUP | select.POLLERR

Event: TypeAlias = (
    h11.Request | h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage | h11.ConnectionClosed
)
_EVENTS = (
    h11.Request, h11.InformationalResponse, h11.Response, h11.Data, h11.EndOfMessage, h11.ConnectionClosed,
)  # fmt: skip


class Gone(Exception):
    """The other party went away; nobody is left to answer. It never leaves this room."""


class Wire:
    def __init__(self, connection: socket.socket, role: type[h11.CLIENT] | type[h11.SERVER], head: int) -> None:
        self.socket = connection
        self.state = h11.Connection(role, max_incomplete_event_size=head)
        self._ahead: Event | None = None

    def next_event(self, deadline: float, watch: socket.socket | None = None) -> Event:
        """TimeoutError after the deadline, OSError or h11.RemoteProtocolError when it breaks."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        while True:
            event = self.state.next_event()
            if event is h11.NEED_DATA:
                self._wait(deadline, watch)
                self.socket.settimeout(_left(deadline))
                self.state.receive_data(self.socket.recv(_PIECE))
            elif event is h11.PAUSED:
                raise h11.RemoteProtocolError("more came than was asked for")
            else:
                assert isinstance(event, _EVENTS)
                return event

    def rest(self) -> bytes:
        """What else of the body has come already, so that many small pieces go on as one."""
        pieces = []
        while isinstance(event := self.state.next_event(), h11.Data):
            pieces.append(bytes(event.data))
        if isinstance(event, h11.EndOfMessage):
            self._ahead = event
        return b"".join(pieces)

    def ends_within(self, seconds: float, heard: Callable[[bytes], object]) -> bool:
        """Whether the message ends in this time; what else comes of it is `heard`."""
        end = time.monotonic() + seconds
        try:
            event = self.next_event(end)
            while isinstance(event, h11.Data):
                heard(bytes(event.data))
                event = self.next_event(end)
        except (OSError, h11.RemoteProtocolError):
            return False
        return isinstance(event, h11.EndOfMessage)

    def send(self, event: h11.Event) -> None:
        data = self.state.send(event)
        if data:
            self.socket.settimeout(_SENDING)
            self.socket.sendall(data)

    def wait(self, deadline: float) -> bool:
        """Until something comes; False when nothing did."""
        if self.state.trailing_data[0]:
            return True
        return _readable(self.socket, deadline, None)

    def end(self) -> None:
        """Wake whoever waits on it; the owner closes."""
        wake(self.socket)

    def close(self) -> None:
        self.socket.close()

    def _wait(self, deadline: float, watch: socket.socket | None) -> None:
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return
        if not _readable(self.socket, deadline, watch):
            raise TimeoutError("nothing came in time")


def wake(connection: socket.socket) -> None:
    """End a connection that another thread waits on; that thread closes it."""
    try:
        # Not the method of an SSLSocket: that one takes the TLS state away from under the other thread.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        pass  # it is not connected any more, which is what we want


def _readable(connection: socket.socket, deadline: float, watch: socket.socket | None) -> bool:
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    if watch is not None:
        waiting.register(watch, _AWAY)
    ready = waiting.poll(_left(deadline) * 1000)
    if watch is not None and any(fd == watch.fileno() for fd, _ in ready):
        raise Gone
    return bool(ready)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left
