"""Going back: undo of one execution, restore to a moment, and what is kept for that.

What an undo switches off and on again is written into its own record:
`undoes` are the executions whose effect ends, `revives` those whose effect returns (an undo undone).
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.pipeline import Job, Pipeline
from holdfast.errors import Blocked, InvalidInput
from holdfast.model.changeset import Change
from holdfast.model.execution import Divergence
from holdfast.settlement.record import KIND
from holdfast.store.database import Row
from holdfast.workspace.keeping import Reclaimed, reclaim
from holdfast.workspace.turns import Past
from holdfast.workspace.undo import plan_undo, read_past, require_intact

KEEP_AT_LEAST = 10
PACK_AFTER_NS = 24 * 3600 * 10**9


class Return(NamedTuple):
    """A way back, not yet taken."""

    job: Job
    merged: tuple[str, ...]
    left: tuple[Divergence, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.job.change_set.changes


def undo_of(pipeline: Pipeline, id: str) -> Return:
    """How to undo one execution; raises Conflict when later changes are in the way."""
    row, _ = pipeline.records.execution(id)
    if row.status != "COMPLETED":
        raise InvalidInput(f"{id} ended as {row.status} and left nothing to undo", hint="Nothing was changed.")
    if not row.live:
        raise InvalidInput(f"{id} is undone already", hint="Nothing was changed. See: holdfast log")
    revivers = [r.id for r in pipeline.records.executions(since_ns=row.at_ns) if r.live and id in _names(r, "revives")]
    undoes = [id, *revivers, *_names(row, "revives")]
    return _way_back(pipeline, [row], f"Undo {id}: {row.intent}", undoes, _names(row, "undoes"))


def restore_to(pipeline: Pipeline, at_ns: int) -> Return:
    """How to bring back everything Holdfast changed after a moment, in one transaction."""
    rows = [row for row in pipeline.records.executions(since_ns=at_ns + 1) if row.status == "COMPLETED"]
    after = {row.id for row in rows}
    undoes = [row.id for row in rows if row.live]
    undoes += sorted({id for row in rows if row.live for id in _names(row, "revives")} - after)
    revives = {id for row in rows if row.live for id in _names(row, "undoes")} - after
    return _way_back(pipeline, rows, "Restore to an earlier moment", undoes, sorted(revives))


def collect(pipeline: Pipeline, *, keep_ns: int, now_ns: int) -> Reclaimed:
    """Forget the material of executions older than `keep_ns`, but never of the newest ones."""
    with pipeline.locked():
        rows = [row for row in pipeline.records.executions() if row.kept]
        old = [row.id for row in rows[KEEP_AT_LEAST:] if row.at_ns < now_ns - keep_ns]
        pack = [row.id for row in rows if row.at_ns < now_ns - PACK_AFTER_NS]
        logs = _log_digests(pipeline)
        result = reclaim(pipeline.site, forget=old, pack=pack, needed_blobs=logs)
        pipeline.records.forget_material(list(result.forgotten))
        return result


def _way_back(pipeline: Pipeline, rows: list[Row], intent: str, undoes: list[str], revives: list[str]) -> Return:
    if not rows:
        raise Blocked("there is nothing to go back over", hint="Nothing was changed. See: holdfast log")
    plan = plan_undo(pipeline.site, _checked_pasts(pipeline, [row for row in rows if row.changes]))
    job = Job(
        intent,
        rows[0].plan_id,
        "",
        plan.change_set,
        plan.seen,
        plan.sources,
        undoes=tuple(undoes),
        revives=tuple(revives),
    )
    return Return(job, plan.merged, plan.left)


def _checked_pasts(pipeline: Pipeline, rows: list[Row]) -> list[Past]:
    """Their logs. The tables can be edited by whoever can edit a log; the ledger, read once here, cannot."""
    roots = _roots(pipeline, {row.id for row in rows})
    pasts = []
    for row in rows:
        past = read_past(pipeline.site, row.id)
        require_intact(past, roots.get(row.id, ""))
        pasts.append(past._replace(settled_ns=row.at_ns))
    return pasts


def _roots(pipeline: Pipeline, wanted: set[str]) -> dict[str, str]:
    roots: dict[str, str] = {}
    if not wanted:
        return roots
    for entry in pipeline.ledger.entries(reverse=True):
        id = str(entry.body.get("execution_id"))
        if entry.kind == KIND and id in wanted and id not in roots:
            roots[id] = str(entry.body["root"])
            if len(roots) == len(wanted):
                break
    return roots


def _names(row: Row, key: str) -> list[str]:
    value = row.summary.get(key)
    return [str(item) for item in value] if isinstance(value, list) else []


def _log_digests(pipeline: Pipeline) -> set[str]:
    """The logs of checks, which `show` still wants to print."""
    wanted: set[str] = set()
    for row in pipeline.records.executions():
        document = pipeline.records.execution(row.id)[1]
        wanted.update(receipt["log_digest"] for receipt in (document or {}).get("receipts", ()))
    return wanted
