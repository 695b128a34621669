"""The report: what a rehearsal found, step by step, in the words that people and gates read.

| step                          | risk     | taken back by                                     |
|-------------------------------|----------|---------------------------------------------------|
| read                          | SAFE     | nothing to take back                              |
| create, write, move, chmod…   | SAFE     | the old object, flipped back from the journal     |
| delete                        | CAUTIOUS | the same                                          |
| run, agent                    | SAFE     | the same; the gates judge what it did to files    |
| service, with a way back      | CAUTIOUS | its compensation: what the service did stays done |
| launch                        | RISKY    | ending it: it runs with the user's own rights     |
| service, by another service   | CRITICAL | what it declares is done, and proves nothing      |
| call                          | CRITICAL | the same: an undo that is declared lowers no risk |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never, overload

from holdfast.model.check import quoted
from holdfast.model.execution import Receipt
from holdfast.model.plan import (
    Agent,
    Chmod,
    Create,
    Delete,
    Launch,
    Move,
    Read,
    Run,
    Service,
    Step,
    Symlink,
    Update,
    Write,
    step_id,
    worded,
)
from holdfast.model.simulation import Precondition, Rollback, SimulatedStep, StepRisk, has_way_back

_FROM_JOURNAL = Rollback(True, "the old object goes back from the journal, proven by digest", True, True, "FULL")
_NOTHING = Rollback(True, "nothing is changed, so nothing is taken back", True, True, "FULL")
_SHARED = ("disk full", "permission denied", "changed by somebody else meanwhile")


class Performed(NamedTuple):
    """One step as the rehearsal performed it: how it went, which paths it touched, and what a command did."""

    step_id: str
    met: Precondition
    detail: str
    affected: tuple[str, ...] = ()
    receipt: Receipt | None = None


def step_report(step: Step, performed: Performed) -> SimulatedStep:
    """The report of one step."""
    risk = _risk(step)
    unrehearsed = worded(step.effect) if isinstance(step, Service) else ""
    rollback = _rollback(step)
    confirmations = (f"{unrehearsed} cannot be taken back",) if rollback.capability == "NONE" else ()
    return SimulatedStep(
        step_id=performed.step_id,
        operation=step.action,
        target=target_of(step),
        precondition=performed.met,
        detail=performed.detail,
        predicted_change=performed.detail if performed.met != "unmet" else "",
        affected=performed.affected,
        rollback=rollback,
        ways_to_fail=_ways_to_fail(step),
        risk=risk,
        confirmations=confirmations,
        receipt=performed.receipt,
        unrehearsed=unrehearsed,
    )


class FileReports(Sequence[SimulatedStep]):
    """The reports of a plan's steps, made when they are looked at; what differs from step to step is a sentence."""

    def __init__(
        self, plan: Sequence[Step], details: Sequence[str], affected: Callable[[Step], tuple[str, ...]]
    ) -> None:
        self._plan, self._details, self._affected = plan, details, affected

    def __len__(self) -> int:
        return len(self._details)

    @overload
    def __getitem__(self, place: int) -> SimulatedStep: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[SimulatedStep]: ...

    def __getitem__(self, place: int | slice) -> SimulatedStep | Sequence[SimulatedStep]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = range(len(self))[place]  # as a list would have it, negative numbers included
        step = self._plan[number]
        return step_report(step, Performed(step_id(number), "met", self._details[number], self._affected(step)))


def target_of(step: Step) -> str:
    """What a step is about, in words: its path, its command, or its effect."""
    if isinstance(step, Run):
        return quoted(step.argv)
    if isinstance(step, Agent):
        return f"{step.name}: {step.task.strip().splitlines()[0]}"
    return worded(step.effect) if isinstance(step, Service) else step.path


def _risk(step: Step) -> StepRisk:
    match step:
        case Read():
            return "SAFE"
        case Service():
            if _rollback(step).capability == "NONE":
                return "CRITICAL"
            return "RISKY" if isinstance(step.effect, Launch) else "CAUTIOUS"
        case Delete():
            return "CAUTIOUS"
        case Write() | Update() | Create() | Move() | Chmod() | Symlink() | Run() | Agent():
            return "SAFE"
    assert_never(step)


def _rollback(step: Step) -> Rollback:
    if isinstance(step, Read):
        return _NOTHING
    if not isinstance(step, Service):
        return _FROM_JOURNAL
    if isinstance(step.effect, Launch) and step.compensation is None:
        return Rollback(True, f"end {worded(step.effect)}", True, True, "PARTIAL")
    if step.compensation is None:
        return Rollback(False, "", False, False, "NONE")
    if not has_way_back(step):
        return Rollback(True, f"{worded(step.compensation)}, which proves nothing", False, True, "NONE")
    return Rollback(True, worded(step.compensation), not isinstance(step.effect, Launch), True, "PARTIAL")


def _ways_to_fail(step: Step) -> tuple[str, ...]:
    match step:
        case Read():
            return ("target missing", "permission denied", "changed by somebody else meanwhile")
        case Run():
            return (
                "the command fails",
                "time-out",
                "the command acts otherwise than in the shadow: it is not run again",
            )
        case Agent():
            return ("the agent does not do it", "time-out", "money runs out", "its model cannot be reached")
        case Service():
            return ("the service does not come up", "time-out", "unreachable", "cannot be rehearsed")
        case Delete() | Chmod() | Update():
            return ("target missing", *_SHARED)
        case Create() | Move() | Symlink():
            return ("the name is taken", *_SHARED)
        case Write():
            return _SHARED
    assert_never(step)
