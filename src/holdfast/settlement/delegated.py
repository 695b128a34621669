"""The work of an agent as a ledger entry: what it claimed, and beside it what was measured (W2 of engine.delegation).

A ledger cannot forget, so the claim is masked by the caller and bounded here; the transcript is a blob, by digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from holdfast.model.agent import Attempt, Delegation, Usage
from holdfast.model.canonical import Json, whole_characters

_MOST_WORDS = 2_000
_MOST_PATHS = 50


def delegation_body(delegation: Delegation) -> dict[str, Json]:
    return {
        "version": 1,
        "agent": delegation.agent,
        "task": whole_characters(delegation.task[:_MOST_WORDS]),
        "task_digest": hashlib.sha256(delegation.task.encode("utf-8", "surrogatepass")).hexdigest(),
        "good": delegation.good,
        "usage": _usage(delegation.usage),
        "asked": delegation.asked,
        "attempts": [_attempt(attempt) for attempt in delegation.attempts],
    }


def transcripts_of(body: Mapping[str, Json]) -> set[str]:
    """The digests of the blobs that an entry names."""
    attempts = body.get("attempts")
    rows = [row for row in (attempts if isinstance(attempts, list) else []) if isinstance(row, dict)]
    return {str(digest) for digest in (body.get("asked"), *(row.get("transcript") for row in rows)) if digest}


def _attempt(attempt: Attempt) -> dict[str, Json]:
    result = attempt.result
    return {
        "number": attempt.number,
        "transport": result.transport,
        "claimed": {
            "words": whole_characters(result.claim.words[:_MOST_WORDS]),
            "success": result.claim.success,
            "error": whole_characters(result.claim.error[:_MOST_WORDS]),
            "usage": _usage(result.claim.usage) if result.claim.usage is not None else None,
        },
        "measured": {
            "ending": result.ending,
            "detail": whole_characters(result.detail[:_MOST_WORDS]),
            "limit": result.limit,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "duration_ms": result.duration_ms,
            "usage": _usage(result.usage),
            "changed": [whole_characters(path) for path in attempt.changed[:_MOST_PATHS]],
            "changed_count": len(attempt.changed),
            "missing": [whole_characters(path) for path in attempt.missing],
            "checks_passed": sum(receipt.passed for receipt in attempt.receipts),
            "checks_failed": sum(not receipt.passed for receipt in attempt.receipts),
            "left_behind": result.left_behind,
            **({"unmet": [whole_characters(text) for text in attempt.unmet]} if attempt.unmet else {}),
            **_left_out(attempt.left_out),
        },
        "evidence": whole_characters(attempt.evidence[:_MOST_WORDS]),
        "transcript": result.transcript,
    }


def _left_out(paths: Sequence[str]) -> dict[str, Json]:
    if not paths:
        return {}
    return {"left_out": [whole_characters(path) for path in paths[:_MOST_PATHS]], "left_out_count": len(paths)}


def _usage(usage: Usage) -> dict[str, Json]:
    return dict(usage._asdict())
