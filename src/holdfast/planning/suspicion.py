"""What in a request does not belong there: words for a shell, words for a model, characters nobody can see.

Suspicion proves nothing and decides nothing: it keeps words from becoming steps and raises the risk,
so that a person looks. What is between quotes is content and may say anything; only invisible characters count there.
"""

from __future__ import annotations

import re

from holdfast.model.path import printable

# Longer than a paragraph is a document, and rules about words say nothing about documents.
MAX_LENGTH = 4000

QUOTED = re.compile(r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"|`[^`\n]*`|‘[^’\n]*’|“[^”\n]*”")

_SHELL = re.compile(
    r"\$\(|\$\{|`|&&|\|\||(?<!\w)\|(?!\w)|;\s*(?:rm|curl|wget|sh|bash|sudo|dd|mkfs)\b|>>?\s*/|\brm\s+-\w*[rf]"
)
_TO_A_MODEL = re.compile(
    r"\b(?:ignore|disregard|forget)\b[^.!?]{0,40}\b(?:instructions?|rules?|prompts?|above|previous)\b"
    r"|\bsystem prompt\b|\byou are now\b|\bact as\b[^.!?]{0,20}\b(?:root|admin|developer mode)\b"
    r"|<\|?(?:system|im_start)\b",
    re.IGNORECASE,
)
_PAST_THE_GATE = re.compile(
    r"\b(?:skip|bypass|disable|avoid|without|turn off|circumvent)\b[^.!?]{0,30}"
    r"\b(?:approvals?|checks?|gates?|policy|policies|review|verification|sandbox|audit|ledger)\b"
    r"|\bapprove\b[^.!?]{0,20}\b(?:yourself|everything|automatically)\b|\bauto-?approve\b",
    re.IGNORECASE,
)


def suspicions(text: str) -> tuple[str, ...]:
    """Sentences about what is odd; empty for an ordinary request."""
    found = []
    if len(text) > MAX_LENGTH:
        found.append(f"the text is longer than {MAX_LENGTH} characters")
        text = text[:MAX_LENGTH]
    if any(ch not in "\n\t" and printable(ch) != ch for ch in text):
        found.append("the text holds characters that cannot be seen")
    plain = QUOTED.sub(" ", text)
    for pattern, sentence in (
        (_SHELL, "the text speaks to a shell; no shell is ever used"),
        (_TO_A_MODEL, "the text gives orders to a model"),
        (_PAST_THE_GATE, "the text asks to go past a check"),
    ):
        if pattern.search(plain):
            found.append(sentence)
    return tuple(found)
