"""The tally of a run: how its tasks stand, counted for the words at its beginning and its end."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.taskbook import TaskBook
from holdfast.model.task import Roadmap


class Tally(NamedTuple):
    """`held` are left alone because the file says so; `left` is everything that is none of the others."""

    tasks: int
    completed: int
    held: int
    failed: int
    waiting: int

    @property
    def to_do(self) -> int:
        return self.tasks - self.held - self.completed

    @property
    def left(self) -> int:
        return max(0, self.to_do - self.failed - self.waiting)


def tally_of(roadmap: Roadmap, book: TaskBook) -> Tally:
    """What was dropped is ticked, and nobody did it: it is not completed."""
    held = {row.task for row in roadmap.held}
    completed = sum(
        book.of(task.id).state == "COMPLETED" or (task.done and task.id not in held) for task in roadmap.tasks
    )
    left_alone = sum(book.of(row.task).state == "PENDING" for row in roadmap.held)
    failed, waiting = book.counted("FAILED", "TIMEOUT", "BLOCKED", "SKIPPED"), book.counted("NEEDS_REVIEW")
    return Tally(len(roadmap.tasks), completed, left_alone, failed, waiting)
