"""The options of a run: from words on the command line, and from the settings where those say nothing."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from holdfast.errors import InvalidInput
from holdfast.intake.fields import duration_of
from holdfast.intake.values import Fault
from holdfast.model.configuration import Budget
from holdfast.model.run import (
    ADAPTIVES,
    ASKS,
    GROUPINGS,
    LANDING_ORDERS,
    RECOVERY_APPROVALS,
    RUN_VERIFY_MODES,
    STAGES,
    Adaptive,
    AskAt,
    GroupBy,
    LandingOrder,
    OnTaskFailure,
    RecoveryApproval,
    RunOptions,
    RunVerifyMode,
    Stage,
)

if TYPE_CHECKING:
    from holdfast.model.configuration import RunSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MOST_PARALLEL = 64
_MOST_ATTEMPTS = 20
_MICRO = 1_000_000


class AskedOfBudget(TypedDict):
    budget_usd: str | None
    budget_time: str | None
    budget_tokens: int | None
    max_turns: int | None


class AskedOfRun(AskedOfBudget):
    """What click hands over."""

    agent: str
    parallel: int | None
    attempts: int
    max_tasks: int | None
    only: tuple[str, ...]
    ask: tuple[AskAt, ...]
    on_failure: OnTaskFailure
    landing: LandingOrder
    no_checkpoint: bool
    no_sync: bool
    workers_only: bool
    group: GroupBy
    adaptive: Adaptive
    recovery: RecoveryApproval
    skip_verification: str
    within: str
    model: str
    verify_mode: RunVerifyMode | None
    plan_first: bool
    interrupt_before: tuple[Stage, ...]
    interrupt_after: tuple[Stage, ...]


def budget_options(command: _Command) -> _Command:
    least_one = click.IntRange(min=1)
    for option in reversed((
        click.option("--budget-usd", metavar="USD", help="Money for the whole run."),
        click.option("--budget-time", metavar="TIME", help="Time for the whole run, for example 8h."),
        click.option("--budget-tokens", type=least_one, help="Tokens for the whole run."),
        click.option("--max-turns", type=least_one, help="Requests to models for the whole run."),
    )):  # fmt: skip
        command = option(command)
    return command


def run_options(command: _Command) -> _Command:
    for option in reversed((
        click.option("--agent", default="auto", metavar="NAME", help="Who does the work; auto chooses for each task."),
        click.option("--parallel", type=click.IntRange(1, _MOST_PARALLEL), help="So many agents at once."),
        click.option("--attempts", type=click.IntRange(1, _MOST_ATTEMPTS), default=3, help="For a task; 3 if unsaid."),
        click.option("--max-tasks", type=click.IntRange(min=1), help="Begin no more than so many."),
        click.option("--only", multiple=True, metavar="TASK", help="Only these: number, id or its beginning."),
        budget_options,
        click.option("--ask", multiple=True, type=click.Choice(ASKS), help="Ask a person besides what policy asks."),
        click.option("--on-failure", type=click.Choice(["continue", "stop"]), default="continue",
                     help="When a task fails for good."),
        click.option("--landing", type=click.Choice(LANDING_ORDERS), default="finished",
                     help="Land work as it is ready, or in the roadmap's order."),
        click.option("--no-checkpoint", is_flag=True, help="Do not commit what landed to git."),
        click.option("--no-sync", is_flag=True, help="Do not tick the roadmap."),
        click.option("--workers-only", is_flag=True, help="With --database: leave the work to workers elsewhere."),
        click.option("--group", type=click.Choice(GROUPINGS), default="off", help="Do related tasks together."),
        click.option("--adaptive", type=click.Choice(ADAPTIVES), default="auto",
                     help="After a failed attempt: nothing, propose, do."),
        click.option("--recovery", type=click.Choice(RECOVERY_APPROVALS), default="auto",
                     help="Who approves a recovery."),
        click.option("--skip-verification", default="", metavar="REASON", help="Land without tests, and say why."),
        click.option("--within", default="20m", metavar="TIME", help="An attempt's time; 20m if not given."),
        click.option("--model", default="", metavar="NAME", help="The model, as the agent's provider names it."),
        click.option("--verify-mode", type=click.Choice(RUN_VERIFY_MODES),
                     help="Who chooses the checks: auto (default), agent, or skip (with --skip-verification)."),
        click.option("--plan-first", is_flag=True, help="Have the agent write a plan before it works."),
        click.option("--interrupt-before", multiple=True, type=click.Choice(STAGES),
                     help="Wait for a person before this stage of each task."),
        click.option("--interrupt-after", multiple=True, type=click.Choice(STAGES),
                     help="Wait for a person after this stage; after land the run stops, and resume goes on."),
    )):  # fmt: skip
        command = option(command)
    return command


def options_of(asked: AskedOfRun, settings: RunSettings) -> RunOptions:
    reason = asked["skip_verification"].strip()
    mode = asked["verify_mode"] or ("skip" if reason else "auto")
    if (mode == "skip") != bool(reason):
        hint = "Say why: --skip-verification REASON" if not reason else "Leave one of the two out."
        raise InvalidInput(f"--verify-mode {mode} {'needs a reason' if not reason else 'skips nothing'}", hint=hint)
    return RunOptions(
        agent=asked["agent"],
        parallel=asked["parallel"] or settings.parallel,
        most_tasks=asked["max_tasks"] or 0,
        attempts=asked["attempts"],
        within_ms=_duration(asked["within"], "--within"),
        budget=settings.budget.with_said(budget_asked(asked)),
        ask=_asks(asked),
        on_failure=asked["on_failure"],
        landing=asked["landing"],
        checkpoint="none" if asked["no_checkpoint"] else settings.checkpoint,
        sync=not asked["no_sync"],
        here=not asked["workers_only"],
        group=asked["group"],
        adaptive=asked["adaptive"],
        recovery=asked["recovery"],
        unverified_because=reason,
        only=asked["only"],
        model=asked["model"].strip(),
        verify_mode=mode,
        plan_first=asked["plan_first"],
        stop_after_landing="land" in asked["interrupt_after"],
    )


def _asks(asked: AskedOfRun) -> tuple[AskAt, ...]:
    """An interruption before landing is the same question as one after the work."""
    asks = list(asked["ask"])
    if "work" in asked["interrupt_before"]:
        asks.append("before")
    if "land" in asked["interrupt_before"] or "work" in asked["interrupt_after"]:
        asks.append("after")
    return tuple(dict.fromkeys(asks))


def budget_asked(asked: AskedOfBudget) -> Budget:
    usd, time = asked["budget_usd"], asked["budget_time"]
    return Budget(
        micro_usd=None if usd is None else _money(usd),
        time_ms=None if time is None else _duration(time, "--budget-time"),
        tokens=asked["budget_tokens"],
        turns=asked["max_turns"],
    )


def _money(text: str) -> int:
    try:
        micro = Decimal(text.removeprefix("$")) * _MICRO
        if micro.is_finite() and 0 < micro <= Decimal(10) ** 15 and micro == micro.to_integral_value():
            return int(micro)
    except InvalidOperation:
        pass
    raise InvalidInput(f"--budget-usd: {text!r} is not an amount of dollars", hint="For example: 20, or 2.50")


def _duration(text: str, name: str) -> int:
    try:
        return duration_of(text, name)
    except Fault as fault:
        raise InvalidInput(fault.message, hint=fault.hint) from None
