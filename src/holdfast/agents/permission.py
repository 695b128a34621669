"""Permission: what an agent that asks first is answered. By policy, since nobody sits beside it.

Rules
  R1  What happens in its workspace, its HOME and its scratch space may happen: the sandbox is the border.
  R2  What names another place, or what is Holdfast's own, is denied. It could not be done either; but so the record
      shows that it was tried.
  R3  An answer is chosen by the kind of an option, never by its name; once rather than for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.agents.events import Event, kept

_ALLOW, _REJECT = ("allow_once", "allow_always"), ("reject_once", "reject_always")
_SCRATCH = ("/tmp", "/var/tmp")
_OURS = ".holdfast"
# Where programs put the path into a tool's input, besides the places that the protocol has for it.
_INPUTS = ("path", "file_path", "filePath", "filepath", "absolute_path", "notebook_path", "dir_path", "directory")
_MOST_TITLE = 300


class Answer(NamedTuple):
    """`option` is the id of what was chosen; empty when nothing fits, and then nothing is allowed."""

    title: str
    allowed: bool
    option: str


def answer(asked: Event, own: tuple[str, ...]) -> Answer:
    """To the parameters of a `session/request_permission`; `own` are the directories that are the agent's."""
    title = kept(asked.text("toolCall", "title"), _MOST_TITLE) or "something without a title"
    may = not any(_is_elsewhere(path, (*own, *_SCRATCH)) for path in _named(asked.at("toolCall")))
    # Backwards, so that the first of a kind is the one that stays.
    options = {option.text("kind"): option.text("optionId") for option in reversed(asked.each("options"))}
    chosen = next((options[kind] for kind in (_ALLOW if may else _REJECT) if options.get(kind)), "")
    return Answer(title, may and bool(chosen), chosen)


def _named(call: Event) -> Iterator[str]:
    for place in (*call.each("locations"), *call.each("content")):
        yield place.text("path")
    for name in _INPUTS:
        yield call.text("rawInput", name)


def _is_elsewhere(path: str, own: tuple[str, ...]) -> bool:
    names = path.split("/")
    if ".." in names or _OURS in names:
        return True
    return path.startswith("/") and not any(f"{path}/".startswith(f"{place.rstrip('/')}/") for place in own)
