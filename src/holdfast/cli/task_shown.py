"""One task of a run: what it asks for, where it stands, what was tried, and what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from holdfast.cli.run_told import LOST, MARKS, answer_of, held_by_files, label, one_line, task_document, told, waits_for
from holdfast.cli.screen import shown
from holdfast.cli.summary import left_out
from holdfast.cli.watching import spent
from holdfast.engine.run_standing import resume_with
from holdfast.errors import UnknownId
from holdfast.store.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.cli.screen import Screen
    from holdfast.engine.run_standing import Standing
    from holdfast.model.task import Task, TaskRecord
    from holdfast.store.chain import Entry
    from holdfast.wiring import Holdfast

    TaskAsked: TypeAlias = tuple[Standing, Task, TaskRecord]

_MOST_WORDS = 12
_NEXT = {
    "NEEDS_REVIEW": "Decide with: holdfast review {}",
    "FAILED": "Try it again with: holdfast retry {}",
    "TIMEOUT": "Try it again with: holdfast retry {}",
    "BLOCKED": "Try it again with: holdfast retry {}",
    "SKIPPED": "Set it back to do with: holdfast reset {}",
    "COMPLETED": "Undo it with: holdfast undo {}",
}


def task_asked(hf: Holdfast, word: str) -> TaskAsked | None:
    """The task that this word names in the roadmap of the newest run, as the run left it that had to do with it last:
    what an earlier one landed is done, and no part of the newest. None where there is no run, or no such task."""
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
    if id not in standing.records:
        earlier = next(landings_of(hf, standing.run.roadmap, id), None)
        standing = standing_of(hf.site, hf.records, find_run(hf.records, earlier.run)) if earlier else standing
    return next((standing, task, record) for task, record in standing.rows() if task.id == id)


def landings_of(hf: Holdfast, roadmap: str, task: str) -> Iterator[TaskRecord]:
    """Where this task landed something that can still be undone, in whichever run over that roadmap; the newest first.

    Of a task that failed, that is what landed of its parts.
    """
    from holdfast.engine.landed_before import is_gone
    from holdfast.settlement.runs import task_record

    runs = Runs(hf.records)
    for row in runs.runs():
        record = task_record(runs, row.id, task)
        if row.roadmap != roadmap or not record.execution:
            continue
        # Counted as done, and gone: an undo was cut off, and asking again finishes it.
        if record.state == "COMPLETED" or not is_gone(hf.records, record.execution):
            yield record


def _left_out(agents_work: Sequence[Entry]) -> tuple[tuple[str, ...], int]:
    """The by-products of the newest work, as many as the ledger names, and how many there were."""
    from holdfast.engine.transcript import last_measured

    measured = last_measured(agents_work[-1].body) if agents_work else {}
    paths, total = measured.get("left_out"), measured.get("left_out_count")
    return tuple(map(str, paths)) if isinstance(paths, list) else (), total if isinstance(total, int) else 0


def show_task(
    screen: Screen, standing: Standing, task: Task, record: TaskRecord, agents_work: Sequence[Entry] = ()
) -> None:
    """`agents_work` is what the ledger has of agents' work for it, of which there are transcripts; the newest last."""
    evidence = [{"attempt": number, "evidence": one.evidence} for number, one in enumerate(record.tried, 1)]
    answer = answer_of(standing, task.id)
    made, total = _left_out(agents_work)
    screen.answer(
        {**task_document(task, record, answer), "body": task.body, "evidence": evidence, "left_out": list(made)}
    )
    screen.say(f"{MARKS['PENDING' if answer else record.state]} {label(task)}")
    waits = waits_for(task, standing, held_by_files(standing))
    screen.say(f"State     {record.state}: {told(task, record, waits, answered=answer)}")
    screen.say(f"Task      {task.id}, line {task.line} of {shown(standing.run.roadmap)}, run {standing.run.id}")
    for line in task.body.strip().splitlines()[:_MOST_WORDS]:
        screen.say(f"          {shown(line)}")
    for number, one in enumerate(record.tried, 1):
        screen.say(f"Attempt   {number} by {shown(one.agent)}: {one.category}, then {one.strategy}")
        screen.say(f"          {one_line(one.evidence)[:300]}")
    if record.usage.requests:
        screen.say(f"Used      {spent(record.usage)}")
    if record.execution:
        screen.say(f"Execution {record.execution}" + (f", commit {record.commit}" if record.commit else ""))
    if made:
        screen.say(f"Left out  {left_out(made, total)}")
    if record.attempt:
        screen.say(f"Log       .holdfast/logs/execution/{shown(task.id)}.jsonl")
    if agents_work:
        screen.say(screen.way(f"What agents said and did: holdfast show {shown(task.id)} --transcript"))
    if record.state in LOST and record.part and record.execution:
        screen.say(screen.way(f"Undo what landed of it with: holdfast undo {task.id}"))
    if answer:
        screen.say(screen.way(f"Go on with: {resume_with(standing.run)}"))
    elif record.state in _NEXT and (record.state != "COMPLETED" or record.execution):
        consent = " --yes" if standing.run.yes and record.state in LOST else ""
        screen.say(screen.way(_NEXT[record.state].format(task.id) + consent))
