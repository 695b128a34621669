"""One task of a run: what it asks for, where it stands, what was tried, and what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.run_told import MARKS, label, one_line, task_document, told, waits_for
from holdfast.cli.screen import shown
from holdfast.cli.watching import spent
from holdfast.errors import UnknownId
from holdfast.store.runs import Runs

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.engine.run_standing import Standing
    from holdfast.model.task import Task, TaskRecord
    from holdfast.wiring import Holdfast

_MOST_WORDS = 12
_NEXT = {
    "NEEDS_REVIEW": "Decide with: holdfast review {}",
    "FAILED": "Try it again with: holdfast retry {}",
    "TIMEOUT": "Try it again with: holdfast retry {}",
    "BLOCKED": "Try it again with: holdfast retry {}",
    "SKIPPED": "Set it back to do with: holdfast reset {}",
    "COMPLETED": "Undo it with: holdfast undo {}",
}


def task_asked(hf: Holdfast, word: str) -> tuple[Standing, Task, TaskRecord] | None:
    """The task of the newest run that this word names; None where there is no run, or no such task."""
    if not Runs(hf.records).exist():
        return None
    from holdfast.engine.run_standing import find_run, standing_of, task_named

    try:
        standing = standing_of(hf.site, hf.records, find_run(hf.records))
        id = task_named(standing.roadmap, word, standing.records)
    except UnknownId as error:
        if "could be" in error.message:
            raise
        return None
    return next((standing, task, record) for task, record in standing.rows() if task.id == id)


def show_task(screen: Screen, standing: Standing, task: Task, record: TaskRecord) -> None:
    evidence = [{"attempt": one.attempt, "evidence": one.evidence} for one in record.tried]
    screen.answer({**task_document(task, record), "body": task.body, "evidence": evidence})
    screen.say(f"{MARKS[record.state]} {label(task)}")
    screen.say(f"State     {record.state}: {told(task, record, waits_for(task, standing))}")
    screen.say(f"Task      {task.id}, line {task.line} of {shown(standing.run.roadmap)}, run {standing.run.id}")
    for line in task.body.strip().splitlines()[:_MOST_WORDS]:
        screen.say(f"          {shown(line)}")
    for one in record.tried:
        screen.say(f"Attempt   {one.attempt} by {shown(one.agent)}: {one.category}, then {one.strategy}")
        screen.say(f"          {one_line(one.evidence)[:300]}")
    if record.usage.requests:
        screen.say(f"Used      {spent(record.usage)}")
    if record.execution:
        screen.say(f"Execution {record.execution}" + (f", commit {record.commit}" if record.commit else ""))
    if record.attempt:
        screen.say(f"Log       .holdfast/logs/execution/{shown(task.id)}.jsonl")
    if record.state in _NEXT and (record.state != "COMPLETED" or record.execution):
        screen.say(_NEXT[record.state].format(task.id))
