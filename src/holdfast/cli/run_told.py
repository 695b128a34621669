"""A run in words and as JSON: a line for each task, a head, and the end with what to type next.

    ✓ landed   ● at work   ? needs a person   ✗ did not land   - left out   ◌ not begun

What roadmaps, agents and checks say is shown as data: one line, nothing that moves the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.moments import for_programs
from holdfast.cli.screen import shown
from holdfast.cli.words import count, duration
from holdfast.errors import AgentFailed, ApprovalNeeded, Interrupted, LimitReached
from holdfast.model.agent import Usage

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.engine.run_standing import Standing
    from holdfast.model.run import RunRecord
    from holdfast.model.task import Task, TaskRecord, TaskState

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


def attempts(number: int) -> str:
    return count(number, "attempt")


# ── one task ──


def told(task: Task, record: TaskRecord, waits_for: str = "", doing: str = "", held: str = "") -> str:
    """Everything after the title. `held` is why its file wants it left alone."""
    because = one_line(record.because)
    match record.state:
        case "COMPLETED":
            return _landed(record) if record.execution else f"done  {because}".rstrip()
        case "IN_PROGRESS":
            which = f"attempt {record.attempt}  " if record.attempt > 1 else ""
            return f"{shown(record.agent)}  {which}{doing}".rstrip()
        case "VALIDATING":
            return "landing: checked again, judged, landed" if record.landing else "its work is good; waits to land"
        case "NEEDS_REVIEW":
            return f"needs you: {because}"
        case "PENDING":
            return f"waits for {waits_for}" if waits_for else because or "to do"
        case "SKIPPED" if held:
            return f"held: {one_line(held)}"
    words = {"FAILED": "failed", "TIMEOUT": "out of time", "SKIPPED": "left out", "BLOCKED": "blocked"}
    tries = f" ({attempts(record.attempt)})" if record.attempt else ""
    return f"{words.get(record.state, 'later')}{tries}: {because}"


def _landed(record: TaskRecord) -> str:
    took = duration((record.at_ns - record.started_ns) // _MS) if record.started_ns and record.at_ns else ""
    parts = ["landed", count(record.files, "file"), attempts(max(1, record.attempt)), took, _commits(record)]
    if record.tried:
        parts.append(f"first attempt: {record.tried[0].category}")
    return "  ".join(filter(None, (*parts, one_line(record.because))))


def _commits(record: TaskRecord) -> str:
    return " ".join(commit[:_SHORT_COMMIT] for commit in record.commit.split())


def waits_for(task: Task, standing: Standing) -> str:
    """The first task that it names and that is not done; what phases and files hold back is not told here."""
    for id in task.after:
        before = standing.roadmap.task(id)
        if before is not None and not before.done and standing.of(before).state != "COMPLETED":
            return before.number or shown(before.title)
    return ""


def lines(screen: Screen, rows: Sequence[tuple[Task, TaskRecord]], standing: Standing) -> Iterator[str]:
    width = min(_WIDEST, max((len(label(task)) for task, _ in rows), default=0))
    reasons = dict(standing.roadmap.held)
    for task, record in rows:
        mark, held = MARKS[record.state], reasons.get(task.id, "")
        words = told(task, record, waits_for(task, standing), held=held if record.because == held else "")
        text = f"{_cut(label(task), width):<{width}}  {words}"
        yield screen.style(f" {mark}", STYLES[mark]) + f" {screen.fitted(text)}"


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


def counts_of(rows: Iterable[tuple[Task, TaskRecord]]) -> Counts:
    states = [record.state for _, record in rows]
    done, waiting, skipped = states.count("COMPLETED"), states.count("NEEDS_REVIEW"), states.count("SKIPPED")
    failed = sum(state in LOST for state in states)
    return Counts(len(states), done, failed, waiting, skipped, len(states) - done - failed - waiting - skipped)


def usage_of(standing: Standing) -> Usage:
    total = Usage()
    for record in standing.records.values():
        total = total.plus(record.usage)
    return total


def head(run: RunRecord, counts: Counts, usage: Usage, worked_ms: int) -> tuple[str, str]:
    """What stands at the left of the first line, and at the right."""
    to_do = counts.tasks - counts.completed
    left = f"{shown(run.roadmap)} · {count(counts.tasks, 'task')}, {to_do:,} to do"
    budget = run.options.budget
    money = f"${(usage.micro_usd or 0) / 1e6:.2f}" if usage.micro_usd or budget.micro_usd is not None else ""
    most = f" of ${budget.micro_usd / 1e6:g}" if budget.micro_usd is not None else ""
    whole = f" of {clock(budget.time_ms)}" if budget.time_ms is not None else ""
    return left, " · ".join(filter(None, (money + most, clock(worked_ms) + whole, f"{counts.completed:,} landed")))


def clock(milliseconds: int) -> str:
    """0:12:31."""
    seconds = milliseconds // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def tell_table(screen: Screen, standing: Standing, *, all_rows: bool = False) -> None:
    """With many tasks, those that ask for something; `holdfast tasks` lists every one."""
    rows = list(standing.rows())
    counts = counts_of(rows)
    left, right = head(standing.run, counts, usage_of(standing), standing.run.worked_ms)
    gap = max(2, screen.columns() - len(left) - len(right) - 1)
    screen.say(screen.style(left, "bold") + " " * gap + screen.style(right, "dim"))
    told_rows = rows if all_rows or len(rows) <= _MOST_ROWS else [row for row in rows if row[1].state != "COMPLETED"]
    shown_rows = told_rows if all_rows else told_rows[:_MOST_ROWS]
    for line in lines(screen, shown_rows, standing):
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
    run, counts = standing.run, counts_of(standing.rows())
    landed = f"{counts.completed:,} of {count(counts.tasks, 'task')} done"
    match run.state:
        case "WAITING":
            who = count(counts.waiting, "task")
            words = f"{who} {'needs' if counts.waiting == 1 else 'need'} you; {landed}."
            return Ending(ApprovalNeeded.exit_status, words, "holdfast review")
        case "LIMIT":
            return Ending(LimitReached.exit_status, f"Stopped: {one_line(run.because)}; {landed}.", "holdfast resume")
        case "STOPPED" if interrupted or not counts.failed:
            why = one_line(run.because)
            return Ending(Interrupted.exit_status, f"Stopped: {why}; {landed}. State is safe.", "holdfast resume")
        case "RUNNING":
            return Ending(Interrupted.exit_status, f"Interrupted; {landed}. State is safe.", "holdfast resume")
    if counts.failed:
        failed = [record.task for _, record in standing.rows() if record.state in LOST]
        again = f"holdfast retry {failed[0]}" if len(failed) == 1 else "holdfast retry --failed"
        stopped = "Stopped at the first failure: " if run.state == "STOPPED" else ""
        words = f"{stopped}{count(len(failed), 'task')} did not land; {landed}."
        return Ending(AgentFailed.exit_status, words, again)
    if counts.left:
        return Ending(0, f"Everything asked for is done; {landed}, {counts.left:,} left.", "holdfast run")
    out = f", {counts.skipped:,} left out" if counts.skipped else ""
    return Ending(0, f"Done: {landed}{out}.", "")


def tell_ending(screen: Screen, standing: Standing, ending: Ending) -> None:
    screen.answer({**run_document(standing), "exit": ending.status, "next": ending.next})
    tell_table(screen, standing)
    screen.say(ending.words)
    if ending.next:
        verb = "Decide" if ending.next == "holdfast review" else "Go on"
        screen.say(f"{verb} with: {ending.next}")


# ── documents ──


def run_document(standing: Standing) -> dict[str, object]:
    run, rows = standing.run, list(standing.rows())
    return {
        "kind": "run",
        "id": run.id,
        "status": run.state,
        "roadmap": run.roadmap,
        "because": run.because,
        "by": run.by,
        "agent": run.options.agent,
        "started": for_programs(run.started_ns),
        "at": for_programs(run.at_ns),
        "worked_ms": run.worked_ms,
        "totals": counts_of(rows)._asdict(),
        "usage": usage_of(standing)._asdict(),
        "tasks": [task_document(task, record) for task, record in rows],
    }


def task_document(task: Task, record: TaskRecord) -> dict[str, object]:
    return {
        "kind": "task",
        "id": task.id,
        "status": record.state,
        "run": record.run,
        "number": task.number,
        "title": task.title,
        "phase": task.phase,
        "line": task.line,
        "attempts": record.attempt,
        "agent": record.agent,
        "because": record.because,
        "files": record.files,
        "execution": record.execution,
        "commit": record.commit,
        "simulation": record.simulation,
        "usage": record.usage._asdict(),
        "at": for_programs(record.at_ns) if record.at_ns else None,
        "tried": [
            {"attempt": one.attempt, "category": one.category, "strategy": one.strategy, "agent": one.agent}
            for one in record.tried
        ],
    }
