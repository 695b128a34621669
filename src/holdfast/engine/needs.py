"""What a task needs of an agent, by rules over its words; no model.

Every task needs `edit`. The other needs come from RULES: a word or phrase that stands in the text as whole words.
Words between backquotes are names of things and speak for nothing.
A rule that is wrong costs a choice, never safety: what an agent may do is for its sandbox to say.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.model.agent import Capability


class Need(NamedTuple):
    capability: Capability
    # The words of the task that say so.
    because: str


class TaskNeeds(NamedTuple):
    """`needed`: who lacks one of these is not chosen. `preferred`: who has them is chosen rather."""

    needed: tuple[Need, ...] = (Need("edit", "every task changes files"),)
    preferred: tuple[Need, ...] = ()

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(need.capability for need in self.needed)


_NEEDED: tuple[tuple[Capability, str], ...] = (
    ("person", r"by hand|manually|a person must|ask (?:me|us|a person)|sign off|in person|on paper|phone call"),
    ("offline", r"offline|air-?gapped|without (?:a |any )?(?:network|internet|model)"),
    ("shell", r"run(?! time)|execute|install|compile|benchmark|regenerate|bisect"),
)
_PREFERRED: tuple[tuple[Capability, str], ...] = (
    ("shell", r"tests?|debug|reproduce|build|profile|migrate|lint|type[- ]?check|coverage|failing"),
    ("resume", r"continue|carry on|go on with|pick up|resume"),
    ("usage", r"budget|cheaply|cost|spend|tokens?"),
    ("permission", r"carefully|ask before|dangerous|production"),
)
_CODE = re.compile(r"`[^`\n]*`")


def needs_of(text: str) -> TaskNeeds:
    """The needs of a task, each with the words it comes from, in a fixed order."""
    plain = _CODE.sub(" ", text)
    needed = (*TaskNeeds().needed, *_found(plain, _NEEDED, frozenset()))
    taken = frozenset(need.capability for need in needed)
    return TaskNeeds(needed, _found(plain, _PREFERRED, taken))


def _found(text: str, rules: tuple[tuple[Capability, str], ...], taken: frozenset[Capability]) -> tuple[Need, ...]:
    found = ((capability, _said(text, words)) for capability, words in rules if capability not in taken)
    return tuple(Need(capability, said) for capability, said in found if said)


def _said(text: str, words: str) -> str:
    match = re.search(rf"(?<![\w-])(?:{words})(?![\w-])", text, re.IGNORECASE)
    return match.group() if match is not None else ""
