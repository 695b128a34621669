"""Tasks as nouns: what a roadmap asks for, and what became of each task.

    roadmap file ──intake.roadmap──▶ Roadmap(Task…) ──engine.driver──▶ TaskRecord per task ──▶ ticks in the file

Invariants
  T1  A task's id depends on what the task says, not on where it stands: editing other lines keeps it.
  T2  Nothing in a Roadmap is trusted: it is text from a file that anybody can write. Paths are checked where used.
  T3  COMPLETED is only ever recorded together with the execution that landed, or after checks of a workspace that
      stood so already; what an agent says completes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from holdfast.model.agent import Usage
from holdfast.model.fix import Category

Format = Literal[
    "roadmap", "spec-kit", "task-master", "checklist", "emoji", "table", "list", "org", "rst", "queue", "prose"
]  # fmt: skip
FORMATS: tuple[Format, ...] = (
    "roadmap", "spec-kit", "task-master", "checklist", "emoji", "table", "list", "org", "rst", "queue", "prose"
)  # fmt: skip
# Whether each task that is to do says so itself (a box, a sign, a state, a keyword), or some are only taken for tasks.
Confidence = Literal["marked", "guessed"]


class Remark(NamedTuple):
    """Something in a roadmap that is odd, and was read as well as it could be."""

    line: int
    text: str


class Subtask(NamedTuple):
    text: str
    done: bool
    line: int


class Phase(NamedTuple):
    """A part of a roadmap. `after` are the ids of the phases that must be done before."""

    id: str
    title: str
    goal: str = ""
    priority: str = ""
    effort: str = ""
    prerequisite: str = ""
    after: tuple[str, ...] = ()
    line: int = 0


class Task(NamedTuple):
    """One unit of work. `number` is what the file calls it ("1.2", "T007"), for people; `id` is what we call it."""

    id: str
    title: str
    number: str = ""
    phase: str = ""
    section: str = ""
    # Prose and code that belong to the task, as written.
    body: str = ""
    files: tuple[str, ...] = ()
    subtasks: tuple[Subtask, ...] = ()
    # Ids of tasks that must be done before; only those that the file declares.
    after: tuple[str, ...] = ()
    # The file says that it can be done beside others.
    parallel: bool = False
    priority: str = ""
    effort: str = ""
    # A command that tells whether it is done, as the file gives it; run in the sandbox, besides all other checks.
    accept: str = ""
    done: bool = False
    line: int = 0


class Held(NamedTuple):
    """A task that is not worked on unless somebody names it, and why, in words: its file defers it, or drops it.

    What was dropped is `done` as well, so that nothing waits for it. `waits`: nobody wants it left alone, it needs what
    another workspace has not done; naming it does not change that.
    """

    task: str
    because: str
    waits: bool = False


class Roadmap(NamedTuple):
    format: Format
    title: str
    phases: tuple[Phase, ...]
    tasks: tuple[Task, ...]
    remarks: tuple[Remark, ...] = ()
    held: tuple[Held, ...] = ()
    confidence: Confidence = "marked"

    def task(self, id: str) -> Task | None:
        return next((task for task in self.tasks if task.id == id), None)

    def asked_for(self, ids: Collection[str]) -> Roadmap:
        """As it is read by whoever named these tasks: they are not held, whatever the file says; they may wait."""
        freed = {row.task for row in self.held if row.task in ids and not row.waits}
        if not freed:
            return self
        tasks = (task._replace(done=False) if task.id in freed else task for task in self.tasks)
        held = tuple(row for row in self.held if row.waits or row.task not in freed)
        return self._replace(tasks=tuple(tasks), held=held)

    @property
    def reasons(self) -> dict[str, str]:
        """Why each is held: what the file says comes before what it waits for."""
        return {row.task: row.because for row in reversed(self.held)}

    def why_held(self, id: str) -> str:
        return next((row.because for row in self.held if row.task == id), "")


TaskState = Literal[
    "PENDING", "IN_PROGRESS", "VALIDATING", "NEEDS_REVIEW", "COMPLETED", "FAILED", "TIMEOUT", "SKIPPED", "DEFERRED",
    "BLOCKED",
]  # fmt: skip
# No move leads out of these while a run goes on; `retry`, `reset` and `undo` do, by a person.
SETTLED: tuple[TaskState, ...] = ("COMPLETED", "FAILED", "TIMEOUT", "SKIPPED", "BLOCKED")

#   from           to; PENDING leads to COMPLETED for those that land together with another task
MOVES: dict[TaskState, tuple[TaskState, ...]] = {
    "PENDING": ("IN_PROGRESS", "COMPLETED", "SKIPPED", "BLOCKED", "NEEDS_REVIEW", "FAILED"),
    "IN_PROGRESS": ("VALIDATING", "PENDING", "DEFERRED", "NEEDS_REVIEW", "FAILED", "TIMEOUT", "SKIPPED"),
    "VALIDATING": ("COMPLETED", "PENDING", "DEFERRED", "NEEDS_REVIEW", "FAILED", "TIMEOUT", "SKIPPED"),
    "NEEDS_REVIEW": ("PENDING", "IN_PROGRESS", "VALIDATING", "COMPLETED", "FAILED", "SKIPPED"),
    "DEFERRED": ("PENDING", "IN_PROGRESS", "SKIPPED", "FAILED", "NEEDS_REVIEW"),
    "COMPLETED": ("PENDING",),
    "FAILED": ("PENDING", "SKIPPED"),
    "TIMEOUT": ("PENDING", "SKIPPED"),
    "SKIPPED": ("PENDING",),
    "BLOCKED": ("PENDING", "SKIPPED"),
}
Strategy = Literal["retry", "retry with context", "rewrite", "decompose", "skip", "defer", "escalate"]
STRATEGIES: tuple[Strategy, ...] = ("retry", "retry with context", "rewrite", "decompose", "skip", "defer", "escalate")


class Tried(NamedTuple):
    """One attempt at a task that did not land: what was wrong, and what was decided about it."""

    attempt: int
    category: Category
    # Measured, bounded, masked; told to the agent of the next attempt.
    evidence: str
    strategy: Strategy
    agent: str = ""
    duration_ms: int = 0
    usage: Usage = Usage()


class TaskRecord(NamedTuple):
    """What became of a task in a run, as the ledger tells it."""

    run: str
    task: str
    state: TaskState = "PENDING"
    # Which attempt, under which token (a worker that was lost takes its token with it), by whom.
    attempt: int = 0
    token: int = 0
    agent: str = ""
    # What was asked, by the digest of its document: the roadmap may say something else by now.
    order: str = ""
    tried: tuple[Tried, ...] = ()
    # The work that waits to land, how often landing it was begun, and whether it is under way.
    proposal: str = ""
    turn: int = 0
    landing: bool = False
    # What a person is asked about; who said yes to what policy does not ask.
    simulation: str = ""
    cleared_by: str = ""
    # Which question that is: how often a person was asked. An answer says which one it is to.
    asked: int = 0
    # How many approvals of that simulation led to a landing already.
    heard: int = 0
    # A task that was taken apart lands part by part.
    part: int = 0
    parts: int = 0
    execution: str = ""
    commit: str = ""
    # Of work that waits to land, or of what landed; and what earlier parts of it landed.
    files: int = 0
    # Why no check says that what waits for a person, or landed, works; empty where one does.
    unverified: str = ""
    parts_files: int = 0
    # How often an agent worked on it, over all attempts, as far as that led to work that could land.
    tries: int = 0
    because: str = ""
    # Not before this moment: back-off.
    wait_until_ns: int = 0
    # How often in a row its agent was left alone, so that it was not worked on at all.
    left_alone: int = 0
    # The newest rounds in a row in which its agent finished and did not pass, over all attempts.
    unpassed: int = 0
    # Its box was set when the task was asked for again, so that tick says nothing of who did it since.
    ticked: bool = False
    usage: Usage = Usage()
    started_ns: int = 0
    at_ns: int = 0

    @property
    def settled(self) -> bool:
        return self.state in SETTLED
