"""The proxy itself: a unix socket, a thread for each connection, and an end that leaves nothing behind.

    with ModelProxy(path, upstream, token, Spending(micro_usd=2_000_000)) as proxy:
        …                       # a sandbox whose one way out is the socket at `path`
    proxy.usage, proxy.exhausted, proxy.failures

Invariants
  X1  At most `connections` are served at once. When all places are taken, the connection that has been idle for longest
      makes room; when none is idle, the newcomer waits.
  X2  A client that is slow to ask loses its connection: between requests, in a head and in a body there are deadlines.
  X3  `close` wakes and joins every thread, and closes every descriptor. Errors of the caller's own parts (sink, mask,
      tape, `on_spent`) are raised by it.
  X4  The true key is in memory only here; what is shown, answered, recorded or taped does not hold it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

import h11

from holdfast.errors import InvalidInput, Shortage
from holdfast.model.agent import Usage
from holdfast.proxy.budget import NO_LIMIT, Purse, Spending
from holdfast.proxy.exchange import USUAL, Broken, Exchange, House, Timeouts
from holdfast.proxy.pool import Pool
from holdfast.proxy.record import Mask, Noted, Record, Sink
from holdfast.proxy.refusals import Kind, Refusal, Refused, error_body
from holdfast.proxy.routes import api_of
from holdfast.proxy.tally import Silence, Tally
from holdfast.proxy.tape import Tape
from holdfast.proxy.tunnel import carry, listed
from holdfast.proxy.upstream import Upstream, origin_of
from holdfast.proxy.wire import Gone, Wire
from holdfast.store.listening import Listening

CONNECTIONS = 32
_HEAD = 1 << 16
_SHORTEST_TOKEN = 16
_LOOK_AGAIN = 0.1


class ModelProxy:
    """Serves from the moment it is entered until it is closed. All its properties may be read at any time."""

    def __init__(
        self,
        socket_path: str,
        upstream: Upstream,
        token: str,
        budget: Spending = NO_LIMIT,
        *,
        hosts: tuple[str, ...] = (),
        on_spent: Callable[[Usage], None] | None = None,
        transcript: Sink | None = None,
        mask: Mask | None = None,
        tape: Tape | None = None,
        provider_tools: bool = False,
        timeouts: Timeouts = USUAL,
        connections: int = CONNECTIONS,
    ) -> None:
        if len(token) < _SHORTEST_TOKEN or not token.isascii() or token == upstream.key.reveal():
            raise InvalidInput("a throw-away token is at least 16 ASCII characters, and not the key")
        origin = origin_of(upstream.url)
        self._house = House(
            upstream, origin, token, listed(hosts), Purse(budget, upstream.price), Pool(origin, upstream.ca_file),
            Record(transcript, mask, upstream.key, token), Tally(), tape, on_spent, provider_tools, timeouts,
        )  # fmt: skip
        self._most = connections
        self._changed = threading.Condition()
        self._clients: dict[Wire, float] = {}  # since when it is idle; 0.0 while it is served
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._listening = Listening(socket_path)
        self._door = threading.Thread(target=self._accept, name="holdfast-proxy", daemon=True)

    @property
    def usage(self) -> Usage:
        return self._house.purse.spent

    def settle(self, seconds: float) -> None:
        """Wait until everything that was asked is counted; for when nobody is left who could ask.

        A request may have been sent just before its program ended: its connection is waited for as well.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._clients and time.monotonic() < deadline:
                self._changed.wait(_LOOK_AGAIN)
        self._house.purse.wait_settled(deadline)

    @property
    def estimated(self) -> bool:
        """Whether any answer was not counted by the provider, so that `usage` is a guess on the high side."""
        return self._house.purse.estimated

    @property
    def exhausted(self) -> str:
        """Why a request was refused for the budget; empty as long as none was."""
        return self._house.purse.exhausted

    @property
    def short_of(self) -> Shortage:
        """Of what the budget had too little, when a request was refused for it."""
        return self._house.purse.short_of

    @property
    def spent_up(self) -> Shortage:
        """Of what nothing is left of the budget, whether or not that was refused."""
        return self._house.purse.spent_up

    @property
    def refused_by_tape(self) -> bool:
        """Was the newest question one that is not on the tape?"""
        return self._house.tape is not None and self._house.tape.refused_last

    @property
    def failures(self) -> dict[Kind, int]:
        return self._house.tally.failures

    @property
    def silence(self) -> Silence | None:
        """Why the provider served nothing when it was asked last: out of reach, overloaded, limiting. None where it
        answered, if only that the question was wrong."""
        return self._house.tally.silence

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The latest requests that did not go out."""
        return self._house.tally.refusals

    @property
    def tunnelled(self) -> int:
        """Bytes carried by CONNECT, both ways, of tunnels that have ended."""
        return self._house.tally.tunnelled

    def __enter__(self) -> ModelProxy:
        self._door.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if error is None:
            self._raise_fault()

    def close(self) -> None:
        self._stop()
        self._raise_fault()

    # ── connections ──

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listening.socket.accept()
            except OSError:
                if not self._closing:
                    time.sleep(_LOOK_AGAIN)  # no descriptors left: those in use must first come back
                continue
            client = Wire(connection, h11.SERVER, _HEAD)
            if not self._placed(client):
                client.close()
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="holdfast-proxy-client", daemon=True)
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def _placed(self, client: Wire) -> bool:
        """A place for it, made if need be (X1); False when we are closing."""
        with self._changed:
            while len(self._clients) >= self._most and not self._closing:
                idle = [(since, one) for one, since in self._clients.items() if since]
                if idle:
                    min(idle, key=lambda pair: pair[0])[1].end()
                self._changed.wait(_LOOK_AGAIN)
            if not self._closing:
                self._clients[client] = 0.0
            return not self._closing

    def _serve(self, client: Wire) -> None:
        try:
            while self._next(client):
                client.state.start_next_cycle()
        except (Gone, Broken, OSError):
            pass  # it went away, or must see that its answer broke off; both were recorded by the exchange
        except Exception as error:  # noqa: BLE001 - a fault of ours: no request passes any more, and close raises it
            self._house.record.fault = self._house.record.fault or error
        finally:
            with self._changed:
                self._clients.pop(client, None)
                self._changed.notify_all()
            client.close()

    def _next(self, client: Wire) -> bool:
        """One request; whether there may be another on this connection."""
        timeouts = self._house.timeouts
        self._mark(client, time.monotonic())
        if not client.wait(time.monotonic() + timeouts.idle):
            return False
        self._mark(client, 0.0)
        try:
            event = client.next_event(time.monotonic() + timeouts.head)
            if not isinstance(event, h11.Request):
                return False
            if event.method == b"CONNECT":
                self._connect(client, event)
                return False
            Exchange(self._house, client, event).run()
        except h11.RemoteProtocolError as error:
            self._complain(client, Refused("body", error.error_status_hint, str(error)), "?")
            return False
        return client.state.our_state is h11.DONE and client.state.their_state is h11.DONE

    def _connect(self, client: Wire, request: h11.Request) -> None:
        try:
            carry(self._house, client, request)
        except Refused as refused:
            self._complain(client, refused, request.target.decode("ascii", "backslashreplace"))

    def _complain(self, client: Wire, refused: Refused, what: str) -> None:
        """Answer what never became a request of ours, and have the connection closed."""
        house = self._house
        house.tally.refuse(refused.kind, what, refused.message)
        house.record.note(Noted("openai", "?", what, refused.status, refused.kind, 0, response=refused.message))
        if client.state.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        data = error_body(api_of(what), refused.status, refused.message)
        headers = [(b"content-length", str(len(data)).encode("ascii")), (b"connection", b"close")]
        client.send(h11.Response(status_code=refused.status, headers=headers))
        client.send(h11.Data(data=data))
        client.send(h11.EndOfMessage())

    def _mark(self, client: Wire, idle_since: float) -> None:
        with self._changed:
            self._clients[client] = idle_since

    # ── the end ──

    def _stop(self) -> None:
        house = self._house
        house.purse.close()  # first: a request that is woken below gives back what others wait for
        with self._changed:
            self._closing = True
            for client in self._clients:
                client.end()
            self._changed.notify_all()
        house.pool.close()
        try:
            self._listening.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # closed before
        if self._door.ident is not None:
            self._door.join()
        # Whoever came in while we closed was told so by `_placed`; whoever was there before has been woken.
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _raise_fault(self) -> None:
        fault, self._house.record.fault = self._house.record.fault, None
        if fault is not None:
            raise fault
