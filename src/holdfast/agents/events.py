"""What a program prints for machines: one JSON object a line, between lines that are none.

Invariants
  E1  Nothing a program prints makes reading fail: what is missing or of another type reads as empty.
  E2  What is kept is bounded, valid Unicode, and a session's name can be nobody's option or path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from holdfast.agents.program import Heard
from holdfast.model.agent import Claim

WORDS_KEPT = 16_000
ERROR_KEPT = 2_000
_MOST = 1 << 50
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_STATUS = re.compile(r"(?:\bstatus:?|\bAPI Error:|\"code\":|\()\s*([45]\d\d)\b", re.IGNORECASE)
_LAST_LINES = 5
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Event:
    """A JSON value of somebody else's; every question has an answer of the asked type (E1)."""

    def __init__(self, value: object) -> None:
        self._value = value

    def at(self, *path: str) -> Event:
        value = self._value
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return Event(value)

    def text(self, *path: str) -> str:
        value = self.at(*path)._value
        return value if isinstance(value, str) else ""

    def number(self, *path: str) -> int:
        value = self.at(*path)._value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
            return 0
        return int(value)

    def money(self, *path: str) -> int | None:
        """Dollars as micro-dollars, rounded up; None where none are named."""
        value = self.at(*path)._value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST / 1_000_000:
            return None
        return -int(-value * 1_000_000 // 1)

    def texts(self, *path: str) -> tuple[str, ...]:
        value = self.at(*path)._value
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def true(self, *path: str) -> bool:
        return self.at(*path)._value is True

    def each(self, *path: str) -> tuple[Event, ...]:
        value = self.at(*path)._value
        return tuple(Event(item) for item in value) if isinstance(value, list) else ()


def events(output: bytes) -> Iterator[Event]:
    """Every line that is a JSON object, in order."""
    for line in output.splitlines():
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield Event(value)


def plain_lines(output: bytes) -> tuple[str, ...]:
    """The other lines: warnings, and the last words of a program that failed before it could speak JSON."""
    lines = (_COLOURS.sub("", line.decode("utf-8", "replace")).strip() for line in output.splitlines())
    return tuple(line for line in lines if line and not line.startswith("{"))


def kept(text: str, most: int = WORDS_KEPT) -> str:
    """Bounded, and encodable (E2)."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def session_name(text: str) -> str:
    """The name of a session as we may hand it back to the program later; empty when it is no such name (E2)."""
    return text if _SESSION.fullmatch(text) else ""


def api_status(text: str) -> int:
    """The HTTP status that an error message names, in one of the ways these programs name it; 0 when none is."""
    named = _STATUS.search(text)
    return int(named.group(1)) if named else 0


def concluded(claim: Claim, output: bytes, exit_code: int | None, status: int) -> Heard:
    """The end of hearing. A program that did not say how it ended says it with its exit code and last plain words."""
    if claim.success is None:
        last = claim.error or kept("\n".join(plain_lines(output)[-_LAST_LINES:]), ERROR_KEPT)
        claim = claim._replace(success=False if exit_code else None, error=last)
    refused = status in (401, 403)
    return Heard(claim, unauthorized=refused, model_error=status >= 400 and not refused)
