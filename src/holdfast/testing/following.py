"""Where a conversation stands in its script, found from the conversation alone.

    history ──which script──▶ steps ──how many of its answers are in the history──▶ the next answer

Invariants
  F1  The same history gives the same answer: a retry repeats, a resumed session goes on, two conversations at once
      do not disturb each other. Only `Error(times=…)` needs a memory, and that is not here.
  F2  An answer in the history counts if it called a tool, or says what a script says. Examples that a program shows
      its model, and words of its own in the model's mouth, do not count.
  F3  Where a program refuses to write what its model has not read, the model reads and tries again; neither counts.
  F4  Questions on the side (a title, a topic, a quota, "who speaks next") get a short answer and are no step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.testing.conversation import Answer, Call, Conversation, Event, Model, Outcome, User, Words
from holdfast.testing.schema import WORDS, example
from holdfast.testing.script import Beat, Book, EditFile, Say, Script, Shell, Step, Stop, WriteFile, beat_at, beats
from holdfast.testing.toolbox import block, call_for, directory_of, is_reading, listing, reading, without_listings

_UNREAD = re.compile(
    r"not (?:yet )?been read|must (?:first )?(?:use the )?[`']?read|read (?:it|the file) (?:first|before)", re.I
)
_READS_AT_MOST = 2
_SMALL = 64
_ASIDE_SYSTEM = re.compile(r"\btitle\b|\btopic\b|session name|next[_ ]speaker|\bsummari[sz]e", re.I)
# A user may well want a title on a page; these are words of programs.
_ASIDE_WORDS = re.compile(
    r"^quota$|(?:concise|short|brief) (?:title|description)|(?:title|name|description) (?:for|of) this (?:session|conv)"
    r"|in (?:4|four) words|new conversation topic",
    re.I,
)
# What programs without tools ask for: edits in blocks, or whole files.
_PLAIN_EDITS, _WHOLE_FILES = "SEARCH/REPLACE", "*file listing*"


class Turn(NamedTuple):
    """What to answer. `aside`: it was no step of the script; `number` is that of the answer otherwise."""

    beat: Beat
    answer: Answer
    aside: bool = False
    number: int = 0


def next_turn(conversation: Conversation, book: Book, directory: str = "") -> Turn:
    """`directory` is the program's working directory; empty: as the program tells its model."""
    steps, since = _steps(conversation, book)
    joined = not conversation.tools
    number, unread = _place(conversation.events[since:], _texts(book))
    beat = beat_at(steps, number, joined=joined)
    if (aside := _aside(conversation, beat)) is not None:
        return Turn(Beat((), ()), aside, aside=True)
    where = directory or directory_of(conversation)
    return Turn(beat, _answer(beat, conversation, where, unread), number=number)


# ── which script ──


def _steps(conversation: Conversation, book: Book) -> tuple[tuple[Step, ...], int]:
    """The steps to follow, and from which event on their answers count."""
    script = _script(conversation.words, book)
    ended = _last_end(conversation.events, _texts(book))
    for index in range(len(conversation.events) - 1, ended - 1, -1):
        event = conversation.events[index]
        if isinstance(event, User):
            for when in script.whens:
                if _has(event.text, when.marker):
                    return when.steps, index
    return script.steps, 0


def _script(words: Iterable[str], book: Book) -> Script:
    """By the first marker in the first message that has one."""
    for text in words:
        places = {marker: found.start() for marker in book.tasks if (found := _word(marker).search(text))}
        if places:
            return book.tasks[min(places, key=lambda marker: (places[marker], marker))]
    return book.default


def _word(marker: str) -> re.Pattern[str]:
    """`task-7` is not in `task-71`."""
    return re.compile(rf"(?<![\w-]){re.escape(marker)}(?![\w-])")


def _has(text: str, marker: str) -> bool:
    return _word(marker).search(text) is not None


def _last_end(events: Sequence[Event], texts: frozenset[str]) -> int:
    """After the last answer that ended a turn."""
    ends = [index for index, event in enumerate(events) if isinstance(event, Model) and _speaks(event, texts)]
    return ends[-1] + 1 if ends else 0


# ── how far ──


def _place(events: Sequence[Event], texts: frozenset[str]) -> tuple[int, bool]:
    """How many answers count (F2), and whether the program now waits for its model to read (F3)."""
    done = refused = 0
    unread = False
    for index, event in enumerate(events):
        if not isinstance(event, Model):
            continue
        if _speaks(event, texts):
            done, refused, unread = done + 1, 0, False
        elif event.tool and is_reading(event.tool):
            unread = False
        elif event.tool:
            refused += _is_refused(events, index)
            unread = _is_refused(events, index) and refused <= _READS_AT_MOST
            if not unread:
                done, refused = done + 1, 0
    return done, unread


def _is_refused(events: Sequence[Event], index: int) -> bool:
    after = events[index + 1] if index + 1 < len(events) else None
    return isinstance(after, Outcome) and _UNREAD.search(after.text[:500]) is not None


def _speaks(event: Model, texts: frozenset[str]) -> bool:
    return not event.tool and not texts.isdisjoint({_even(event.text), _even(without_listings(event.text))})


def _texts(book: Book) -> frozenset[str]:
    """All that any script can say without a tool."""
    parts = [steps for script in book.scripts for steps in (script.steps, *(when.steps for when in script.whens))]
    found = {
        _even(text)
        for steps in parts
        for joined in (True, False)
        for beat in beats(steps, joined=joined)
        for text in (_plain_text(beat), _spoken(beat))
    }
    return frozenset((found | {_even(Stop().text)}) - {""})


def _even(text: str) -> str:
    return " ".join(text.split())


# ── what to say ──


def _answer(beat: Beat, conversation: Conversation, directory: str, unread: bool) -> Answer:
    reply = beat.replies[0]
    if conversation.tools and isinstance(reply, (WriteFile, EditFile, Shell)):
        look = reading(reply.path, conversation.tools, directory) if unread and not isinstance(reply, Shell) else None
        call = look or call_for(reply, conversation.tools, directory)
        if call is not None:
            return call
    if _asks_for(conversation, _WHOLE_FILES):
        seen = tuple(conversation.words)
        return Words("\n\n".join(listing(reply, seen) for reply in beat.replies))
    return Words(_plain_text(beat))


def _plain_text(beat: Beat) -> str:
    return "\n\n".join(block(reply) for reply in beat.replies)


def _spoken(beat: Beat) -> str:
    """What is left of an answer without the files in it."""
    return "\n\n".join(reply.text for reply in beat.replies if isinstance(reply, (Say, Stop)))


def _asks_for(conversation: Conversation, form: str) -> bool:
    return form in conversation.system or any(form in words for words in conversation.words)


def _aside(conversation: Conversation, beat: Beat) -> Answer | None:
    """The answer to a question on the side; None when it is the work itself (F4)."""
    if conversation.tools:
        return _forced(conversation, beat)
    if _asks_for(conversation, _PLAIN_EDITS) or _asks_for(conversation, _WHOLE_FILES):
        return None
    if conversation.schema is not None:
        return None if _is_json(beat) else Words(json.dumps(example(conversation.schema or {"type": "object"})))
    small = conversation.max_tokens is not None and conversation.max_tokens <= _SMALL
    last = next(reversed(list(conversation.words)), "")
    named = _ASIDE_SYSTEM.search(conversation.system) or _ASIDE_WORDS.search(last)
    return Words(WORDS) if small or named else None


def _forced(conversation: Conversation, beat: Beat) -> Answer | None:
    """One tool that must be called and that no step can use: the program wants a form filled in."""
    work = [reply for reply in beat.replies if isinstance(reply, (WriteFile, EditFile, Shell))]
    if not conversation.forced or len(conversation.tools) != 1:
        return None
    if work and call_for(work[0], conversation.tools, "") is not None:
        return None
    (tool,) = conversation.tools
    return Call(tool, {name: example(tool.properties.get(name, {})) for name in tool.required})


def _is_json(beat: Beat) -> bool:
    reply = beat.replies[0]
    if not isinstance(reply, Say):
        return False
    try:
        json.loads(reply.text)
    except ValueError:
        return False
    return True
