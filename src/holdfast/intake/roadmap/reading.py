"""A reading: a roadmap, and where in its file each task can be ticked. The same reading serves `parse` and `ticked`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.model.task import Roadmap, Task


class Spot(NamedTuple):
    """A place in the characters of a file that says whether a task is done, and what to write there."""

    start: int
    end: int
    when_done: str
    when_open: str


class Reading(NamedTuple):
    roadmap: Roadmap
    # Those among which are all for which the file gives a command.
    commanded: Sequence[Task]
    # By task id; found when they are asked for. A task without a spot cannot be ticked in its file.
    spots: Callable[[], Mapping[str, Spot]]
