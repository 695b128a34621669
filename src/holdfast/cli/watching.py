"""Watching an agent at work: a line for each thing it does, beside the answer; events in the stream.

What an agent says is shown as data: one line, nothing that moves the cursor, cut to the width of the screen.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen, shown
from holdfast.cli.transcript import plain_lines
from holdfast.cli.words import count
from holdfast.model.agent import fields_of

if TYPE_CHECKING:
    from holdfast.agents.protocol import Person
    from holdfast.model.agent import Happening, Usage

_MOST_LINES = 200
_WIDEST = 400
_SPENT_EVERY_S = 15.0


class Watching:
    """Called with each Happening; a line for each on standard error, whether somebody looks on or it goes to a file."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._lines = Lines("holdfast show ID --transcript")

    def __call__(self, happening: Happening) -> None:
        self._screen.event("agent", **fields_of(happening))
        text = self._lines.of(happening)
        if text and self._screen.form == "text":
            mark = "" if happening.kind in ("began", "escalated") else "| "  # its words can be taken for none of ours
            self._screen.note(self._screen.style(self._screen.fitted(f"  {mark}{text}"), "dim", sys.stderr))


class Lines:
    """What an agent does, a line each: so many of an attempt, and then where the rest is read. `more` says where."""

    def __init__(self, more: str) -> None:
        self._more = more
        self._told = 0
        self._spent_s = time.monotonic()

    def of(self, happening: Happening) -> str:
        """Empty where nothing is to be told. What is spent is told now and then, for it comes with each request."""
        if happening.kind == "began":
            self._told = 0
        text = worded(happening)
        if not text or happening.kind in ("began", "escalated"):
            return text
        now = time.monotonic()
        if happening.kind == "spent":
            if now - self._spent_s < _SPENT_EVERY_S:
                return ""
            self._spent_s = now
        self._told += 1
        if self._told <= _MOST_LINES:
            return text
        return f"… and more, which is kept: {self._more}" if self._told == _MOST_LINES + 1 else ""


def worded(happening: Happening) -> str:
    """In a line; of what a machine says to machines only what a person would read."""
    match happening.kind:
        case "began":
            why = f": {_line(happening.because.partition(chr(10))[0])}" if happening.because else ""
            return f"{_line(happening.agent)} begins attempt {happening.attempt}{why}"
        case "said":
            from holdfast.engine.transcript import words_in

            return _line(words_in(happening.text))
        case "used":
            return f"{_SIGNS[happening.status]} {_line(happening.title)}"
        case "asked":
            return f"? {_line(happening.title)}: {happening.answer}"
        case "spent":
            return f"{spent(happening.usage)} so far"
        case "escalated":
            return f"! {_line(happening.text)}"


def person_at(screen: Screen) -> Person | None:
    """The person at this terminal, who does a task by hand; None where there is none."""
    if not screen.can_ask():
        return None

    def work(instructions: str, directory: str) -> bool:
        for line in instructions.splitlines():
            screen.say(shown(line))
        screen.say(
            f"Work in this copy; the workspace itself stays as it is until all gates are open:\n  {shown(directory)}"
        )
        return screen.ask("Type done when you are, or anything else to give up:") == "done"

    return work


_SIGNS = {"begun": "▸", "done": "✓", "failed": "✗"}


def spent(usage: Usage) -> str:
    tokens = count(usage.input_tokens + usage.output_tokens, "token")
    money = f", ${usage.micro_usd / 1e6:.2f}" if usage.micro_usd else ""
    return f"{count(usage.requests, 'request')}, {tokens}{money}"


def _line(text: str) -> str:
    return " ".join(" ".join(plain_lines(text)).split())[:_WIDEST]
