"""The JSON documents: the same facts that the words tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.cli.moments import for_programs
from holdfast.model.execution import intent_id, result_word
from holdfast.store.database import Row

if TYPE_CHECKING:
    from holdfast.model.changeset import Change
    from holdfast.model.image import Image
    from holdfast.model.simulation import SimulatedStep

_FROM_THE_LEDGER = ("approved_by", "errors", "undoes", "revives")
_COURSE = {"history": ("status", "at_ns"), "divergence": ("path", "detail")}


def row_document(row: Row) -> dict[str, object]:
    """An execution as lists show it."""
    return {
        "kind": "execution",
        "id": row.id,
        "status": result_word(row.status),
        "state": row.status,
        "at": for_programs(row.at_ns),
        "intent": row.intent,
        "intent_id": intent_id(row.intent),
        # Voice is not built: no intent comes from a transcription.
        "transcription_id": None,
        "plan_id": row.plan_id,
        "simulation_id": row.summary.get("simulation") or None,
        "decision_id": row.summary.get("decision") or None,
        "approval_ids": row.summary.get("approvals") or [],
        "changes": row.changes,
        "live": row.live,
        "undoable": row.undoable,
    }


def execution_document(row: Row, document: Mapping[str, object] | None) -> dict[str, object]:
    """An execution with all that is known of it; steps and receipts are missing where the table lost them."""
    summary: dict[str, object] = {key: row.summary[key] for key in _FROM_THE_LEDGER if key in row.summary}
    for key, names in _COURSE.items():
        rows = row.summary.get(key)
        if isinstance(rows, list):
            summary[key] = [dict(zip(names, item, strict=True)) for item in rows if isinstance(item, list)]
    if "not_looked_at" in row.summary:
        summary["divergence_not_looked_at"] = row.summary["not_looked_at"]
    summary |= {"result_id": row.id, "user_approved": bool(row.summary.get("approved_by"))}
    approved = (document or {}).get("approved_at_ns")
    summary["approval_time"] = for_programs(approved) if isinstance(approved, int) and approved else None
    # The row is given twice: first so that kind, id and status lead, last because it knows how things stand now.
    return {**row_document(row), **summary, **(document or {}), **row_document(row)}


def simulated_step_document(step: SimulatedStep) -> dict[str, object]:
    """A step of a report under the names that other tools use, beside those that it is digested by."""
    from holdfast.model.simulation import step_document  # what only looks at executions starts without it

    return {
        **step_document(step),
        "precondition_status": step.precondition,
        "affected_resources": list(step.affected),
        "rollback_capability": step.rollback.capability,
        "confirmations_required": list(step.confirmations),
    }


def list_document(items: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"kind": "list", "items": list(items)}


def change_document(change: Change) -> dict[str, object]:
    return {
        "path": change.path,
        "action": action_of(change),
        "origin": change.origin,
        "pre": _image(change.pre),
        "post": _image(change.post),
    }


def action_of(change: Change) -> str:
    """create, delete, move, mode or update."""
    if change.pre is None:
        return "move" if change.origin is not None else "create"
    if change.post is None:
        return "delete"
    return "mode" if change.pre._replace(mode=change.post.mode) == change.post else "update"


def _image(image: Image | None) -> dict[str, object] | None:
    if image is None:
        return None
    told: dict[str, object] = {"kind": image.kind, "mode": f"{image.mode:04o}", "uid": image.uid, "gid": image.gid}
    if image.kind == "file":
        told |= {"size": image.size, "digest": image.digest}
    if image.kind == "symlink":
        told["target"] = image.target
    return told
