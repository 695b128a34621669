"""Secrets in what a change adds: known shapes of tokens, and strong-looking values given to secret-looking names.

Invariants
  K1  A finding never holds the secret: a shape, a path, a mask and a digest.
  K2  A text is looked at closely only if a glance over many at once makes it a suspect (`glance`),
      and a regular expression sees it only if it has one of its shape's literals.
  K3  A known shape is reported wherever it stands; the guess about names and values keeps quiet about placeholders,
      references to variables, plain words, digests and lock files.
  K4  The cost is linear in the text, whatever it says. Of one text only so many findings are listed, and only so many
      values that overlap are looked at; then one finding says that there are more.
  K5  Zero bytes between characters hide nothing: what has some is searched with them and without.

The digest lets policy declare one match as known.
It is not put into decisions: a short password could be guessed from it.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from holdfast.gates.evidence import Finding as Finding
from holdfast.gates.evidence import Text
from holdfast.gates.glance import suspects
from holdfast.gates.shapes import NAMES, RUN
from holdfast.gates.shapes import SHAPES as SHAPES
from holdfast.model.patterns import covers

_LONGEST_VALUE = 512
MOST_FINDINGS = 200
MORE = "more that look like secrets"
_BITS_A_CHARACTER = 3.3
# So often each character may be looked at as part of a value: one value holds another only where somebody made it so.
_MOST_LOOKS = 4


_LITERALS = tuple((literal, number) for number, shape in enumerate(SHAPES) for literal in shape.literals)
_LOOSE = tuple((literal, number) for literal, number in _LITERALS if not SHAPES[number].solid)
_RUN = b"a" * RUN
_RUNS = bytes(ord("a") if chr(code).isalnum() or chr(code) in "_-" else 32 for code in range(128)).ljust(256, b" ")
GUESS = "value of a secret-looking name"

# Keys are everywhere; only some kinds of them open a door.
_KINDS_OF_KEY = re.compile(r"(?i)(?:api|access|private|auth|signing|encryption|master|account|service)[_-]?\Z")
# What may follow where one of NAMES ends: the rest of the name, sign, optional quote, value. `glance` relies on it.
_ASSIGNED = re.compile(
    r"[\w.-]{0,40}+[\"'\]]{0,3}+[ \t]{0,8}+(?::=|=>|[=:])[ \t]{0,8}+[\"'`]?+"
    rf"(?P<value>(?:[^\s\"'`,;<>(){{}}$]|\$(?![{{(])){{12,{_LONGEST_VALUE}}}+)"
)
# A variable is named as people name variables; the `$` of a password stands before anything.
_VARIABLE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*(?![a-z])|[A-Za-z_]+\d{0,2}(?!\w))")
_SHORTEST_VALUE = 12
_NAME_BEFORE = re.compile(r"[\w.-]{0,40}\Z")
_PLACEHOLDER = re.compile(
    r"(?i)example|sample|placeholder|dummy|fake|changeme|change[_-]me|replace|redacted|your[_-]|my[_-]|insert|todo|fixme"
    r"|xxxx|\*\*\*\*|\.\.\.|0000000|1234567|abcdef|test[_-]?(?:key|token|secret|pass)|not[_-]?a[_-]?secret|lorem|<|\{\{"
)
_REFERENCE = re.compile(
    r"(?i)(?:os\.|env[.\[:]|process\.|config\.|settings\.|secrets?\.|vault:|file:|https?:|ref:|arn:)"
)
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z_.:/\\-]*\d{0,2}")
_DIGEST = re.compile(
    r"(?i)(?:sha\d*[:-])?(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"
)
_DIGEST_NAME = re.compile(
    r"(?i)hash|digest|checksum|integrity|sha\d|etag|fingerprint|public|_id$|\.id$|type|name|path|file|url"
)
_LOCK_FILES = covers(
    """package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb poetry.lock uv.lock pdm.lock
    Pipfile.lock Cargo.lock go.sum composer.lock Gemfile.lock mix.lock flake.lock deno.lock gradle.lockfile
    packages.lock.json pubspec.lock Podfile.lock Package.resolved *.min.js *.map *.svg""".split()
)


def every_finding(texts: Iterable[Text]) -> tuple[Finding, ...]:
    """Sorted; the same secret twice in one file is one finding. What policy knows is the caller's business."""
    return tuple(sorted({finding for text in suspects(texts) for finding in _bounded(text)}))


def masked(text: str) -> str:
    """The text without anything in it that has the shape of a secret, for what is kept or shown; guesses stay."""
    for number in sorted({number for literal, number in _LITERALS if literal in text}):
        shape = SHAPES[number]
        text = shape.glued.sub(lambda match, kind=shape.name: f"[{kind} masked]", text)  # type: ignore[misc]
    return text


def _bounded(text: Text) -> set[Finding]:
    """K4. What policy knows by digest does not crowd out the rest: the last finding is known to nobody."""
    found: set[Finding] = set()
    for variant in (text, text._replace(added=text.added.replace("\0", ""))) if "\0" in text.added else (text,):
        for finding in _in_text(variant):
            found.add(finding)
            if len(found) == MOST_FINDINGS:
                return {*found, _more(text, f"only {MOST_FINDINGS} are listed")}
    return found


def _more(text: Text, why: str) -> Finding:
    digest = hashlib.sha256(text.added.encode("utf-8", "surrogateescape")).hexdigest()
    return Finding(text.path, MORE, why, digest)


def _in_text(text: Text) -> Iterator[Finding]:
    added = text.added
    literals = _LITERALS if _RUN in added.encode("ascii", "replace").translate(_RUNS) else _LOOSE
    places: list[tuple[int, int]] = []
    for number in sorted({number for literal, number in literals if literal in added}):
        shape = SHAPES[number]
        for match in shape.form.finditer(added):
            value = match["value"] if "value" in match.re.groupindex else match[0]
            if not _PLACEHOLDER.search(value):
                places.append(match.span())
                yield _finding(text.path, shape.name, value, shape.prefix)
    if not text.binary:
        yield from _guessed(text, _merged(places))


def _guessed(text: Text, places: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """`places` are known shapes, reported under their own names already; sorted and apart."""
    # Lower case of the same length, so that places in it are places in the text.
    lower = (text.added if text.added.isascii() else text.added.encode("ascii", "replace").decode()).lower()
    if _LOCK_FILES.covers(text.path):
        return
    left = _MOST_LOOKS * len(text.added)
    for name in NAMES:
        start = lower.find(name)
        while start >= 0:
            match = _ASSIGNED.match(text.added, start + len(name))
            if match is not None and not _overlaps(match, places):
                left -= len(match["value"])
                if left < 0:
                    yield _more(text, "too many values that overlap to look at each")
                    return
                if _is_a_guess(text, start, match):
                    yield _finding(text.path, GUESS, match["value"], 0)
            start = lower.find(name, start + len(name))


def _is_a_guess(text: Text, start: int, match: re.Match[str]) -> bool:
    found = _NAME_BEFORE.search(text.added, max(0, start - 40), start)
    before, value = found[0] if found is not None else "", match["value"]
    if text.added[start : start + 3].lower() == "key" and not _KINDS_OF_KEY.search(before):
        return False
    name = before + text.added[start : match.start("value")]
    return _looks_secret(name, value)


def _looks_secret(name: str, value: str) -> bool:
    value = _VARIABLE.sub("", value) if "$" in value else value
    if len(value) < _SHORTEST_VALUE:
        return False
    if _PLACEHOLDER.search(value) or _REFERENCE.match(value) or _PLAIN_WORD.fullmatch(value):
        return False
    if _DIGEST_NAME.search(name) or (_DIGEST.fullmatch(value) and not re.search(r"(?i)secret|passw|private", name)):
        return False
    return _bits(value) >= _BITS_A_CHARACTER and any(ch.isdigit() for ch in value)


def _overlaps(match: re.Match[str], places: Sequence[tuple[int, int]]) -> bool:
    start, end = match.span("value")
    # The last place that begins before the value ends: no earlier one reaches further.
    before = bisect_left(places, (end,)) - 1
    return before >= 0 and start < places[before][1]


def _merged(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _bits(value: str) -> float:
    """Shannon's entropy a character: words have little, random characters much."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _finding(path: str, shape: str, value: str, prefix: int) -> Finding:
    digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
    return Finding(path, shape, f"{value[:prefix]}… {len(value)} characters", digest)
