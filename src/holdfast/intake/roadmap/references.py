"""References: from what the words of a roadmap say must come before, to ids.

    "depends on 1.2, T003 and **Add the parser**"  ──▶  ids of tasks

A reference names a task by number, by id, by title; or a section, or a phase, and so all tasks in it.
One that names nothing becomes a remark: a dependency must not get lost without a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from holdfast.model.task import Remark, Task

CLAUSE = re.compile(
    r"""(?:epend(?:s|ing|)[ ]on\b(?:\*\*|__|):?+|epend(?:s|encies|ency)(?:\*\*|__|):
    |\b(?:[Aa]fter|[Rr]equires|[Pp]rerequisites?)(?:\*\*|__|):|\b[Bb]locked[ ]by\b(?:\*\*|__|):?+)
    (?:\*\*(?=[ ])|)[ \t]*+([^\n]*+)""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"\*\*([^*\n]{1,300})\*\*|\"([^\"\n]{1,300})\"|“([^”\n]{1,300})”")
_PHASES = re.compile(
    r"[Pp]hases?[ ]((?:\d+(?:\.\d+)*)(?:(?:[ ]?[-–][ ]?|,[ ]?|[ ]and[ ]|[ ]?&[ ]?)\d+(?:\.\d+)*){0,50})"
)
_RANGE = re.compile(r"\b([A-Z]{1,9}-?)?(\d{1,7})[ ]?(?:[-–—]|\.\.|through|to)[ ]?(?:\1)?(\d{1,7})\b(?![.\d])")
_TOKEN = re.compile(r"\b[A-Z][A-Z0-9]{0,9}-\d{1,7}\b|\bT\d{1,6}[a-z]?\b|\b\d{1,6}(?:\.\d{1,6}){0,8}\b")
# A task of another workspace, by the name that the user's configuration gives to it: `lib#1.2`.
_ELSEWHERE = re.compile(r"(?<![\w/#&])([A-Za-z][\w.-]{0,63})#(\w[\w.-]{0,99}\w|\w)")
_BRACKET = re.compile(r"[()\[\]]")
_NOTHING = re.compile(r"(?:none|nothing|no dependencies|no prerequisites?|n/?a|-|–|—)?[.!]?\Z", re.IGNORECASE)
_LONGEST_NOTHING = 20
_LONGEST_CLAUSE = 2_000
_SPLIT = re.compile(r",|;|\band\b|&")
# Ids that one file may add by naming whole phases and ranges; more is a mistake, or somebody who wants us to be slow.
MAX_EXPANDED = 200_000
_ENDINGS = ".:;! "
_MAX_RANGE = 1_000


class Places(NamedTuple):
    """Which tasks stand where."""

    # By numbers of sections, names of phases, and numbers within a phase ("2.1").
    named: Mapping[str, Sequence[str]]
    # By numbers of phases.
    phases: Mapping[str, Sequence[str]]


class Names:
    """What can be named in a file, and which tasks that is. An index is made when it is first needed."""

    def __init__(
        self, ids: Sequence[str], titles: Sequence[str], numbers: Sequence[str], places: Callable[[], Places]
    ) -> None:
        self._all = ids
        self._spoken = titles
        self._counted = numbers
        self._found = places

    @cached_property
    def _places(self) -> Places:
        return self._found()

    def title(self, words: str) -> Sequence[str]:
        """The tasks with this title or id, or in the place of this name, or with this title but for what it needs."""
        spelled = spelling(words)
        if (one := self._titles.get(spelled)) is not None:
            return (one,)
        exact = self._ids.get(spelled) or self._places.named.get(spelled, ())
        return exact or _one(self._bare_titles.get(spelled))

    def number(self, token: str, near: str = "") -> Sequence[str]:
        """The tasks of this number; of several, the one in the phase with the number `near`."""
        inside = self._places.named.get(f"{near}.{token}", ()) if near and token.isdigit() else ()
        return inside or _one(self._numbers.get(token)) or self._places.named.get(token, ())

    def phase(self, number: str) -> Sequence[str] | None:
        return self._places.phases.get(number)

    @cached_property
    def _titles(self) -> dict[str, str]:
        """Those that one task has, and no other."""
        spelled = [spelling(title) for title in self._spoken]
        times = Counter(spelled)
        return {name: id for name, id in zip(spelled, self._all, strict=True) if times[name] == 1}

    @cached_property
    def _bare_titles(self) -> dict[str, list[str]]:
        """Titles without the "(depends on …)" that stands in them: nobody repeats that when they name the task."""
        found: dict[str, list[str]] = {}
        for title, id in zip(self._spoken, self._all, strict=True):
            if (clause := CLAUSE.search(title)) is not None:
                # One alternative begins inside its word.
                start = clause.start() - clause[0].startswith("epend")
                found.setdefault(spelling(title[:start].rstrip(" ([-–—,;:")), []).append(id)
        return found

    @cached_property
    def _ids(self) -> dict[str, list[str]]:
        return {id.lower(): [id] for id in self._all}

    @cached_property
    def _numbers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for number, id in zip(self._counted, self._all, strict=True):
            for part in {number, number.rpartition(" ")[2]} - {""} if number else ():
                found.setdefault(part, []).append(id)
        return found


def _one(ids: Sequence[str] | None) -> Sequence[str]:
    """Nothing where several tasks share a name: to wait for a wrong one is worse than a remark."""
    return ids if ids is not None and len(ids) == 1 else ()


def spelling(title: str) -> str:
    """One spelling for a title, however it is decorated."""
    return " ".join(title.replace("`", "").replace("*", "").lower().split()).rstrip(_ENDINGS)


def clauses(text: str) -> list[str]:
    """What a text says must come before."""
    return [sentence(found[1]) for found in CLAUSE.finditer(text)]


def sentence(text: str) -> str:
    """Up to the end of the sentence, or of the bracket that was open before it."""
    text = text[:_LONGEST_CLAUSE]
    if ")" in text or "]" in text:
        depth = 0
        for bracket in _BRACKET.finditer(text):
            depth += 1 if bracket[0] in "([" else -1
            if depth < 0:
                text = text[: bracket.start()]
                break
    end = text.find(". ")
    return (text[:end] if end >= 0 else text).strip().removesuffix(".")


def needs_elsewhere(task: Task) -> tuple[tuple[str, str], ...]:
    """What a task says must come before it in other workspaces: (workspace, task there)."""
    if "#" not in task.title and "#" not in task.body:
        return ()
    return elsewhere_in(*clauses(task.title), *clauses(task.body))


def elsewhere_in(*clauses: str) -> tuple[tuple[str, str], ...]:
    """The tasks of other workspaces that these name: (workspace, task there)."""
    return tuple(dict.fromkeys((found[1], found[2]) for clause in clauses for found in _ELSEWHERE.finditer(clause)))


def without_elsewhere(clause: str) -> str:
    """What a clause says of this workspace."""
    return _ELSEWHERE.sub(",", clause).strip(" ,") if "#" in clause else clause


def named(clause: str, names: Names, near: str = "") -> tuple[list[str], list[str]]:
    """The ids that a clause names, and what in it names nothing; it stands in the phase with the number `near`."""
    clause = without_elsewhere(clause)
    if len(clause) < _LONGEST_NOTHING and _NOTHING.match(clause):
        return [], []
    if whole := names.title(clause):
        return list(whole), []
    found: list[str] = []
    lost: list[str] = []
    rest = clause
    for quoted in _QUOTED.finditer(clause):
        title = quoted[1] or quoted[2] or quoted[3]
        ids = names.title(title) or names.number(title.strip().rstrip(":"))
        found += ids
        lost += [] if ids else [title]
        rest = rest.replace(quoted[0], ",", 1)
    found_here, lost_here = _unquoted(rest, names, near)
    return found + found_here, lost + lost_here


def _unquoted(text: str, names: Names, near: str) -> tuple[list[str], list[str]]:
    found: list[str] = []
    lost: list[str] = []
    for phases in _PHASES.finditer(text):
        for number in numbers_in(phases[1]):
            inside = names.phase(number)
            found += inside or ()
            lost += [f"phase {number}"] if inside is None else []
    text = _PHASES.sub(",", text)
    for token in tokens_in(text):
        ids = names.number(token, near)
        found += ids
        lost += [] if ids else [token]
    for part in _SPLIT.split(_TOKEN.sub(",", _RANGE.sub(",", text))):
        # Words that are left over are a title, a remark of the author, or the name of a phase.
        ids = names.title(part.strip().strip("()`\"' "))
        found += ids
        if not ids and not found and not lost and len(part.split()) > 1:
            lost.append(part.strip())
    return found, lost


def tokens_in(text: str) -> list[str]:
    """The numbers and written ids in a text, ranges (`T004-T007`) spelled out."""
    found: list[str] = []
    for whole in _RANGE.finditer(text):
        letters, low, high = whole[1] or "", int(whole[2]), int(whole[3])
        if letters and low <= high < low + _MAX_RANGE:
            found += (f"{letters}{n:0{len(whole[2])}d}" for n in range(low, high + 1))
    return found + _TOKEN.findall(_RANGE.sub(lambda m: "," if m[1] else m[0], text))


def numbers_in(text: str) -> list[str]:
    """The numbers of phases: `1, 2 and 4-6`."""
    found: list[str] = []
    for part in re.finditer(r"(\d+(?:\.\d+)*)(?:[ ]?[-–—][ ]?(\d+)(?![.\d]))?", text):
        if part[2] and part[1].isdigit() and len(part[1]) < 7 > len(part[2]):
            low, high = int(part[1]), int(part[2])
            found += map(str, range(low, min(high, low + _MAX_RANGE) + 1))
        else:
            found.append(part[1])
    return found


def circles(tasks: Sequence[Task]) -> Iterator[Remark]:
    """One remark for the tasks that wait for each other, if any do."""
    # Only who is waited for, and waits, can be in a circle.
    if {task.id for task in tasks if task.after}.isdisjoint(chain.from_iterable([task.after for task in tasks])):
        return
    waiting = {task.id: set(task.after) for task in tasks if task.after}
    behind: dict[str, list[str]] = {}
    for id, before in waiting.items():
        for other in before:
            behind.setdefault(other, []).append(id)
    ready = [id for id in behind if id not in waiting]
    while ready:
        free = ready.pop()
        for id in behind.get(free, ()):
            waiting[id].discard(free)
            if not waiting[id]:
                del waiting[id]
                ready.append(id)
    # What only waits for the circle is left over as well; what nobody left over waits for is not in it.
    if left := _in_circle(waiting):
        first = next(task for task in tasks if task.id in left)
        shown = ", ".join(sorted(left)[:6])
        yield Remark(first.line, f"these tasks wait for each other, and none can ever begin: {shown}")


def _in_circle(waiting: dict[str, set[str]]) -> set[str]:
    """Follow what is waited for, from any of those left over, until one comes up again."""
    if not waiting:
        return set()
    seen: dict[str, int] = {}
    path: list[str] = []
    id = next(iter(waiting))
    while id not in seen:
        seen[id] = len(path)
        path.append(id)
        id = next(iter(sorted(other for other in waiting[id] if other in waiting)))
    return set(path[seen[id] :])


def unique(ids: Sequence[str], own: str = "") -> tuple[str, ...]:
    if len(ids) == 1 and ids[0] != own:
        return tuple(ids)
    others = [id for id in ids if id != own]
    return tuple(dict.fromkeys(others)) if len(others) > 1 else tuple(others)
