"""One request: judged, paid for, sent on, and its answer passed back piece by piece.

    token ▸ endpoint ▸ body ▸ purse ▸ provider (or tape) ──pieces──▶ agent
                                          └──────counted on the side──▶ purse, record

Invariants
  E1  Nothing is sent before every judgement was made; whatever fails before is answered as the provider would.
  E2  A grant is settled exactly once, and before the agent sees the end of its answer.
  E3  A piece goes to the agent before it is looked at here: counting delays nothing.
  E4  An answer that breaks off breaks off for the agent too. It is never ended as if it were whole.
  E5  An error of the provider is read whole first and searched for the key, which some servers repeat; so are headers.
      A good answer is passed as it is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

import h11

from holdfast.model.agent import Api, Usage
from holdfast.proxy.asked import MAX_BODY, Asked, Body, asked_of, decoded
from holdfast.proxy.budget import Grant, Purse
from holdfast.proxy.counting import Counted, Counter
from holdfast.proxy.headers import answered_headers, asked_headers, bears, refuse_other_hosts, value_of
from holdfast.proxy.pool import Pool
from holdfast.proxy.record import Noted, Record
from holdfast.proxy.refusals import Refused, error_body
from holdfast.proxy.routes import Route, api_of, route_of, target_of, upstream_path
from holdfast.proxy.tally import Silence, Tally
from holdfast.proxy.tape import Tape, Taped, request_digest
from holdfast.proxy.upstream import Origin, Tokens, Upstream
from holdfast.proxy.wire import Gone, Wire

_ERROR_LIMIT = 1 << 20
_TAPE_LIMIT = 64 << 20
_DRAINED = 8 << 20
_DRAINING = 5.0
_HEARING_OUT = 0.2
# Answers that say nothing of the question: another time the same one is served.
_OUTAGE = frozenset((408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529))
# Seconds after which a question that its client gave up had no answer.
_PATIENT = 60.0
_SECONDS = re.compile(r"[0-9]{1,6}")
_BYTES_A_TOKEN = 3


class Timeouts(NamedTuple):
    """Seconds. `answer` is how long the provider may be silent; models think for minutes."""

    idle: float = 120.0
    head: float = 20.0
    body: float = 120.0
    connect: float = 15.0
    answer: float = 600.0


USUAL = Timeouts()


class House(NamedTuple):
    """What all requests share."""

    upstream: Upstream
    origin: Origin
    token: str
    hosts: frozenset[str]
    purse: Purse
    pool: Pool
    record: Record
    tally: Tally
    tape: Tape | None
    on_spent: Callable[[Usage], None] | None
    provider_tools: bool
    timeouts: Timeouts


class Broken(Exception):
    """The provider went away in the middle of an answer. It never leaves this room."""


class Exchange:
    def __init__(self, house: House, client: Wire, request: h11.Request) -> None:
        self._house, self._client = house, client
        self._headers = list(request.headers)
        self._method = request.method.decode("ascii")
        self._target = target_of(request.target)
        self._api: Api = api_of(self._target.path)
        self._start = time.monotonic()
        self._asked: Asked | None = None
        self._usage, self._estimated = Usage(0), False
        self._request: Body | None = None
        self._said = ""
        self._notes: tuple[str, ...] = ()
        self._waits = False

    def run(self) -> None:
        """Answer it. Gone and Broken end the connection; everything else was answered."""
        status, outcome = 0, "gone"
        try:
            status = self._answered()
            outcome = "answered" if status < 400 else "model_error"
        except Refused as refused:
            status, outcome = refused.status, refused.kind
            self._house.tally.refuse(refused.kind, f"{self._method} {self._target.path}", refused.message)
            self._said = refused.message
            if refused.kind == "unreachable":
                self._house.tally.served(Silence(refused.message))
            self._refuse(refused)
        except Broken:
            outcome = "broken"
            self._house.tally.count("unreachable")
            self._house.tally.served(Silence("it broke off its answer"))
            raise
        except Gone:
            waited = time.monotonic() - self._start
            if self._waits and waited >= _PATIENT:
                self._house.tally.served(Silence(f"no answer within {waited:.0f} s"))
            raise
        finally:
            self._note(status, outcome)

    def _answered(self) -> int:
        route = self._judged()
        self._api = route.api
        body = self._body()
        if route.purpose == "list":
            if body:
                raise Refused("body", 400, "this request has no body")
        else:
            house = self._house
            asked = asked_of(route, body, provider_tools=house.provider_tools, only=house.upstream.allowed)
            self._asked, self._request, route = asked, asked.body, asked.route
        paying = self._asked if route.purpose == "generate" else None
        grant = self._house.purse.admit(paying, time.monotonic() + self._house.timeouts.answer)
        self._asked = grant.asked or self._asked
        bill = _Bill(self._house, grant)
        try:
            return self._forwarded(route, bill)
        finally:
            # Whatever happened: what was sent and not counted is charged as it was set aside.
            self._usage, self._estimated = bill.settled()
            self._said = self._said or bill.spoken

    def _judged(self) -> Route:
        """From the head alone, the token first: nobody else learns anything here."""
        house = self._house
        if not bears(self._headers, self._target, house.token):
            raise Refused("token", 401, "this is not the key that was given to you")
        if house.record.fault is not None:
            raise Refused("busy", 503, "requests cannot be recorded any more, so none is sent")
        names = [name for name, _ in self._headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            raise Refused("body", 400, "a body has one length")
        refuse_other_hosts(self._headers)
        return route_of(self._method, self._target, house.upstream.apis)

    def _body(self) -> bytes:
        client, pieces, size = self._client, list[bytes](), 0
        deadline = time.monotonic() + self._house.timeouts.body
        if client.state.they_are_waiting_for_100_continue:
            client.send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            while not isinstance(event := client.next_event(deadline), h11.EndOfMessage):
                if not isinstance(event, h11.Data):
                    raise Gone
                pieces.append(bytes(event.data))
                size += len(event.data)
                if size > MAX_BODY:
                    raise Refused("body", 413, f"a body has at most {MAX_BODY >> 20} MiB")
        except TimeoutError:
            raise Refused("body", 408, "the body did not come in time") from None
        return decoded(b"".join(pieces), value_of(self._headers, b"content-encoding"))

    # ── to the provider ──

    def _forwarded(self, route: Route, bill: _Bill) -> int:
        tape = self._house.tape
        digest = request_digest(self._method, route.path, self._request) if tape is not None else ""
        if tape is not None and tape.replays:
            return self._replayed(tape.answer(digest), bill)
        try:
            wire = self._house.pool.take(self._house.timeouts.connect)
        except OSError as error:
            raise _unreachable(error) from None
        try:
            taped = self._passed(wire, self._sent(wire, route, bill), bill)
        except BaseException:
            self._house.pool.leave(wire.socket)
            raise
        # Before the agent sees the end: who asks when it has seen it finds the connection there.
        self._house.pool.give(wire)
        self._finish(bill)
        if tape is not None and taped is not None:
            self._house.record.attempt(lambda: self._taped(tape, digest, route.path, taped, bill))
        return bill.status

    def _taped(self, tape: Tape, digest: str, path: str, taped: Taped, bill: _Bill) -> None:
        """As it came, and as it reads put together: a secret may come in two pieces."""
        record, house = self._house.record, self._house
        if record.shows_secrets(b"".join(taped.chunks).decode("utf-8", "replace"), bill.spoken):
            tape.leave_out(digest, path, "its answer held what looks like a secret")
        else:
            tape.keep(digest, path, taped, (house.upstream.key.reveal(), house.token))

    def _sent(self, wire: Wire, route: Route, bill: _Bill) -> h11.Response:
        """Ask, and wait for the head of the answer."""
        house = self._house
        headers = asked_headers(self._headers, route.api, house.upstream.key, house.origin.authority)
        data = b"" if self._asked is None else self._asked.sent
        if data:
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode("ascii"))]
        path = upstream_path(house.origin.prefix, route.path)
        bill.sent = self._waits = True
        try:
            wire.send(h11.Request(method=self._method, target=path, headers=headers))
            if data:
                wire.send(h11.Data(data=data))
            wire.send(h11.EndOfMessage())
            while True:
                event = wire.next_event(time.monotonic() + house.timeouts.answer, self._client.socket)
                if isinstance(event, h11.Response):
                    self._waits = False
                    return event
                if not isinstance(event, h11.InformationalResponse):
                    raise ConnectionResetError("the provider closed the connection without an answer")
        except (OSError, h11.RemoteProtocolError) as error:
            # Who is silent for so long may be answering; who ends the connection instead of answering is not.
            bill.unanswered = not isinstance(error, TimeoutError)
            raise _unreachable(error) from None

    def _passed(self, wire: Wire, response: h11.Response, bill: _Bill) -> Taped | None:
        """The answer but for its end, to the agent; what a tape needs of it."""
        status, headers = response.status_code, answered_headers(response.headers, self._house.upstream.key)
        bill.status = status
        if value_of(response.headers, b"content-encoding") not in ("", "identity"):
            raise Refused(
                "model_error", 502, "the answer came packed, though plain was asked for; it cannot be counted"
            )
        if 300 <= status < 400:
            raise Refused(
                "model_error", 502, f"the provider answered with a redirect ({status}), which is not followed"
            )
        self._house.tally.served(_silence_in(response) if status in _OUTAGE else None)
        if status >= 400:
            return self._error_passed(wire, status, headers, bill)
        counter = bill.counter = Counter(self._api, sse=_is_stream(response))
        self._tell(h11.Response(status_code=status, headers=headers))
        chunks, size = list[bytes](), 0
        keeps = self._house.tape is not None
        try:
            while (piece := self._piece(wire)) is not None:
                try:
                    self._tell(h11.Data(data=piece))
                finally:
                    counter.feed(piece)
                size += len(piece)
                if keeps and size <= _TAPE_LIMIT:
                    chunks.append(piece)
        except Gone:
            # Who has read the last word may leave before the answer ends: whether that was all of it is heard out.
            bill.whole = wire.ends_within(_HEARING_OUT, counter.feed)
            raise
        return Taped(status, headers, tuple(chunks)) if keeps and size <= _TAPE_LIMIT else None

    def _piece(self, wire: Wire) -> bytes | None:
        try:
            event = wire.next_event(time.monotonic() + self._house.timeouts.answer, self._client.socket)
            if isinstance(event, h11.Data):
                return bytes(event.data) + wire.rest()
        except (OSError, h11.RemoteProtocolError) as error:
            raise Broken from error
        if isinstance(event, h11.EndOfMessage):
            return None
        raise Broken

    def _error_passed(self, wire: Wire, status: int, headers: list[tuple[bytes, bytes]], bill: _Bill) -> Taped:
        self._house.tally.count("auth" if status in (401, 403) else "model_error")
        data = bytearray()
        try:
            while (piece := self._piece(wire)) is not None and len(data) <= _ERROR_LIMIT:
                data += piece
        except Broken as broken:
            raise _unreachable(ConnectionResetError("the provider broke off in an error")) from broken
        key = self._house.upstream.key.reveal().encode("ascii")
        clean = bytes(data).replace(key, b"[masked]")[:_ERROR_LIMIT]
        self._said = clean.decode("utf-8", "replace")
        return self._whole(Taped(status, headers, (clean,)), bill)

    # ── to the agent ──

    def _replayed(self, taped: Taped, bill: _Bill) -> int:
        bill.sent, bill.status = True, taped.status
        self._notes = ("from a tape: nobody was asked",)
        if taped.status >= 400:
            self._house.tally.count("auth" if taped.status in (401, 403) else "model_error")
        self._whole(taped, bill)
        self._finish(bill)
        return taped.status

    def _whole(self, taped: Taped, bill: _Bill) -> Taped:
        """An answer that is here already, in its pieces, but for its end."""
        sse = any(name == b"content-type" and _streams(value) for name, value in taped.headers)
        counter = bill.counter = Counter(self._api, sse=sse)
        self._tell(h11.Response(status_code=taped.status, headers=taped.headers))
        for chunk in taped.chunks:
            self._tell(h11.Data(data=chunk))
            counter.feed(chunk)
        return taped

    def _finish(self, bill: _Bill) -> None:
        """Settled, then ended (E2)."""
        bill.whole = True
        bill.reckon()
        self._tell(h11.EndOfMessage())

    def _tell(self, event: h11.Event) -> None:
        try:
            self._client.send(event)
        except OSError as error:
            raise Gone from error

    def _refuse(self, refused: Refused) -> None:
        """Read what is left of the body first: closing over unread bytes would take the answer back."""
        data = error_body(self._api, refused.status, self._house.record.masked(refused.message))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode("ascii"))]
        if refused.kind not in ("unreachable", "busy"):
            headers.append((b"x-should-retry", b"false"))
        if not self._drained():
            headers.append((b"connection", b"close"))
        self._tell(h11.Response(status_code=refused.status, headers=headers))
        if self._method != "HEAD":
            self._tell(h11.Data(data=data))
        self._tell(h11.EndOfMessage())

    def _drained(self) -> bool:
        client, size, deadline = self._client, 0, time.monotonic() + _DRAINING
        if client.state.they_are_waiting_for_100_continue:
            return False
        try:
            while client.state.their_state is h11.SEND_BODY and size < _DRAINED:
                event = client.next_event(deadline)
                size += len(event.data) if isinstance(event, h11.Data) else 0
        except (OSError, h11.RemoteProtocolError):
            return False
        return client.state.their_state is not h11.SEND_BODY

    def _note(self, status: int, outcome: str) -> None:
        asked = self._asked
        self._house.record.note(
            Noted(
                self._api, self._method, self._target.path, status, outcome,
                round((time.monotonic() - self._start) * 1000),
                asked.model if asked else "", self._usage, self._estimated,
                (*self._notes, *(asked.notes if asked else ())),
                self._request, len(asked.raw) if asked else 0, self._said,
            )
        )  # fmt: skip


class _Bill:
    """What one grant comes to; settled once (E2)."""

    def __init__(self, house: House, grant: Grant) -> None:
        self._house, self._grant = house, grant
        self.sent = self.whole = self.unanswered = False
        self.status = 0
        self.spoken = ""
        self.counter: Counter | None = None
        self._settled: tuple[Usage, bool] | None = None

    def reckon(self) -> None:
        """Settle with what was counted so far."""
        counted = self.counter.end() if self.counter else None
        tokens, estimated = self._tokens(counted)
        self.spoken = counted.spoken if counted else ""
        usage = self._house.purse.settle(self._grant, tokens, estimated=estimated)
        self._settled = usage, estimated
        if self._house.on_spent is not None:
            told, total = self._house.on_spent, self._house.purse.spent
            self._house.record.attempt(lambda: told(total))

    def settled(self) -> tuple[Usage, bool]:
        if self._settled is None:
            self.reckon()
        assert self._settled is not None
        return self._settled

    def _tokens(self, counted: Counted | None) -> tuple[Tokens, bool]:
        asked = self._grant.asked
        refused = self.status >= 300 and (counted is None or counted.tokens is None)
        if asked is None or not self.sent or refused:
            return Tokens(), False
        if counted is not None and counted.final and (self.whole or counted.ended):
            assert counted.tokens is not None
            return counted.tokens, False
        seen = (counted.tokens if counted else None) or Tokens()
        heard = -(-counted.heard // _BYTES_A_TOKEN) if counted else 0
        # The agent chooses when to hang up: an answer without its end has cost what was set aside for it.
        unseen = 0 if self.whole or self.unanswered else self._grant.output
        output = max(seen.output, heard, unseen)
        return (seen if seen.input else Tokens(asked.input_estimate))._replace(output=output), True


def _silence_in(response: h11.Response) -> Silence:
    asked = value_of(response.headers, b"retry-after")
    return Silence(f"it answers {response.status_code}", int(asked) * 1000 if _SECONDS.fullmatch(asked) else 0)


def _is_stream(response: h11.Response) -> bool:
    return any(name == b"content-type" and _streams(value) for name, value in response.headers)


def _streams(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"text/event-stream"


def _unreachable(error: Exception) -> Refused:
    reason = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
    return Refused("unreachable", 502, f"the model cannot be reached: {reason}"[:300])
