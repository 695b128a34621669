"""What a scripted model answers, or a scripted agent does, step by step; the same script for every wire and program.

    Script.of(WriteFile("a.py", "print(1)\\n"), Shell("python3 a.py"), Say("Done."))

    step                          what the model answers
    ──────────────────────────────────────────────────────────────────────────────────────────────────────
    Say(text)                     words, and no tool call: most programs end there, and go on when resumed
    WriteFile(path, content)      a call of whatever tool the program offers to write files
    EditFile(path, old, new)      likewise to replace text; whole lines, for programs that only take patches
    Shell(command)                likewise to run a command: a command line, or a tuple of arguments
    Error(status, message)        an error in the wire's own form, again at each retry; `times=2`: twice, then on
    Hang(seconds)                 silence for so long, and then the next step
    Loop()                        the answer before it, for ever
    Stop(text)                    the end of the turn; also what comes when a script is over

Paths are relative to the program's working directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

OVER = "The script is over."


class Say(NamedTuple):
    text: str


class WriteFile(NamedTuple):
    path: str
    content: str


class EditFile(NamedTuple):
    path: str
    old: str
    new: str


class Shell(NamedTuple):
    command: str | tuple[str, ...]


class Error(NamedTuple):
    """`times` 0 is for ever; `retry_after` goes into the header of that name."""

    status: int
    message: str = "on purpose"
    times: int = 0
    retry_after: int | None = None


class Hang(NamedTuple):
    seconds: float


class Loop(NamedTuple):
    pass


class Stop(NamedTuple):
    text: str = OVER


Work: TypeAlias = WriteFile | EditFile | Shell
Reply: TypeAlias = Say | Stop | Work
Delay: TypeAlias = Error | Hang
Step: TypeAlias = Reply | Delay | Loop


class When(NamedTuple):
    """Other steps where the newest words of the user have this marker, as the evidence of a failed attempt does."""

    marker: str
    steps: tuple[Step, ...]


class Script(NamedTuple):
    steps: tuple[Step, ...]
    whens: tuple[When, ...] = ()

    @classmethod
    def of(cls, *parts: Step | When) -> Script:
        """Steps and exceptions in one list, as they are best read."""
        return cls(
            tuple(part for part in parts if not isinstance(part, When)),
            tuple(part for part in parts if isinstance(part, When)),
        )


class Book(NamedTuple):
    """The script of each task by a word that its first message has, and one for all others."""

    default: Script = Script(())
    tasks: Mapping[str, Script] = {}

    @property
    def scripts(self) -> tuple[Script, ...]:
        return (self.default, *self.tasks.values())


class Beat(NamedTuple):
    """One answer of a script: what comes before it, and what it is made of (several replies only in plain text)."""

    before: tuple[Delay, ...]
    replies: tuple[Reply, ...]


def beats(steps: tuple[Step, ...], *, joined: bool) -> tuple[Beat, ...]:
    """The answers of a script in order. `joined`: work up to the next word is one answer, where there are no tools."""
    found: list[Beat] = []
    before: list[Delay] = []
    for step in steps:
        if isinstance(step, Loop):
            break
        if isinstance(step, (Error, Hang)):
            before.append(step)
        elif joined and found and not before and _is_work(found[-1].replies[-1]):
            found[-1] = Beat(found[-1].before, (*found[-1].replies, step))
        else:
            found.append(Beat(tuple(before), (step,)))
            before = []
    if before:
        found.append(Beat(tuple(before), (Stop(),)))
    return tuple(found)


def beat_at(steps: tuple[Step, ...], number: int, *, joined: bool) -> Beat:
    """The answer with this number, from 0."""
    found = beats(steps, joined=joined)
    if number < len(found):
        return found[number]
    if found and any(isinstance(step, Loop) for step in steps):
        return found[-1]
    return Beat((), (Stop(),))


def _is_work(reply: Reply) -> bool:
    return isinstance(reply, (WriteFile, EditFile, Shell))
