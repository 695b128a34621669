"""The step reports of a rehearsal, made when somebody looks: a plan of 100,000 steps has one report, not two.

The simulation's report holds everything but the times; those are two numbers a step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

from holdfast.model.simulation import SimulatedStep
from holdfast.simulation.rehearsal import StepReport


class StepReports(Sequence[StepReport]):
    """`times` are when each step began; one ends when the next begins. Without them all ends at the moment `at_ns`, and
    a program took as long as its receipt says."""

    def __init__(self, steps: Sequence[SimulatedStep], times: Iterable[int], at_ns: int) -> None:
        self._steps = steps
        self._times = array("q", times)
        self._at_ns = at_ns

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, place: int) -> StepReport: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[StepReport]: ...

    def __getitem__(self, place: int | slice) -> StepReport | Sequence[StepReport]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = range(len(self))[place]  # as a list would have it, negative numbers included
        step = self._steps[number]
        met = step.precondition != "unmet"
        started, completed = self._time(number), self._time(number + 1)
        if not self._times and step.receipt is not None:
            started = completed - step.receipt.duration_ms * 1_000_000
        return StepReport(
            number, step.operation, step.target, met, step.detail, started, completed, step.affected, step.receipt
        )

    def _time(self, number: int) -> int:
        return self._times[number] if number < len(self._times) else self._at_ns
