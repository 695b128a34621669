"""How a delegation ended, in sentences: what was measured, and beside it what the agent says.

How often it worked is told in rounds: an attempt of a run is an order, within which an agent works once and then mends.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.breaker import Waits
from holdfast.engine.model_access import BUDGET
from holdfast.errors import AgentFailed, HoldfastError, LimitReached, Shortage
from holdfast.model.agent import Delegation, Ending, Result
from holdfast.model.configuration import ProgramLimits
from holdfast.model.execution import Receipt
from holdfast.model.path import printable
from holdfast.sandbox.exceeded import exceeded
from holdfast.sandbox.profile import Limits

_MOST_WORDS = 200
_MOST_SHOWN = 2_000
_SECOND_NS = 10**9
# How long to wait for an attempt of which nobody knows when it ends.
_WHILE_TRIED_MS = 10_000
_ILL: frozenset[Ending] = frozenset({"unauthorized", "model_error", "killed"})


class Bounds(NamedTuple):
    """Who set the limits of one agent's work: the lowest holds."""

    within_ms: int | None = None
    programs: ProgramLimits = ProgramLimits()
    agent: ProgramLimits = ProgramLimits()

    def hint(self, agent: str, limit: str) -> str:
        """Where the limit that holds can be raised; raising any other does nothing."""
        of_it = f"[agents.{printable(agent)}]"
        field = next((name for name in ProgramLimits._fields if name.partition("_")[0] == limit), "")
        every, own = (getattr(each, field) if field else None for each in (self.programs, self.agent))
        lowest = min((value for value in (every, own) if value is not None), default=None)
        if limit == "time":
            if lowest is None or (self.within_ms is not None and self.within_ms <= lowest):
                return "Give it more with --within."
            return f"Give it more with {f'limits.time under {of_it}' if own == lowest else 'time under [limits]'}."
        return f"Its limits are under {'[limits]' if every is not None and every == lowest != own else of_it}."


def receipt_of(delegation: Delegation) -> Receipt:
    last = delegation.attempts[-1]
    return Receipt(
        command=("agent", delegation.agent),
        kind="step",
        passed=True,
        exit_code=last.result.exit_code,
        duration_ms=sum(attempt.result.duration_ms for attempt in delegation.attempts),
        log_digest=last.result.transcript,
        tree_digest="",
        detail=told(delegation),
    )


def told(delegation: Delegation) -> str:
    """In a sentence."""
    last, tries = delegation.attempts[-1], len(delegation.attempts)
    parts = [f"{delegation.agent} changed {len(last.changed)} path{'s' if len(last.changed) != 1 else ''}"]
    if tries > 1:
        parts.append(f"in {tries} rounds")
    usage = delegation.usage
    if usage.requests:
        money = f", ${usage.micro_usd / 1e6:.2f}" if usage.micro_usd else ""
        parts.append(f"({usage.input_tokens + usage.output_tokens:,} tokens{money})")
    said = _said(last.result)
    return " ".join(parts) + (f'; it says: "{said}"' if said else "")


def failure_of(
    delegation: Delegation,
    waits: Waits | None,
    of_run: Shortage = "",
    bounds: Bounds = Bounds(),  # noqa: B008 (frozen)
    outage: str = "",
) -> HoldfastError:
    """`waits`: its breaker opened meanwhile, which is why it was not asked again. `of_run`: see LimitReached;
    `outage`: see AgentFailed."""
    last = delegation.attempts[-1]
    result, said = last.result, _said(last.result)
    beside = f'\n  it says: "{said}"' if said else ""
    if of_run:
        why = f"{delegation.agent} was stopped by the budget of the run"
        return LimitReached(why, hint="Nothing was changed.", of_run=of_run)
    if outage:
        why = f"{delegation.agent} did not do the task: {outage}"
        return AgentFailed(why, hint="Nothing was changed.", ill=True, outage=outage)
    if result.ending == "limit":
        return _limit_reached(delegation.agent, result, beside, bounds)
    tries = f" in {len(delegation.attempts)} rounds" if len(delegation.attempts) > 1 else ""
    # Checks ran only where nothing else was wrong, and what a check wrote is long.
    wrong = last.evidence.split("\n\n")[0] if last.receipts else last.evidence
    lines = "\n".join(printable(line) for line in wrong[:_MOST_SHOWN].splitlines() if line)
    hint = "Nothing was changed."
    if result.ending == "unauthorized":
        hint += " Check the key of its provider: holdfast agents"
    elif waits is not None:
        hint += f" {waits.why[:1].upper()}{waits.why[1:]}."
    # A program that ends with an error before it did anything is as good as not there.
    useless = result.ending == "failed" and not last.changed and result.transport != "manual"
    ill = result.ending in _ILL or useless or waits is not None
    return AgentFailed(f"{delegation.agent} did not do the task{tries}: {lines}{beside}", hint=hint, ill=ill)


def with_amount(result: Result, limits: Limits) -> Result:
    """The result of a run that a limit of the sandbox ended, with what it did too much of."""
    much = exceeded(result.limit, limits)
    return result._replace(detail=f"it {much}") if much else result


def _limit_reached(agent: str, result: Result, beside: str, bounds: Bounds) -> LimitReached:
    what = f"reached its limit: {result.limit}"
    hint = bounds.hint(agent, result.limit)
    if result.limit == BUDGET:
        what = f"reached its limit: {result.detail or BUDGET}"
        hint = f"Its budget is limits under [agents.{printable(agent)}]."
    elif result.limit != "time" and result.detail:
        what = f"was ended: {result.detail}"
    return LimitReached(f"{agent} {what}{beside}", hint=f"Nothing was changed. {hint}")


def not_asked(name: str, waits: Waits, now_ns: int) -> AgentFailed:
    """Its breaker is open."""
    seconds = -(-(waits.until_ns - now_ns) // _SECOND_NS)
    when = f"in {seconds} s" if waits.until_ns and seconds > 0 else "later"
    pause_ms = seconds * 1000 if waits.until_ns else _WHILE_TRIED_MS
    return AgentFailed(
        f"{name} is not asked at the moment: {waits.why}",
        hint=f"Nothing was changed. Try again {when}, or another agent: holdfast agents",
        ill=True,
        pause_ms=max(1, pause_ms),
    )


def _said(result: Result) -> str:
    return printable(" ".join(result.claim.words.split())[:_MOST_WORDS])
