"""A model without a network: it follows a script, and speaks the wires that real agent programs speak.

    with ScriptedModel(WriteFile("hello.py", "print('hello')\\n"), Say("Done.")) as model:
        run_the_program(base_url=model.url, key=model.key)
        assert model.usage.requests == 3

    wire                                             with and without streaming
    ──────────────────────────────────────────────────────────────────────────────────────────────────────
    OpenAI chat completions                          POST /v1/chat/completions
    OpenAI responses                                 POST /v1/responses
    Anthropic messages                               POST /v1/messages, /v1/messages/count_tokens
    Gemini                                           POST /v1beta/models/NAME:generateContent, :streamGenerateContent
    all of them                                      GET /v1/models

Invariants
  M1  What is answered depends on the conversation alone (see `following`), but for `Error(times=…)`, which counts.
  M2  Nothing is answered without a key it knows; a key is never part of an answer.
  M3  Every request is remembered as it came, and what it cost is counted for its key, whether or not it was streamed.
  M4  Only 127.0.0.1 listens. When the block ends, every connection and every thread is gone.
  M5  A mistake in here is not answered away: the request gets a 500, and leaving the block raises.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, NamedTuple

from holdfast.model.agent import APIS, Api, Usage
from holdfast.testing import anthropic, gemini, openai, responses
from holdfast.testing.conversation import Call, Conversation, Json, Reply, Wire, counted
from holdfast.testing.following import next_turn
from holdfast.testing.http_side import Answered, Arrived, HttpSide
from holdfast.testing.script import Book, Delay, Error, Script, Step, When

KEY = "scripted-key"
_WIRES: dict[Api, Wire] = {"openai": openai, "responses": responses, "anthropic": anthropic, "gemini": gemini}
_PLACES: dict[str, Api] = {"chat/completions": "openai", "responses": "responses", "messages": "anthropic"}
_COUNTERS = ("messages/count_tokens", ":countTokens")

Kind = Literal["step", "aside", "count", "models", "refused"]


class Seen(NamedTuple):
    """A request as it came, what was made of it, and what that cost; `number` is that of the answer in its script."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    key: str
    api: Api | None
    status: int
    kind: Kind
    number: int = 0
    usage: Usage = Usage()

    @property
    def document(self) -> Json:
        """The body, as JSON."""
        found: Json = json.loads(self.body)
        return found


class ScriptedModel:
    """Steps for every conversation, or other ones by task; see `script`.

    `keys`: which are known. `unauthorized`: none is. `directory`: the program's, where it does not tell its model.
    """

    def __init__(
        self,
        *parts: Step | When,
        tasks: Mapping[str, Script] | None = None,
        keys: tuple[str, ...] = (KEY,),
        unauthorized: bool = False,
        directory: str = "",
        models: tuple[str, ...] = ("scripted",),
    ) -> None:
        self.book = Book(Script.of(*parts), dict(tasks or {}))
        self.keys, self.unauthorized = keys, unauthorized
        self.seen: list[Seen] = []
        self.usage_by_key: dict[str, Usage] = {}
        self._directory, self._models = directory, models
        self._errors: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._side = HttpSide(self._answered)

    @property
    def url(self) -> str:
        """Without the version: `OPENAI_BASE_URL` wants `/v1` behind it."""
        return self._side.url

    @property
    def key(self) -> str:
        return self.keys[0]

    @property
    def usage(self) -> Usage:
        """Of all keys together."""
        total = Usage()
        for usage in self.usage_by_key.values():
            total = total.plus(usage)
        return total

    def __enter__(self) -> ScriptedModel:
        self._side.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._side.close()
        if kind is None and self._side.mistakes:
            raise self._side.mistakes[0]

    # ── one request ──

    def _answered(self, arrived: Arrived) -> Answered:
        api = _api_of(arrived)
        kind, number, answered = self._judged(arrived, api)
        with self._lock:
            self.seen.append(Seen(*arrived[:5], api, answered.status, kind, number, answered.usage))
        return answered

    def _judged(self, arrived: Arrived, api: Api | None) -> tuple[Kind, int, Answered]:
        wire = _WIRES[api or "openai"]
        if arrived.path == "/":
            return "models", 0, Answered(200, {})  # programs knock before they come in
        if self.unauthorized or arrived.key not in self.keys:
            return "refused", 0, Answered(401, wire.error(401, "the key is not known"))
        if arrived.method in ("GET", "HEAD"):
            return self._looked_up(arrived, wire)
        if api is None:
            return "refused", 0, Answered(404, wire.error(404, f"there is nothing at {arrived.path}"))
        body = _body(arrived.body)
        if body is None or body.get("previous_response_id"):
            return "refused", 0, Answered(400, wire.error(400, "the request cannot be understood"))
        conversation = wire.heard(body, arrived.path)
        if arrived.path.endswith(_COUNTERS):
            taken = counted(conversation, "").taken
            return "count", 0, Answered(200, {"input_tokens": taken} if api == "anthropic" else {"totalTokens": taken})
        return self._told(arrived, wire, conversation, body)

    def _looked_up(self, arrived: Arrived, wire: Wire) -> tuple[Kind, int, Answered]:
        name = arrived.path.rpartition("/")[2]
        if name == "models":
            return "models", 0, Answered(200, _models(self._models))
        if "/models/" in arrived.path:
            return "models", 0, Answered(200, _models((name,))["data"][0])
        return "refused", 0, Answered(404, wire.error(404, f"there is nothing at {arrived.path}"))

    def _told(self, arrived: Arrived, wire: Wire, conversation: Conversation, body: Json) -> tuple[Kind, int, Answered]:
        turn = next_turn(conversation, self.book, self._directory)
        kind: Kind = "aside" if turn.aside else "step"
        failure = self._delayed(turn.beat.before, conversation.mark)
        if failure is not None:
            document = wire.error(failure.status, failure.message)
            return kind, turn.number, Answered(failure.status, document, retry_after=failure.retry_after)
        written = (
            (turn.answer.raw or json.dumps(turn.answer.arguments))
            if isinstance(turn.answer, Call)
            else turn.answer.text
        )
        tokens = counted(conversation, written)
        reply = Reply(turn.answer, tokens, conversation.model or self._models[0], conversation.mark)
        usage = Usage(1, tokens.taken, tokens.given)
        self._count(arrived.key, usage)
        if not conversation.streamed:
            return kind, turn.number, Answered(200, wire.whole(reply), usage=usage)
        events = list(wire.pieces(reply, body))
        # Gemini streams one JSON array unless it is asked for events.
        if wire is gemini and "alt=sse" not in arrived.query:
            return kind, turn.number, Answered(200, [data for _, data in events], usage=usage)
        return kind, turn.number, Answered(200, None, events=tuple(events), usage=usage)

    def _delayed(self, before: tuple[Delay, ...], mark: str) -> Error | None:
        """Sit out what comes before the answer; the error that comes instead of it, if one does."""
        for index, delay in enumerate(before):
            if not isinstance(delay, Error):
                self._side.wait(delay.seconds)
            elif not delay.times or self._strikes(mark, index, delay.times):
                return delay
        return None

    def _strikes(self, mark: str, index: int, times: int) -> bool:
        with self._lock:
            done = self._errors.get((mark, index), 0)
            self._errors[mark, index] = done + 1
            return done < times

    def _count(self, key: str, usage: Usage) -> None:
        with self._lock:
            self.usage_by_key[key] = self.usage_by_key.get(key, Usage()).plus(usage)


def _api_of(arrived: Arrived) -> Api | None:
    """By the path; the version in front of it is the client's affair."""
    path = arrived.path.strip("/").removesuffix("/count_tokens")
    for end, api in _PLACES.items():
        if path in (end, f"v1/{end}"):
            return api
    if path.startswith(("v1beta/models/", "v1/models/")) and ":" in path:
        return "gemini"
    if arrived.method in ("GET", "HEAD"):
        # The same path on several wires; how the key came tells which.
        return "anthropic" if "x-api-key" in arrived.headers else "gemini" if path.startswith("v1beta") else None
    return None


def _body(raw: bytes) -> Json | None:
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _models(names: tuple[str, ...]) -> Json:
    """What clients of all three providers look for in a list of models."""
    made = {"object": "model", "type": "model", "created": openai.MADE_AT, "owned_by": "holdfast"}
    rows = [{"id": name, "display_name": name, "created_at": "2023-11-14T22:13:20Z", **made} for name in names]
    gemini_rows = [{"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]} for name in names]
    return {"object": "list", "data": rows, "has_more": False, "models": gemini_rows}


assert set(_WIRES) == set(APIS)
