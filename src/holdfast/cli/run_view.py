"""A run while it goes on: a table that is redrawn where a person looks on, a line for each move elsewhere, events.

    terminal        head, and a line for each task, drawn anew once a second; gone when the run ends
    a pipe, a file  a line on standard error when a task starts, lands, fails or waits for a person, and indented below
                    it what its agent says and does
    --stream-json   every event, a line each

Invariants
  R1  Drawing never raises: a terminal that went away changes nothing about the run.
  R2  Events come from any thread and only change what is known; drawing is done by the thread that drives, in `tick`.
      There is no thread behind it.
  R3  What agents say is data: one line, cut, without anything that has the shape of a secret.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from holdfast.cli.moments import clock_time
from holdfast.cli.run_told import (
    MARKS,
    STRATEGY_TOLD,
    STYLES,
    attempts_of,
    clock,
    counts_of,
    head,
    label,
    not_before,
    one_line,
    told,
    waits_for,
)
from holdfast.cli.screen import Screen
from holdfast.cli.watching import Lines, worded
from holdfast.cli.words import count, duration
from holdfast.engine.event_rows import fields_of_event
from holdfast.engine.run_log import without_secrets
from holdfast.errors import HoldfastError
from holdfast.model.agent import Began, Escalated, Usage, reworded
from holdfast.model.run import (
    AgentSeen,
    ChecksTried,
    DatabaseBack,
    DatabaseGone,
    Heartbeat,
    RunEvent,
    RunStarted,
    TaskCompleted,
    TaskFailed,
    TaskMoved,
    TaskStarted,
)
from holdfast.model.task import Tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, Group
    from rich.live import Live

    from holdfast.engine.run_standing import Standing
    from holdfast.model.agent import Happening
    from holdfast.model.task import Task, TaskRecord

_EVERY_S = 1.0
_LEAST_ROWS = 4
_WIDEST = 36
# Lines of the screen that the table leaves alone: its head, and room for the shell's prompt.
_SPARE = 4


class RunView:
    """A `RunWatcher`. `look` reads where the run stands: when it starts, and when a task moves that is not known."""

    def __init__(self, screen: Screen, look: Callable[[str], Standing]) -> None:
        self._screen, self._look = screen, look
        self._drawn = screen.is_terminal(sys.stderr)
        self._turn = threading.Lock()
        self._standing: Standing | None = None
        self._records: dict[str, TaskRecord] = {}
        self._doing: dict[str, str] = {}
        # What the agent of each task does, where nobody looks on.
        self._agents: dict[str, Lines] = {}
        # How many parts of a task are known to have landed.
        self._parts: dict[str, int] = {}
        self._usage, self._worked_ms, self._beat = Usage(), 0, time.monotonic()
        self._live: Live | None = None
        self._next = 0.0
        self.run = ""
        # Since when and until when the database is waited for, in words.
        self._away = ""
        # A person works by hand at this terminal: nothing is drawn over what they read.
        self.paused = False
        screen.make_room = self.clear

    # ── what happens ──

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, AgentSeen):
            event = event._replace(happening=reworded(event.happening, without_secrets))
        if self._screen.form == "stream":
            self._screen.event(event.event, **fields_of_event(event))
        with self._turn:
            self._learn(event)
        if isinstance(event, ChecksTried) and self._screen.form == "text":
            for words in event.checks:
                self._screen.note(f"Checks: {one_line(words)}")
        elif self._screen.form == "text" and not self._drawn:
            line = self._line(event)
            if line:
                self._screen.note(line)

    @property
    def working(self) -> bool:
        """Whether an agent is at work, as far as we were told; or a thread waits for a database that is away."""
        with self._turn:
            return bool(self._doing or self._away)

    def _learn(self, event: RunEvent) -> None:
        if isinstance(event, (TaskStarted, TaskMoved)) and self.run and event.task not in self._records:
            self._meet()
        match event:
            case RunStarted():
                self.run, self._standing = event.run, self._look(event.run)
                self._records = {task.id: record for task, record in self._standing.rows()}
                self._parts = {id: record.part for id, record in self._records.items()}
                self._worked_ms, self._beat = self._standing.run.worked_ms, time.monotonic()
            case TaskStarted():
                self._doing[event.task] = "begins"
                self._change(event.task, attempt=event.attempt, agent=event.agent, started_ns=time.time_ns())
            case TaskMoved():
                moved = time.time_ns()
                self._change(event.task, state=event.state, because=event.because, part=event.part, at_ns=moved)
            case TaskFailed():
                known = self._records.get(event.task)
                tried = [*known.tried] if known is not None else []
                tried.append(Tried(event.attempt, event.category, "", event.strategy))
                self._change(event.task, wait_until_ns=event.not_before_ns, tried=tuple(tried))
            case TaskCompleted():
                self._change(event.task, execution=event.execution, commit=event.commit, files=event.files)
                self._change(event.task, unverified=event.unverified)
            case AgentSeen():
                if isinstance(event.happening, Began) and event.task in self._records:
                    earlier = len(self._records[event.task].tried)
                    self._change(event.task, tries=earlier + event.happening.attempt)
                doing = _worded(event.happening)
                if doing and event.task in self._doing:
                    self._doing[event.task] = doing
            case DatabaseGone():
                self._away = _away(event)
            case DatabaseBack():
                self._away = ""
            case Heartbeat():
                self._usage, self._worked_ms, self._beat = event.usage, event.worked_ms, time.monotonic()
        if isinstance(event, TaskMoved) and event.state != "IN_PROGRESS" and event.because != "stopped":
            self._doing.pop(event.task, None)

    def _meet(self) -> None:
        """A task that was added to the file since the run began. Moves are told by the thread that drives, which may
        look; a file that cannot be read for a moment is looked at again with the next move."""
        try:
            self._standing = self._look(self.run)
        except HoldfastError:
            return
        for task, record in self._standing.rows():
            self._records.setdefault(task.id, record)

    def _change(self, id: str, **fields: object) -> None:
        record = self._records.get(id)
        if record is not None:
            self._records[id] = record._replace(**fields)  # type: ignore[arg-type]

    # ── where nobody looks on ──

    def _line(self, event: RunEvent) -> str:
        match event:
            case RunStarted():
                return f"{event.roadmap}: {count(event.tasks, 'task')}, {event.to_do:,} to do; run {event.run}"
            case TaskStarted():
                number = self._attempt(event.task, event.attempt)
                which = f", attempt {number}" if number > 1 else ""
                return f"● {self._label(event.task)}: {one_line(event.agent)} begins{which}"
            case TaskCompleted():
                return f"✓ {self._label(event.task)}: {self._told(event.task)}"
            case TaskFailed():
                why = one_line(event.because)
                next_time = f"{STRATEGY_TOLD[event.strategy]}{not_before(event.not_before_ns)}"
                known = self._records.get(event.task)
                if event.strategy != "escalate" and known is not None and known.state == "NEEDS_REVIEW":
                    next_time += ", if you say so"
                number = self._attempt(event.task, event.attempt)
                return f"✗ {self._label(event.task)}: attempt {number} did not land ({why}); {next_time}"
            case AgentSeen(happening=Began(attempt=number, because=because)):
                self._agents.pop(event.task, None)
                if number == 1:
                    return ""
                first, _, rest = because.strip().partition("\n")
                why = one_line(f"{first} {rest.partition(chr(10))[0]}" if first.endswith(":") else first)
                return f"● {self._label(event.task)}: not good yet ({why}); it mends its work"
            case AgentSeen(happening=Escalated(text=text)):
                return f"! {self._label(event.task)}: {one_line(text)}"
            case AgentSeen():
                return self._agent_line(event)
            case DatabaseGone():
                return f"! {_away(event)}. {_AWAY_HELP}"
            case DatabaseBack():
                return f"! The database is back after {duration(event.away_ms)}."
            case TaskMoved() if event.state == "PENDING" and event.part > self._parts.get(event.task, 0):
                self._parts[event.task] = event.part
                return f"✓ {self._label(event.task)}: part {event.part} landed"
            case TaskMoved() if event.state == "NEEDS_REVIEW":
                return f"? {self._label(event.task)}: needs you: {one_line(event.because)}"
        return ""

    def _agent_line(self, event: AgentSeen) -> str:
        """Several agents may be at work: each line says whose it is."""
        lines = self._agents.setdefault(event.task, Lines(f"holdfast show {one_line(event.task)} --transcript"))
        text = lines.of(event.happening)
        return f"    {self._label(event.task)} | {text}" if text else ""

    def _attempt(self, id: str, given: int) -> int:
        """As a person counts them, who may have interrupted some."""
        return attempts_of(self._records[id]) if id in self._records else given

    def _label(self, id: str) -> str:
        task = self._standing.roadmap.task(id) if self._standing is not None else None
        return label(task) if task is not None else one_line(id)

    def _told(self, id: str) -> str:
        task = self._standing.roadmap.task(id) if self._standing is not None else None
        return told(task, self._records[id]) if task is not None and id in self._records else "landed"

    # ── where a person looks on ──

    def tick(self) -> None:
        """Called by the driving thread, often; draws once a second (R2)."""
        now = time.monotonic()
        if not self._drawn or self.paused or self._standing is None or now < self._next:
            return
        self._next = now + _EVERY_S
        try:
            self._draw()
        except (OSError, ValueError):
            self._drawn = False  # R1

    def clear(self) -> None:
        """Make room for other words; the next tick draws again below them."""
        live, self._live = self._live, None
        if live is not None:
            self._next = 0.0
            try:
                live.stop()
            except (OSError, ValueError):
                self._drawn = False

    def close(self) -> None:
        self.clear()
        self._drawn = False

    def _draw(self) -> None:
        from rich.console import Console

        if self._live is None:
            from rich.live import Live

            plain = self._screen.style("x", "dim", sys.stderr) == "x"
            console = Console(stderr=True, no_color=plain)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False,
                              redirect_stderr=False)  # fmt: skip
            self._live.start()
        self._live.update(self._table(self._live.console), refresh=True)

    def _table(self, console: Console) -> Group:
        from rich.console import Group
        from rich.text import Text

        width, height = console.size
        with self._turn:
            rows = list(self._rows(max(_LEAST_ROWS, height - _SPARE)))
            top = self._head(width)
            away = self._away
        drawn = [Text(top, style="bold", no_wrap=True, overflow="ellipsis")]
        if away:
            drawn.append(Text(f" ! {away}. {_AWAY_HELP}", style="yellow", no_wrap=True, overflow="ellipsis"))
        for mark, text in rows:
            drawn.append(Text(f" {mark} ", style=STYLES.get(mark, "dim"), no_wrap=True, overflow="ellipsis"))
            drawn[-1].append(text, style="dim" if mark == "◌" else "default")
        return Group(*drawn)

    def _head(self, width: int) -> str:
        assert self._standing is not None
        worked = self._worked_ms + int((time.monotonic() - self._beat) * 1000)
        counts = counts_of(self._pairs(), reasons=self._standing.roadmap.reasons)
        left, right = head(self._standing.run, counts, self._usage, worked)
        return left + " " * max(2, width - len(left) - len(right) - 1) + right

    def _pairs(self) -> list[tuple[Task, TaskRecord]]:
        assert self._standing is not None
        return [(task, self._records[task.id]) for task in self._standing.roadmap.tasks if task.id in self._records]

    def _rows(self, most: int) -> Iterator[tuple[str, str]]:
        """All of them where they fit; otherwise those at work and those that ask for something, then what is next."""
        pairs = self._pairs()
        chosen = pairs
        if len(pairs) > most:
            by_weight = sorted(range(len(pairs)), key=lambda place: (_WEIGHT[pairs[place][1].state], place))
            chosen = [pairs[place] for place in sorted(by_weight[: most - 1])]
        width = min(_WIDEST, max((len(label(task)) for task, _ in chosen), default=0))
        for task, record in chosen:
            title = label(task)
            title = title if len(title) <= width else title[: width - 1] + "…"
            yield MARKS[record.state], f"{title:<{width}}  {self._state(task, record)}"
        if len(chosen) < len(pairs):
            yield " ", self._screen.way(f"and {len(pairs) - len(chosen):,} more: holdfast tasks")

    def _state(self, task: Task, record: TaskRecord) -> str:
        assert self._standing is not None
        now = self._standing._replace(records=self._records)
        held = now.roadmap.why_held(task.id)
        doing = self._doing.get(task.id, "")
        text = told(task, record, waits_for(task, now), doing, held if record.because == held else "")
        if record.state in ("IN_PROGRESS", "VALIDATING") and record.started_ns:
            return f"{text:<44}  {clock((time.time_ns() - record.started_ns) // 1_000_000).removeprefix('0:')}"
        return text + (self._screen.way("    holdfast review") if record.state == "NEEDS_REVIEW" else "")


_WEIGHT = {
    "NEEDS_REVIEW": 0, "IN_PROGRESS": 0, "VALIDATING": 0, "FAILED": 1, "TIMEOUT": 1, "BLOCKED": 2, "DEFERRED": 3,
    "PENDING": 3, "SKIPPED": 4, "COMPLETED": 5,
}  # fmt: skip


_AWAY_HELP = "Nothing is lost, and no attempt is used. Stop it with: holdfast stop"


def _away(event: DatabaseGone) -> str:
    since, until = clock_time(event.since_ns), clock_time(event.until_ns)
    return f"The database is away since {since}; it is waited for until {until} ({one_line(event.because)})"


def _worded(happening: Happening) -> str:
    """What an agent is doing, in a few words; machine output says nothing to a person."""
    match happening.kind:
        case "began":
            return "begins" if happening.attempt == 1 else "mends its work"
        case "used":
            return one_line(happening.title)
        case "asked":
            return f"asks: {one_line(happening.title)}"
        case "escalated":
            return one_line(happening.text)
        case "said":
            return worded(happening)
    return ""
