"""Tasks that wait for a task of another workspace: `depends on lib#1.2`; or whose phase does, by its prerequisite.

`lib` is a name under `[run.workspaces]` of the user's own configuration; a repository cannot make us read elsewhere.
What counts is the roadmap there: its task is done when it is ticked, by a run or by hand.

Invariants
  OW-1  Only directories that the user's configuration names are looked at, only roadmaps in them, and no links.
  OW-2  What cannot be found or read holds the task back, with the reason: it is never taken for done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from holdfast.checks.tree import TooLarge, read_beneath
from holdfast.disk.calls import CALLS
from holdfast.intake.roadmap import parse
from holdfast.intake.roadmap.references import elsewhere_in, needs_elsewhere
from holdfast.model.path import printable
from holdfast.model.task import Held, Roadmap, Task


class OtherWorkspaces:
    """What the tasks of one roadmap need elsewhere. `workspaces` gives the configured directories by name."""

    def __init__(self, workspaces: Callable[[], Mapping[str, str]], names: tuple[str, ...], most_bytes: int) -> None:
        self._workspaces, self._names, self._most = workspaces, names, most_bytes
        # By directory: the bytes of its roadmap, and what they say.
        self._read: dict[str, tuple[bytes, Roadmap]] = {}
        # Of the newest reading.
        self._needs: tuple[Roadmap | None, tuple[tuple[str, str, str], ...]] = (None, ())

    def with_held(self, roadmap: Roadmap, before: Roadmap | None) -> Roadmap:
        """The roadmap with what waits for another workspace held back; the object `before` where that is the same."""
        if self._needs[0] is not roadmap:
            of_phases = {phase.id: elsewhere_in(phase.prerequisite) for phase in roadmap.phases if phase.prerequisite}
            rows = (
                (task.id, *need)
                for task in roadmap.tasks
                if not task.done
                for need in (*of_phases.get(task.phase, ()), *needs_elsewhere(task))
            )
            self._needs = roadmap, tuple(rows)
        if not self._needs[1]:
            return roadmap
        waiting = dict(self._waiting(self._needs[1]))
        held = (*roadmap.held, *(Held(task, because, True) for task, because in waiting.items()))
        if before is not None and before.held == held and before.tasks is roadmap.tasks:
            return before
        return roadmap._replace(held=held)

    def _waiting(self, needs: tuple[tuple[str, str, str], ...]) -> Iterator[tuple[str, str]]:
        workspaces = self._workspaces()
        for task, name, reference in needs:
            if why := self._why(workspaces.get(name, ""), name, reference):
                yield task, why

    def _why(self, directory: str, name: str, reference: str) -> str:
        """Why the task waits; empty where what it needs is done."""
        wanted = f"it waits for {name}#{reference}"
        if not directory:
            return f"{wanted}, and [run.workspaces] in your configuration names no {name}"
        roadmap = self._roadmap(directory)
        if roadmap is None:
            return f"{wanted}, and {printable(directory)} has no roadmap that can be read"
        found = [task for task in roadmap.tasks if _is_called(task, reference)]
        if len(found) != 1:
            return f"{wanted}, and {'several tasks are' if found else 'no task is'} called so there"
        return "" if found[0].done else f"{wanted}, which is not done there"

    def _roadmap(self, directory: str) -> Roadmap | None:
        try:
            root = CALLS.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            for name in self._names:
                try:
                    data = read_beneath(root, name, self._most)
                except FileNotFoundError:
                    continue
                known = self._read.get(directory)
                if known is None or known[0] != data:
                    known = self._read[directory] = data, parse(data, name)
                return known[1]
        except (OSError, TooLarge):
            return None  # OW-2
        finally:
            CALLS.close(root)
        return None


def _is_called(task: Task, reference: str) -> bool:
    return reference in (task.number, task.id) or (len(reference) > 3 and task.id.startswith(f"{reference}-"))
