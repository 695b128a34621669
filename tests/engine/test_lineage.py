"""Which executions an execution came from, which came from it, and which landed beside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from guarded import guard, put
from holdfast.cli.documents import execution_document
from holdfast.engine.tracing import lineage, trace
from holdfast.errors import UnknownId
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
    assert (line.ancestors, line.descendants, line.siblings) == ((done.id,), (), ())
    first = lineage(ground.hf.ledger, done.id)
    assert first is not None
    assert (first.trigger, first.parent, first.descendants, first.siblings) == ("change", "", (undone.id,), ())
    assert lineage(ground.hf.ledger, done.plan_id) is None


def test_a_result_names_its_papers_and_its_lineage(tmp_path: Path) -> None:
    """The JSON of an execution has the ids of simulation, decision and approvals, the time of approval, and lineage."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done = ground.apply(put("a", b"new"))
    shown: dict[str, Any] = execution_document(*ground.hf.show(done.id))
    entry = ground.hf.ledger.find("execution", done.id)
    assert entry is not None
    assert shown["transcription_id"] is None
    of_intent = ground.hf.trace(shown["intent_id"])
    assert of_intent.links == ground.hf.trace(done.id).links
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
    now = time.time_ns()
    entries = [Record(RUN, run_body(RunRecord("r-1", "roadmap.md")), now)]
    ground.hf.pipeline.note_run(entries + [Record(TASK, task_body(move), now) for move in moves])
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


def test_what_takes_a_landing_of_a_run_back_belongs_to_it(tmp_path: Path) -> None:
    """After an undo, and the undo of that, trace and show still name the run; neither is a sibling of what it undoes.

    The task names the first landing no more then.
    """
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    done, other = ground.apply(put("a", b"new")), ground.apply(put("b", b"new"))
    states = (("IN_PROGRESS", ""), ("VALIDATING", ""), ("COMPLETED", done.id), ("PENDING", ""))
    moves = [TaskRecord("u-1", "t-1", state, execution=execution) for state, execution in states]  # type: ignore[arg-type]
    moves.append(TaskRecord("u-1", "t-2", "IN_PROGRESS"))
    moves.append(TaskRecord("u-1", "t-2", "VALIDATING"))
    moves.append(TaskRecord("u-1", "t-2", "COMPLETED", execution=other.id))
    now = time.time_ns()
    entries = [Record(RUN, run_body(RunRecord("u-1", "roadmap.md")), now)]
    ground.hf.pipeline.note_run(entries + [Record(TASK, task_body(move), now) for move in moves])
    undone = ground.hf.undo(done.id, approved_by="me")
    again = ground.hf.undo(undone.id, approved_by="me")
    for id, run, trigger in ((done.id, "u-1", "run"), (undone.id, "", "undo"), (again.id, "", "redo")):
        line = ground.hf.trace(id).lineage
        assert line is not None
        assert (line.correlation, line.run, line.trigger, line.siblings) == ("u-1", run, trigger, (other.id,))
        shown: dict[str, Any] = execution_document(*ground.hf.show(id))
        assert shown["lineage"]["correlation_id"] == "u-1"
        assert (shown["lineage"]["run_id"], shown["lineage"]["trigger_kind"]) == (run or None, trigger)


def test_the_beginning_of_an_id_can_be_traced(tmp_path: Path) -> None:
    """A unique beginning of the id of a run or of a task is enough; of several, it is told which they are."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    now = time.time_ns()
    entries = [Record(RUN, run_body(RunRecord("u-abc", "roadmap.md")), now)]
    tasks = [TaskRecord("u-abc", f"create-{name}-py-1", "IN_PROGRESS") for name in "ab"]
    ground.hf.pipeline.note_run(entries + [Record(TASK, task_body(task), now) for task in tasks])
    assert ground.hf.trace("u-a").id == "u-abc"
    assert ground.hf.trace("create-a").id == "create-a-py-1"
    with pytest.raises(UnknownId, match="create-a-py-1, create-b-py-1"):
        ground.hf.trace("create-")
    with pytest.raises(UnknownId, match="nothing called nothing"):
        ground.hf.trace("nothing")
