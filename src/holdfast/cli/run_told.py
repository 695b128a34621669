"""A run in words and as JSON: a line for each task, a head, and the end with what to type next.

    ✓ landed   ● at work   ? needs a person   ✗ did not land   - left out   ◌ not begun

An *attempt* is one order that an agent carried out, to its end: what a person interrupted, or took back later, is none.
Inside an attempt the agent may *mend* its work: it is shown what was measured, and goes on. That is no other attempt.
What roadmaps, agents and checks say is shown as data: one line, nothing that moves the cursor.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.moments import clock_time, for_people, for_programs
from holdfast.cli.screen import shown
from holdfast.cli.words import count, duration
from holdfast.engine.branch_lost import stopped_for_branch
from holdfast.engine.outage import stopped_for_outage
from holdfast.engine.patience import stopped_for_database
from holdfast.engine.room import stopped_for_room
from holdfast.engine.run_standing import begin_with, resume_with
from holdfast.errors import AgentFailed, ApprovalNeeded, BranchLost, DatabaseAway, DiskFull, Interrupted, LimitReached
from holdfast.model.agent import Usage

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.engine.run_standing import Standing
    from holdfast.model.run import RunRecord
    from holdfast.model.task import Roadmap, Strategy, Task, TaskRecord, TaskState

MARKS: dict[TaskState, str] = {
    "PENDING": "◌",
    "IN_PROGRESS": "●",
    "VALIDATING": "●",
    "NEEDS_REVIEW": "?",
    "COMPLETED": "✓",
    "FAILED": "✗",
    "TIMEOUT": "✗",
    "SKIPPED": "-",
    "DEFERRED": "◌",
    "BLOCKED": "✗",
}
STYLES = {"✓": "green", "✗": "red", "?": "yellow", "●": "cyan", "◌": "dim", "-": "dim"}
# What follows a failed attempt.
STRATEGY_TOLD: dict[Strategy, str] = {
    "retry": "it is tried again",
    "retry with context": "it is tried again, told what failed",
    "rewrite": "it is tried again, restated",
    "decompose": "it is done in parts",
    "skip": "it is left out",
    "defer": "it is tried again later",
    "escalate": "a person is needed",
}
LOST: tuple[TaskState, ...] = ("FAILED", "TIMEOUT", "BLOCKED")
_WIDEST = 40
_SHORT_COMMIT = 7
_MS = 1_000_000
# A table longer than that says what did not land, and counts the rest.
_MOST_ROWS = 60


def label(task: Task) -> str:
    return shown(f"{task.number} {task.title}".strip().partition("\n")[0])


def one_line(text: str) -> str:
    return shown(" ".join(text.split()))


def attempts_of(record: TaskRecord) -> int:
    """Those that did not land, those that landed a part, and the one that is under way, landed, or was refused."""
    last = record.tried[-1].attempt if record.tried else 0
    return len(record.tried) + record.part + (record.attempt > last)


def attempts(record: TaskRecord) -> str:
    """`2 attempts, mended once`: of the last one it is known how often its agent went over it."""
    mends = record.tries - len(record.tried) - 1 if record.execution else 0
    times = {0: "", 1: ", mended once"}.get(max(0, mends), f", mended {mends} times")
    return count(max(1, attempts_of(record)), "attempt") + times


# ── one task ──


def told(
    task: Task, record: TaskRecord, waits_for: str = "", doing: str = "", held: str = "", answered: str = ""
) -> str:
    """Everything after the title. `held` is why its file wants it left alone, `answered` what a person said. That no
    check says that it works is in every line about it."""
    words = _told(task, record, waits_for, doing, held, answered)
    if record.state in ("NEEDS_REVIEW", "VALIDATING") and record.unverified and "unverified: " not in words:
        return f"{words}  {unverified(record)}"
    return words


def unverified(record: TaskRecord) -> str:
    return f"unverified: {one_line(record.unverified)}" if record.unverified else ""


def _told(task: Task, record: TaskRecord, waits_for: str, doing: str, held: str, answered: str) -> str:
    because = one_line(record.because)
    match record.state:
        case "COMPLETED":
            done = "  ".join(filter(None, ("done", unverified(record), because)))
            return _landed(record) if record.execution else done
        case "IN_PROGRESS":
            which = f"attempt {attempts_of(record)}  " if attempts_of(record) > 1 else ""
            return f"{shown(record.agent)}  {which}{doing}".rstrip()
        case "VALIDATING":
            return "landing: checked again, judged, landed" if record.landing else "its work is good; waits to land"
        case "NEEDS_REVIEW":
            return f"{answered}; holdfast resume goes on" if answered else f"needs you: {because}"
        case "PENDING":
            return f"waits for {waits_for}" if waits_for else f"{because or 'to do'}{not_before(record.wait_until_ns)}"
        case "SKIPPED" if held:
            return f"held: {one_line(held)}"
    words = {"FAILED": "failed", "TIMEOUT": "out of time", "SKIPPED": "left out", "BLOCKED": "blocked"}
    tries = f" ({attempts(record)})" if record.attempt else ""
    part = f", {record.part} of {record.parts} parts landed" if record.part and record.execution else ""
    when = not_before(record.wait_until_ns) if record.state == "DEFERRED" else ""
    return f"{words.get(record.state, 'later')}{part}{tries}: {because}{when}"


def answer_of(standing: Standing, task: str) -> str:
    """What a person answered, in words, where the run did not hear it yet; empty where somebody must answer."""
    after = standing.answered.get(task)
    left_out = " and left it out" if after is not None and after.state == "SKIPPED" else ""
    return one_line(after.because) + left_out if after is not None else ""


def not_before(at_ns: int) -> str:
    """When it is tried again, as the end of a sentence; empty once that is over."""
    return f", not before {clock_time(at_ns)}" if at_ns > time.time_ns() else ""


def _landed(record: TaskRecord) -> str:
    took = duration((record.at_ns - record.started_ns) // _MS) if record.started_ns and record.at_ns else ""
    parts = ["landed", unverified(record), count(record.files, "file"), attempts(record), took, _commits(record)]
    if record.tried:
        parts.append(f"first attempt: {record.tried[0].category}")
    return "  ".join(filter(None, (*parts, one_line(record.because))))


def _commits(record: TaskRecord) -> str:
    return " ".join(commit[:_SHORT_COMMIT] for commit in record.commit.split())


def held_by_files(standing: Standing) -> dict[str, str]:
    """Of tasks that nothing but a file they share keeps from beginning: whom they wait for, and the file."""
    if not standing.run.id:
        return {}
    from holdfast.planning.frontier import held_back
    from holdfast.planning.graph import graph_of

    tasks = {task.id: task for task in standing.roadmap.tasks}
    states = {id: standing.of(task).state for id, task in tasks.items()}
    held = held_back(graph_of(standing.roadmap), states)
    return {
        id: f"{tasks[before].number or shown(tasks[before].title)} (both are about {shown(what)})"
        for id, (before, what) in held.items()
    }


def waits_for(task: Task, standing: Standing, held: Mapping[str, str] = {}) -> str:
    """The first task that is not done of those that it names, or of the phases before its own; else what
    `held_by_files` says of it."""
    named = (before for id in task.after if (before := standing.roadmap.task(id)) is not None)
    for before in (*named, *_in_phases_before(task, standing.roadmap)):
        if not before.done and standing.of(before).state != "COMPLETED":
            return before.number or shown(before.title)
    return held.get(task.id, "")


def _in_phases_before(task: Task, roadmap: Roadmap) -> Iterator[Task]:
    after = next((phase.after for phase in roadmap.phases if phase.id == task.phase), ())
    return (other for other in roadmap.tasks if other.phase in after) if after else iter(())


def lines(
    screen: Screen, rows: Sequence[tuple[Task, TaskRecord]], standing: Standing, *, ids: bool = False
) -> Iterator[str]:
    """`ids`: a task that has no number ends with its id, by which it can be named."""
    width = min(_WIDEST, max((len(label(task)) for task, _ in rows), default=0))
    reasons, files = standing.roadmap.reasons, held_by_files(standing)
    for task, record in rows:
        answer, held = answer_of(standing, task.id), reasons.get(task.id, "")
        mark = MARKS["PENDING" if answer else record.state]
        why = held if record.because == held else ""
        words = told(task, record, waits_for(task, standing, files), held=why, answered=answer)
        text = f"{_cut(label(task), width):<{width}}  {words}"
        ending = f"  ({shown(task.id)})" if ids and not task.number else ""
        fitted = screen.fitted(text, ending)
        yield screen.style(f" {mark}", STYLES[mark]) + f" {fitted}"
        if fitted != text + ending and record.state == "COMPLETED":
            # A remark on what landed is never cut off.
            yield from (f"   ! {remark}" for remark in (unverified(record), one_line(record.because)) if remark)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


# ── the whole run ──


class Counts(NamedTuple):
    tasks: int
    completed: int
    failed: int
    waiting: int
    skipped: int
    left: int
    # Landed of tasks that are not done.
    parts: int = 0
    # Of those that are completed: this run landed them. The others were done before it.
    landed: int = 0
    # Of those that are left out: their file wants it.
    held: int = 0
    # Of those that are completed: no check says that they work.
    unverified: int = 0

    @property
    def to_do(self) -> int:
        """As a run counts it when it begins (`tally`)."""
        return self.tasks - self.completed - self.held

    @property
    def told(self) -> str:
        parts = f", {count(self.parts, 'part')} of others" if self.parts else ""
        doubt = f", {self.unverified:,} of them unverified" if self.unverified else ""
        return f"{self.completed:,} of {count(self.tasks, 'task')} done{doubt}{parts}"


def counts_of(
    rows: Iterable[tuple[Task, TaskRecord]], answered: Collection[str] = (), reasons: Mapping[str, str] = {}
) -> Counts:
    """`answered` wait for nobody any more: the run goes on with them. `reasons` are why tasks are held."""
    records = [record for _, record in rows]
    states = [record.state for record in records]
    done, skipped = states.count("COMPLETED"), states.count("SKIPPED")
    waiting = sum(record.state == "NEEDS_REVIEW" and record.task not in answered for record in records)
    failed = sum(state in LOST for state in states)
    left = len(states) - done - failed - waiting - skipped
    parts = sum(record.part for record in records if record.state != "COMPLETED" and record.execution)
    landed = sum(record.state == "COMPLETED" and bool(record.execution) for record in records)
    held = sum(record.state == "SKIPPED" and record.because == reasons.get(record.task) for record in records)
    doubtful = sum(record.state == "COMPLETED" and bool(record.unverified) for record in records)
    return Counts(len(states), done, failed, waiting, skipped, left, parts, landed, held, doubtful)


def counts_in(standing: Standing) -> Counts:
    return counts_of(standing.rows(), standing.answered, standing.roadmap.reasons)


def usage_of(standing: Standing) -> Usage:
    total = Usage()
    for record in standing.records.values():
        total = total.plus(record.usage)
    return total


def head(run: RunRecord, counts: Counts, usage: Usage, worked_ms: int) -> tuple[str, str]:
    """What stands at the left of the first line, and at the right."""
    left = f"{shown(run.roadmap)} · {count(counts.tasks, 'task')}, {counts.to_do:,} to do"
    budget = run.options.budget
    money = f"${(usage.micro_usd or 0) / 1e6:.2f}" if usage.micro_usd or budget.micro_usd is not None else ""
    most = f" of ${budget.micro_usd / 1e6:g}" if budget.micro_usd is not None else ""
    whole = f" of {clock(budget.time_ms)}" if budget.time_ms is not None else ""
    parts = f" and {count(counts.parts, 'part')}" if counts.parts else ""
    done = counts.completed - counts.landed
    before = f"{done:,} done{' before' if run.id else ''}" if done else ""
    doubt = f", {counts.unverified:,} unverified" if counts.unverified else ""
    landed = f"{counts.landed:,} landed{parts}{doubt}" if run.id else ""
    return left, " · ".join(filter(None, (money + most, clock(worked_ms) + whole if run.id else "", before, landed)))


def clock(milliseconds: int) -> str:
    """0:12:31."""
    seconds = milliseconds // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def tell_table(screen: Screen, standing: Standing, *, all_rows: bool = False) -> None:
    """With many tasks, those that ask for something; `holdfast tasks` lists every one."""
    rows = list(standing.rows())
    counts = counts_in(standing)
    left, right = head(standing.run, counts, usage_of(standing), standing.run.worked_ms)
    gap = max(2, screen.columns() - len(left) - len(right) - 1)
    screen.say(screen.style(left, "bold") + " " * gap + screen.style(right, "dim"))
    told_rows = rows if all_rows or len(rows) <= _MOST_ROWS else [row for row in rows if row[1].state != "COMPLETED"]
    shown_rows = told_rows if all_rows else told_rows[:_MOST_ROWS]
    for line in lines(screen, shown_rows, standing, ids=all_rows):
        screen.say(line)
    if len(rows) > len(shown_rows):
        screen.say(f"   and {len(rows) - len(shown_rows):,} more: holdfast tasks {standing.run.id}")


# ── the end ──


class Ending(NamedTuple):
    """How a run ended for whoever started it: the exit status, one sentence, and what to type next."""

    status: int
    words: str
    next: str = ""


def ending_of(standing: Standing, *, interrupted: bool) -> Ending:
    """`interrupted`: a person stopped it, here or from another terminal."""
    run, counts = standing.run, counts_in(standing)
    landed, begin = counts.told, begin_with(run, standing.place)
    match run.state:
        case "WAITING" if not counts.waiting:
            words = f"Nothing waits for you any more: all of it is answered; {landed}."
            return Ending(ApprovalNeeded.exit_status, words, resume_with(run))
        case "WAITING":
            who = count(counts.waiting, "task")
            lost = f"{counts.failed:,} did not land ({_again(standing)}); " if counts.failed else ""
            words = f"{who} {'needs' if counts.waiting == 1 else 'need'} you; {lost}{landed}."
            return Ending(ApprovalNeeded.exit_status, words, "holdfast review")
        case "LIMIT":
            return Ending(LimitReached.exit_status, f"Stopped: {one_line(run.because)}; {landed}.", resume_with(run))
        case "STOPPED" if stopped_for_room(run):
            words = f"Stopped: {one_line(run.because)}; {landed}. State is safe. Make room first."
            return Ending(DiskFull.exit_status, words, resume_with(run))
        case "STOPPED" if stopped_for_database(run):
            words = f"Stopped: {one_line(run.because)}; {landed}. Work that is under way elsewhere is kept."
            return Ending(DatabaseAway.exit_status, words, resume_with(run))
        case "STOPPED" if stopped_for_branch(run):
            words = f"Stopped: {one_line(run.because)} {landed}."
            return Ending(BranchLost.exit_status, words, resume_with(run))
        case "STOPPED" if stopped_for_outage(run):
            words = f"Stopped: {one_line(run.because)}; {landed}. No attempt was used up by it."
            return Ending(AgentFailed.exit_status, words, resume_with(run))
        case "STOPPED" if interrupted or not counts.failed:
            why = one_line(run.because)
            return Ending(Interrupted.exit_status, f"Stopped: {why}; {landed}. State is safe.", resume_with(run))
        case "RUNNING":
            return Ending(Interrupted.exit_status, f"Interrupted; {landed}. State is safe.", resume_with(run))
    if counts.failed:
        why = _cannot_begin(standing)
        if why:
            words = f"{count(counts.failed, 'task')} cannot begin: {why}; {landed}. Change {shown(run.roadmap)} first."
            return Ending(AgentFailed.exit_status, words, begin)
        stopped = "Stopped at the first failure: " if run.state == "STOPPED" else ""
        words = f"{stopped}{count(counts.failed, 'task')} did not land; {landed}."
        return Ending(AgentFailed.exit_status, words, _again(standing))
    if waiting := _wait_elsewhere(standing):
        left = f", {counts.left:,} left" if counts.left else ""
        words = f"{count(len(waiting), 'task')} cannot begin: {one_line(waiting[0])}; {landed}{left}."
        return Ending(AgentFailed.exit_status, words, begin)
    if gone := _left_the_roadmap(standing):
        words = f"{count(gone, 'task')} left {shown(run.roadmap)} before it was done; {landed}, {counts.left:,} left."
        return Ending(0, words, begin if standing.roadmap.tasks else "")
    if counts.left:
        return Ending(0, f"Everything asked for is done; {landed}, {counts.left:,} left.", begin)
    out = f", {counts.skipped:,} left out" if counts.skipped else ""
    return Ending(0, f"Done: {landed}{out}.", "")


def _again(standing: Standing) -> str:
    failed = [record.task for _, record in standing.rows() if record.state in LOST]
    which = failed[0] if len(failed) == 1 else "--failed"
    return f"holdfast retry {which}" + (" --yes" if standing.run.yes else "")


def _cannot_begin(standing: Standing) -> str:
    """Why all that did not land is blocked although nothing failed, or was left out: another try would change nothing,
    since it is the file that says so. Empty otherwise."""
    records = [record for _, record in standing.rows()]
    if any(record.state in ("FAILED", "TIMEOUT", "SKIPPED") for record in records):
        return ""
    return next((one_line(record.because) for record in records if record.state == "BLOCKED"), "")


def _left_the_roadmap(standing: Standing) -> int:
    """Begun, and not done when somebody took them out of the file, or made it unreadable."""
    known = {task.id for task in standing.roadmap.tasks}
    return sum(record.state == "PENDING" for id, record in standing.records.items() if id not in known)


def _wait_elsewhere(standing: Standing) -> list[str]:
    """Why tasks that were asked for did not begin, where they wait for another workspace: nobody left them out."""
    options = standing.run.options
    if options.most_tasks and sum(record.attempt > 0 for record in standing.records.values()) >= options.most_tasks:
        return []
    waits = {row.task: row.because for row in standing.roadmap.held if row.waits}
    return [
        record.because
        for task, record in standing.rows()
        if record.because and record.because == waits.get(task.id) and (not options.only or task.id in options.only)
    ]


def tell_ending(screen: Screen, standing: Standing, ending: Ending) -> None:
    screen.answer({**run_document(standing), "exit": ending.status, "next": screen.way(ending.next)})
    tell_table(screen, standing)
    if standing.unreadable:
        screen.say(f"{one_line(standing.unreadable)}: what landed is not ticked, and tasks are called by their ids.")
    screen.say(screen.way(ending.words))
    if ending.next:
        verb = "Decide" if ending.next == "holdfast review" else "Go on"
        screen.say(screen.way(f"{verb} with: {ending.next}"))


def show_run(screen: Screen, standing: Standing) -> None:
    """As it stands, whoever drove it."""
    run = standing.run
    screen.answer(run_document(standing))
    because = f": {one_line(run.because)}" if run.because else ""
    by = f", started by {shown(run.by)}" if run.by else ""
    screen.say(f"{run.id}  {run.state}{because}  {for_people(run.at_ns)}{by}")
    tell_table(screen, standing)
    screen.say(f"Every task: holdfast tasks {run.id}")


# ── documents ──


def run_document(standing: Standing) -> dict[str, object]:
    """Before the first run it is the roadmap that stands so: it has no id, nothing has begun, and no moment is told."""
    run, rows = standing.run, list(standing.rows())
    phases = {phase.id: phase.title for phase in standing.roadmap.phases}
    return {
        "kind": "run" if run.id else "roadmap",
        "id": run.id,
        "status": run.state if run.id else "PENDING",
        "roadmap": run.roadmap,
        "unreadable": standing.unreadable,
        "because": run.because,
        "by": run.by,
        "agent": run.options.agent,
        "started": for_programs(run.started_ns) if run.id else None,
        "at": for_programs(run.at_ns) if run.id else None,
        "worked_ms": run.worked_ms,
        "format": standing.roadmap.format,
        "confidence": standing.roadmap.confidence,
        "phases": [{"id": phase.id, "title": phase.title, "line": phase.line} for phase in standing.roadmap.phases],
        "remarks": [{"line": remark.line, "text": remark.text} for remark in standing.roadmap.remarks],
        "totals": counts_in(standing)._asdict(),
        "usage": usage_of(standing)._asdict(),
        "tasks": [
            {
                **task_document(task, record, answer_of(standing, task.id)),
                "phase_title": phases.get(task.phase, ""),
            }
            for task, record in rows
        ],
    }


def task_document(task: Task, record: TaskRecord, answered: str = "") -> dict[str, object]:
    return {
        "kind": "task",
        "id": task.id,
        "status": record.state,
        "run": record.run,
        "number": task.number,
        "title": task.title,
        "phase": task.phase,
        "line": task.line,
        "attempts": attempts_of(record),
        "agent": record.agent,
        "because": record.because,
        "answered": answered,
        "not_before": for_programs(record.wait_until_ns) if record.wait_until_ns > time.time_ns() else None,
        "files": record.files,
        "unverified": record.unverified,
        "execution": record.execution,
        "commit": record.commit,
        "simulation": record.simulation,
        "usage": record.usage._asdict(),
        "at": for_programs(record.at_ns) if record.at_ns else None,
        "tried": [
            {"attempt": number, "category": one.category, "strategy": one.strategy, "agent": one.agent}
            for number, one in enumerate(record.tried, 1)
        ],
    }
