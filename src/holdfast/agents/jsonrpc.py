"""JSON-RPC over two descriptors, a message a line, with a peer that may be hostile.

Invariants
  J1  Nothing the peer sends raises anything but Hangup, Garbage or Refused: lines that are no messages are counted,
      requests we do not know are answered with an error, answers nobody waits for are dropped.
  J2  Memory is bounded: a line has at most MOST_LINE bytes, and is read only when it cannot have more than MOST_VALUES
      values in it, because a small text can be a large tree.
  J3  There is one call at a time, and while it waits the peer's own requests are served in its thread.
  J4  An answer is ours only under the number we gave, and only with a result or an error in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

from holdfast.agents.events import Event

MOST_LINE = 64 << 20
MOST_VALUES = 4_000_000
_PIECE = 1 << 16
_MOST_GARBAGE = 1_000
_LONGEST_NAME = 256
_UNKNOWN_METHOD = -32601

Fields: TypeAlias = Mapping[str, object]
# Serves a request of the peer's: the result, or None when there is no such method.
Serve: TypeAlias = Callable[[str, Fields], Fields | None]
Notice: TypeAlias = Callable[[str, Fields], None]


class Hangup(Exception):
    """The peer is gone."""


class Garbage(Exception):
    """The peer does not speak the protocol."""


class Refused(Exception):
    """The peer answered a call with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Peer:
    def __init__(self, reading: int, writing: int, serve: Serve, notice: Notice) -> None:
        self._reading, self._writing = reading, writing
        self._serve, self._notice = serve, notice
        self._rest = bytearray()
        self._searched = 0
        self._calls = 0
        self._garbage = 0

    def call(self, method: str, params: Fields) -> Event:
        """Its result; Refused, Hangup or Garbage."""
        self._calls += 1
        number = self._calls
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._message()
            if "method" in message:
                self._asked(message)
            elif message.get("id") == number and type(message["id"]) is int:
                return _result(message)

    def _asked(self, message: Fields) -> None:
        method, params, number = message["method"], message.get("params"), message.get("id")
        fields: Fields = params if isinstance(params, dict) else {}
        if not isinstance(method, str) or not _is_number(number):
            self._no_message()
        elif number is None:
            self._notice(method, fields)
        else:
            self._reply(number, self._serve(method, fields))

    def _reply(self, number: object, result: Fields | None) -> None:
        refusal = {"code": _UNKNOWN_METHOD, "message": "not offered by this client"}
        try:
            self._send({"id": number, "error": refusal} if result is None else {"id": number, "result": result})
        except Hangup:
            # It did not wait for this. Its own answer may stand in what it said before it left, so go on reading.
            return

    def _message(self) -> Fields:
        while True:
            found = _read(self._line())
            if isinstance(found, dict):
                return found
            self._no_message()

    def _no_message(self) -> None:
        """Programs print banners and warnings; but not without end."""
        self._garbage += 1
        if self._garbage > _MOST_GARBAGE:
            raise Garbage("it sends what is no message")

    def _line(self) -> bytes:
        while (end := self._rest.find(b"\n", self._searched)) < 0:
            self._searched = len(self._rest)
            if self._searched > MOST_LINE:
                raise Garbage("it sends a message without an end")
            piece = os.read(self._reading, _PIECE)
            if not piece:
                return self._last_line()
            self._rest += piece
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        self._searched = 0
        return line

    def _last_line(self) -> bytes:
        """What stands at the end without being ended is a line, once."""
        if not self._rest:
            raise Hangup
        line = bytes(self._rest)
        self._rest.clear()
        self._searched = 0
        return line

    def _send(self, message: dict[str, object]) -> None:
        data = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._writing, data) :]
        except BrokenPipeError:
            raise Hangup from None


def _read(line: bytes) -> object:
    """None for what is no JSON, or too much of it (J2)."""
    if sum(line.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise Garbage("it sends a message of too many parts")
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found


def _is_number(number: object) -> bool:
    """Of a request; None is that of a notification. It is sent back, so it is not to be long."""
    if isinstance(number, str):
        return len(number) <= _LONGEST_NAME
    return number is None or type(number) is int


def _result(message: Fields) -> Event:
    if message.get("error") is not None:
        raise _refused(message["error"])
    if "result" not in message:
        raise Garbage("it answers with neither a result nor an error")
    return Event(message["result"])


def _refused(error: object) -> Refused:
    code = error.get("code") if isinstance(error, dict) else 0
    text = Event(error)
    said = [text.text("message"), text.text("data"), text.text("data", "message"), text.text("data", "details")]
    return Refused(code if isinstance(code, int) else 0, ": ".join(filter(None, said)) or "it gave no reason")
