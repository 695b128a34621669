"""Where a run stands, for those who only look: read from the tables and the roadmap, without any part that changes.

    run ──▶ Standing(run, roadmap as it is now, a record for each task) ──▶ a task by id, number or the beginning of it

Invariants
  W1  Looking takes no lock and writes nothing; what it tells may be a moment old.
  W2  A word that could mean two tasks means none: UnknownId names them.
  W3  What landed is told also where the roadmap cannot be read: its tasks are called by their ids then, and it says so.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.engine.answers import settled_answer
from holdfast.engine.landed_before import with_landed
from holdfast.engine.patience import stopped_for_database
from holdfast.engine.roadmap_file import NAMES, RoadmapFile
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.path import printable
from holdfast.model.run import AUTO, RunRecord
from holdfast.model.task import Roadmap, Task, TaskRecord
from holdfast.settlement.runs import run_from, task_records
from holdfast.store.database import Records
from holdfast.store.runs import Runs
from holdfast.workspace.site import Site

_MOST_NAMED = 5
# Before the id of a phase: that it is done; twice, that its tasks may begin. No id of a task begins so.
_PHASE = "/"


class Standing(NamedTuple):
    """A run with its roadmap as it is now, and where every task stands."""

    run: RunRecord
    roadmap: Roadmap
    records: Mapping[str, TaskRecord]
    # Tasks whose question a person has answered, and the run did not hear it yet: where that leads them.
    answered: Mapping[str, TaskRecord] = {}
    # Why the roadmap cannot be read.
    unreadable: str = ""
    # What the path of the roadmap is relative to; empty on a branch, where it is named by its place there.
    place: str = ""

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


def done_behind(standing: Standing, execution: str) -> tuple[Task, ...]:
    """The tasks that are done, and need what this execution landed, by themselves or by way of others."""
    tasks = {task.id: record for task, record in standing.rows()}
    behind: dict[str, list[str]] = {}
    phases = {phase.id: phase.after for phase in standing.roadmap.phases}
    for phase, before in phases.items():
        for other in before:
            behind.setdefault(f"{_PHASE}{other}", []).append(f"{_PHASE}{_PHASE}{phase}")
    for task in standing.roadmap.tasks:
        for other in task.after:
            behind.setdefault(other, []).append(task.id)
        if task.phase:
            behind.setdefault(task.id, []).append(f"{_PHASE}{task.phase}")
            behind.setdefault(f"{_PHASE}{_PHASE}{task.phase}", []).append(task.id)
    taken = {id for id, record in standing.records.items() if record.execution == execution}
    seen, open_ones = set(taken), list(taken)
    while open_ones:
        for id in behind.get(open_ones.pop(), ()):
            if id not in seen:
                seen.add(id)
                open_ones.append(id)
    done = seen - taken
    return tuple(task for task in standing.roadmap.tasks if task.id in done and tasks[task.id].state == "COMPLETED")


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
    roadmap, unreadable = Roadmap("roadmap", "", (), ()), ""
    try:
        file = RoadmapFile(site, run.roadmap)
        roadmap = with_landed(records, file, *file.read(), run.id).asked_for(run.options.only)
    except InvalidInput as error:
        unreadable = error.message
    tasks = task_records(Runs(records), run.id)
    after = {id: settled_answer(records, record) for id, record in tasks.items()}
    answered = {id: record for id, record in after.items() if record is not None}
    return Standing(run, roadmap, tasks, answered, unreadable, "" if site.is_branch else site.path)


def begin_with(run: RunRecord, place: str = "") -> str:
    """What to type to begin another run as this one was begun: over the same roadmap, by the same agent, with the same
    consent. `place` is that of `Standing`: a person names a roadmap from where they are."""
    words = ["holdfast run"]
    if run.roadmap != NAMES[0]:  # which is taken before all others
        words.append(shlex.quote(os.path.relpath(os.path.join(place, run.roadmap)) if place else run.roadmap))
    if run.options.agent != AUTO:
        words.append(f"--agent {shlex.quote(run.options.agent)}")
    words += [word for word, given in (("--yes", run.yes), ("--take-guessed", run.taken)) if given]
    return " ".join(words)


def resume_with(run: RunRecord, id: str = "") -> str:
    """What to type to go on with it as it was: with the consent that it had, and with twice the budget that is used up,
    without which it would stop at once again."""
    budget = run.options.budget
    doubled = {
        "the time": ("--budget-time", budget.time_ms and f"{-(-2 * budget.time_ms // 1000)}s"),
        "the money": ("--budget-usd", budget.micro_usd and f"{2 * budget.micro_usd / 1e6:g}"),
        "the tokens": ("--budget-tokens", budget.tokens and str(2 * budget.tokens)),
        "the requests": ("--max-turns", budget.turns and str(2 * budget.turns)),
    }
    found = (row for said, row in doubled.items() if run.state == "LIMIT" and run.because.startswith(said))
    option, value = next(found, ("", None))
    words = ["holdfast resume", id, f"{option} {value}" if value else "", "--yes" if run.yes else ""]
    if stopped_for_database(run):
        words.append("--database URL")
    return " ".join(filter(None, words))


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
