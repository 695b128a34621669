"""Record and replay: the same questions get the same answers, and nothing goes out.

    {"tape": "holdfast/1"}
    {"request": "<digest>", "path": "/v1/messages", "status": 200, "headers": [[…]], "chunks": ["…", {"base64": "…"}]}
    {"request": "<digest>", "path": "/v1/messages", "left_out": "why"}

Several tapes one after the other are a tape.

Invariants
  T1  A request is known by method, path and body, without what differs from run to run (VOLATILE, _VOLATILE_TEXT).
  T2  Neither key nor token is on a tape: requests are there as digests, and answers are searched before.
  T3  In replay, what is not on the tape is refused. It is never asked upstream.
  T4  The same question asked again gets the next of its answers; the last one is repeated.
  T5  An answer in which something has the shape of a secret is left out, and its question is refused in replay: masked
      it would be another answer, and what an agent makes of that nobody has seen.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from holdfast.errors import InvalidInput
from holdfast.proxy.asked import Body
from holdfast.proxy.headers import Headers
from holdfast.proxy.refusals import Refused

FORMAT = "holdfast/1"
# Names for accounts, caches and sessions: made anew in each run, and nothing to the answer.
VOLATILE = frozenset({"metadata", "user", "prompt_cache_key", "safety_identifier", "client_metadata", "stream_options"})
# What codex writes above the output of each command: how long it took, and a name for it that is random.
_VOLATILE_TEXT = re.compile(r"(?:Wall time: [0-9.]{1,20}|Chunk ID: [0-9a-f]{1,20})(?![0-9a-zA-Z])")
_HIDDEN = b"[masked]"

WriteLine: TypeAlias = Callable[[Mapping[str, object]], None]


class Taped(NamedTuple):
    """One answer: as it came, in the pieces it came in."""

    status: int
    headers: Headers
    chunks: tuple[bytes, ...]


class Tape:
    """Made by `recording` or `replaying`."""

    def __init__(
        self, write: WriteLine | None, answers: dict[str, list[Taped]], left_out: Mapping[str, str] | None = None
    ) -> None:
        self._write, self._answers, self._left_out = write, answers, left_out or {}
        self._lock = threading.Lock()
        self.refused_last = False

    @classmethod
    def recording(cls, write: WriteLine) -> Tape:
        write({"tape": FORMAT})
        return cls(write, {})

    @classmethod
    def replaying(cls, lines: Iterable[str]) -> Tape:
        """InvalidInput when this is no tape, or one of another version."""
        found: dict[str, list[Taped]] = {}
        left_out: dict[str, str] = {}
        number = 0
        for number, line in enumerate(lines, 1):
            try:
                match json.loads(line):
                    case {"tape": _} as value:
                        _check_format(value)
                    case value if number == 1:
                        _check_format(value)
                    case {"request": str(digest), "path": str(), "left_out": str(why)}:
                        left_out[digest] = why
                    case {"kind": "left_out", "lines": int()}:
                        pass  # it grew too large: what is not on it is refused like anything else
                    case value:
                        digest, taped = _read(value)
                        found.setdefault(digest, []).append(taped)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise InvalidInput(f"line {number} of the tape cannot be read: {error}") from None
        if not number:
            raise InvalidInput("the tape is empty")
        return cls(None, found, left_out)

    @property
    def replays(self) -> bool:
        return self._write is None

    def answer(self, digest: str) -> Taped:
        """The next answer to this question, or Refused (T3)."""
        with self._lock:
            answers = self._answers.get(digest)
            self.refused_last = not answers
            if not answers:
                why = self._left_out.get(digest, "this request was not recorded")
                raise Refused("tape", 409, f"not on tape: {why}, and replay asks nobody")
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def keep(self, digest: str, path: str, taped: Taped, secrets: tuple[str, ...]) -> None:
        if self._write is None:
            return
        chunks = _without(taped.chunks, secrets)
        headers = [[_text(_clean(part, secrets)) for part in header] for header in taped.headers]
        line = {"request": digest, "path": path, "status": taped.status, "headers": headers,
                "chunks": [_spelled(chunk) for chunk in chunks]}  # fmt: skip
        with self._lock:
            self._write(line)

    def leave_out(self, digest: str, path: str, why: str) -> None:
        """T5."""
        if self._write is not None:
            with self._lock:
                self._write({"request": digest, "path": path, "left_out": why})


def request_digest(method: str, path: str, body: Body | None) -> str:
    kept = None if body is None else {name: value for name, value in body.items() if name not in VOLATILE}
    text = _VOLATILE_TEXT.sub("", json.dumps([method, path, kept], sort_keys=True, separators=(",", ":")))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check_format(value: object) -> None:
    if not isinstance(value, dict) or value.get("tape") != FORMAT:
        raise ValueError(f"this is not a tape of version {FORMAT}")


def _read(value: object) -> tuple[str, Taped]:
    match value:
        case {
            "request": str(digest),
            "path": str(),
            "status": int(status),
            "headers": list(raw),
            "chunks": list(pieces),
        }:
            headers = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in raw]
            if not 200 <= status <= 599 or 300 <= status < 400:
                raise ValueError("the status is none that an answer has")
            return digest, Taped(status, headers, tuple(_bytes(piece) for piece in pieces))
    raise ValueError("this is no answer")


def _bytes(piece: object) -> bytes:
    match piece:
        case str(text):
            return text.encode("utf-8")
        case {"base64": str(packed)}:
            try:
                return base64.b64decode(packed, validate=True)
            except binascii.Error as error:
                raise ValueError(str(error)) from None
    raise ValueError("a piece is a text, or base64")


def _spelled(chunk: bytes) -> object:
    try:
        return chunk.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode("ascii")}


def _without(chunks: tuple[bytes, ...], secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """A secret may lie across two pieces; then they become one."""
    whole = b"".join(chunks)
    cleaned = _clean(whole, secrets)
    return chunks if cleaned == whole else (cleaned,)


def _clean(data: bytes, secrets: tuple[str, ...]) -> bytes:
    for secret in secrets:
        data = data.replace(secret.encode("ascii"), _HIDDEN)
    return data


def _text(data: bytes) -> str:
    return data.decode("latin-1")
