"""One glance over many texts at once: in which of them could a secret be at all?

    texts ──joined, many characters at a time──▶ literals · runs · values ──▶ the few to look at closely

A search of its own in every text costs more than the texts do: most have nothing that even looks like a secret.

Invariants
  G1  Never too few: a text in which `secrets` finds something is always among the suspects. Too many only cost time.
  G2  Each character is looked at a bounded number of times, whatever the texts say.

How G1 holds. A character that is not ASCII may be a letter, a digit or neither, so it counts as all of them; so does
`?`, which stands for it here. Between two texts is an end of line, which no literal, run or assignment crosses.
Zero bytes are taken out for a second search (`secrets`): a text that has some is a suspect.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from holdfast.gates.evidence import Text
from holdfast.gates.shapes import NAMES, RUN, SHAPES, Place

# So many characters at once: enough to make a call count for little, few enough to stay in the processor's cache.
_AT_ONCE = 1 << 18
_ADDRESS = b"://"
# Before the `@`: `://`, the longest user, a colon, the longest password.
_ADDRESS_REACH = len(_ADDRESS) + 64 + 1 + 128
# Before a sign: the longest of NAMES, the rest of the name, what closes it, blanks.
_NAME_REACH = max(map(len, NAMES)) + 40 + 3 + 8
_FEW_SIGNS = 256
_NAMES = tuple(name.encode("ascii") for name in NAMES)


def _table(classes: Sequence[tuple[str, str]], rest: str) -> bytes:
    """For `bytes.translate`: each character of ASCII becomes the name of the first class that holds it."""
    return bytes(
        ord(next((name for name, members in classes if chr(code) in members), rest)) for code in range(128)
    ).ljust(256, b" ")


_TOKEN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_RUNS = _table([("a", _TOKEN + "?")], " ")
_RUN = b"a" * RUN
# Signs, what may stand between a sign and its value, what no value holds, digits; everything else is `a`.
_VALUES = _table(
    [("=", "=:"), (" ", " \t\"'`>"), ("0", "0123456789?"), ("\n", "\n\v\f\r\x1c\x1d\x1e\x1f,;<(){}")],
    "a",
)
# A sign (the first of several in a row: a name stands before it) and a value of twelve or more with a digit in it;
# none in the first sixty is rare and may pass. It begins with a character, which is found fastest.
_ASSIGNED = re.compile(rb"=(?<!==)(?==? {0,10}+(?=[a0=]{12})(?:[a=]{0,60}+0|[a=]{61}))")


def _literals(place: Place) -> tuple[bytes, ...]:
    return tuple(literal.encode("ascii") for shape in SHAPES if shape.place == place for literal in shape.literals)


_ALONE = tuple(literal for literal in _literals("alone") if literal != _ADDRESS)
_IN_A_RUN = _literals("in a run")
_BEFORE_A_RUN = tuple(literal.decode("ascii") for literal in _literals("before a run"))


def suspects(texts: Iterable[Text]) -> Iterator[Text]:
    """Those in which something could be found, in their order."""
    batch: list[Text] = []
    size = 0
    for text in texts:
        if text.added:
            batch.append(text)
            size += len(text.added)
        if size >= _AT_ONCE:
            yield from _suspects(batch)
            batch, size = [], 0
    if batch:
        yield from _suspects(batch)


def _suspects(batch: Sequence[Text]) -> Iterator[Text]:
    # One by one: a single character that is not ASCII would make all of them wide together.
    data = b"\n".join([text.added.encode("ascii", "replace") for text in batch]) + b"\n"
    ends = list(accumulate([len(text.added) + 1 for text in batch]))
    runs = list(_runs(data))
    found = {bisect_right(ends, place) for place in _places(data, runs)}
    # What comes after a dot or a slash is common: only then is the text itself asked for the literals.
    after = {bisect_right(ends, start) for start, _ in runs if data[start - 1 : start] in (b".", b"/")}
    found.update(number for number in after if any(literal in batch[number].added for literal in _BEFORE_A_RUN))
    for number in sorted(found):
        yield batch[number]


def _places(data: bytes, runs: Sequence[tuple[int, int]]) -> Iterator[int]:
    for literal in (b"\0", *_ALONE):
        yield from _each(data, literal)
    yield from _addresses(data)
    yield from _tokens(data, runs)
    yield from _assignments(data)


def _assignments(data: bytes) -> Iterator[int]:
    """The signs that follow a name. Few signs are looked at one by one; of many, only those that a name is near."""
    signs = [match.start() for match in _ASSIGNED.finditer(data.translate(_VALUES))]
    if len(signs) <= _FEW_SIGNS:
        for sign in signs:
            before = data[max(0, sign - _NAME_REACH) : sign].lower()
            if any(name in before for name in _NAMES):
                yield sign
        return
    lower = data.lower()
    for name in _NAMES:
        for place in _each(lower, name):
            after = bisect_left(signs, place)
            if after < len(signs) and signs[after] - place <= _NAME_REACH:
                yield signs[after]


def _addresses(data: bytes) -> Iterator[int]:
    """Where `@` ends a user and a password, with the one colon between them. One character is found fastest."""
    for place in _each(data, b"@"):
        before = data[max(0, place - _ADDRESS_REACH) : place].rpartition(_ADDRESS)
        if before[1] and b":" in before[2] and b"/" not in before[2]:
            yield place


def _each(data: bytes, literal: bytes) -> Iterator[int]:
    place = data.find(literal)
    while place >= 0:
        yield place
        place = data.find(literal, place + len(literal))


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each run begins and ends; the last character belongs to none."""
    plain = data.translate(_RUNS)
    start = plain.find(_RUN)
    while start >= 0:
        end = plain.find(b" ", start + RUN)
        yield start, end
        start = plain.find(_RUN, end)


def _tokens(data: bytes, runs: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The runs with a literal in them; all runs together are asked first."""
    together = b"\n".join([data[start:end] for start, end in runs])
    literals = [literal for literal in _IN_A_RUN if literal in together]
    if literals:
        for start, end in runs:
            if any(data.find(literal, start, end) >= 0 for literal in literals):
                yield start
