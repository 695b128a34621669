"""Watching an agent at work: a line for each thing it does, beside the answer; events in the stream.

What an agent says is shown as data: one line, nothing that moves the cursor, cut to the width of the screen.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen, shown
from holdfast.cli.words import count
from holdfast.model.agent import fields_of

if TYPE_CHECKING:
    from holdfast.agents.protocol import Person
    from holdfast.model.agent import Happening, Usage

_MOST_LINES = 200


class Watching:
    """Called with each Happening. Where nobody looks on, it says when attempts begin and what is escalated, no more."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._watched = screen.is_terminal(sys.stderr)
        self._lines = 0

    def __call__(self, happening: Happening) -> None:
        self._screen.event("agent", **fields_of(happening))
        text = self._worded(happening)
        if text and self._screen.form == "text" and (self._watched or happening.kind in _ALWAYS):
            self._screen.note(self._screen.style(self._screen.fitted(f"  {text}"), "dim", sys.stderr))

    def _worded(self, happening: Happening) -> str:
        match happening.kind:
            case "began":
                self._lines = 0
                why = f": {_line(happening.because.partition(chr(10))[0])}" if happening.because else ""
                return f"{_line(happening.agent)} begins attempt {happening.attempt}{why}"
            case "said":
                return self._said(happening.text)
            case "used":
                return f"{_SIGNS[happening.status]} {_line(happening.title)}"
            case "asked":
                return f"? {_line(happening.title)}: {happening.answer}"
            case "spent":
                return f"{spent(happening.usage)} so far"
            case "escalated":
                return f"! {_line(happening.text)}"

    def _said(self, text: str) -> str:
        """Machine output says nothing to a person."""
        line = _line(text)
        if not line or line.startswith(("{", "[")):
            return ""
        self._lines += 1
        return line if self._lines <= _MOST_LINES else ""


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


_ALWAYS = ("began", "escalated")
_SIGNS = {"begun": "▸", "done": "✓", "failed": "✗"}


def spent(usage: Usage) -> str:
    tokens = count(usage.input_tokens + usage.output_tokens, "token")
    money = f", ${usage.micro_usd / 1e6:.2f}" if usage.micro_usd else ""
    return f"{count(usage.requests, 'request')}, {tokens}{money}"


def _line(text: str) -> str:
    return shown(" ".join(text.split()))
