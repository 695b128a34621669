"""What stops a change, in words that stay true: whether anything was changed is part of every sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.engine.checking import Verified
from holdfast.errors import ApprovalNeeded, Blocked, HoldfastError, Tampering, VerificationFailed
from holdfast.model.decision import Decision
from holdfast.model.execution import Execution
from holdfast.model.path import printable
from holdfast.model.plan import Plan
from holdfast.settlement.record import NotPutAway

_MOST_NAMES = 6
_UNRECORDED = "Put right what stopped it; the next verb that changes something records it first."

_NOT_AWAY = (
    "It is recorded. Put right what stopped it; the next verb that changes something puts the folder away first."
)


def require_passed(verified: Verified) -> None:
    """VerificationFailed naming what failed; nothing was applied."""
    failed = [receipt for receipt in verified.receipts if not receipt.passed]
    if failed:
        raise VerificationFailed(
            "\n".join(receipt.detail for receipt in failed),
            hint="Checks look at a shadow, never at the workspace. Nothing was changed.",
        )


def require_typed(decision: Decision, plan: Plan, consent: str) -> None:
    """ApprovalNeeded unless consent to a high risk is spelled out; a yes for everything is none for this."""
    if decision.typed_consent and consent != plan.id:
        what = "that is not this plan's id" if consent else "it must be spelled out"
        raise ApprovalNeeded(
            f"risk {decision.risk_effective} needs explicit consent: {what}",
            hint=f'Nothing was changed. Look at it, and say who approves it: approved_by="…", consent="{plan.id}"',
        )


def approving(decision: Decision, plan_id: str) -> str:
    """The command that approves it, also where nobody can be asked: from high on the plan's id is part of it."""
    return f"holdfast approve {decision.simulation}" + (f" --plan {plan_id}" if decision.typed_consent else "")


def way_to_approve(decision: Decision, plan_id: str, others: Sequence[str]) -> str:
    """What to do next, in a sentence; `others` are who must do it where a yes of this user would not count."""
    who = f"{somebody_else(others)}, with" if others else "Approve with"
    return f"{who}: {approving(decision, plan_id)}"


def somebody_else(others: Sequence[str]) -> str:
    return "Somebody else has to approve it" + (f": {either(others)}" if others else "")


def either(people: Sequence[str]) -> str:
    names = [printable(name) for name in people[:_MOST_NAMES]]
    more = [f"{len(people) - _MOST_NAMES} more"] if len(people) > _MOST_NAMES else []
    return " or ".join([*names, *more])


def require_no_more_asked(before: Decision, again: Decision, plan_id: str) -> None:
    """ApprovalNeeded where a second decision asks what nobody was asked before: no answer was about that."""
    asked = {(reason.rule, reason.verdict, reason.risk) for reason in before.reasons}
    news = [
        f"{reason.rule}: {reason.detail}"
        for reason in again.reasons
        if reason.verdict == "NEED_APPROVAL" and (reason.rule, reason.verdict, reason.risk) not in asked
    ]
    if again.verdict == "NEED_APPROVAL" and news:
        raise ApprovalNeeded(
            "the checks ran again, on the workspace as it is now, and there is more to approve: " + "; ".join(news),
            hint=f"Nothing was changed. Simulate again, and approve that: holdfast simulate {plan_id}",
        )


def unrecorded(
    error: OSError | HoldfastError, execution: Execution, *, committed: bool, is_open: bool
) -> HoldfastError:
    """Most kinds of refusal say that nothing was changed; after a commit only damage keeps its own kind."""
    is_recorded = isinstance(error, NotPutAway)
    said = f"its folder is not put away: {error}" if is_recorded else f"it is not recorded: {error}"
    if committed:
        kind = Tampering if isinstance(error, Tampering) else HoldfastError
        made = kind(f"the change was applied, but {said}", hint=_NOT_AWAY if is_recorded else _UNRECORDED, changed=True)
    else:
        kind = type(error) if isinstance(error, HoldfastError) else Blocked
        reason = f"{execution.errors[0]}; " if execution.errors else ""
        made = kind(f"{reason}nothing was changed, but {said}", hint=_UNRECORDED if is_open else "")
    made.__cause__ = error
    return made


@contextmanager
def told(what: str) -> Iterator[None]:
    """A full disk before anything was changed is a refusal with a reason, not a traceback."""
    try:
        yield
    except OSError as error:
        raise Blocked(f"{what}: {error}", hint="Nothing was changed.") from error
