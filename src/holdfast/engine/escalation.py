"""What a person should hear of without having asked. Values and pure functions.

the breaker of an agent opened · work that finished fails its checks again and again ·
a task ran out of time · an agent's program crashed
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.agent import Attempt, Delegation
from holdfast.model.canonical import Json
from holdfast.model.words import in_a_row

REPEATEDLY = 3


class BreakerOpened(NamedTuple):
    agent: str
    failures: int
    openings: int
    detail: str
    kind: Literal["breaker_opened"] = "breaker_opened"


class AcceptanceFailed(NamedTuple):
    """`times` attempts finished, and none of them passed."""

    agent: str
    task: str
    times: int
    kind: Literal["acceptance_failed"] = "acceptance_failed"


class TimedOut(NamedTuple):
    agent: str
    task: str
    after_ms: int
    kind: Literal["timed_out"] = "timed_out"


class AdapterCrashed(NamedTuple):
    agent: str
    task: str
    detail: str
    kind: Literal["adapter_crashed"] = "adapter_crashed"


Escalation: TypeAlias = BreakerOpened | AcceptanceFailed | TimedOut | AdapterCrashed


def acceptance_escalation(delegation: Delegation, repeatedly: int = REPEATEDLY) -> AcceptanceFailed | None:
    """When the attempts that finished and did not pass are many enough."""
    times = unpassed(delegation.attempts)
    return AcceptanceFailed(delegation.agent, delegation.task, times) if times >= repeatedly else None


def unpassed(attempts: Sequence[Attempt]) -> int:
    """The newest ones in a row that finished and did not pass."""
    return len(list(takewhile(_finished_badly, reversed(attempts))))


def _finished_badly(attempt: Attempt) -> bool:
    return attempt.result.ending == "finished" and not attempt.good


def sentence_of(subject: Escalation) -> str:
    """For a person."""
    match subject:
        case BreakerOpened():
            return f"{subject.agent} failed {in_a_row(subject.failures)} and is left alone for a while"
        case AcceptanceFailed():
            return f"{subject.agent} finished {subject.task} {_times(subject.times)}, and its work passed never"
        case TimedOut():
            return f"{subject.agent} ran out of time on {subject.task} after {subject.after_ms // 1000} s"
        case AdapterCrashed():
            return f"{subject.agent} crashed on {subject.task}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def escalation_fields(escalation: Escalation) -> dict[str, Json]:
    """For the log, without its kind."""
    fields: dict[str, Json] = dict(escalation._asdict())
    fields.pop("kind")
    return fields
