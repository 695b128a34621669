"""Step results: what each planned step turned out to be, measured and not assumed.

The rehearsal reports say what was expected of each step, in order; the transaction says which paths it really moved.
A step matches when the paths it names were moved and verified, or needed no move because they stood so already.
"""

from __future__ import annotations

from holdfast.model.execution import Execution, StepResult
from holdfast.simulation.rehearsal import StepReport
from holdfast.workspace.transaction import Transaction


def step_results(
    reports: tuple[StepReport, ...], transaction: Transaction, execution: Execution
) -> tuple[StepResult, ...]:
    times = transaction.times_ns
    # Where the last operation on each path that was begun stands in the order; the next one begins when it ends.
    places = {op.path: place for place, op in enumerate(transaction.ops[: len(times)])}
    completed = execution.status == "COMPLETED"
    rolled_back = execution.status == "ROLLED_BACK"
    moved = bool(transaction.times_ns)
    results = []
    for report in reports:
        place = places.get(report.target)
        at = report.started_ns if place is None else times[place]
        end = times[place + 1] if place is not None and place + 1 < len(times) else max(at, report.completed_ns)
        results.append(
            StepResult(
                step_id=report.step_id,
                operation=report.operation,
                target=report.target,
                started_ns=at,
                completed_ns=end,
                precondition_met=report.precondition_met,
                precondition_detail=report.detail,
                expected_vs_actual_match=completed,
                actual_state_change=report.detail if completed else "none; rolled back" if rolled_back else "none",
                success=completed,
                rollback_invoked=moved and not completed,
                rollback_succeeded=moved and rolled_back,
                error_message="" if completed else _error_for(report, execution),
            )
        )
    return tuple(results)


def _error_for(report: StepReport, execution: Execution) -> str:
    for item in execution.divergence:
        if item.path == report.target:
            return item.detail
    return "not done, because the whole change failed"
