"""What an agent was told, said and did, read from what is kept of it: for people, who decide nothing from it.

    bench ──a JSON object a line──▶ without_secrets_in ──▶ blob ◀── delegation entry of the ledger ──▶ work_in

Invariants
  T1  Every text is masked before it is kept, row by row, and again before it is shown: a transcript may come from
      another machine, and nothing of a worker's is believed.
  T2  Nothing in a transcript makes reading it fail. A line that is no row of ours is shown as what a program printed;
      so is everything in the transcripts of releases that kept plain output.
  T3  What is no longer kept, or does not hold what its name says, is said to be so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from holdfast.agents.events import Event
from holdfast.disk.confined import Root
from holdfast.errors import HoldfastError
from holdfast.gates.secrets import masked
from holdfast.model.canonical import Json
from holdfast.model.check import masked_words
from holdfast.settlement.log_rows import attempt_of
from holdfast.store.chain import Entry
from holdfast.store.large_blobs import LargeBlobs

RowKind = Literal["told", "said", "used", "asked", "spent", "began", "escalated", "printed", "model", "left out"]
# Longer than any transcript of ours: what a worker brings is bounded too.
_MOST = 160 << 20
# In what machines print for machines, the names of what a person would read, in the order in which it is shown.
_WORDS = (
    "name", "title", "text", "content", "message", "result", "thinking", "command", "error",
    "description", "file_path", "path", "input", "arguments", "output", "delta", "item", "part", "tool_name",
)  # fmt: skip
_DEEPEST = 6
_SECOND_NS = 10**9
_LAST_SECOND = 1 << 33


class Row(NamedTuple):
    """Something that happened at that moment; 0 where the release that wrote it did not keep moments."""

    at_ns: int
    kind: RowKind
    text: str
    # Only with everything: what was asked of a model and answered, word for word.
    more: tuple[tuple[str, str], ...] = ()


class Round(NamedTuple):
    """One attempt of the agent: its rows, and what the ledger says of it."""

    number: int
    rows: tuple[Row, ...]
    # Why there are no rows; empty where there are.
    missing: str
    claimed: Mapping[str, Json]
    measured: Mapping[str, Json]
    evidence: str


class Work(NamedTuple):
    """A delegation as the ledger has it, with the transcripts of its rounds."""

    id: str
    at_ns: int
    plan: str
    # Of a run; empty otherwise.
    run: str
    task: str
    agent: str
    words: str
    good: bool
    usage: Mapping[str, Json]
    rounds: tuple[Round, ...]


def without_secrets_in(transcript: bytes) -> bytes:
    """T1. Row by row and string by string, so that no mask breaks a row."""
    return b"\n".join(json.dumps(_worded(_row_of(line))).encode("ascii") for line in transcript.splitlines())


def work_in(state: Root, entry: Entry, *, everything: bool = False) -> Work:
    """`everything`: also what was asked of the model, word for word."""
    body, blobs = entry.body, LargeBlobs(state)
    run, task = attempt_of(body)
    asked, why_not = _kept(blobs, body.get("asked"))
    models = [] if why_not else list(_model_rows(asked, everything))
    attempts = body.get("attempts")
    found = [each for each in (attempts if isinstance(attempts, list) else []) if isinstance(each, dict)]
    texts = [_kept(blobs, attempt.get("transcript")) for attempt in found]
    rows = [[] if missing else list(_rows(data)) for data, missing in texts]
    if models:  # they say it one by one
        rows = [[row for row in each if row.kind != "spent"] for each in rows]
    begins = [next((row.at_ns for row in each if row.at_ns), 0) for each in rows]
    for model in models:
        place = max((n for n, begin in enumerate(begins) if begin <= model.at_ns), default=0)
        if place < len(rows):
            rows[place].append(model)
    rounds = (
        Round(
            _number(attempt.get("number")),
            tuple(sorted(each, key=_when)) if all(row.at_ns for row in each) else tuple(each),
            missing,
            _table(attempt.get("claimed")),
            _table(attempt.get("measured")),
            _masked(str(attempt.get("evidence", ""))),
        )
        for attempt, each, (_, missing) in zip(found, rows, texts, strict=True)
    )
    return Work(
        str(body["id"]), entry.at_ns, str(body["subject"]), run, task, str(body["agent"]),
        _masked(str(body.get("task", ""))), body.get("good") is True, _table(body.get("usage")), tuple(rounds),
    )  # fmt: skip


def last_measured(body: Mapping[str, Json]) -> Mapping[str, Json]:
    """What the last round of a delegation came to; empty where its entry does not say."""
    attempts = body.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    return _table(last.get("measured")) if isinstance(last, dict) else {}


def words_in(line: str) -> str:
    """What a person would read in a line that a machine wrote for machines; the line itself where it is none."""
    if not line.lstrip().startswith(("{", "[")):
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return " · ".join(_said_in(value, _DEEPEST)) or line


def _said_in(value: object, deep: int) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, list) and deep:
        for item in value:
            yield from _said_in(item, deep - 1)
    elif isinstance(value, dict) and deep:
        for name in _WORDS:
            if name in value:
                yield from _said_in(value[name], deep - 1)


# ── what is kept ──


def _kept(blobs: LargeBlobs, digest: object) -> tuple[bytes, str]:
    """T3: the bytes, or why there are none."""
    if not isinstance(digest, str) or not digest:
        return b"", "nothing was kept"
    pieces: list[bytes] = []
    try:
        for piece in blobs.pieces(digest):
            pieces.append(piece)
            if sum(map(len, pieces)) > _MOST:
                return b"", "it is longer than any of ours"
    except HoldfastError as error:
        return b"", error.message
    return b"".join(pieces), ""


def _row_of(line: bytes) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and isinstance(row.get("kind"), str):
        return row
    return {"kind": "printed", "text": line.decode("utf-8", "replace")}  # T2


def _rows(data: bytes) -> Iterator[Row]:
    """What a program printed was heard line by line in most cases: only the rest of it is shown again."""
    said: set[str] = set()
    for line in data.splitlines():
        fields = _row_of(line)
        row = Event(fields)
        at_ns = _number(fields.get("at_ns"))
        match row.text("kind"):
            case "told" | "escalated" as kind:
                yield _row(at_ns, kind, row.text("text"))
            case "said":
                said.update(part.strip() for part in row.text("text").splitlines())
                yield _row(at_ns, "said", "\n".join(map(words_in, row.text("text").splitlines())))
            case "used":
                paths = [path for path in row.texts("paths") if path not in row.text("title")]
                title = " ".join((row.text("title"), *paths))
                yield _row(at_ns, "used", f"{row.text('status')}: {title}")
            case "asked":
                yield _row(at_ns, "asked", f"{row.text('title')}: {row.text('answer')}")
            case "spent":
                tokens = row.number("usage", "input_tokens") + row.number("usage", "output_tokens")
                yield _row(at_ns, "spent", f"{row.number('usage', 'requests'):,} requests, {tokens:,} tokens so far")
            case "began":
                pass  # its number heads the round, and its reason is in what it was told
            case "left_out":
                yield _row(at_ns, "left out", f"{row.number('rows'):,} more rows: the transcript was full")
            case _:
                text = row.text("text") or line.decode("utf-8", "replace")
                rest = [part for part in text.splitlines() if part.strip() and part.strip() not in said]
                if rest:
                    yield _row(at_ns, "printed", "\n".join(map(words_in, rest)))


def _model_rows(data: bytes, everything: bool) -> Iterator[Row]:
    for line in data.splitlines():
        fields = _row_of(line)
        row, at = Event(fields), fields.get("time")
        if row.text("kind") != "model":
            continue
        at_ns = int(at * _SECOND_NS) if isinstance(at, float | int) and 0 <= at < _LAST_SECOND else 0
        told = (
            f"{row.text('model') or 'a model'} was asked: {row.number('input_tokens'):,} tokens, "
            f"{row.number('output_tokens'):,} answered in {row.number('ms') / 1000:.1f} s, "
            f"{row.text('outcome') or 'no outcome'} ({row.number('status')})"
        )
        words = (("asked", _masked(row.text("request"))), ("answered", _masked(row.text("response"))))
        yield Row(at_ns, "model", _masked(told), words if everything else ())


def _row(at_ns: int, kind: RowKind, text: str) -> Row:
    return Row(at_ns, kind, _masked(text))


def _worded(value: object) -> object:
    if isinstance(value, str):
        return _masked(value)
    if isinstance(value, list):
        return [_worded(item) for item in value]
    if isinstance(value, dict):
        return {name: _worded(item) for name, item in value.items()}
    return value


def _masked(text: str) -> str:
    return masked(masked_words(text))


def _when(row: Row) -> int:
    return row.at_ns


def _table(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if type(value) is int else 0
