"""What an answer used: read from the side while it passes, whatever the pieces it comes in.

    SSE     events are cut at blank lines; each `data:` is JSON
    JSON    one document, looked at when it is whole (gemini streams a list that way)

Invariants
  K1  The pieces do not matter: any cut of the same bytes gives the same count.
  K2  Memory is bounded: one event and one document have at most LARGEST bytes; beyond, nothing is counted, and the
      answer counts as estimated.
  K3  Numbers of a provider are believed only as whole numbers from zero to MOST. Of several the highest counts: all
      four wires report totals. A report with any other number in it, without a question, or without an answer
      although something was said, is not `final`: the answer counts as estimated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.model.agent import Api
from holdfast.proxy.upstream import Tokens

LARGEST = 16 << 20
MOST = 10**9
_SPOKEN_LIMIT = 1 << 20
# Where each wire puts a piece of what the model says, in streams and in documents alike.
_SPEECH = frozenset(
    {"text", "content", "reasoning_content", "refusal", "arguments", "partial_json", "thinking", "delta"}
)
# What a tool is called with: kept as it stands.
_GIVEN = frozenset({"input", "args"})
# The last event of a stream, by its type; the wire `openai` has a word of its own. Gemini has none.
_LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_DONE = b"[DONE]"
_DEPTH = 24


class Events:
    """The data of server-sent events; feed it pieces, take events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_return = False
        self.overflowed = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Lines end with \\n, \\r\\n or \\r, and a piece may end between the two."""
        if self.overflowed or not piece:
            return
        if self._after_return and piece[:1] == b"\n":
            piece = piece[1:]
        self._after_return = piece[-1:] == b"\r" if piece else False
        *whole, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            self._line += line
            yield from self._ended()
        self._line += rest
        self._size_checked()

    def end(self) -> Iterator[bytes]:
        """What stands at the end without its blank line: providers cut there, and it may hold the usage."""
        yield from self._ended()
        yield from self._ended()

    def _ended(self) -> Iterator[bytes]:
        line, self._line = bytes(self._line), bytearray()
        if line:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
                self._size_checked()
        elif self._data:
            data, self._data, self._size = b"\n".join(self._data), [], 0
            yield data

    def _size_checked(self) -> None:
        if self._size + len(self._line) > LARGEST:
            self.overflowed = True
            self._line, self._data, self._size = bytearray(), [], 0


class Counted(NamedTuple):
    """`tokens` as far as the provider said them, None when it said nothing. `spoken` is the text, put together.

    `heard`: the bytes of all that was said, also of what is too long to be kept; of the answer where that is not known.
    `final`: a report that comes at the end was among them; anthropic gives a first one before there is an answer.
    `ended`: the wire's own word for the end of an answer came, after which nothing more is sold.
    """

    tokens: Tokens | None
    spoken: str
    size: int
    heard: int
    final: bool
    ended: bool


class Counter:
    """Watches one answer."""

    def __init__(self, api: Api, *, sse: bool) -> None:
        self._api = api
        self._events = Events() if sse else None
        self._document = bytearray()
        self._too_large = False
        self._seen: dict[str, int] = {}
        self._spoken: list[str] = []
        self._heard = 0
        self._final = self._odd = self._ended = False
        self.size = 0

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._events is not None:
            for data in self._events.feed(piece):
                self._event(data)
        elif not self._too_large:
            self._document += piece
            if len(self._document) > LARGEST:
                self._too_large, self._document = True, bytearray()

    def end(self) -> Counted:
        if self._events is not None:
            for data in self._events.end():
                self._event(data)
        elif self._document:
            self._event(bytes(self._document))
            self._document = bytearray()
        tokens = _tokens(self._api, self._seen) if self._seen else None
        overflowed = self._too_large or (self._events is not None and self._events.overflowed)
        believed = tokens is not None and tokens.input > 0 and (tokens.output > 0 or not self._heard)
        return Counted(
            tokens,
            "".join(self._spoken),
            self.size,
            self.size if overflowed or not self._heard else self._heard,
            self._final and believed and not self._odd and not overflowed,
            self._ended,
        )

    def _event(self, data: bytes) -> None:
        self._ended |= data.strip() == _DONE
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return  # `[DONE]`, a comment, half an event: it tells nothing, and without a count the answer is estimated
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                self._ended |= str(part.get("type")) in _LAST_EVENTS
                self._count(part)
                if not self._repeats(part):
                    self._listen(part, 0)

    def _count(self, part: Mapping[str, object]) -> None:
        for usage in _usages(self._api, part):
            self._final = self._final or part.get("type") != "message_start"
            for name, value in _numbers(usage):
                if 0 <= value <= MOST:
                    self._seen[name] = max(value, self._seen.get(name, 0))
                else:
                    self._odd = True

    def _repeats(self, part: Mapping[str, object]) -> bool:
        """A stream of `responses` says everything piece by piece, again when a part is done, and again at the end.

        Small servers leave the pieces out; then the end says it.
        """
        kind = str(part.get("type"))
        if self._events is None or self._api != "responses" or kind.endswith(".delta"):
            return False
        return kind != "response.completed" or bool(self._spoken)

    def _listen(self, value: object, depth: int, name: str = "") -> None:
        if depth > _DEPTH:
            return
        if isinstance(value, dict):
            if name in _GIVEN and value:
                self._speak(_written(value))
            else:
                for key, item in value.items():
                    self._listen(item, depth + 1, key)
        elif isinstance(value, list):
            for item in value:
                self._listen(item, depth + 1, name)
        elif isinstance(value, str) and name in _SPEECH:
            self._speak(value)

    def _speak(self, text: str) -> None:
        if self._heard <= _SPOKEN_LIMIT:
            self._spoken.append(text)
        self._heard += len(text.encode("utf-8", "replace"))


def _written(value: Mapping[str, object]) -> str:
    """As JSON. A model may nest what it gives to a tool as deep as it likes; beyond what is written, it is left out."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "{…}"


def _usages(api: Api, part: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Where this wire reports: anthropic's first event and the last one of `responses` have it one level down."""
    name = "usageMetadata" if api == "gemini" else "usage"
    inner = {"anthropic": "message", "responses": "response"}.get(api, "")
    for place in (part, part.get(inner) if inner else None):
        if isinstance(place, dict) and isinstance(place.get(name), dict):
            yield place[name]


def _numbers(usage: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in usage.items():
        if isinstance(value, dict) and not prefix:
            yield from _numbers(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            plain = _PLAIN.get(prefix + name, prefix + name)
            if plain in _COUNTED:
                # -1 stands for any number that counts nothing.
                yield plain, value if isinstance(value, int) else -1


# What a count is made of. Reports hold more beside it: times, prices, numbers of searches.
_COUNTED = frozenset(
    """input_tokens output_tokens output_thoughts cache_creation_input_tokens cache_read_input_tokens
    cache_creation.ephemeral_1h_input_tokens toolUsePromptTokenCount cachedContentTokenCount
    input_tokens_details.cached_tokens prompt_tokens_details.cached_tokens""".split()
)
# Each wire's names for the two totals, so that `output` is seen where there is one.
_PLAIN = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "promptTokenCount": "input_tokens",
    "candidatesTokenCount": "output_tokens",
    "thoughtsTokenCount": "output_thoughts",
}


def _tokens(api: Api, seen: Mapping[str, int]) -> Tokens:
    whole, output = seen.get("input_tokens", 0), seen.get("output_tokens", 0)
    if api == "anthropic":
        written = seen.get("cache_creation_input_tokens", 0)
        kept = min(seen.get("cache_creation.ephemeral_1h_input_tokens", 0), written)
        return Tokens(whole, output, seen.get("cache_read_input_tokens", 0), written - kept, kept)
    if api == "gemini":
        whole += seen.get("toolUsePromptTokenCount", 0)
        output += seen.get("output_thoughts", 0)
        cached = seen.get("cachedContentTokenCount", 0)
    else:
        details = "input_tokens_details" if api == "responses" else "prompt_tokens_details"
        cached = seen.get(f"{details}.cached_tokens", 0)
    cached = min(cached, whole)
    return Tokens(whole - cached, output, cached)
