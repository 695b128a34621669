"""The words of a checkpoint: a title, and at its end lines that say what it belongs to.

Invariants
  J1  A trailer is one line of printable text; whatever was in the value, it cannot begin another line.
  J2  No line of the message itself can be taken for a trailer of ours: only the last paragraph counts when it is
      read, and a line that looks like one is indented when it is written.
  J3  The same words give the same bytes.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

_PREFIX = "Holdfast-"
_LONGEST = 500
_LONGEST_MESSAGE = 20_000


class Trailers(NamedTuple):
    """What a commit belongs to. An execution is landed once, so its id finds the commit again."""

    execution: str
    change_set: str
    task: str = ""
    run: str = ""
    agent: str = ""
    undoes: str = ""
    # What a merge brought in.
    branch: str = ""
    unverified: str = ""


_NAMES = (
    ("Task", "task"),
    ("Execution", "execution"),
    ("Change-Set", "change_set"),
    ("Run", "run"),
    ("Agent", "agent"),
    ("Undoes", "undoes"),
    ("Branch", "branch"),
    ("Unverified", "unverified"),
)
EXECUTION = f"{_PREFIX}Execution"
BRANCH = f"{_PREFIX}Branch"


def message_text(message: str, trailers: Trailers) -> bytes:
    """The whole message of a commit."""
    lines = [_guarded(one_line(line, _LONGEST_MESSAGE)) for line in message[:_LONGEST_MESSAGE].splitlines()]
    body = "\n".join(lines).strip() or "Checkpoint"
    known = [(name, one_line(getattr(trailers, field))) for name, field in _NAMES]
    ending = "\n".join(f"{_PREFIX}{name}: {value}" for name, value in known if value)
    return f"{body}\n\n{ending}\n".encode()


def trailer(message: str, name: str) -> str:
    """The value of a trailer in the last paragraph; empty when there is none."""
    ending = message.rstrip().rsplit("\n\n", 1)[-1]
    start = f"{name}: "
    return next((line[len(start) :] for line in ending.split("\n") if line.startswith(start)), "")


def title_of(message: str) -> str:
    return message.split("\n", 1)[0]


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Without line ends, controls, and what cannot be written as UTF-8."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    shown = "".join(" " if unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp") else sign for sign in plain)
    return shown[:longest].strip()


def _guarded(line: str) -> str:
    return f" {line}" if line.lower().startswith(_PREFIX.lower()) else line
