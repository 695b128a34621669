"""What is said, and where: standard output is for the answer, standard error for everything else.

    form      standard output                                     standard error
    ──────────────────────────────────────────────────────────────────────────────────────
    text      the answer in words                                 progress, notes, failures
    json      exactly one document, also for a failure            progress, notes
    stream    one event a line, the last one is the document      notes

Invariants
  F1  Nobody reading any more (EPIPE) changes nothing about the work, nor about the exit status.
      A full disk under standard output changes nothing about the work either, but success is not claimed.
  F2  Progress never raises: a terminal that went away must not roll a change back.
  F3  Colour only repeats what words say.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, TextIO, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.model.path import printable

Form: TypeAlias = Literal["text", "json", "stream"]
Document: TypeAlias = Mapping[str, object]

SCHEMA = "holdfast/1"
_STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_COLUMNS = 80
# A verb follows; `holdfast -C …` and `holdfast --branch …` say where already.
_COMMAND = re.compile(r"\bholdfast (?=(?P<verb>[a-z]+)\b)(?=(?P<named>run --branch|apply --branch)?)")
# They open no workspace, or are about all of it.
OF_NO_BRANCH = ("init", "doctor", "demo", "worker")
_SAYS_WHAT_CHANGED = (
    "nothing was changed",
    "nothing in the workspace was changed",
    "rolled back",
    "settled by the next verb",
)


class Screen:
    def __init__(self, form: Form, *, colour: bool) -> None:
        self.form = form
        self._colour = colour and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._lost = False  # nobody reads standard output any more
        self._deaf = False  # nor standard error
        self._unsaid: OSError | None = None  # why the answer could not be written, unless nobody wanted it
        self._attached: dict[str, object] = {}
        self.unsettled = False  # something unforeseen happened after a change was begun that may stand
        # What is said about commands must lead there again: the branch, and what was given as -C.
        self.branch, self.directory = "", ""
        self.make_room: Callable[[], None] = lambda: None  # takes a progress bar away before words are printed
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A terminal that cannot show an arrow gets an escape, never a crash.
                stream.reconfigure(errors="backslashreplace")

    # ── the answer ──

    def say(self, text: str = "") -> None:
        """A line of the answer in words; silent where the answer is a document."""
        if self.form == "text":
            self.make_room()
            self._print(text)

    def answer(self, document: Document) -> None:
        """The one document; silent where the answer is in words."""
        if self.form != "text":
            self._print(json.dumps({"schema": SCHEMA, **document}))

    def event(self, name: str, **fields: object) -> None:
        """Something on the way, for whoever reads the stream."""
        if self.form == "stream":
            self._print(json.dumps({"schema": SCHEMA, "event": name, **fields}))

    # ── everything else ──

    def note(self, text: str) -> None:
        """A line for a person, beside the answer."""
        if self._deaf:
            return
        self.make_room()
        self._flush()  # where both go to one place, what was said first stands first
        try:
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self._deaf = True  # F2

    def way(self, text: str) -> str:
        """Words of ours that name a command, so that it can be pasted as it stands where a person gave theirs: it names
        the directory and the branch that theirs named."""
        return _COMMAND.sub(self._led, text) if self.branch or self.directory else text

    def _led(self, found: re.Match[str]) -> str:
        of_branch = self.branch and not found["named"] and found["verb"] not in OF_NO_BRANCH
        options = (("-C", self.directory), ("--branch", self.branch if of_branch else ""))
        return "holdfast " + "".join(f"{name} {shlex.quote(value)} " for name, value in options if value)

    def attach(self, key: str, value: object) -> None:
        """Something a program may want to know beside a failure."""
        self._attached[key] = value

    def failure(self, error: HoldfastError) -> None:
        """What happened, what was not changed, what to do."""
        if self.form != "text":
            changed = error.changed or self.unsettled
            told = {"code": error.code, "message": error.message, "hint": self.way(error.hint), "changed": changed}
            self.answer({"error": told, **self._attached})
            return
        lines = error.message.splitlines() or ["it failed without a word"]
        for line in lines:
            self.note(self.style(shown(line), "red", sys.stderr))
        if self.unsettled:
            self.note("A change that was begun may stand: see with holdfast log.")
        self.note(self._with_status(self.way(_advice(error)), error.exit_status))

    def _with_status(self, text: str, status: int) -> str:
        """The exit status, dim and at the right, where a person looks on."""
        if not self.is_terminal(sys.stderr):
            return text
        last = text.rpartition("\n")[2]
        mark = f"exit {status}"
        gap = max(2, self.columns() - len(last) - len(mark) - 1)
        return text + " " * gap + self.style(mark, "dim", sys.stderr)

    # ── terminals ──

    def style(self, text: str, name: str, stream: TextIO | None = None) -> str:
        if not self._colour or not self.is_terminal(stream if stream is not None else sys.stdout):
            return text
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m"

    def is_terminal(self, stream: TextIO) -> bool:
        return self.form == "text" and stream.isatty()

    def can_ask(self) -> bool:
        """A person sees what we say and can answer; a pipe or a file cannot give consent."""
        return self.form == "text" and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()

    def ask(self, question: str) -> str:
        """One line from the person; the empty string at the end of input."""
        sys.stdout.write(question + " ")
        sys.stdout.flush()
        return sys.stdin.readline().strip().lower()

    def fitted(self, text: str, ending: str = "") -> str:
        """A line cut to the width of the screen, but for its ending; whole where it goes to a file."""
        width = max(1, self.columns() - 1 - len(ending))
        if len(text) <= width or not (self.is_terminal(sys.stdout) or self._told_columns()):
            return text + ending
        return text[: width - 1] + "…" + ending

    def _told_columns(self) -> int:
        told = os.environ.get("COLUMNS", "")
        return int(told) if told.isdecimal() else 0

    def columns(self) -> int:
        if self._told_columns():
            return self._told_columns()
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS

    # ── the end ──

    def close(self, status: int) -> int:
        """Flush; the status is the verb's own, unless its answer could not be written."""
        self._flush()
        if self._unsaid is None:
            return status
        done = "" if status else "; what was asked is done"
        self.note(f"The answer could not be written: {self._unsaid.strerror}{done}")
        return status or 1

    def take_over_excepthook(self) -> None:
        """A defect of ours ends in one sentence and exit 1; the traceback is for those who ask for it."""
        if not os.environ.get("HOLDFAST_DEBUG"):
            sys.excepthook = self._defect

    def _defect(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        what = f"{kind.__name__}: {error}" if not isinstance(error, OSError) else str(error)
        hint = "This is a defect of Holdfast, or of the host. What was under way is settled by the next verb.\n"
        self.failure(HoldfastError(f"internal error: {what}", hint=hint + "HOLDFAST_DEBUG=1 shows where it happened."))
        self.close(1)

    def _print(self, text: str) -> None:
        if self._lost:
            return
        try:
            print(text, flush=self.form == "stream")
        except OSError as error:
            self._give_up_output(error)

    def _flush(self) -> None:
        try:
            sys.stdout.flush()
        except OSError as error:
            self._give_up_output(error)

    def _give_up_output(self, error: OSError) -> None:
        """F1: what is still to be said goes nowhere, and Python's last flush finds nothing to complain about."""
        self._lost = True
        if not isinstance(error, BrokenPipeError):
            self._unsaid = error
        nowhere = os.memfd_create("nowhere")
        os.dup2(nowhere, 1)
        os.close(nowhere)


def shown(text: str) -> str:
    """A line that may hold somebody else's words: nothing hidden, tabs and line ends kept."""
    return "\t".join(printable(part) for part in text.split("\t"))


def _advice(error: HoldfastError) -> str:
    said = f"{error.message}\n{error.hint}".lower()
    if error.changed or error.exit_status == 1 or any(phrase in said for phrase in _SAYS_WHAT_CHANGED):
        return error.hint or "See how things stand with: holdfast status"
    return f"Nothing was changed. {error.hint}".rstrip()
