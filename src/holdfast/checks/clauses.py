"""Clauses: a text cut at its joints, with what must not be cut set aside first.

Commands in backticks, quoted texts and URLs become single marks: a dot, a comma or an `and` in them is no joint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_TEXT = 10_000
MAX_CLAUSE = 300
COMMAND, QUOTE, URL = "\ue000", "\ue001", "\ue002"
_MARKS = re.compile(f"[{COMMAND}{QUOTE}{URL}]")
_ASIDE = re.compile(
    r"`(?P<command>[^`\n]+)`"
    r"|\"(?P<quote>[^\"\n]+)\"|“(?P<curly>[^”\n]+)”|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)"
    r"|(?P<url>(?:https?|postgres(?:ql)?|rediss?)://[^\s<>\"'`]+|sqlite:[^\s<>\"'`,;]+)"
)
_BULLET = re.compile(r"(?m)^[ \t]*(?:[-*•]|\d+[.)])[ \t]+")
# `unit and integration tests` are one thing.
_KINDS_OF_TESTS = re.compile(
    r"\b((?:unit|integration|regression|functional|end-to-end|e2e)(?:,? and |, | & |/))+(?=\w+[- ]?\w* tests?\b)", re.I
)
_JOINTS = re.compile(r"[;\n]|[.!](?=\s|$)|,(?!\d)|\b(?:and then|then|and|also|finally|afterwards|plus)\b|&(?=\s)", re.I)
_FILLER = re.compile(
    r"^(?:please|first|next|lastly|just|now|i want (?:you )?to|we (?:should|must|need to)|you (?:should|must)|"
    r"(?:be|make) (?:sure|certain)(?: that)?|ensure(?: that)?|verify(?: that)?|confirm(?: that)?|see(?: that)?|"
    r"check(?: that| whether| if(?= the| all| every))?|validate(?: that)?|assert(?: that)?|test (?:that|whether))\s+",
    re.I,
)


class Clause(NamedTuple):
    """`text` as it was written; `plain` in lower case with marks; what the marks stand for, in their order."""

    text: str
    plain: str
    original: str
    commands: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @property
    def bare(self) -> bool:
        """Words only: nothing was set aside."""
        return not (self.commands or self.quotes or self.urls)


def clauses_of(text: str) -> Iterator[Clause]:
    aside: list[tuple[str, str]] = []

    def put_aside(found: re.Match[str]) -> str:
        if found["command"]:
            aside.append((COMMAND, found["command"]))
            return COMMAND
        if found["url"]:
            url = found["url"].rstrip(".,;:!?)]}")
            aside.append((URL, url))
            return URL + found["url"][len(url) :]
        aside.append((QUOTE, found["quote"] or found["curly"] or found["single"]))
        return QUOTE

    marked = _ASIDE.sub(put_aside, _MARKS.sub("", text[:MAX_TEXT]))
    marked = _KINDS_OF_TESTS.sub("", _BULLET.sub("\n", marked))
    if len(text) > MAX_TEXT:
        marked += f"\n{text[MAX_TEXT:][:40]}"
    taken = iter(aside)
    for piece in _JOINTS.split(marked):
        things = [next(taken) for _ in _MARKS.findall(piece)]
        if clause := _clause(piece, things):
            yield clause


def _clause(piece: str, things: list[tuple[str, str]]) -> Clause | None:
    original = " ".join(piece.split()).strip(" ,:")
    spoken = original
    for mark, thing in things:
        spoken = spoken.replace(mark, f"`{thing}`" if mark == COMMAND else f'"{thing}"' if mark == QUOTE else thing, 1)
    while (shorter := _FILLER.sub("", original)) != original:
        original = shorter
    if not re.search(r"\w", _MARKS.sub("x", original)):
        return None
    groups = {mark: tuple(thing for kind, thing in things if kind == mark) for mark in (COMMAND, QUOTE, URL)}
    return Clause(spoken, original.lower(), original, groups[COMMAND], groups[QUOTE], groups[URL])
