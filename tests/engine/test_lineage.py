"""Which executions an execution came from, which came from it, and which landed beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from guarded import guard, put
from holdfast.cli.documents import execution_document
from holdfast.engine.tracing import lineage, trace
from holdfast.model.run import RunRecord
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import RUN, TASK, run_body, task_body
from holdfast.store.chain import Record


def test_an_undo_descends_from_what_it_takes_back(tmp_path: Path) -> None:
    """Parent, ancestors, descendants and siblings follow from the ledger; one plan correlates them."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done = ground.apply(put("a", b"new"))
    undone = ground.hf.undo(done.id, approved_by="me")
    line = lineage(ground.hf.ledger, undone.id)
    assert line is not None
    assert (line.correlation, line.parent, line.trigger, line.run) == (done.plan_id, done.id, "undo", "")
    assert (line.ancestors, line.descendants, line.siblings) == ((done.id,), (), (done.id,))
    first = lineage(ground.hf.ledger, done.id)
    assert first is not None
    assert (first.trigger, first.parent, first.descendants) == ("change", "", (undone.id,))
    assert lineage(ground.hf.ledger, done.plan_id) is None


def test_a_result_names_its_papers_and_its_lineage(tmp_path: Path) -> None:
    """The JSON of an execution has the ids of simulation, decision and approvals, the time of approval, and lineage."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done = ground.apply(put("a", b"new"))
    shown: dict[str, Any] = execution_document(*ground.hf.show(done.id))
    entry = ground.hf.ledger.find("execution", done.id)
    assert entry is not None
    assert (shown["simulation_id"], shown["decision_id"]) == (entry.body["simulation"], entry.body["decision"])
    assert shown["approval_ids"] == entry.body.get("approvals", [])
    assert shown["approval_time"].startswith("20")
    assert shown["lineage"] == {
        "correlation_id": done.plan_id,
        "parent_execution": None,
        "trigger_kind": "change",
        "run_id": None,
    }


def test_what_a_run_landed_is_traced_from_run_and_task(tmp_path: Path) -> None:
    """From the id of a run or of a task the trace leads to the executions that it landed, and back."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done = ground.apply(put("a", b"new"))
    other = ground.apply(put("b", b"new"))
    moves = [TaskRecord("r-1", "t-1", "IN_PROGRESS"), TaskRecord("r-1", "t-1", "VALIDATING")]
    moves.append(TaskRecord("r-1", "t-1", "COMPLETED", execution=done.id))
    entries = [Record(RUN, run_body(RunRecord("r-1", "roadmap.md")), 1)]
    ground.hf.pipeline.note_run(entries + [Record(TASK, task_body(move), 1) for move in moves])
    for id in ("r-1", "t-1"):
        links = trace(ground.hf.ledger, id)
        assert {link.id for link in links if link.kind == "execution"} == {done.id}
        assert {"task", "simulation", "decision", "execution"} <= {link.kind for link in links}
        assert [link.seq for link in links] == sorted(link.seq for link in links)
    line = lineage(ground.hf.ledger, done.id)
    assert line is not None
    assert (line.correlation, line.trigger, line.run, line.siblings) == ("r-1", "run", "r-1", ())
    shown: dict[str, Any] = execution_document(*ground.hf.show(done.id))
    assert (shown["lineage"]["run_id"], shown["lineage"]["trigger_kind"]) == ("r-1", "run")
    assert execution_document(*ground.hf.show(other.id))["lineage"]["run_id"] is None  # type: ignore[index,call-overload]
