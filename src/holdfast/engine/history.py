"""Going back: undo of one execution, restore to a moment, and what is kept for that.

What an undo switches off and on again is written into its own record:
`undoes` are the executions whose effect ends, `revives` those whose effect returns (an undo undone).
What they did outside the files goes and returns with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from holdfast.engine.actions import had_again, taken_away
from holdfast.engine.at_stake import files_at_stake
from holdfast.engine.job import Job
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_merge import merging
from holdfast.engine.saving import Fates, forget_dossiers, kept_logs
from holdfast.errors import Blocked, HoldfastError, InvalidInput, Tampering
from holdfast.execution.services import Action
from holdfast.gates.change_rules import is_mass_removal
from holdfast.gates.layers import layered
from holdfast.gates.operations import removed_files
from holdfast.model.canonical import Json
from holdfast.model.changeset import Change
from holdfast.model.execution import Divergence
from holdfast.settlement.delegated import transcripts_of
from holdfast.settlement.record import KIND
from holdfast.store.database import Paper, Row
from holdfast.store.patch_history import PatchHistory
from holdfast.store.running import Running
from holdfast.workspace.collector import without_collector
from holdfast.workspace.keeping import Reclaimed, reclaim
from holdfast.workspace.turns import Past
from holdfast.workspace.undo import plan_undo, read_past, require_intact

Bodies: TypeAlias = Mapping[str, Mapping[str, Json]]

KEEP_AT_LEAST = 10
PACK_AFTER_NS = 24 * 3600 * 10**9


class Removal(NamedTuple):
    """So many files of so many go."""

    files: int
    of: int


class Return(NamedTuple):
    """A way back, not yet taken."""

    job: Job
    merged: tuple[str, ...]
    left: tuple[Divergence, ...]
    # Set where policy would call a change like this a mass removal. Policy refuses no way back, but a person sees it.
    removal: Removal | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.job.change_set.changes

    @property
    def services(self) -> tuple[str, ...]:
        """What it does outside the files, in words and in order."""
        return tuple(action.wording for action in self.job.services)


def undo_of(pipeline: Pipeline, id: str) -> Return:
    """How to undo one execution; raises Conflict when later changes are in the way."""
    row = pipeline.records.row(id)
    if not row.landed:
        raise InvalidInput(f"{id} ended as {row.status} and left nothing to undo", hint="Nothing was changed.")
    if not row.live:
        raise InvalidInput(f"{id} is undone already", hint="Nothing was changed. See: holdfast log")
    revivers = [r for r in pipeline.records.executions(since_ns=row.at_ns) if r.live and id in _names(r, "revives")]
    undoes = [id, *(r.id for r in revivers), *_names(row, "revives")]
    # What stands was put there by the last one that brought it back.
    settled = row._replace(at_ns=max(r.at_ns for r in (row, *revivers)))
    return _way_back(pipeline, [settled], f"Undo {id}: {row.intent}", undoes, _names(row, "undoes"))


def restore_to(pipeline: Pipeline, at_ns: int) -> Return:
    """How to bring back everything Holdfast changed after a moment, in one transaction."""
    rows = [row for row in pipeline.records.executions(since_ns=at_ns + 1) if row.landed]
    after = {row.id for row in rows}
    undoes = [row.id for row in rows if row.live]
    undoes += sorted({id for row in rows if row.live for id in _names(row, "revives")} - after)
    revives = {id for row in rows if row.live for id in _names(row, "undoes")} - after
    return _way_back(pipeline, rows, "Restore to an earlier moment", undoes, sorted(revives))


def collect(pipeline: Pipeline, *, keep_ns: int, now_ns: int) -> Reclaimed:
    """Forget the material of executions older than `keep_ns`, but never of the newest ones.

    Kept plans and simulations go with their age too, unless somebody approved one and it still waits to land.
    A simulation that landed, was rejected or denied, or that nobody recorded because its process died, goes at once.
    What a run needs to go on stays, however long it waits, and so does what a process works from now.
    """
    from holdfast.engine.run_papers import needed_by_runs  # only gc asks, and every verb would pay for it

    with pipeline.locked():
        needed = needed_by_runs(pipeline.site, pipeline.records)
        rows = [row for row in pipeline.records.executions() if row.kept]
        old = [row.id for row in rows[KEEP_AT_LEAST:] if row.at_ns < now_ns - keep_ns]
        pack = [row.id for row in rows if row.at_ns < now_ns - PACK_AFTER_NS]
        logs = _log_digests(pipeline) | needed.blobs
        result = reclaim(pipeline.site, forget=old, pack=pack, needed_blobs=logs)
        pipeline.records.forget_material(list(result.forgotten))
        Running(pipeline.site.state).tidy({row.id for row in rows} - set(result.forgotten))
        awaited = _awaited(pipeline, now_ns, needed.simulations)
        papers, freed = forget_dossiers(pipeline.site, now_ns - keep_ns, awaited, _fates(pipeline))
        return result._replace(papers=papers, bytes=result.bytes + freed)


def _awaited(pipeline: Pipeline, now_ns: int, asked: frozenset[str]) -> frozenset[str]:
    """Simulations with an approval that is neither used nor expired, those that a run asks about, and their plans."""
    records = pipeline.records
    used = {id for row in records.executions() for id in _names(row, "approvals")}
    approved = {
        paper.subject
        for paper in records.papers("approvals")
        if paper.id not in used and paper.document["answer"] == "approve" and _until(paper) > now_ns
    }
    wanted = approved | asked
    plans = {paper.subject for paper in records.papers("simulations") if paper.id in wanted}
    return frozenset(wanted | plans)


def waiting_simulations(pipeline: Pipeline) -> list[str]:
    """Kept ones that could still land."""
    from holdfast.engine.resuming import is_kept  # only gc asks

    return sorted(id for id in _fates(pipeline).waiting if is_kept(pipeline.site, id))


def _fates(pipeline: Pipeline) -> Fates:
    """Those could still land that are recorded, and neither landed nor rejected nor denied."""
    records = pipeline.records
    landed = {str(row.summary.get("simulation")) for row in records.executions() if row.landed}
    rejected = {paper.subject for paper in records.papers("approvals") if paper.document["answer"] == "reject"}
    verdicts: dict[str, str] = {}
    for paper in records.papers("decisions"):  # newest first
        verdicts.setdefault(paper.subject, str(paper.document["verdict"]))
    denied = {id for id, verdict in verdicts.items() if verdict == "DENY"}
    recorded = {paper.id for paper in records.papers("simulations")}
    return Fates(frozenset(landed), frozenset(recorded - landed - rejected - denied))


def _until(paper: Paper) -> int:
    expires = paper.document["expires_ns"]
    return expires if isinstance(expires, int) else 0


@without_collector
def _way_back(pipeline: Pipeline, rows: list[Row], intent: str, undoes: list[str], revives: list[str]) -> Return:
    if not rows:
        raise Blocked("there is nothing to go back over", hint="Nothing was changed. See: holdfast log")
    bodies = _bodies(pipeline, {row.id for row in rows}.union(undoes, revives))
    for id in undoes:
        if id not in bodies or bodies[id]["status"] != pipeline.records.row(id).status:
            raise Tampering(
                f"the tables say of {id} what the ledger does not say", hint="Nothing was changed. See: holdfast audit"
            )
    moved = [row for row in rows if row.id not in bodies or bodies[row.id]["changes"]]
    plan = plan_undo(pipeline.site, _checked_pasts(pipeline, moved, bodies), merging(pipeline.records))
    actions, standing = _actions(pipeline, undoes, revives, bodies)
    job = Job(
        intent,
        rows[0].plan_id,
        "",
        plan.change_set,
        plan.seen,
        plan.sources,
        undoes=tuple(undoes),
        revives=tuple(revives),
        times=plan.times,
        services=actions,
    )
    return Return(job, plan.merged, (*plan.left, *standing), _mass_removal(pipeline, plan.change_set.changes))


def _mass_removal(pipeline: Pipeline, changes: tuple[Change, ...]) -> Removal | None:
    """The tree is only looked at where the number of removed files alone does not settle it."""
    try:
        limits = pipeline.governance.policy().scalars.limits
    except HoldfastError:
        limits = layered().scalars.limits  # going back needs no policy that can be read
    removed = removed_files(changes)
    if len(removed) <= limits.deletions_few:
        return None
    files = files_at_stake(pipeline.site, removed)
    return Removal(len(removed), files) if is_mass_removal(len(removed), files, limits) else None


def _actions(
    pipeline: Pipeline, undoes: list[str], revives: list[str], bodies: Bodies
) -> tuple[tuple[Action, ...], tuple[Divergence, ...]]:
    """What was done outside the files by the plans that go, newest first; then by those that return, oldest first.

    An undo is no plan: what it did goes or returns with the executions that it switched off and on.
    """
    acted = [id for id, body in bodies.items() if body.get("services") and not body["undoes"]]
    actions: list[Action] = []
    standing: list[Divergence] = []
    for id in acted:
        if id in undoes and pipeline.records.row(id).live:
            back, left = taken_away(pipeline.site, _checked_past(pipeline, id, bodies))
            actions += back
            standing += left
    for id in reversed(acted):
        if id in revives and not pipeline.records.row(id).live:
            actions += had_again(pipeline.site, _checked_past(pipeline, id, bodies))
    return tuple(actions), tuple(standing)


def _checked_pasts(pipeline: Pipeline, rows: list[Row], bodies: Bodies) -> list[Past]:
    return [_checked_past(pipeline, row.id, bodies)._replace(settled_ns=row.at_ns) for row in rows]


def _checked_past(pipeline: Pipeline, id: str, bodies: Bodies) -> Past:
    """Its log. The tables can be edited by whoever can edit a log; the ledger, read once here, cannot."""
    past = read_past(pipeline.site, id)
    require_intact(past, str(bodies[id]["root"]) if id in bodies else "")
    return past


def _bodies(pipeline: Pipeline, wanted: set[str]) -> Bodies:
    """What the ledger says of these executions, newest first."""
    found: dict[str, Mapping[str, Json]] = {}
    for entry in pipeline.ledger.entries(reverse=True):
        if len(found) == len(wanted):
            break
        id = str(entry.body.get("execution_id"))
        if entry.kind == KIND and id in wanted and id not in found:
            found[id] = entry.body
    return found


def _names(row: Row, key: str) -> list[str]:
    value = row.summary.get(key)
    return [str(item) for item in value] if isinstance(value, list) else []


def _log_digests(pipeline: Pipeline) -> set[str]:
    """Logs of checks, which `show` still wants to print; inputs of decisions, for a replay; texts of patches;
    and what agents said and asked, which the ledger names."""
    wanted = {str(paper.document["inputs"]) for paper in pipeline.records.papers("decisions")}
    wanted |= kept_logs(pipeline.site)
    for row in pipeline.records.executions():
        document = pipeline.records.execution(row.id)[1]
        wanted.update(receipt["log_digest"] for receipt in (document or {}).get("receipts", ()))
    for entry in pipeline.ledger.entries():
        if entry.kind == "delegation":
            wanted |= transcripts_of(entry.body)
    return wanted | PatchHistory(pipeline.site.state, pipeline.records).texts()
