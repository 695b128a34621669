"""Grouping: related tasks that are done together, in one change set.

    file        they name the same file: one agent opens it once, and nothing has to be rebased
    section     they stand in the same section of the same phase
    similarity  their titles speak of the same things
    off         every task by itself

Invariants
  G1  Every task is in one group at most; a group has two tasks or more, and never more than `most`.
  G2  Nothing outside a group lies between two of its tasks: neither by what they need nor by a lane. So every group can
      be one node of the graph, all of them at once, and the graph still has no circle.
  G3  The same roadmap gives the same groups. What is done, or can never start, is in none.

  G4  A task of a group is done by its own evidence, and not because the group landed (`shown_by`): its acceptance
      command passed; or a file changed that it names and no other of the group does; or, where it names none of its
      own, most of the words that no other task has stand in what was added. One of them proves nothing: "return" and
      "error" stand in any program.

G2 is kept by levels. A group stands one level above everything outside that its tasks come after. A task that joins may
raise its group, but never to the level of a group that comes after it already. So every step between groups goes up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from holdfast.model.path import folded, printable
from holdfast.model.run import GroupBy
from holdfast.model.task import Roadmap, Task
from holdfast.planning.graph import Graph, label_of
from holdfast.planning.lanes import steps
from holdfast.planning.touched import asked_words, touched_by

MOST_TOGETHER = 5

# Titles with so large a share of their words in common speak of the same things.
_ALIKE = 0.5
_MOST_COMPARED = 50
_MOST_WORDS = 40
_MOST_SHOWN = 5
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
_WORD = re.compile(r"[^\W\d_][\w-]{2,}")
_SMALL = frozenset(
    """the and for with from into that this all its new add added create make write update use using implement fix
    should must will when where which have has not are can each any support task tasks file files""".split()
)


class Group(NamedTuple):
    """`ids` in the order in which they are done."""

    ids: tuple[str, ...]
    rule: GroupBy
    because: str


@dataclass(slots=True, eq=False)
class _Open:
    """A group while it grows; most stay with their first task."""

    nodes: list[int]
    # What the first task has, and all others share with it.
    key: frozenset[str]
    level: int = 1
    # The lowest level that comes after it.
    below: float = inf


def groups_of(roadmap: Roadmap, graph: Graph, by: GroupBy, most: int = MOST_TOGETHER) -> tuple[Group, ...]:
    """`graph` is that of the roadmap, without groups."""
    if by == "off" or most < 2:
        return ()
    tasks = {task.id: task for task in reversed(roadmap.tasks)}
    growing = _Growing(graph, [_key(tasks[id], by) for id in graph.order], by, most)
    found = (open_ for open_ in growing.grown() if len(open_.nodes) > 1)
    return tuple(_group(open_, graph, tasks, by) for open_ in found)


def shown_by(tasks: Sequence[Task], added: Mapping[str, str], *, accepted: bool) -> frozenset[str]:
    """Which tasks of a group a change is about (G4). `added` is the new text of every path that changed;
    `accepted`: acceptance commands were run, and passed."""
    return frozenset(task.id for task in tasks if (accepted and task.accept) or _is_shown(task, tasks, added))


def _is_shown(task: Task, tasks: Sequence[Task], added: Mapping[str, str]) -> bool:
    others = [other for other in tasks if other.id != task.id]
    own = {path for path in touched_by(task).names if path}.difference(*(touched_by(other).names for other in others))
    if own:
        return any(f"{path}/".startswith(f"{name}/") for path in added for name in own)
    known = {word for other in others for word in _pieces(asked_words(other))}
    wanted = {word for word in _pieces(asked_words(task)) if len(word) > 2 and word not in _SMALL} - known
    said = {word for path, text in added.items() for word in wanted & _pieces(f"{path}\n{text}")}
    return len(said) > len(wanted) / 2


def _pieces(text: str) -> frozenset[str]:
    """Words, also those that names are made of: parse_header and parseHeader are two words."""
    return frozenset(_stem(word.lower()) for word in _PIECE.findall(text))


class _Growing:
    def __init__(self, graph: Graph, keys: Sequence[frozenset[str]], by: GroupBy, most: int) -> None:
        self._graph, self._keys, self._by, self._most = graph, keys, by, most
        self._before = _before(graph)
        self._group: dict[int, _Open] = {}
        # Those that could take one more, by each word of their key; the newest last.
        self._open: dict[str, list[_Open]] = {}

    def grown(self) -> list[_Open]:
        """In the order of their first tasks."""
        for node in self._graph.walk:
            if node < len(self._graph.order):
                self._place(node)
            else:
                self._place_phase(node)
        return [self._group[node] for node in sorted(self._group) if self._group[node].nodes[0] == node]

    def _place_phase(self, node: int) -> None:
        """A phase is nobody's to join."""
        self._group[node] = own = _Open([-1], frozenset())
        self._raise(own, self._graph.needs[node])

    def _place(self, node: int) -> None:
        key = self._keys[node]
        may = bool(key) and self._graph.at_first[node] == "PENDING" and node not in self._graph.stuck
        fitting = self._fitting(node) if may else None
        if fitting is None:
            fitting = _Open([], key)
            for word in key if may else ():
                self._open.setdefault(word, []).append(fitting)
        fitting.nodes.append(node)
        self._group[node] = fitting
        self._raise(fitting, self._before[node])

    def _raise(self, own: _Open, before: Iterable[int]) -> None:
        outside = [self._group[node] for node in before if self._group[node] is not own]
        own.level = max(own.level, 1 + max((other.level for other in outside), default=0))
        for other in outside:
            other.below = min(other.below, own.level)

    def _fitting(self, node: int) -> _Open | None:
        """The group that shares most with the task, of those the oldest; only the newest ones are looked at."""
        key = self._keys[node]
        best: tuple[float, _Open] | None = None
        for open_ in self._candidates(key):
            shared = len(key & open_.key) / len(key | open_.key) if self._by == "similarity" else len(key & open_.key)
            if shared < (_ALIKE if self._by == "similarity" else 1) or not self._may_join(node, open_):
                continue
            if best is None or shared > best[0]:
                best = (shared, open_)
        return best[1] if best is not None else None

    def _candidates(self, key: Iterable[str]) -> list[_Open]:
        found: dict[int, _Open] = {}
        for word in sorted(key):
            waiting = [open_ for open_ in self._open.get(word, ())[-_MOST_COMPARED:] if len(open_.nodes) < self._most]
            self._open[word] = waiting
            found.update((open_.nodes[0], open_) for open_ in waiting)
        return [found[first] for first in sorted(found)]

    def _may_join(self, node: int, open_: _Open) -> bool:
        """G2."""
        outside = (self._group[before] for before in self._before[node] if self._group[before] is not open_)
        return max((other.level for other in outside), default=0) + 1 < open_.below


def _before(graph: Graph) -> list[list[int]]:
    """What each task comes directly after, by need or by lane."""
    before = [list(needs) for needs in graph.needs[: len(graph.order)]]
    for lane in graph.lanes:
        for task, other in steps(lane):
            before[task].append(other)
    return before


def _key(task: Task, by: GroupBy) -> frozenset[str]:
    """What two tasks must share."""
    match by:
        case "file":
            return frozenset(folded(path) for path in touched_by(task).names if path)
        case "section":
            return frozenset({f"{task.phase}\0{task.section}"} if task.section else ())
        case "similarity":
            return frozenset(_words(task.title))
        case "off":
            return frozenset()


def _words(title: str) -> list[str]:
    words = dict.fromkeys(word.lower() for word in _WORD.findall(title[:1_000]))
    return [_stem(word) for word in words if word not in _SMALL][:_MOST_WORDS]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 4 and word.endswith("s") and not word.endswith("ss") else word


def _group(open_: _Open, graph: Graph, tasks: Mapping[str, Task], by: GroupBy) -> Group:
    own = [tasks[graph.order[node]] for node in open_.nodes]
    return Group(tuple(task.id for task in own), by, f"{', '.join(map(label_of, own))}: {_because(own, by)}")


def _because(own: Sequence[Task], by: GroupBy) -> str:
    shared = [key for key in _keys_in_order(own[0], by) if all(key in _key(task, by) for task in own[1:])]
    shown = ", ".join(printable(key) for key in shared[:_MOST_SHOWN])
    if by == "section":
        return f'they stand in the section "{printable(own[0].section)}"'
    if by == "file":
        names = printable(next(iter(touched_by(own[0]).names)))
        return f"they name {shown}" if shown else f"each names a file that {label_of(own[0])} names, such as {names}"
    return f"their titles speak of {shown}" if shown else f"their titles resemble that of {label_of(own[0])}"


def _keys_in_order(task: Task, by: GroupBy) -> list[str]:
    """As the task says them; a set has no order."""
    own = _key(task, by)
    said = [folded(path) for path in touched_by(task).names] if by == "file" else _words(task.title)
    return [key for key in dict.fromkeys(said) if key in own]
