"""What is written down of each request: one JSON object, secrets masked, sizes bounded.

    {"kind": "model", "version": 1, "time", "api", "method", "path", "model", "status", "outcome", "ms",
     "requests", "input_tokens", "output_tokens", "micro_usd", "estimated", "notes", "request", "response"}

Invariants
  O1  Every text is masked before it is cut, string by string as JSON holds them: an escape or a cut hides no secret.
      A stream is put together first, for a secret may come in two pieces.
  O2  The true key and the token are masked here, whatever the caller's mask knows.
  O3  A sink that fails is not ignored: its error is kept, requests are refused from then on, and `close` raises it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from holdfast.model.agent import Api, Usage
from holdfast.proxy.asked import Body
from holdfast.proxy.upstream import Secret

TEXT_LIMIT = 256 << 10
# A longer body is not looked through: masking it would take seconds.
_LONGEST = 4 << 20
# All texts of a run together; what comes after is recorded without its texts.
_ALL_TEXTS = 64 << 20
_HIDDEN = "[masked]"

Mask: TypeAlias = Callable[[str], str]
Sink: TypeAlias = Callable[[Mapping[str, object]], None]


class Noted(NamedTuple):
    """One request, as it is recorded."""

    api: Api
    method: str
    path: str
    status: int
    outcome: str
    ms: int
    model: str = ""
    usage: Usage = Usage()
    estimated: bool = False
    notes: tuple[str, ...] = ()
    request: Body | None = None
    request_size: int = 0
    response: str = ""


class Record:
    def __init__(self, sink: Sink | None, mask: Mask | None, key: Secret, token: str) -> None:
        self._sink, self._mask = sink, mask
        self._known = (key.reveal(), token)
        self._lock = threading.Lock()
        self._room = _ALL_TEXTS
        self.fault: Exception | None = None

    def masked(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, _HIDDEN)
        return self._mask(text) if self._mask else text

    def shows_secrets(self, *texts: str) -> bool:
        """Whether the caller's mask finds something; what is too long to be looked through counts as yes."""
        mask = self._mask
        return mask is not None and any(len(text) > _LONGEST or mask(text) != text for text in texts)

    def note(self, noted: Noted) -> None:
        """Write it down; called from the threads of all connections."""
        sink = self._sink
        if sink is None or self.fault is not None:
            return

        def write() -> None:
            line = self._line(noted)
            with self._lock:
                self._room -= len(str(line["request"])) + len(str(line["response"]))
                sink(line)

        self.attempt(write)

    def attempt(self, work: Callable[[], None]) -> None:
        """Call something of the caller's; whatever it raises is raised again by `close` (O3)."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - kept, and raised where somebody can hear it
            self.fault = self.fault or error

    def _line(self, noted: Noted) -> dict[str, object]:
        return {
            "kind": "model",
            "version": 1,
            "time": round(time.time(), 3),
            "api": noted.api,
            "method": noted.method,
            "path": self.masked(noted.path)[:500],
            "model": self.masked(noted.model)[:200],
            "status": noted.status,
            "outcome": noted.outcome,
            "ms": noted.ms,
            **noted.usage._asdict(),
            "estimated": noted.estimated,
            "notes": [self.masked(note) for note in noted.notes],
            "request": self._request(noted),
            "response": _cut(self.masked(noted.response)) if self._room > 0 else "",
        }

    def _request(self, noted: Noted) -> str:
        if noted.request is None or self._room <= 0:
            return ""
        if noted.request_size > _LONGEST:
            return f"[{noted.request_size} bytes, not kept]"
        return _cut(json.dumps(self._leaves(noted.request), ensure_ascii=False))

    def _leaves(self, value: object) -> object:
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, list):
            return [self._leaves(item) for item in value]
        if isinstance(value, dict):
            return {self.masked(name): self._leaves(item) for name, item in value.items()}
        return value


def _cut(text: str) -> str:
    """Beginning and end: the newest words of a conversation stand last."""
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
