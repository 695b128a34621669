"""The acceptance of a task: a command of its file, as the words that a program is started with. There is no shell.

    pytest -q 'tests/a b.py'   ──▶ ("pytest", "-q", "tests/a b.py")
    true && grep -q x a.py     ──▶ InvalidInput: with `&&` as an argument, `true` succeeds whatever a.py holds

Invariants
  Q1  A command is taken as a whole or not at all. Where a shell would do more with the text than to start one program
      with these words, or would read the words in another way, it is refused: what is left of it could succeed without
      what it says. Only [ and ] may stand bare, since names of tests hold them.
  Q2  A file that gives something else than text as a command gives one that is refused, never none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.model.task import Remark, Task

_QUOTED = re.compile(r"""'[^']*'|"(?:\\[\s\S]|[^"\\])*"|\\[^\n]""")
_FOR_A_SHELL = re.compile(
    r"&&|\|\||[|&;<>()$`*?\n\r]|\{(?=[^{}\s,.]*+(?:\.(?!\.)[^{}\s,.]*+)*+[,.])[^{}\s]*+\}|(?:(?<=\s)|\A)[#~]|\A!(?=\s|\Z)|\A\w+="
)
_STILL_READ = re.compile(r"[$`]|\\\n")
_MOST_SHOWN = 200


def command_of(text: str) -> tuple[str, ...]:
    """The words of a command; none where the file gives none, InvalidInput where it cannot be one (Q1)."""
    text = text.strip()
    wrong = _wrong(text)
    if wrong:
        shown = printable(text[:_MOST_SHOWN]) + ("…" if len(text) > _MOST_SHOWN else "")
        raise InvalidInput(f"its acceptance command cannot be run, since {wrong}: {shown}")
    return tuple(_split(text))


def remarks_of(tasks: Sequence[Task]) -> Iterator[Remark]:
    """About the tasks that can never begin because of their command."""
    for task in tasks:
        if task.accept and not task.done and (wrong := _wrong(task.accept.strip())):
            yield Remark(task.line, f"this task cannot begin: {wrong}, so its acceptance command cannot be run")


def _wrong(text: str) -> str:
    """Why it is no command, in words; empty where it is one, or nothing at all."""
    if _is_json(text):
        return "it must be one command, as text"
    if "\0" in text:
        return "it holds what no command can"
    try:
        words = _split(text)
    except ValueError:
        return "a quote is not closed, or nothing is escaped at its end"
    if words and not words[0]:
        return "it names no program"
    found = _FOR_A_SHELL.search(_QUOTED.sub("q", text))
    if found is None:
        doubles = (match[0] for match in _QUOTED.finditer(text) if match[0][0] == '"')
        found = next(filter(None, map(_STILL_READ.search, doubles)), None)
    if found is None:
        return ""
    sign = "a second line" if found[0] == "\n" else found[0]
    return f"{printable(sign)} is for a shell, and there is none"


def _split(text: str) -> list[str]:
    import shlex  # whoever only reads must start fast, and few tasks have a command

    return shlex.split(text)


def _is_json(text: str) -> bool:
    """Q2. The program that is called [ is no JSON."""
    if text[:1] not in ("[", "{"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
