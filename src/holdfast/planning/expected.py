"""Files a task must leave behind, as far as its words say so: deterministic, and silent when in doubt.

Only what the words ask to be made counts: `create`, `add`, `write` and their like, followed by a name with a suffix.
A file that is only mentioned ("fix the bug in app.py") is worth a look, and nothing more.
"""

from __future__ import annotations

import re

from holdfast.errors import InvalidPath
from holdfast.model.path import checked_path

_FILE = r"`?(?P<path>(?:[\w.@+-]+/)*\.?[\w@+-][\w.@+-]*\.[A-Za-z0-9]{1,8})`?(?![\w/])"
_ABOUT = "a|an|the|new|empty|file|module|script|test|tests|called|named|at|python|small|simple"
_MAKING = re.compile(rf"(?i)\b(?:create|add|write|generate|make|introduce|produce)(?:\s+(?:{_ABOUT}))*\s+" + _FILE)
_MORE = re.compile(rf"(?i)\s*(?:,|and|,\s*and)(?:\s+(?:{_ABOUT}))*\s+" + _FILE)
# Just before a verb: what follows is not to be made.
_NOT = re.compile(r"(?i)(?:\b(?:not|never|without|avoid|cannot)|n['’]t)\s+(?:ever\s+|also\s+)?\Z")
_NEGATION = 24
_MENTIONED = re.compile(r"(?<![\w/.-])" + _FILE)
# Abbreviations, versions, and addresses of mail.
_NO_FILE = re.compile(r"(?i)(?:e\.g|i\.e|etc\.|\d+\.\d+|v\d|[^/]+@[^/]+\Z)")
_MOST = 50


def expected_files(task: str) -> tuple[str, ...]:
    """The files that the task asks to be made, in its order."""
    found: dict[str, None] = {}
    for match in _MAKING.finditer(task):
        if _NOT.search(task, max(0, match.start() - _NEGATION), match.start()):
            continue
        _note(found, match["path"])
        end = match.end()
        while (more := _MORE.match(task, end)) is not None:
            _note(found, more["path"])
            end = more.end()
    return tuple(found)[:_MOST]


def mentioned_files(task: str) -> tuple[str, ...]:
    """Everything in the task that reads like a file of the workspace."""
    found: dict[str, None] = {}
    for match in _MENTIONED.finditer(task):
        _note(found, match["path"])
    return tuple(found)[:_MOST]


def path_in(word: str) -> str | None:
    """The path that a word with a suffix names; None for what only looks like one."""
    if _NO_FILE.match(word):
        return None
    try:
        return checked_path(word)
    except InvalidPath:
        return None  # words, not a path of the workspace: nothing to expect there


def _note(found: dict[str, None], word: str) -> None:
    if (path := path_in(word)) is not None:
        found[path] = None
