"""Lanes: tasks that must not meet, and in which order they pass.

A lane orders without making anybody depend on anybody: who failed, or was skipped, is out of the way.

    alone     waits for everyone before it in the lane
    together  waits for those before it that go alone; any number of these go at once
    passing   waits for nobody, and is waited for

                    in the lane of…                                                             apart
    a file          alone: all tasks that name it                                               yes
    a made file     alone: those that make it · together: those that only mention it            yes
    a folder        alone: those that name the folder · together: those that name something inside   yes
    a phase         alone: its tasks · passing: those marked parallel    (spec-kit only)        no

In a lane that keeps its tasks apart nobody starts while one is at work that it would have to wait for, also where that
one stands behind it (it was started, and then the first was undone).

Cost: a task stands in one or two lanes for each of its files and for each folder above them that somebody names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from holdfast.model.path import ancestors_of, folded
from holdfast.planning.touched import Touched

Mode = Literal["alone", "together", "passing"]


class Lane(NamedTuple):
    """`members` are tasks by number, in their order, with their modes."""

    what: str
    members: tuple[tuple[int, Mode], ...]
    apart: bool = True


def file_lanes(touched: Sequence[Sequence[Touched]]) -> Iterator[Lane]:
    """`touched`: for each task, in order, what it touches; a group of tasks touches several times."""
    names, makes, mentions = (
        _by_path(_paths(item, field) for item in touched) for field in ("names", "makes", "mentions")
    )
    inside = _inside(names)
    for key, (path, tasks) in names.items():
        alone: dict[int, Mode] = dict.fromkeys(tasks, "alone")
        yield from _lane(path or "the whole workspace", alone)
        yield from _lane(path or "the whole workspace", _shared(tasks, inside.get(key, ())))
        if key in makes and key in mentions:
            yield from _lane(path, _shared(makes[key][1], mentions[key][1]))


def phase_lane(title: str, members: Iterable[tuple[int, bool]]) -> Iterator[Lane]:
    """Tasks of one phase that are done one after the other, with what is marked as parallel in between."""
    modes: dict[int, Mode] = {task: "passing" if parallel else "alone" for task, parallel in members}
    for lane in _lane(title, modes):
        yield lane._replace(apart=False)


def steps(lane: Lane) -> Iterator[tuple[int, int]]:
    """Pairs of a task and one that it waits for directly; what follows from these is left out."""
    last: int | None = None
    since: list[int] = []
    for task, mode in lane.members:
        if mode != "passing" and last is not None:
            yield task, last
        if mode == "alone":
            yield from ((task, other) for other in since)
            last, since = task, []
        else:
            since.append(task)


def _lane(what: str, modes: Mapping[int, Mode]) -> Iterator[Lane]:
    """None where nobody could have to wait."""
    if len(modes) > 1 and "alone" in modes.values():
        yield Lane(what, tuple(sorted(modes.items())))


def _shared(alone: Iterable[int], others: Iterable[int]) -> dict[int, Mode]:
    """Nothing, where there are no others: those that go alone have a lane of their own."""
    together: dict[int, Mode] = dict.fromkeys(others, "together")
    own: dict[int, Mode] = dict.fromkeys(alone, "alone")
    return together | own if together else {}


def _paths(touched: Sequence[Touched], field: Literal["names", "makes", "mentions"]) -> Iterator[str]:
    for item in touched:
        yield from item.names if field == "names" else item.makes if field == "makes" else item.mentions


def _by_path(paths: Iterable[Iterable[str]]) -> dict[str, tuple[str, dict[int, None]]]:
    """Path as compared → path as first spelled, and the tasks. Two spellings may be one file."""
    found: dict[str, tuple[str, dict[int, None]]] = {}
    for task, own in enumerate(paths):
        for path in own:
            found.setdefault(folded(path), (path, {}))[1][task] = None
    return found


def _inside(names: Mapping[str, tuple[str, dict[int, None]]]) -> dict[str, dict[int, None]]:
    """For each path that is a folder of another: the tasks that name something in it."""
    found: dict[str, dict[int, None]] = {}
    for key, (_, tasks) in names.items():
        for folder in ("", *ancestors_of(key)):
            if key and folder in names:
                found.setdefault(folder, {}).update(tasks)
    return found
