"""The way to the proxy: connections to a port inside are carried to a socket of ours, byte for byte.

    program ──TCP, 127.0.0.1:PORT──▶ Forwarder, in pid 1 ──unix socket──▶ the proxy, outside

Shown inside and loaded by `inside.py`, only for runs that want it; it imports nothing of Holdfast.

Invariants
  W1  The port listens before the program starts, on the loopback of the sandbox's own network namespace alone.
  W2  It lives in the first process of the sandbox, which the program can neither signal nor inspect. No process more.
  W3  Bytes go on as they come, and nothing is read into them. The end of one direction is carried as such;
      a broken connection is broken on the other side too, and never looks like a clean end.
  W4  Nothing here waits for one connection: a busy proxy takes new ones later, and serves its old ones meanwhile.
  W5  Bounded: so many connections, one piece waiting in each direction; who is too many waits in the kernel's queue.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time

_ADDRESS = "127.0.0.1"
_MOST = 512
_QUEUE = 512
_PIECE = 1 << 16
_DESCRIPTORS, _SPARE = 2048, 64
# How soon a proxy whose own queue is full is asked again.
_AGAIN_S = 0.01
_RESET = (1).to_bytes(4, sys.byteorder) + bytes(4)  # struct linger: on, no seconds


class _Flow:
    """One direction of a connection. `waiting`: read and not yet written. `over`: its end has been passed on."""

    __slots__ = ("ended", "over", "sink", "source", "waiting")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting = b""
        self.ended = self.over = False

    def carry(self) -> None:
        """As far as it goes now. OSError: the connection is broken."""
        try:
            if not self.waiting and not self.ended:
                self.waiting = self.source.recv(_PIECE)
                self.ended = not self.waiting
            if self.waiting:
                self.waiting = self.waiting[self.sink.send(self.waiting) :]
        except BlockingIOError:
            return
        if self.ended and not self.waiting and not self.over:
            self.over = True
            self.sink.shutdown(socket.SHUT_WR)

    def give_up(self) -> None:
        """Nobody takes it any more; the other direction may still have something to say."""
        self.waiting, self.ended, self.over = b"", True, True


class _Pair:
    """One connection: the program's end, the proxy's end, and a flow each way."""

    __slots__ = ("back", "inner", "out", "outer")

    def __init__(self, inner: socket.socket, outer: socket.socket) -> None:
        self.inner, self.outer = inner, outer
        self.out, self.back = _Flow(inner, outer), _Flow(outer, inner)

    def carry(self) -> None:
        try:
            self.out.carry()
        except BrokenPipeError:
            self.out.give_up()  # the proxy answered before it had read everything, and closed
        self.back.carry()

    @property
    def over(self) -> bool:
        return self.out.over and self.back.over

    def wishes(self) -> tuple[tuple[socket.socket, int], ...]:
        """What each end is waited for; 0 is nothing at all, not even the news that it was closed."""
        return (
            (self.inner, _wish(self.out, self.back)),
            (self.outer, _wish(self.back, self.out)),
        )


def _wish(reading: _Flow, writing: _Flow) -> int:
    may_read = not reading.ended and not reading.waiting
    return (select.EPOLLIN if may_read else 0) | (select.EPOLLOUT if writing.waiting else 0)


class Forwarder:
    """Made before the program is started; `begin` and everything after it is for the first process alone."""

    def __init__(self, port: int, proxy: str) -> None:
        self._proxy, self._wake = proxy, -1
        self._poll = select.epoll()
        self._wishes: dict[int, int] = {}
        self._pairs: dict[int, _Pair] = {}
        self._early: list[socket.socket] = []  # accepted, and the proxy's queue was full
        self._most = _MOST
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._server.bind((_ADDRESS, port))
        self._server.listen(_QUEUE)
        self._server.setblocking(False)
        self._wish(self._server, select.EPOLLIN)

    def begin(self) -> None:
        """Be woken when a process ends, and have room for the descriptors; the program has its own limit by now."""
        self._wake, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(self._wake, select.EPOLLIN)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        if soft < room:
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
        self._most = min(_MOST, (max(soft, room) - _SPARE) // 2)

    def carry(self, patience: float = -1) -> bool:
        """Wait until something can be done, or a process ended, and do it. False: nothing happened in that time."""
        if self._early:
            patience = _AGAIN_S if patience < 0 else min(_AGAIN_S, patience)
        events = self._poll.poll(patience)
        for fd, _ in events:
            if fd == self._wake:
                os.read(fd, _PIECE)
            elif fd == self._server.fileno():
                self._accept()
            elif fd in self._pairs:  # it may have been closed a moment ago, in this very round
                self._advance(self._pairs[fd])
        early, self._early = self._early, []
        for inner in early:
            self._connect(inner)
        return bool(events)

    def finish(self, seconds: float) -> None:
        """The program has ended: what it said before that still goes out."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            # First whatever can be done at once: a call may still be in the kernel's queue.
            if not self.carry(0) and (not self._unsaid or not self.carry(left)):
                return

    @property
    def _unsaid(self) -> bool:
        return bool(self._early) or any(not pair.out.over for pair in self._pairs.values())

    def _accept(self) -> None:
        while self._open < self._most:
            try:
                inner, _ = self._server.accept()
                inner.setblocking(False)
                inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue  # given up by the program while it was in the queue
            except OSError:
                time.sleep(_AGAIN_S)  # the machine is out of descriptors or memory; the kernel tells again
                return
            self._connect(inner)
        self._wish(self._server, 0)  # W5; until one is closed

    @property
    def _open(self) -> int:
        return len(self._pairs) // 2 + len(self._early)

    def _connect(self, inner: socket.socket) -> None:
        try:
            outer = _connected(self._proxy)
        except BlockingIOError:
            self._early.append(inner)
            return
        except OSError:
            _drop(inner)
            return
        pair = _Pair(inner, outer)
        self._pairs[inner.fileno()] = self._pairs[outer.fileno()] = pair
        self._advance(pair)

    def _advance(self, pair: _Pair) -> None:
        try:
            pair.carry()
        except OSError:
            self._close(pair, broken=True)
            return
        if pair.over:
            self._close(pair, broken=False)
            return
        for end, wish in pair.wishes():
            self._wish(end, wish)

    def _close(self, pair: _Pair, *, broken: bool) -> None:
        for end in (pair.inner, pair.outer):
            self._wish(end, 0)
            del self._pairs[end.fileno()]
        pair.outer.close()
        if broken:
            _drop(pair.inner)
        else:
            pair.inner.close()
        self._wish(self._server, select.EPOLLIN)

    def _wish(self, end: socket.socket, wish: int) -> None:
        """An end without a wish is not registered: the kernel would tell of its closing again and again."""
        fd = end.fileno()
        before = self._wishes.get(fd, 0)
        if wish == before:
            return
        if not wish:
            self._poll.unregister(fd)
            del self._wishes[fd]
            return
        if before:
            self._poll.modify(fd, wish)
        else:
            self._poll.register(fd, wish)
        self._wishes[fd] = wish


def _connected(path: str) -> socket.socket:
    """BlockingIOError: whoever listens there has his queue full; the kernel does not tell when that changes."""
    outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        outer.setblocking(False)
        outer.connect(path)
    except OSError:
        outer.close()
        raise
    return outer


def _drop(inner: socket.socket) -> None:
    """Close it so that the program sees a broken connection (W3)."""
    inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    inner.close()
