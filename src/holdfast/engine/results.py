"""Step results: what each planned step turned out to be, measured and not assumed.

The rehearsal reports say what was expected of each step, in order; the transaction says which paths it really moved.
A step matches when the paths it names were moved and verified, or needed no move because they stood so already.
A step whose path neither moved nor stood so already was not done, whatever became of the rest.
A service step matches when its action was done; with `on_failure: continue` the change stands without it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import overload

from holdfast.execution.services import Deed
from holdfast.model.execution import Execution, StepResult
from holdfast.simulation.rehearsal import StepReport
from holdfast.store.journal import Op
from holdfast.workspace.transaction import Transaction

_ALL_OR_NOTHING = "not done, because the whole change failed"
_NOT_AMONG = "not done: it is not among what landed"
_PROGRAMS = ("run", "agent", "service")
_NOT_REACHED = Deed(0, 0, "not done, because something before it failed")


def step_results(
    reports: Sequence[StepReport], transaction: Transaction, execution: Execution, deeds: Sequence[Deed] = ()
) -> Sequence[StepResult]:
    """One result a step, in the plan's order; `deeds` are the service actions, as far as they came."""
    times = transaction.times_ns
    begun = _Places(transaction.ops, len(times))
    started, completed = array("q"), array("q")
    acting: dict[str, Deed] = {}
    for report in reports:
        if report.operation == "service":
            acting[report.step_id] = deed = deeds[len(acting)] if len(acting) < len(deeds) else _NOT_REACHED
            started.append(deed.started_ns or report.started_ns)
            completed.append(deed.ended_ns or report.completed_ns)
            continue
        place = begun.last_of(report.target)
        at = report.started_ns if place is None else times[place]
        ended = place is not None and place + 1 < len(times)
        started.append(at)
        completed.append(times[place + 1] if ended and place is not None else max(at, report.completed_ns))
    missed = _missed(reports, begun, transaction.reads) if execution.status == "COMPLETED" else frozenset()
    return StepResults(reports, started, completed, execution, acting, missed, moved=bool(times))


def _missed(reports: Sequence[StepReport], begun: _Places, reads: frozenset[str]) -> frozenset[str]:
    """Paths that the last step naming them wanted to be there, and that were neither moved nor found so."""
    wanted: set[str] = set()
    for report in reports:
        if report.operation in ("delete", "move"):
            wanted = {path for path in wanted if not f"{path}/".startswith(f"{report.target}/")}
        if report.operation in (*_PROGRAMS, "delete"):
            wanted.difference_update(report.affected)
            continue
        named = report.affected if report.operation == "move" else (report.target,)
        wanted.update(path for path in named if path not in reads and begun.last_of(path) is None)
        if report.operation == "move":
            wanted.discard(report.target)
    return frozenset(wanted)


class _Places:
    """Where the last operation on each path that was begun stands in the order; the next one begins when it ends.

    Two sorted lists: a dictionary of 100,000 paths would be three times as large, when memory is at its peak.
    """

    def __init__(self, ops: Sequence[Op], begun: int) -> None:
        self._order = array("i", sorted(range(begun), key=lambda place: ops[place].path))
        self._paths = [ops[place].path for place in self._order]

    def last_of(self, path: str) -> int | None:
        found = bisect_right(self._paths, path) - 1
        return self._order[found] if found >= 0 and self._paths[found] == path else None


class StepResults(Sequence[StepResult]):
    """The results, spelled out when somebody looks: 100,000 of them would be a fifth of a change's memory."""

    def __init__(
        self,
        reports: Sequence[StepReport],
        started: Sequence[int],
        completed: Sequence[int],
        execution: Execution,
        acting: Mapping[str, Deed],
        missed: frozenset[str],
        *,
        moved: bool,
    ) -> None:
        self._reports = reports
        self._started = started
        self._completed = completed
        self._done = execution.status == "COMPLETED"
        self._rolled_back = execution.status == "ROLLED_BACK"
        self._moved = moved
        self._acting = acting
        self._missed = missed
        self._details = {item.path: item.detail for item in reversed(execution.divergence)}

    def __len__(self) -> int:
        return len(self._reports)

    @overload
    def __getitem__(self, index: int) -> StepResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepResult]: ...
    def __getitem__(self, index: int | slice) -> StepResult | Sequence[StepResult]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        return self._result(self._reports[index], self._started[index], self._completed[index])

    def _result(self, report: StepReport, started_ns: int, completed_ns: int) -> StepResult:
        deed = self._acting.get(report.step_id)
        failure = deed.failure if deed is not None else self._miss(report)
        done, rolled_back = self._done and not failure, self._rolled_back
        return StepResult(
            step_id=report.step_id,
            operation=report.operation,
            target=report.target,
            started_ns=started_ns,
            completed_ns=completed_ns,
            precondition_met=report.precondition_met,
            precondition_detail=report.detail,
            expected_vs_actual_match=done,
            actual_state_change=report.detail if done else "none; rolled back" if rolled_back else "none",
            success=done,
            rollback_invoked=self._moved and not self._done,
            rollback_succeeded=self._moved and rolled_back,
            error_message="" if done else failure or self._details.get(report.target, _ALL_OR_NOTHING),
        )

    def _miss(self, report: StepReport) -> str:
        if not self._missed or report.operation in _PROGRAMS:
            return ""
        named = report.affected if report.operation == "move" else (report.target,)
        return "" if self._missed.isdisjoint(named) else _NOT_AMONG
