"""What people answered to a question about a task: how the task goes on, and whether that is still to be heard.

    asked (NEEDS_REVIEW) ──▶ a signed answer about its simulation, or a word to its question ──▶ the record it leads to

Invariants
  N1  An answer is to one question: to the simulation that it names, or to the number of the question.
  N2  Whoever looks on says "answered" only where nobody else must answer: a no is enough, a yes where as many people
      said it as the decision asks for. Whether a yes counts is judged where the work lands, and asked again if not.
  N3  A no that leaves a task out is unsigned, and stands against a signed yes until a yes is said to that question too.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.task import TaskRecord
from holdfast.store.database import Paper, Records
from holdfast.store.runs import Runs, Said


def answered(records: Records, record: TaskRecord) -> TaskRecord | None:
    """Where the newest answer leads that the run did not hear yet; None where there is none."""
    said = Runs(records).said(record.run, record.task, record.asked)
    if said is not None and said.simulation != record.simulation:
        said = None
    papers = records.papers("approvals", record.simulation) if record.simulation else []
    if len(papers) > record.heard and (said is None or said.yes):  # N3
        return _judged(record._replace(heard=len(papers)), papers[0])
    return _followed(record, said) if said is not None else None


def settled_answer(records: Records, record: TaskRecord) -> TaskRecord | None:
    """As `answered`, and nobody else must answer (N2)."""
    if record.state != "NEEDS_REVIEW":
        return None
    after = answered(records, record)
    if after is None or after.state in ("FAILED", "SKIPPED") or after.heard == record.heard:
        return after
    people = {paper.document["by"] for paper in _approvals(records.papers("approvals", record.simulation))}
    decided = records.papers("decisions", record.simulation)
    needed = decided[0].document.get("approvals_needed", 1) if decided else 1
    return after if not isinstance(needed, int) or len(people) >= needed else None


def one_may_approve(records: Records, record: TaskRecord) -> bool:
    """Whether policy asks about good work, and lets one person say yes without typing it out; and nobody answered yet.

    What the run itself asks (`--ask`), and what failed since, is for somebody who looks at it.
    """
    failed = bool(record.tried) and record.tried[-1].attempt == record.attempt
    if not record.simulation or not record.proposal or record.landing or failed or answered(records, record):
        return False
    found = next((paper.document for paper in records.papers("decisions", record.simulation)), {})
    one = found.get("approvals_needed") == 1 and found.get("typed_consent") is False
    return one and found.get("verdict") == "NEED_APPROVAL"


def _approvals(papers: Sequence[Paper]) -> list[Paper]:
    return [paper for paper in papers if paper.document["answer"] == "approve"]


def _judged(record: TaskRecord, newest: Paper) -> TaskRecord:
    """What an approval or a rejection leads to."""
    by = str(newest.document["by"])
    if newest.document["answer"] == "approve":
        return record._replace(state="VALIDATING", cleared_by=by, because=f"approved by {by}")
    return record._replace(state="FAILED", because=f"rejected by {by}")


def _followed(record: TaskRecord, said: Said) -> TaskRecord:
    """What a person's answer leads to, by what was asked."""
    if not said.yes:
        state = "SKIPPED" if said.skip else "FAILED"
        return record._replace(state=state, because=f"{said.by} said no" + (f": {said.reason}" if said.reason else ""))  # type: ignore[arg-type]
    cleared = record._replace(cleared_by=said.by, because=f"{said.by} said yes", wait_until_ns=0)
    if record.landing or (record.simulation and record.proposal):
        return cleared._replace(state="VALIDATING")
    return cleared._replace(state="PENDING")
