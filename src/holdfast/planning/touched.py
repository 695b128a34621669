"""Which files a task is about, as far as its words and hints say.

    names     it will probably change: its file hints, and what its title and subtasks speak of
    makes     of these, what it shall create
    mentions  what only its prose or code speaks of: worth a look, and worth waiting for when another task makes it

A hint with a wildcard stands for the folder above it. What is no path of the workspace is left out: it orders nothing.
Words are full of names with a dot in them (os.path, Node.js): without a slash, one counts only if it ends like a file.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.errors import InvalidPath
from holdfast.model.path import checked_path
from holdfast.model.task import Task
from holdfast.planning.expected import expected_files, mentioned_files
from holdfast.planning.filekinds import kind_of_file

_MOST_HINTS = 200
_LINES = re.compile(r":\d+(?:[-:]\d+)?\Z")
_DATA = re.compile(r"(?i)\.(?:txt|csv|tsv|log|lock|svg|png|jpe?g|gif|pdf|proto|graphql|vue|svelte|zig|ipynb)\Z")
_PRODUCT = re.compile(r"[A-Z]\w*\.js\Z")
_WILD = re.compile(r"[*?\[{]")


class Touched(NamedTuple):
    names: tuple[str, ...]
    makes: tuple[str, ...]
    mentions: tuple[str, ...]


def touched_by(task: Task) -> Touched:
    words = asked_words(task)
    makes = dict.fromkeys((*expected_files(words), *expected_files(task.body)))
    hints = [path for hint in task.files[:_MOST_HINTS] if (path := _hinted(hint)) is not None]
    names = dict.fromkeys((*hints, *makes, *_spoken_of(words)))
    mentions = [path for path in _spoken_of(task.body) if path not in names]
    return Touched(tuple(names), tuple(makes), tuple(mentions))


def asked_words(task: Task) -> str:
    """What the task itself asks for: its title and what is still to do of its subtasks."""
    return "\n".join((task.title, *(subtask.text for subtask in task.subtasks if not subtask.done)))


def _spoken_of(words: str) -> list[str]:
    return [path for path in mentioned_files(words) if "/" in path or ends_like_a_file(path)]


def ends_like_a_file(name: str) -> bool:
    """`os.path` and `Node.js` do not."""
    return not _PRODUCT.match(name) and (kind_of_file(name) != "other" or _DATA.search(name) is not None)


def _hinted(hint: str) -> str | None:
    """The path of a hint; the empty path is the whole workspace."""
    path = _LINES.sub("", hint.strip().strip("`")).removeprefix("./")
    if (wild := _WILD.search(path)) is not None:
        path = path[: wild.start()].rpartition("/")[0]
        if not path:
            return ""
    try:
        return checked_path(path)
    except InvalidPath:
        return None
