"""Which files matter for a task in words: two orders, by what files say and by what they are called, made one.

    words ─▶ terms ─┬▶ BM25 over the contents ─┐
                    └▶ BM25 over the paths ────┴▶ the sum of 1 / (60 + rank) ─▶ source, tests, words

A name such as `parseDate` or `parse_date` counts as a whole and as its parts.

Invariants
  R1  The same words and files give the same order, in whatever order the files come.
  R2  A file that shares no term with the task is not in the order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.model.testfiles import is_test_file

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{1,60}|[^\W\d_][^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_TOO_COMMON = frozenset(
    """a add also an and are as at be but by can change check code do does each file files fix for from has have if in
    into is it its make makes must new no not of on one only or return returns self should so test tests that the their
    them then there these this to use used uses was when where which will with work works""".split()
)
_SATURATION, _LENGTH = 1.2, 0.75
_RANK = 60
_WORDS = (".md", ".rst", ".txt", ".adoc", ".tex", ".org")


class Document(NamedTuple):
    path: str
    text: str


def terms(text: str) -> list[str]:
    """Lower case; names in one piece and in their parts, words that say nothing left out."""
    found = []
    for word in _WORD.findall(text):
        parts = [part.lower() for part in _PART.findall(word) if len(part) > 1]
        found += [word.lower(), *parts] if len(parts) > 1 or parts != [word.lower()] else parts
    return [term for term in found if term not in _TOO_COMMON]


def ranked(task: str, documents: Iterable[Document]) -> tuple[str, ...]:
    """The paths that matter for the task, the likeliest first."""
    wanted = frozenset(terms(task))
    found = sorted(documents)
    paths = [document.path for document in found]
    orders = (
        _ordered(wanted, paths, [terms(document.text) for document in found]),
        _ordered(wanted, paths, [terms(path) for path in paths]),
    )
    score: dict[str, float] = {}
    for order in orders:
        for rank, path in enumerate(order):
            score[path] = score.get(path, 0) + 1 / (_RANK + rank)
    return tuple(sorted(score, key=lambda path: (_apart(path), -score[path], path)))


def _apart(path: str) -> int:
    """Source, then tests, then words: the last two fill the top of every such order, and are rarely what changes."""
    return 1 if is_test_file(path) else 2 if path.lower().endswith(_WORDS) else 0


def _ordered(wanted: frozenset[str], paths: Sequence[str], contents: Sequence[Sequence[str]]) -> list[str]:
    """By BM25; only those that have one of the terms."""
    counts = [Counter(term for term in content if term in wanted) for content in contents]
    average = sum(map(len, contents)) / (len(contents) or 1) or 1
    having = Counter(term for count in counts for term in count)
    weight = {term: math.log(1 + (len(paths) - n + 0.5) / (n + 0.5)) for term, n in having.items()}

    def score(count: Counter[str], length: int) -> float:
        bound = _SATURATION * (1 - _LENGTH + _LENGTH * length / average)
        return sum(weight[term] * n * (_SATURATION + 1) / (n + bound) for term, n in count.items())

    rows = zip(paths, counts, map(len, contents), strict=True)
    scores = {path: score(count, length) for path, count, length in rows if count}
    return sorted(scores, key=lambda path: (-scores[path], path))
