"""Where a run stands, for those who only look: read from the tables and the roadmap, without any part that changes.

    run ──▶ Standing(run, roadmap as it is now, a record for each task) ──▶ a task by id, number or the beginning of it

Invariants
  W1  Looking takes no lock and writes nothing; what it tells may be a moment old.
  W2  A word that could mean two tasks means none: UnknownId names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.engine.answers import settled_answer
from holdfast.engine.landed_before import with_landed
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.errors import UnknownId
from holdfast.model.path import printable
from holdfast.model.run import RunRecord
from holdfast.model.task import Roadmap, Task, TaskRecord
from holdfast.settlement.runs import run_from, task_records
from holdfast.store.database import Records
from holdfast.store.runs import Runs
from holdfast.workspace.site import Site

_MOST_NAMED = 5


class Standing(NamedTuple):
    """A run with its roadmap as it is now, and where every task stands."""

    run: RunRecord
    roadmap: Roadmap
    records: Mapping[str, TaskRecord]
    # Tasks whose question a person has answered, and the run did not hear it yet: where that leads them.
    answered: Mapping[str, TaskRecord] = {}

    def of(self, task: Task) -> TaskRecord:
        return self._of(task, self.roadmap.why_held(task.id))

    def _of(self, task: Task, held: str) -> TaskRecord:
        found = self.records.get(task.id) or TaskRecord(self.run.id, task.id, "COMPLETED" if task.done else "PENDING")
        if held and (found.state == "PENDING" or task.id not in self.records):
            return found._replace(state="SKIPPED", because=held)
        return found

    def rows(self) -> Iterator[tuple[Task, TaskRecord]]:
        """Every task of the roadmap, in its order, then those that were begun and have left it since."""
        known, held = {task.id for task in self.roadmap.tasks}, self.roadmap.reasons
        yield from ((task, self._of(task, held.get(task.id, ""))) for task in self.roadmap.tasks)
        yield from ((Task(id, id), record) for id, record in self.records.items() if id not in known)


def find_run(records: Records, id: str = "") -> RunRecord:
    """The run with that id, or beginning so; without one, the run that moved last."""
    rows = Runs(records).runs()
    found = [row for row in rows if row.id.startswith(id)]
    if not found:
        said = f"there is no run {printable(id)}" if id else "there has been no run here"
        raise UnknownId(said, hint="Start one: holdfast run")
    if id and len(found) > 1 and found[0].id != id:
        raise UnknownId(f"{id} could be {', '.join(sorted(row.id for row in found))}", hint="See: holdfast tasks RUN")
    return run_from(found[0].document)


def standing_of(site: Site, records: Records, run: RunRecord) -> Standing:
    file = RoadmapFile(site, run.roadmap)
    roadmap = with_landed(records, file, *file.read(), run.id).asked_for(run.options.only)
    tasks = task_records(Runs(records), run.id)
    after = {id: settled_answer(records, record) for id, record in tasks.items()}
    return Standing(run, roadmap, tasks, {id: record for id, record in after.items() if record is not None})


def stands(records: Records, record: TaskRecord) -> bool:
    """Whether it is done, and what it landed is there; what stood so already was landed by nobody."""
    return record.state == "COMPLETED" and (not record.execution or records.row(record.execution).live)


def task_named(roadmap: Roadmap, word: str, others: Mapping[str, TaskRecord] | None = None) -> str:
    """A task by its id, the number it has in the roadmap, or the beginning of its id; `others` have left the file."""
    exact = [item.id for item in roadmap.tasks if word in (item.id, item.number)]
    found = exact or [item.id for item in roadmap.tasks if item.id.startswith(word)]
    found = found or [id for id in others or {} if id.startswith(word)]
    if not word or len(found) != 1:
        named = ", ".join(found[:_MOST_NAMED])
        said = f"{printable(word)} could be {named}" if found else f"there is no task {printable(word)}"
        raise UnknownId(said, hint="See: holdfast tasks")
    return found[0]
