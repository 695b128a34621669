"""Step results: what each planned step turned out to be, measured and not assumed.

The rehearsal reports say what was expected of each step, in order; the transaction says which paths it really moved.
A step matches when the paths it names were moved and verified, or needed no move because they stood so already.
"""

from __future__ import annotations

from holdfast.model.execution import Execution, StepResult
from holdfast.simulation.rehearsal import StepReport
from holdfast.workspace.transaction import Transaction


def step_results(reports: tuple[StepReport, ...], transaction: Transaction, execution: Execution) -> tuple[StepResult, ...]:
    started = dict(zip((op.path for op in transaction.ops), transaction.times_ns, strict=False))
    ended = dict(zip((op.path for op in transaction.ops), transaction.times_ns[1:], strict=False))
    completed = execution.status == "COMPLETED"
    rolled_back = execution.status == "ROLLED_BACK"
    moved = bool(transaction.times_ns)
    results = []
    for report in reports:
        at = started.get(report.target, report.started_ns)
        results.append(
            StepResult(
                step_id=report.step_id,
                operation=report.operation,
                target=report.target,
                started_ns=at,
                completed_ns=ended.get(report.target, max(at, report.completed_ns)),
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
