"""Runs as nouns: one drive over a roadmap, its options, and the events it tells.

    RUNNING ──everything settled──▶ FINISHED
       │  ├──a person, Ctrl-C─────▶ STOPPED ──resume──▶ RUNNING
       │  ├──only people can go on▶ WAITING ──resume──▶ RUNNING
       │  └──budget, time─────────▶ LIMIT ────resume──▶ RUNNING

A run that was killed stays RUNNING in the records: whoever opens it next goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.agent import Happening, Usage
from holdfast.model.configuration import Budget, Checkpoint
from holdfast.model.fix import Category
from holdfast.model.task import Strategy, TaskState

# The agent of a task is whoever fits best when it is begun.
AUTO = "auto"
RunState = Literal["RUNNING", "FINISHED", "STOPPED", "WAITING", "LIMIT"]
RUN_STATES: tuple[RunState, ...] = ("RUNNING", "FINISHED", "STOPPED", "WAITING", "LIMIT")
# When a person is asked besides what policy asks: before a task starts, before its work lands, when it deletes.
AskAt = Literal["before", "after", "destructive"]
ASKS: tuple[AskAt, ...] = ("before", "after", "destructive")
# In which order finished work lands: as it becomes ready, or as the roadmap has it.
LandingOrder = Literal["finished", "roadmap"]
LANDING_ORDERS: tuple[LandingOrder, ...] = ("finished", "roadmap")
GroupBy = Literal["off", "file", "section", "similarity"]
GROUPINGS: tuple[GroupBy, ...] = ("off", "file", "section", "similarity")
OnTaskFailure = Literal["continue", "stop"]
# What happens after a failed attempt: nothing, it is proposed to a person, it is done.
Adaptive = Literal["off", "suggest", "auto"]
ADAPTIVES: tuple[Adaptive, ...] = ("off", "suggest", "auto")
RecoveryApproval = Literal["auto", "ask", "log", "ask for decompose"]
RECOVERY_APPROVALS: tuple[RecoveryApproval, ...] = ("auto", "ask", "log", "ask for decompose")


# Who chooses the checks of a task; `skip` runs none but those that configuration asks for, and needs a reason.
RunVerifyMode = Literal["auto", "agent", "skip"]
RUN_VERIFY_MODES: tuple[RunVerifyMode, ...] = ("auto", "agent", "skip")
# The stages of a task at which a run can be interrupted: the agent works, its work lands.
Stage = Literal["work", "land"]
STAGES: tuple[Stage, ...] = ("work", "land")


class RunOptions(NamedTuple):
    """What a person chose for a run; written down with it, so that `resume` is the same run."""

    agent: str = AUTO
    parallel: int = 1
    # 0 is all of them.
    most_tasks: int = 0
    # Attempts at a task, in each of which the agent may work `mends` times: once, and then to mend its work.
    attempts: int = 3
    mends: int = 2
    within_ms: int = 1_200_000
    budget: Budget = Budget()
    ask: tuple[AskAt, ...] = ()
    on_failure: OnTaskFailure = "continue"
    landing: LandingOrder = "finished"
    checkpoint: Checkpoint | None = None
    sync: bool = True
    group: GroupBy = "off"
    adaptive: Adaptive = "auto"
    recovery: RecoveryApproval = "auto"
    unverified_because: str = ""
    only: tuple[str, ...] = ()
    # Agents work in this process too; without, all work is left to workers elsewhere.
    here: bool = True
    # The model by the name its provider knows; empty leaves each agent's own.
    model: str = ""
    verify_mode: RunVerifyMode = "auto"
    plan_first: bool = False
    # The run stops after each task that landed; `resume` goes on.
    stop_after_landing: bool = False


_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("on_failure", ("continue", "stop")),
    ("landing", LANDING_ORDERS),
    ("group", GROUPINGS),
    ("adaptive", ADAPTIVES),
    ("recovery", RECOVERY_APPROVALS),
    ("verify_mode", RUN_VERIFY_MODES),
)
_LEAST = (("parallel", 1), ("attempts", 1), ("mends", 1), ("within_ms", 1), ("most_tasks", 0))


def fault_of(options: RunOptions) -> str:
    """What a program chose that no run can do; empty where nothing is wrong. The command line asks for less."""
    for name, known in _CHOICES:
        if getattr(options, name) not in known:
            return f"{name} must be one of {', '.join(known)}, not {getattr(options, name)!r}"
    for name, least in _LEAST:
        value = getattr(options, name)
        if type(value) is not int or value < least:
            return f"{name} must be a whole number from {least} on, not {value!r}"
    if unknown := [word for word in options.ask if word not in ASKS]:
        return f"ask must name {', '.join(ASKS)}, not {unknown[0]!r}"
    reason = options.unverified_because.strip()
    if options.verify_mode == "skip" and not reason:
        return "verify_mode skip needs a reason: unverified_because"
    if options.verify_mode == "agent" and reason:
        return "verify_mode agent skips nothing, so unverified_because does not belong to it"
    return ""


class RunRecord(NamedTuple):
    """A run as the ledger tells it."""

    id: str
    roadmap: str
    options: RunOptions = RunOptions()
    state: RunState = "RUNNING"
    because: str = ""
    # Who started it: the approvals that it gives by itself are theirs.
    by: str = ""
    yes: bool = False
    started_ns: int = 0
    at_ns: int = 0
    # Time that it was at work in earlier sittings.
    worked_ms: int = 0
    # What was checked out when it began; clones on other machines have that.
    commit: str = ""
    # What its roadmap does not call tasks itself was taken for some when it was started.
    taken: bool = False


# ── what a run tells while it goes on; the words in capitals are those other tools read ──


class RunStarted(NamedTuple):
    run: str
    roadmap: str
    tasks: int
    to_do: int
    event: Literal["EXECUTION_STARTED"] = "EXECUTION_STARTED"


class ChecksTried(NamedTuple):
    """Before a sitting begins: which checks there will be, and whether they can run, a sentence each."""

    run: str
    checks: tuple[str, ...]
    event: Literal["CHECKS"] = "CHECKS"


class TaskStarted(NamedTuple):
    run: str
    task: str
    attempt: int
    agent: str
    event: Literal["TASK_STARTED"] = "TASK_STARTED"


class TaskMoved(NamedTuple):
    run: str
    task: str
    state: TaskState
    because: str = ""
    # How many parts of it landed.
    part: int = 0
    event: Literal["TASK_STATE"] = "TASK_STATE"


class TaskCompleted(NamedTuple):
    run: str
    task: str
    execution: str
    commit: str
    attempts: int
    files: int
    # Why no check says that it works; empty where one does.
    unverified: str = ""
    event: Literal["TASK_COMPLETED"] = "TASK_COMPLETED"


class TaskFailed(NamedTuple):
    """An attempt that did not land, and what is done about it."""

    run: str
    task: str
    attempt: int
    category: Category
    because: str
    strategy: Strategy
    # When it is tried again at the earliest; 0 where nothing is waited for, or it is not tried again by itself.
    not_before_ns: int = 0
    event: Literal["TASK_FAILED"] = "TASK_FAILED"


class AgentSeen(NamedTuple):
    """What the agent of a task is doing."""

    run: str
    task: str
    happening: Happening
    event: Literal["AGENT"] = "AGENT"


class Heartbeat(NamedTuple):
    """`running`: at work, or landing."""

    run: str
    running: int
    landed: int
    usage: Usage
    worked_ms: int
    # Begun, and nobody is at work at it: in line for a worker, or good work that waits to land.
    waiting: int = 0
    event: Literal["HEARTBEAT"] = "HEARTBEAT"


class DatabaseGone(NamedTuple):
    """The database that machines share does not answer. It is waited for until then; work goes on meanwhile."""

    run: str
    since_ns: int
    until_ns: int
    because: str
    event: Literal["DATABASE_AWAY"] = "DATABASE_AWAY"


class DatabaseBack(NamedTuple):
    run: str
    away_ms: int
    event: Literal["DATABASE_BACK"] = "DATABASE_BACK"


class RunFinished(NamedTuple):
    run: str
    state: RunState
    completed: int
    failed: int
    waiting: int
    left: int
    usage: Usage
    because: str = ""
    # Tasks that this run completed, and how long it worked; as in a heartbeat.
    landed: int = 0
    worked_ms: int = 0
    event: Literal["EXECUTION_FINISHED"] = "EXECUTION_FINISHED"


RunEvent: TypeAlias = (
    RunStarted
    | ChecksTried
    | TaskStarted
    | TaskMoved
    | TaskCompleted
    | TaskFailed
    | AgentSeen
    | Heartbeat
    | DatabaseGone
    | DatabaseBack
    | RunFinished
)
RunWatcher: TypeAlias = Callable[[RunEvent], None]
EVENTS: tuple[str, ...] = (
    "EXECUTION_STARTED", "CHECKS", "TASK_STARTED", "TASK_STATE", "TASK_COMPLETED", "TASK_FAILED", "AGENT",
    "HEARTBEAT", "DATABASE_AWAY", "DATABASE_BACK", "EXECUTION_FINISHED",
)  # fmt: skip
