"""Rebasing: a proposal that was made on an earlier tree becomes a simulation on the tree as it is now.

    Proposal ──laid three-way over the workspace──┬─ nothing left ──▶ AlreadyThere
                                                  ├─ collisions ────▶ Collided: back to the agent, with the evidence
                                                  └─ otherwise ─────▶ Rebased: verify ─▶ judge ─▶ land, as any other

Invariants
  B1  The workspace is only read. What lands is the rebased change set, on pre-images of now, through every gate.
  B2  The plan stays the agent's own, so the gates see the same author and ask the same questions;
      risk and ways back are computed here, from the plan, never taken from a worker.
  B3  What was found suspicious or dangerous stays so. What capture would refuse in a shadow is a danger here too,
      whoever says that it captured it; what the repository ignores is a by-product here too.
  B4  Receipts are not carried over: they are for another tree.
  B5  Only what somebody else did is there already. A proposal of which nothing is left, and of which nothing stands
      either, fits no more, and says nothing about whether the task is done.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from holdfast.engine.pipeline import Pipeline
from holdfast.engine.proposal import Proposal, require_contents
from holdfast.engine.roadmap_merge import merging
from holdfast.engine.simulator import Simulated
from holdfast.errors import Conflict
from holdfast.gates.secrets import masked
from holdfast.model.changeset import Change, ChangeSet, Observation, change_set
from holdfast.model.image import Image, has_special_rights
from holdfast.model.path import ancestors_of, printable
from holdfast.model.plan import Plan, step_id
from holdfast.model.simulation import ByProduct, SimulatedStep, Simulation
from holdfast.simulation.report import Performed, step_report
from holdfast.simulation.reports import StepReports
from holdfast.store.large_blobs import LargeBlobs
from holdfast.workspace.caches import cached_paths
from holdfast.workspace.hidden import Roots, masked_paths, matches
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.laying import Collision, Laid, lay
from holdfast.workspace.site import Site
from holdfast.workspace.tree import Snapshot, snapshot

_TRIES = 3
_MOST_EVIDENCE = 12_000
# Attributes that the kernel gives powers to, as in a capture.
_POWERS = ("security.", "trusted.")
_RESTLESS = "the workspace keeps changing, so the proposal cannot be laid over it"
_IDLE = "nothing of the proposal can land here: it changes nothing, or only what the repository ignores"


class Rebased(NamedTuple):
    """`merged`: paths where somebody else's work was kept beside the proposal's. `already`: nothing to do there."""

    simulated: Simulated
    merged: tuple[str, ...]
    already: tuple[str, ...]


class AlreadyThere(NamedTuple):
    """Somebody did exactly this: the workspace stands as the proposal would leave it."""

    base_tree: str
    paths: tuple[str, ...]


class Collided(NamedTuple):
    collisions: tuple[Collision, ...]
    base_tree: str

    def evidence(self) -> str:
        """What an agent that shall try again is told: bounded, and without what has the shape of a secret."""
        parts = [f"{printable(at.path)} {at.why}.\n{at.hunks}".rstrip() for at in self.collisions]
        head = "Others changed the workspace while you worked, and your change does not fit any more:"
        return "\n\n".join([head, *parts])[:_MOST_EVIDENCE]

    def error(self) -> Conflict:
        lines = "\n".join(f"  {printable(at.path)} {at.why}" for at in self.collisions)
        return Conflict(f"the proposal does not fit the workspace any more:\n{lines}", hint="Nothing was changed.")


Outcome: TypeAlias = Rebased | Collided | AlreadyThere


def rebased(pipeline: Pipeline, proposal: Proposal) -> Outcome:
    """The proposal on the workspace as it is now. Its bytes are in the workspace's own stock, or Tampering, UnknownId.

    Conflict when the workspace does not stand still for long enough.
    """
    stock = LargeBlobs(pipeline.site.state)
    require_contents(proposal, stock)
    settings = pipeline.governance.settings()
    restless: Conflict | None = None
    for _ in range(_TRIES):
        base = snapshot(pipeline.site.path, pipeline.site.state.path)
        wanted, by_products = _landable(pipeline.site, proposal, base, settings.keep)
        try:
            laid = lay(pipeline.site, wanted, stock.open, base, masked, merging(pipeline.records))
        except Conflict as error:  # somebody wrote between the snapshot and the look at a path
            restless = error
            continue
        return _outcome(pipeline, proposal, laid, base, settings.hidden, by_products)
    raise Conflict(_RESTLESS, hint="Nothing was changed.") from restless


def _outcome(
    pipeline: Pipeline,
    proposal: Proposal,
    laid: Laid,
    base: Snapshot,
    hidden: tuple[str, ...],
    by_products: tuple[ByProduct, ...],
) -> Outcome:
    unseen = tuple(_hidden_ones(pipeline.site, proposal.plan, laid.change_set, hidden))
    if laid.collisions or unseen:
        return Collided((*laid.collisions, *unseen), base.digest)
    if not laid.change_set and not laid.already:
        raise Conflict(_IDLE, hint="Nothing was changed.")  # B5
    if not laid.change_set:
        return AlreadyThere(base.digest, laid.already)
    pipeline.simulator.remember(proposal.plan)
    report = _report(proposal, laid.change_set, base, by_products)
    steps = StepReports(report.steps, (), report.at_ns)
    simulated = Simulated(proposal.plan, laid.change_set, laid.seen, laid.sources, steps, report)
    return Rebased(simulated, laid.merged, laid.already)


# ── what of the proposal may land at all ──


def _landable(
    site: Site, proposal: Proposal, base: Snapshot, keep: tuple[str, ...]
) -> tuple[ChangeSet, tuple[ByProduct, ...]]:
    """The change set in the workspace's own owners, without moves (all bytes are at hand), less what is ignored."""
    changes = [_owned(change, base, proposal.owner) for change in proposal.change_set.changes]
    reads = [_owned_read(read, base, proposal.owner) for read in proposal.change_set.reads]
    ignored = _ignored(site, proposal.plan, changes, keep)
    landing = [change for change in changes if change.path not in ignored and change.pre != change.post]
    dropped = [change for change in changes if change.path in ignored]
    told = tuple(ByProduct(change.path, change.post.size if change.post else 0) for change in dropped)
    return change_set(landing, reads), (*proposal.report.by_products, *told)


def _ignored(site: Site, plan: Plan, changes: list[Change], keep: tuple[str, ...]) -> frozenset[str]:
    """B3. A path that a step of the plan names is no by-product, nor one that configuration keeps."""
    named = set(plan.affected_paths)
    asked = [f"{change.path}/" if _is_directory(change) else change.path for change in changes]
    caches = cached_paths(
        [change.path for change in changes], lambda path: os.path.lexists(os.path.join(site.path, path))
    )
    found = ignored_paths(site, asked) | caches
    dropped = {p for p in found if p not in named and not matches(p, keep)}
    landing = (change.path for change in changes if change.post is not None and change.path not in dropped)
    return frozenset(dropped.difference(*map(ancestors_of, landing)))


def _is_directory(change: Change) -> bool:
    image = change.post or change.pre
    return image is not None and image.kind == "directory"


def _owned(change: Change, base: Snapshot, owner: tuple[int, int] | None) -> Change:
    """Where owners could not be kept, everything has the owner of what stands there, or ours where it is new."""
    change = change._replace(origin=None)
    if owner is None:
        return change
    now = base.get(change.path)
    own = (now.uid, now.gid) if now is not None else (os.geteuid(), os.getegid())
    return change._replace(pre=_given(change.pre, owner, own), post=_given(change.post, owner, own))


def _owned_read(read: Observation, base: Snapshot, owner: tuple[int, int] | None) -> Observation:
    now = base.get(read.path) if owner is not None else None
    given = _given(read.image, owner, (now.uid, now.gid)) if owner is not None and now is not None else None
    return Observation(read.path, given or read.image)


def _given(image: Image | None, owner: tuple[int, int], own: tuple[int, int]) -> Image | None:
    if image is None or (image.uid, image.gid) != owner:
        return image
    return image._replace(uid=own[0], gid=own[1])


def _hidden_ones(site: Site, plan: Plan, changes: ChangeSet, hidden: tuple[str, ...]) -> Iterator[Collision]:
    """No program sees a hidden path, so none can have changed one; only a plan's own step may."""
    roots, named = Roots(masked_paths(site.workspace, hidden)), set(plan.affected_paths)
    for path in changes.paths:
        if path not in named and (roots.cover(path) or matches(path, hidden)):
            yield Collision(path, "is hidden here, and no work of a program can change it")


# ── the report ──


def _report(proposal: Proposal, changes: ChangeSet, base: Snapshot, by_products: tuple[ByProduct, ...]) -> Simulation:
    plan, made = proposal.plan, proposal.report
    dangers = tuple(dict.fromkeys((*made.dangers, *_dangers(plan, changes))))
    return Simulation(
        plan_id=plan.id,
        plan_digest=plan.digest,
        status="SUCCESS" if made.status == "SUCCESS" and not dangers else "UNSAFE",
        change_set=changes.digest,
        base=changes.base,
        base_tree=base.digest,
        predicted_tree=base.digest_after(changes.changes),
        steps=_steps(plan, made),
        by_products=by_products,
        suspicious=made.suspicious,
        dangers=dangers,
        enforced=made.enforced,
        shadow=made.shadow,
        at_ns=time.time_ns(),
    )


def _steps(plan: Plan, made: Simulation) -> tuple[SimulatedStep, ...]:
    """B2."""
    return tuple(
        step_report(step, Performed(step_id(number), done.precondition, done.detail, done.affected, done.receipt))
        for number, (step, done) in enumerate(zip(plan.steps, made.steps, strict=True))
    )


def _dangers(plan: Plan, changes: ChangeSet) -> Iterator[str]:
    named = set(plan.affected_paths)
    for change in changes.changes:
        if change.post is None or change.path in named:
            continue
        known = change.pre.xattrs if change.pre is not None else ()
        gained = [name for name, value in change.post.xattrs if name.startswith(_POWERS) and (name, value) not in known]
        if change.pre is not None and change.pre.kind == change.post.kind == "file" and has_special_rights(change.pre):
            yield f"{printable(change.path)}: it runs with special rights (set-id or capability); they would be lost"
        elif change.post.mode & _set_id(change.post):
            yield f"{printable(change.path)}: set-id bits in its mode {change.post.mode:04o}"
        elif gained:
            yield f"{printable(change.path)}: the attribute {printable(gained[0])}, which can give powers"


def _set_id(image: Image) -> int:
    """A directory hands its group down by itself; nobody gains anything by that."""
    return stat.S_ISUID if image.kind == "directory" else stat.S_ISUID | stat.S_ISGID
