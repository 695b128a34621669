"""From the words of an intent to its class, by rules a person can follow; no model.

    text ─▶ without quotes ─▶ phrases ─▶ clauses ─▶ words, less what is negated ─▶ weights ─▶ class

Rules
  K1  What is between quotes is content, not a request.
  K2  A word after a negation speaks for nothing, until its clause ends. A phrase ("does not work") is read before.
  K3  The first verb of the first clause counts double: it says what is to be done.
  K4  A question asks to know: it is an investigation, unless it is a polite request ("could you fix …").
  K5  A file that is named speaks weakly for the class that fits its kind.
  K6  The class with the most weight wins. Little weight, a tie or a small share is `unknown`: never a guess.
  K7  A text that is not recognisably English, or longer than a paragraph, is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.planning.filekinds import FileKind, kind_of_file
from holdfast.planning.lexicon import (
    CLASSES,
    CLAUSE_ENDS,
    COMMON,
    NEGATIONS,
    NOUNS,
    PHRASES,
    POLITE,
    QUESTIONS,
    VERBS,
    Class,
)
from holdfast.planning.suspicion import MAX_LENGTH, QUOTED, suspicions

_ENOUGH = 3
_SHARE = 40
_QUESTION_WEIGHT = 7
_CLAUSE = re.compile(r"[.!?;:,\n]+(?:\s+|$)|(?<!\s)\s+[-—]+\s+")
_WORD = re.compile(r"[^\W_](?:[\w'+./@-]*\w)?(?:/(?=\W|$))?|\.[\w./-]*\w", re.UNICODE)
_PATH = re.compile(r".*/.*|.+\.[A-Za-z0-9]{1,10}|\.\w[\w.-]*|(?:[A-Z]+|[Dd]ockerfile|[Mm]akefile)$")
_ASKED_OF = re.compile(r"^(?:can|could|would|will) (?:you|we|someone)\b")
_PHRASES = tuple((re.compile(rf"(?<!\w){pattern}(?!\w)"), kind, weight) for pattern, kind, weight in PHRASES)
_OF_FILES: dict[FileKind, Class] = {"documentation": "update_docs", "configuration": "configure"}


def _table(source: dict[Class, dict[int, str]]) -> dict[str, tuple[Class, int]]:
    return {
        word: (kind, weight)
        for kind, weights in source.items()
        for weight, words in weights.items()
        for word in words.split()
    }


_VERBS = _table(VERBS)
_NOUNS = _table(NOUNS)
_ENGLISH = frozenset((*_VERBS, *_NOUNS, *COMMON, *POLITE, *QUESTIONS, *NEGATIONS, *CLAUSE_ENDS))


class Evidence(NamedTuple):
    """One word, phrase or path, and how much it speaks for a class."""

    word: str
    speaks_for: Class
    weight: int


@dataclass(frozen=True, slots=True)
class Classified:
    """The class of an intent. `confidence` is the winner's share of all weight, in percent; 0 for `unknown`."""

    kind: Class
    confidence: int
    evidence: tuple[Evidence, ...]
    # Why it is unknown; empty otherwise.
    doubt: str = ""
    suspicions: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        return {
            "class": self.kind,
            "confidence": self.confidence,
            "evidence": [item._asdict() for item in self.evidence],
            "doubt": self.doubt,
            "suspicions": list(self.suspicions),
        }


def classify(text: str) -> Classified:
    """The class of a request in words, with the evidence."""
    odd = suspicions(text)
    if not text.strip():
        return Classified("unknown", 0, (), "there are no words", odd)
    if len(text) > MAX_LENGTH:
        return Classified("unknown", 0, (), "the text is too long to be judged by its words", odd)
    plain = QUOTED.sub(" ", text)  # K1
    if not _is_english(plain):
        return Classified("unknown", 0, (), "too few of the words are known", odd)
    evidence = tuple(_evidence(plain))
    return _judged(evidence, odd)


def _judged(evidence: tuple[Evidence, ...], odd: tuple[str, ...]) -> Classified:
    weights = {kind: sum(item.weight for item in evidence if item.speaks_for == kind) for kind in CLASSES}
    best, confidence = max(weights.values()), 100 * max(weights.values()) // max(1, sum(weights.values()))
    winners = [kind for kind, weight in weights.items() if weight == best]
    if best < _ENOUGH:
        return Classified("unknown", 0, evidence, "no word says clearly what is wanted", odd)
    if len(winners) > 1:
        return Classified("unknown", 0, evidence, f"the words speak as much for {' as for '.join(winners)}", odd)
    if confidence < _SHARE:
        several = ", ".join(kind for kind, weight in weights.items() if weight >= _ENOUGH)
        return Classified("unknown", 0, evidence, f"the words speak for several things: {several}", odd)
    return Classified(winners[0], confidence, evidence, "", odd)


def _is_english(text: str) -> bool:
    """K7: the first word is a verb we know, or a third of the words are known. Names of files are in no language."""
    words = [word.lower() for word in _WORD.findall(text) if not _PATH.fullmatch(word)]
    words = [word for word in words if word not in POLITE] or words
    if not words:
        return True  # only paths: there is too little weight to be anything but unknown
    return words[0] in _VERBS or 3 * sum(word in _ENGLISH for word in words) >= len(words)


def _evidence(text: str) -> Iterator[Evidence]:
    """All that speaks for a class, in the order of the text, phrases first."""
    lowered, question = text.lower().replace("’", "'"), text.rstrip().endswith("?")
    for pattern, kind, weight in _PHRASES:
        for found in pattern.finditer(lowered):
            yield Evidence(found.group(), kind, weight)
        text = _blanked(text, pattern)
    clauses = [clause for clause in _CLAUSE.split(text) if clause.strip()]
    for number, clause in enumerate(clauses):
        yield from _of_clause(clause, leading=number == 0, question=question and number == len(clauses) - 1)


def _blanked(text: str, pattern: re.Pattern[str]) -> str:
    """A phrase that was read is read only once; the spelling of the rest stays."""
    lowered = text.lower().replace("’", "'")
    if len(lowered) != len(text):
        return text  # a few letters change length with their case, and places would no longer fit
    for match in pattern.finditer(lowered):
        text = text[: match.start()] + " " * (match.end() - match.start()) + text[match.end() :]
    return text


def _of_clause(clause: str, *, leading: bool, question: bool) -> Iterator[Evidence]:
    words = _WORD.findall(clause)
    first = next((word.lower() for word in words if word.lower() not in POLITE), "")
    asked = first in QUESTIONS and not _ASKED_OF.match(" ".join(words).lower())
    if (asked and (question or first in ("why", "how"))) or (question and not _ASKED_OF.match(clause.lower().strip())):
        yield Evidence(first or "?", "investigate", _QUESTION_WEIGHT)  # K4
    waiting = leading and not asked  # for the first verb (K3)
    negated = False
    for word in words:
        lowered = word.lower()
        if lowered in NEGATIONS:
            negated = True
            continue
        if lowered in CLAUSE_ENDS:
            negated = False
        if negated:
            continue  # K2
        if lowered in _VERBS:
            kind, weight = _VERBS[lowered]
            yield Evidence(lowered, kind, 2 * weight if waiting else weight)
            waiting = False
        elif lowered in _NOUNS:
            yield Evidence(lowered, *_NOUNS[lowered])
        elif _PATH.fullmatch(word) and (named := _OF_FILES.get(kind_of_file(word))) is not None:
            yield Evidence(word, named, 3)  # K5
