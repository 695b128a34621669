"""Moments, as people write and read them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from holdfast.errors import InvalidInput
from holdfast.model.path import printable

_SECONDS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_AGO = re.compile(r"(\d{1,6}|an?) ([a-z]+?)s? ago")
_SECOND_NS = 10**9


def moment_of(text: str, now_ns: int) -> int:
    """Nanoseconds since 1970, from ISO 8601 (local time unless it names a zone) or "2 hours ago"; or InvalidInput."""
    words = " ".join(text.lower().split())
    ago = _AGO.fullmatch(words)
    if words in ("now", "yesterday"):
        at_ns = now_ns - (86_400 * _SECOND_NS if words == "yesterday" else 0)
    elif ago is not None and ago[2] in _SECONDS:
        at_ns = now_ns - int(ago[1] if ago[1].isdigit() else 1) * _SECONDS[ago[2]] * _SECOND_NS
    else:
        at_ns = _iso(text)
    if at_ns > now_ns:
        raise InvalidInput(f"{printable(text)} is in the future")
    return at_ns


def _iso(text: str) -> int:
    try:
        return int((datetime.fromisoformat(text.strip()).astimezone() - _EPOCH) / timedelta(microseconds=1)) * 1000
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{printable(text)!r} is not a moment",
            hint='Write 2026-11-15 14:00, "2 hours ago", or an execution\'s id, which means just before it.',
        ) from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def for_people(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns // _SECOND_NS))


def clock_time(at_ns: int) -> str:
    """Of what is soon."""
    return time.strftime("%H:%M:%S", time.localtime(at_ns // _SECOND_NS))


def for_programs(at_ns: int) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ns // _SECOND_NS))
    return f"{whole}.{at_ns % _SECOND_NS // 1_000_000:03d}Z"
