"""Renaming: which tasks go on under another id after a person edited the file.

Invariants
  R1  Only ids that are gone are mapped, only to ids that are new, and no two to one.
  R2  A task goes on where the same words stand under another id (its headings changed, or a double came or went), or
      where one gap of gone tasks lies between the same neighbours as one gap of new tasks, and the words are alike.
      In doubt it does not: then a finished task is looked at again, which costs less than work that is never done.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from holdfast.model.task import Roadmap, Task

_ALIKE = 0.6
# Pairs that are compared in one gap; a larger gap is a new roadmap, not a reworded one.
_MAX_PAIRS = 2_500
_WORD = re.compile(r"\w+")
_START, _END = "<", ">"


def renamed(old: Roadmap, new: Roadmap) -> Mapping[str, str]:
    """From old id to new id, for the tasks that go on."""
    before, now = {task.id for task in old.tasks}, {task.id for task in new.tasks}
    gone = [task for task in old.tasks if task.id not in now]
    fresh = [task for task in new.tasks if task.id not in before]
    found = _same_words(gone, fresh)
    taken = set(found.values())
    gaps = _gaps([task for task in new.tasks if task.id not in taken], before)
    for edges, missing in _gaps([task for task in old.tasks if task.id not in found], now).items():
        found.update(_alike(missing, gaps.get(edges, [])))
    return found


def _same_words(gone: Sequence[Task], fresh: Sequence[Task]) -> dict[str, str]:
    """Tasks whose title stands once among the gone and once among the new."""
    lost, found = Counter(map(_spelled, gone)), Counter(map(_spelled, fresh))
    there = {_spelled(task): task.id for task in fresh}
    return {task.id: there[words] for task in gone if lost[words := _spelled(task)] == 1 == found[words]}


def _spelled(task: Task) -> str:
    return " ".join(task.title.lower().split())


def _gaps(tasks: Sequence[Task], common: set[str]) -> dict[tuple[str, str], list[Task]]:
    """The tasks that only this roadmap has, by the common tasks on both sides of them."""
    gaps: dict[tuple[str, str], list[Task]] = {}
    left, inside = _START, []
    for task in tasks:
        if task.id not in common:
            inside.append(task)
            continue
        if inside:
            gaps[left, task.id] = inside
        left, inside = task.id, []
    if inside:
        gaps[left, _END] = inside
    return gaps


def _alike(missing: Sequence[Task], fresh: Sequence[Task]) -> Iterator[tuple[str, str]]:
    """Pairs whose words are alike, the most alike first; none where two are as likely."""
    if len(missing) * len(fresh) > _MAX_PAIRS:
        return
    scores = {(a.id, b.id): _likeness(a.title, b.title) for a in missing for b in fresh}
    order = sorted((pair for pair in scores if scores[pair] >= _ALIKE), key=lambda pair: (-scores[pair], pair))
    used: set[str] = set()
    for a, b in order:
        rivals = [pair for pair in order if (pair[0] == a) != (pair[1] == b) and not {*pair} & used]
        if a in used or b in used or any(scores[pair] == scores[a, b] for pair in rivals):
            continue
        used |= {a, b}
        yield a, b


def _likeness(a: str, b: str) -> float:
    """By words, so that a word more or less counts a little and another verb counts much."""
    first, second = _WORD.findall(a.lower())[:100], _WORD.findall(b.lower())[:100]
    return SequenceMatcher(None, first, second, autojunk=False).ratio()
