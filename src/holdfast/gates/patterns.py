"""Paths by pattern, for many patterns and many paths at once.

    .env            this name, at any depth, and all below it
    *.pth           such a name, at any depth
    conf/*.toml     from the top of the workspace, one name deep (a slash inside anchors a pattern)
    **/cron.d/**    `**` is any number of names, also none

`*` and `?` do not cross a slash; every other character means itself.
A pattern covers what it names and everything below that, so a protected directory cannot be entered sideways.

Names are compared case-folded and Unicode-normalised, as the laxest file system would:
an alias of a protected name is that name.

Invariant Q1: a path is tested against a regular expression only where a literal name of the pattern occurs in it
(or the pattern has none): the cost grows with the paths, hardly with the patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.path import folded

_ANY = frozenset("*?")
_EVERYTHING = frozenset({"**", "**/*", "*", "*/**", "**/**"})
# A project writes patterns too: with many of them a short pattern could keep the matcher busy for hours.
_MOST_JUMPS = 2
_MOST_REMEMBERED = 20_000


class _Tested(NamedTuple):
    """A pattern of several names; `owner` is who it belongs to."""

    owner: int
    form: re.Pattern[str]


class _Name(NamedTuple):
    """All that one name decides: who owns every path with it, and which patterns to try on the whole path."""

    owners: frozenset[int]
    tests: tuple[_Tested, ...]


_ORDINARY = _Name(frozenset(), ())


class PatternIndex:
    """Many owners (rules), each with many patterns; one look at a path finds all owners it belongs to."""

    def __init__(self, owners: Sequence[Sequence[str]]) -> None:
        self.empty = not any(owners)
        self._everything: frozenset[int] = frozenset()
        self._names: dict[str, set[int]] = {}
        self._starts: dict[str, set[int]] = {}
        self._ends: dict[str, set[int]] = {}
        self._shapes: list[_Tested] = []
        self._by_name: dict[str, list[_Tested]] = {}
        self._others: list[_Tested] = []
        # Directories repeat: a name is looked at once. Nothing but time depends on what is remembered.
        self._remembered: dict[str, _Name] = {}
        for owner, patterns in enumerate(owners):
            for pattern in patterns:
                self._add(owner, checked_pattern(pattern))

    def owners_of(self, path: str, above: str = "") -> frozenset[int]:
        """The owners one of whose patterns covers this path.

        `above` names the directories the workspace itself stands in, as far as they matter:
        `passwd` in a workspace at /etc is `etc/passwd`.
        """
        found = self._everything
        if self.empty:
            return found
        whole = f"{above}/{path}" if above else path
        tests = self._others
        for name in whole.split("/"):
            known = self._remembered.get(name) or self._learned(name)
            if known is not _ORDINARY:
                found |= known.owners
                tests = [*tests, *known.tests]
        if tests:
            candidates = {folded(path), folded(whole)}
            found |= {test.owner for test in tests if any(test.form.fullmatch(item) for item in candidates)}
        return found

    def _learned(self, name: str) -> _Name:
        plain = folded(name)
        owners = set(self._names.get(plain, ()))
        owners.update([test.owner for test in self._shapes if test.form.fullmatch(plain)])
        for start, those in self._starts.items():
            if plain.startswith(start):
                owners |= those
        for end, those in self._ends.items():
            if plain.endswith(end):
                owners |= those
        tests = tuple(self._by_name.get(plain, ()))
        learned = _Name(frozenset(owners), tests) if owners or tests else _ORDINARY
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[name] = learned
        return learned

    def _add(self, owner: int, pattern: str) -> None:
        if pattern in _EVERYTHING:
            self._everything |= {owner}
            return
        single = _single_name(pattern)
        if single is None:
            test = _Tested(owner, re.compile(_expression(pattern), re.DOTALL))
            literal = next((name for name in reversed(pattern.split("/")) if not _ANY & set(name)), None)
            (self._others if literal is None else self._by_name.setdefault(literal, [])).append(test)
        elif not _ANY & set(single):
            self._names.setdefault(single, set()).add(owner)
        elif single.startswith("*") and not _ANY & set(single[1:]):
            self._ends.setdefault(single[1:], set()).add(owner)
        elif single.endswith("*") and not _ANY & set(single[:-1]):
            self._starts.setdefault(single[:-1], set()).add(owner)
        else:
            self._shapes.append(_Tested(owner, re.compile(_name_expression(single), re.DOTALL)))


class DoorIndex:
    """The directories that patterns lead through: for `.github/workflows`, a path that is `.github`.

    Whoever puts a link there decides what stands under all the names below it.
    Only what is spelled out counts: `**` and `*` lead through everything.
    """

    def __init__(self, owners: Sequence[Sequence[str]]) -> None:
        self._by_name: dict[str, list[_Tested]] = {}
        self._others: list[_Tested] = []
        for owner, patterns in enumerate(owners):
            for door in {door for pattern in patterns for door in _doors(checked_pattern(pattern))}:
                test = _Tested(owner, re.compile(_exactly(door), re.DOTALL))
                name = door.rpartition("/")[2]
                (self._others if _ANY & set(name) else self._by_name.setdefault(name, [])).append(test)

    def owners_at(self, path: str, above: str = "") -> set[int]:
        """The owners one of whose patterns leads through exactly this path."""
        candidates = {folded(path), folded(f"{above}/{path}" if above else path)}
        tests = [*self._others, *self._by_name.get(folded(path.rpartition("/")[2]), ())]
        return {test.owner for test in tests if any(test.form.fullmatch(item) for item in candidates)}


def _doors(pattern: str) -> Iterator[str]:
    names = pattern.split("/")
    while len(names) > 1 and names[-1] == "**":
        names.pop()
    for end in range(1, len(names)):
        if set(names[end - 1]) - _ANY:
            yield "/".join(names[:end])


def checked_pattern(pattern: str) -> str:
    """The pattern as it is compared, or InvalidInput."""
    names = pattern.rstrip("/").split("/")
    if "\0" in pattern or any(name in ("", ".", "..") or name[-1] in ". " for name in names):
        raise InvalidInput(f"{pattern!r} is no pattern for paths inside the workspace")
    if any("**" in name and name != "**" for name in names):
        raise InvalidInput(f"{pattern!r}: ** stands for whole names only")
    if names[:-1].count("**") > _MOST_JUMPS:
        raise InvalidInput(f"{pattern!r}: more than {_MOST_JUMPS} ** in one pattern")
    return folded("/".join(names))


def covers(patterns: Iterable[str]) -> PatternIndex:
    """One owner, number 0."""
    return PatternIndex([tuple(patterns)])


def _single_name(pattern: str) -> str | None:
    """The one name that a pattern is about at any depth, or None: `x`, `**/x`, `x/**` do not look alike but are."""
    names = pattern.split("/")
    anchored = len(names) > 1 and names[0] != "**"
    meant = [name for name in names if name != "**"]
    if anchored or len(meant) != 1 or meant[0] == "*":
        return None
    # `**/x/**` is what is below x. That x itself is then covered too does no harm and keeps the index small.
    return meant[0]


def _expression(pattern: str) -> str:
    """`a/**/b` becomes `a/(?:[^/]+/)*b`, with everything below."""
    return _exactly(pattern) + "(?:/.*)?"


def _exactly(pattern: str) -> str:
    names = pattern.split("/")
    while len(names) > 1 and names[-1] == "**":
        names.pop()
    parts = ["(?:[^/]+/)*" if name == "**" else _name_expression(name) + "/" for name in names]
    return "".join(parts).removesuffix("/")


def _name_expression(name: str) -> str:
    """Each piece between stars is taken where it first fits: as good as any other place, and never tried twice."""
    first, *rest = [_piece(piece) for piece in name.split("*")]
    if not rest:
        return first
    return first + "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1]) + f"[^/]*{rest[-1]}"


def _piece(text: str) -> str:
    return "".join("[^/]" if ch == "?" else re.escape(ch) for ch in text)
