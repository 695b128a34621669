"""What is looked at again before work lands, because only whoever did the work says so: the roadmap's boxes.

Invariant
  B2  Work ticks its own boxes at most. The others, what tasks there are and which are held back, are for people: a run
      would otherwise believe an agent that something is done, or be given tasks by it without end. Prose has no boxes,
      and its tasks are known by its bytes: every change of it is one of the tasks.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.engine.roadmap_file import MOST_BYTES, RoadmapFile
from holdfast.engine.simulator import Simulated
from holdfast.errors import InvalidInput
from holdfast.intake.roadmap import parse
from holdfast.model.changeset import Change
from holdfast.model.task import Roadmap, Task
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, CopyOf, source_pieces


def meddles(site: Site, simulated: Simulated, roadmap: str, own: Collection[str]) -> bool:
    """Whether it does more to the roadmap than B2 lets it."""
    change = next((change for change in simulated.change_set.changes if change.path == roadmap), None)
    if change is None or _holds_the_same(change):
        return False
    if change.post is None or change.post.kind != "file" or change.post.size > MOST_BYTES:
        return True
    try:
        before = RoadmapFile(site, roadmap).read()[0]
    except InvalidInput:
        return True
    source = simulated.sources.get(roadmap)
    after = b"".join(source_pieces(site.calls, source)) if isinstance(source, (Bytes, CopyOf)) else b""
    asked, asks = parse(before, roadmap), parse(after, roadmap)
    return "prose" in (asked.format, asks.format) or _told(asked, own) != _told(asks, own)


def _holds_the_same(change: Change) -> bool:
    pre, post = change.pre, change.post
    return pre is not None and post is not None and pre.digest == post.digest


def _told(roadmap: Roadmap, own: Collection[str]) -> tuple[object, ...]:
    """What it asks for: phases and tasks, wherever they stand, and their boxes but for its own; and which wait."""
    phases = tuple(phase._replace(line=0) for phase in roadmap.phases)
    held = tuple(sorted(row for row in roadmap.held if row.task not in own))
    return phases, held, tuple(_asked(task, ours=task.id in own) for task in roadmap.tasks)


def _asked(task: Task, *, ours: bool) -> Task:
    subtasks = tuple(item._replace(line=0, done=ours or item.done) for item in task.subtasks)
    return task._replace(line=0, done=ours or task.done, subtasks=subtasks)
