"""The files that the words of a task name as places of work. Deterministic, and silent in doubt.

    "Add `slugify(text)` to `src/text.py`"     changed: src/text.py
    "Delete the old module legacy.py"          gone: legacy.py
    "Fix the crash that tests/test_a.py shows" nothing: what a clause of reason or purpose names is no place to work at

A sentence counts that begins with a verb of work, or with the place ("In app.py, …"). Of its files count the verb's
object and those behind a preposition of place; nothing counts that is denied, compared or pointed to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.planning.expected import path_in
from holdfast.planning.filekinds import kind_of_file
from holdfast.planning.touched import ends_like_a_file

_MOST = 50
_LONGEST = 20_000
_LONGEST_SENTENCE = 1_000
FILE = r"(?:[\w.@+-]+/)*\.?[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}"
_A_FILE = rf"`?(?P<path>{FILE})`?(?![\w/(])"
_SENTENCES = re.compile(r"[;\n]|[.!?](?=\s|$)")
# See `planning.task_words`: subtasks that are no longer to do.
_DONE = re.compile(r"(?m)^This of it is done already:\n(?:- .*\n?)*")
_LABEL = re.compile(r"^(?:[-*•]\s+|\d+[.)]\s+|(?:Goal|[A-Z]{0,3}\d[\w.]*):\s+|please\s+|(?:\[[ xX]\])\s*)+", re.I)
_VERB = (
    "add|adjust|adapt|amend|append|apply|bump|change|clean|clarify|complete|convert|correct|create|declare|define|delete"
    "|document|drop|edit|enable|ensure|expand|expose|extend|extract|finish|fix|generate|handle|implement|improve|include"
    "|insert|introduce|let|list|make|mark|mention|modify|move|note|optimi[sz]e|port|print|provide|put|raise|refactor"
    "|register|remove|rename|reorder|replace|return|rewrite|set|show|simplify|sort|speed|split|store|support|swap|switch"
    "|teach|translate|turn|update|use|validate|wire|wrap|write"
)
_BEGINS = re.compile(rf"(?i)(?:{_VERB})\b")
_WORK = rf"(?:please\s+)?(?P<verb>{_VERB})\b"
# "Add x to a.py and update b.md" are two things to do.
_AND = re.compile(rf"(?i)(?:,\s*(?:and\s+|then\s+)?|\s+and\s+(?:then\s+)?|\s+then\s+)(?=(?:{_VERB})\s)")
_PLACE_FIRST = re.compile(
    rf"(?i)^(?:in|inside|within)\s+(?:the\s+(?:(?:file|module|script)\s+)?)?{_A_FILE}\s*[,:]?\s+{_WORK}"
)
_LABELLED = re.compile(rf"(?i)^{_A_FILE}\s*(?::|—|–|-)\s+{_WORK}")
# From here on a sentence says why, when, or like what.
_BEHIND = re.compile(
    r"""(?ix) [,\s(] (?: so | because | since | when(?:ever)? | where | while | until | unless | if | which | that
    | whose | as\ (?:in|described|documented|defined|shown|seen) | like | see | using | based | according | instead
    | rather | without | except | but | not | never | don['’]t | do\ not | e\.?g | such\ as | similar | via | from
    ) \b"""
)
# What is behind `from` is a place too.
_FROM = re.compile(r"(?i)^(?:move|extract|split|pull|port|remove|delete|drop|strip)\b")
_OBJECT = r"(?:the|a|an|our|file|files|module|modules|script|existing|both|docs|documentation|tests|test)"
# With other verbs it may be an item of a list: "Add README.md to the manifest".
_OF_FILES = (
    "update|change|edit|modify|extend|adjust|adapt|correct|refactor|rewrite|simplify|clean up|improve|complete|finish"
    "|translate|reorder|sort|expand|amend|split|optimi[sz]e|create|write|generate|rename|move|fix"
)
_DIRECT = re.compile(rf"(?i)^(?:{_OF_FILES})(?:\s+(?:{_OBJECT}))*\s+{_A_FILE}")
_AT = re.compile(rf"(?i)(?<![\w-])(?:in|inside|into|within)\s+(?:(?:{_OBJECT})\s+)*{_A_FILE}")
_OUT_OF = re.compile(rf"(?i)(?<![\w-])from\s+(?:(?:{_OBJECT})\s+)*{_A_FILE}")
# Only these are sure to be about the file, where it holds data or settings that a program reads.
_OF_DATA = re.compile(
    r"(?i)^(?:add|append|bump|change|correct|declare|fix|insert|list|mark|put|remove|rename|set|update|sort)\b"
)
# The code may be what is wrong, where a test is to be mended.
_MENDS = re.compile(r"(?i)^(?:fix|make|ensure)\b")
_TO = re.compile(rf"(?i)(?<![\w-])to\s+(?:(?:{_OBJECT})\s+)*{_A_FILE}")
_TO_VERB = re.compile(
    r"(?i)^(?:add|append|move|extract|apply|port|rename|include|insert|extend|document|note|mention)\b"
)
# A program of the user's writes, sends or points to what comes after these.
_NO_PLACE = re.compile(
    r"(?i)\b(?:to|links?|refers?|references?|points?|points?er|writ\w*|log\w*|sav\w*|exports?|outputs?|prints?|dump\w*|stor\w*"
    r"|sends?|reads?|load\w*|equal|relative|next|respect|access)\s+(?:\S+\s+){0,4}?$"
)
_MORE = re.compile(rf"(?i)\s*(?:,\s*and|,|and|&)\s+(?:(?:{_OBJECT})\s+)*{_A_FILE}")
_DELETES = re.compile(
    rf"(?i)^(?:delete|remove|drop)\s+(?:(?:the|old|unused|obsolete|dead|file|files|module|script)\s+)*{_A_FILE}"
)


class Named(NamedTuple):
    """`changed` must be changed or made, `gone` must not be there any more."""

    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Clause(NamedTuple):
    """One thing to do: from its verb on, and the files where it is to be done."""

    text: str
    places: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def named_in(words: str) -> Named:
    """The files that the task names, in its order."""
    changed: dict[str, None] = {}
    gone: dict[str, None] = {}
    for clause in clauses_of(words):
        changed.update(dict.fromkeys(clause.places))
        gone.update(dict.fromkeys(clause.gone))
    return Named(tuple(changed)[:_MOST], tuple(path for path in gone if path not in changed)[:_MOST])


def clauses_of(words: str) -> Iterator[Clause]:
    """What the task asks to be done, one verb each; reasons, conditions and comparisons are left out."""
    for piece in _SENTENCES.split(_DONE.sub("", words[:_LONGEST])):
        sentence = _LABEL.sub("", piece.strip())
        if len(sentence) > _LONGEST_SENTENCE:
            continue
        first = _PLACE_FIRST.match(sentence) or _LABELLED.match(sentence)
        place = tuple(_paths(first["path"])) if first is not None else ()
        rest = sentence[first.start("verb") :] if first is not None else sentence
        if not _BEGINS.match(rest):
            continue
        for text in _AND.split(_asked(rest)):
            yield _clause(text, place)


def _asked(sentence: str) -> str:
    """The part that says what is to be done."""
    start = 0
    while (found := _BEHIND.search(sentence, start)) is not None:
        if found[0][1:].lower() != "from" or not _FROM.match(sentence):
            return sentence[: found.start()]
        start = found.end()
    return sentence


def _clause(text: str, first: tuple[str, ...]) -> Clause:
    if (deleted := _DELETES.match(text)) is not None:
        return Clause(text, gone=tuple(_with_more(text, deleted)))
    found = (path for path in _places_in(text) if _is_sure(path, text))
    return Clause(text, tuple(dict.fromkeys((*first, *found))))


def _is_sure(path: str, text: str) -> bool:
    kind = kind_of_file(path)
    if kind == "test" and _MENDS.match(text):
        return False
    return kind in ("code", "test", "documentation") or _OF_DATA.match(text) is not None


def _places_in(text: str) -> Iterator[str]:
    if (direct := _DIRECT.match(text)) is not None:
        yield from _with_more(text, direct)
    forms = [_AT, *([_TO] if _TO_VERB.match(text) else []), *([_OUT_OF] if _FROM.match(text) else [])]
    for form in forms:
        for found in form.finditer(text):
            if form is not _TO or not _NO_PLACE.search(text, max(0, found.start() - 80), found.start()):
                yield from _with_more(text, found)


def _with_more(text: str, found: re.Match[str]) -> Iterator[str]:
    yield from _paths(found["path"])
    end = found.end()
    while (more := _MORE.match(text, end)) is not None:
        yield from _paths(more["path"])
        end = more.end()


def _paths(word: str) -> Iterator[str]:
    path = path_in(word)
    if path is not None and ("/" in path or ends_like_a_file(path)):
        yield path
