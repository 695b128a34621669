"""The simulator: a plan tried in a shadow, and its checks run over what would land. The workspace is only read.

    file steps only ......... rehearsed over a draft in memory; no shadow is needed
    with programs ........... commands really run, agents really work, sandboxed, in a shadow;
                              what they did is captured and kept

Only SUCCESS can land. A plan that cannot be done raises Unrehearsable, which holds a report (BLOCKED).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.engine.actions import host_of
from holdfast.engine.checking import Checking, Landable, ShadowKind, Verified, profile_of
from holdfast.engine.last_words import last_words
from holdfast.engine.saving import save_simulation
from holdfast.environment.detect import environment_of, this_shell
from holdfast.errors import Blocked, SandboxUnavailable, VerificationFailed
from holdfast.execution.services import Action
from holdfast.gates.evidence import new_bytes, new_content
from holdfast.model.changeset import ChangeSet, change_set
from holdfast.model.configuration import Settings
from holdfast.model.image import Seen
from holdfast.model.path import INSTRUCTION_FILES, TOOL_DIRECTORIES
from holdfast.model.plan import Agent, Delete, Move, Plan, Run, Service, Step, described, step_id
from holdfast.model.simulation import Outcome, Precondition, SimulatedStep, Simulation
from holdfast.simulation.rehearsal import Rehearsal, StepReport, TooMuch, Unrehearsable, rehearse
from holdfast.simulation.report import FileReports, Performed, step_report
from holdfast.simulation.reports import StepReports
from holdfast.simulation.workshop import Delegate, Workshop
from holdfast.store.blobs import Blobs
from holdfast.store.database import Records
from holdfast.store.documents import packed
from holdfast.workspace.collector import without_collector
from holdfast.workspace.shadow import open_shadow
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source
from holdfast.workspace.tree import Snapshot, snapshot

Progress = Callable[[str, int, int], None]
# From a plan to somebody who gives its tasks to agents.
Hire = Callable[[Plan, Settings], Delegate]
NOTHING_TO_LAND = change_set([], [])
_MANY = 20_000  # the built-in policy admits no more; above that memory counts, below it time


class Simulated(NamedTuple):
    """A simulation with all that carrying it out needs."""

    plan: Plan
    change_set: ChangeSet
    seen: Mapping[str, Seen]
    sources: Mapping[str, Source]
    steps: Sequence[StepReport]
    report: Simulation


class Surroundings(NamedTuple):
    """What the write gate must know of the tree around a change: its symbolic links, how many files it has, and the
    files that agents read as instructions, with the digests of their contents."""

    tree: str
    links: tuple[tuple[str, str], ...]
    files: int
    instructions: tuple[tuple[str, str], ...] = ()


class Simulator:
    def __init__(
        self,
        site: Site,
        records: Records,
        settings: Callable[[], Settings],
        most_bytes: Callable[[], int],
        progress: Progress,
    ) -> None:
        """`most_bytes`: how much new content policy admits."""
        self._site = site
        self._records = records
        self._settings = settings
        self._most_bytes = most_bytes
        self._progress = progress
        self.checking = Checking(site, settings, progress)
        self._looked_at = Surroundings("", (), 0)

    @without_collector
    def simulate(self, plan: Plan, kind: ShadowKind = "auto", hire: Hire | None = None) -> Simulated:
        """What the plan would do, exactly; Unrehearsable when it cannot be done. `hire` gives work to agents."""
        self.checking.require_understood(plan)
        self.remember(plan)
        if not plan.runs_programs:
            return self._simulated(plan, self._rehearsed(plan, None), None)
        delegate = hire(plan, self._settings()) if hire is not None and plan.agent else None
        try:
            return self._with_programs(plan, kind, delegate)
        except SandboxUnavailable:
            if kind != "auto":
                raise
            # Whatever of an overlay this host refuses, a copy does not need.
            return self._with_programs(plan, "copy", delegate)

    def verify(self, simulated: Simulated) -> Verified:
        """The checks of the plan and of the configuration; raises nothing for a failed one."""
        return self.checking.verify(simulated.plan, landable_of(simulated))

    def surroundings_of(self, report: Simulation) -> Surroundings:
        """Of the tree that the report stands on; of the tree as it is now, where that was another command."""
        if self._looked_at.tree != report.base_tree:
            self._tree()
        return self._looked_at

    # ── the rehearsal ──

    def _with_programs(self, plan: Plan, kind: ShadowKind, delegate: Delegate | None) -> Simulated:
        settings = self._settings()
        with open_shadow(self._site, kind, settings.hidden) as shadow:
            at, keep = self._site.seen_at, settings.keep
            environment = environment_of(this_shell(), at, readable=settings.environment.readable)
            profile = profile_of(settings.limits, environment)
            workshop = Workshop(
                shadow, at, profile, keep, self._save_log, self._looked, last_words, environment, delegate
            )
            rehearsed = self._rehearsed(plan, workshop)
            if delegate is None:
                self._require_admitted(plan, rehearsed, workshop)
            found = self._simulated(plan, rehearsed, workshop)
            # The shadow goes when this block ends; what it holds is kept under the simulation's id.
            kept = save_simulation(self._site, plan, found.report, found.change_set, found.sources)
        return found._replace(sources=kept)

    def _rehearsed(self, plan: Plan, workshop: Workshop | None) -> Rehearsal:
        try:
            return rehearse(self._site, plan, self._progress, workshop, self._require_means)
        except Unrehearsable as error:
            error.report = self._blocked(plan, error, workshop)
            raise

    def _require_admitted(self, plan: Plan, found: Rehearsal, workshop: Workshop) -> None:
        """TooMuch for more bytes than any decision would let through. The gate judges the rest, when it is asked."""
        size, most = new_bytes(new_content(found.change_set.changes)), self._most_bytes()
        if size <= most:
            return
        error = TooMuch(
            f"{size:,} bytes of new content, {most:,} are allowed",
            found.steps,
            "Nothing was changed, and nothing of it is kept. More is admitted by limits.bytes of the policy.",
        )
        error.report = self._blocked(plan, error, workshop)
        raise error

    def _blocked(self, plan: Plan, error: Unrehearsable, workshop: Workshop | None) -> Simulation:
        """Its report: how far it came, and what was in its way."""
        report = _report(plan, error.steps, NOTHING_TO_LAND, "BLOCKED", self._tree(), workshop)
        reached = len(report.steps)
        rest = [
            step_report(step, Performed(step_id(number), "unknown", "not reached"))._replace(predicted_change="")
            for number, step in enumerate(plan.steps[reached:], reached)
        ]
        # What no single step is to blame for.
        dangers = () if any(step.precondition == "unmet" for step in report.steps) else (error.message,)
        return replace(report, steps=(*report.steps, *rest), dangers=(*report.dangers, *dangers))

    def _require_means(self, step: Service) -> None:
        try:
            host_of(self._site, self._settings()).require_means(Action(step, ""))
        except VerificationFailed as error:
            raise Blocked(f"{error.message}\n  {error.hint}") from error

    def _simulated(self, plan: Plan, found: Rehearsal, workshop: Workshop | None) -> Simulated:
        """The base is looked at when the work is done: hours after its beginning the old images are of now."""
        looked = self.checking.take_look(found.change_set.digest)
        if looked is None and workshop is not None:
            looked = workshop.base
        base = self._known(looked) if looked is not None else self._tree()
        status: Outcome = "UNSAFE" if workshop is not None and workshop.dangers else "SUCCESS"
        report = _report(plan, found.steps, found.change_set, status, base, workshop)
        steps = StepReports(report.steps, (step.started_ns for step in found.steps), report.at_ns)
        return Simulated(plan, found.change_set, found.seen, found.sources, steps, report)

    def remember(self, plan: Plan) -> None:
        """So that it can be shown; its bytes are not kept by this."""
        document = packed(plan.document(), map(described, plan.steps))
        self._records.save_plan(plan.id, plan.digest, time.time_ns(), document)

    def _tree(self) -> Snapshot:
        return self._known(self._looked())

    def _looked(self) -> Snapshot:
        return snapshot(self._site.path, self._site.state.path)

    def _known(self, tree: Snapshot) -> Snapshot:
        self._looked_at = Surroundings(
            tree.digest,
            tuple(tree.links()),
            tree.files_outside(TOOL_DIRECTORIES),
            tuple(tree.files_named(INSTRUCTION_FILES)),
        )
        return tree

    def _save_log(self, data: bytes) -> str:
        return Blobs(self._site.state).put(data)


def landable_of(simulated: Simulated) -> Landable:
    return Landable(simulated.change_set, simulated.seen, simulated.sources)


def _report(
    plan: Plan,
    steps: tuple[StepReport, ...],
    changes: ChangeSet,
    status: Outcome,
    base: Snapshot,
    workshop: Workshop | None,
) -> Simulation:
    return Simulation(
        plan_id=plan.id,
        plan_digest=plan.digest,
        status=status,
        change_set=changes.digest,
        base=changes.base,
        base_tree=base.digest,
        predicted_tree=base.digest_after(changes.changes),
        steps=_steps(plan, steps, changes),
        by_products=workshop.by_products if workshop is not None else (),
        suspicious=workshop.suspicious if workshop is not None else (),
        dangers=workshop.dangers if workshop is not None else (),
        enforced=workshop.enforced if workshop is not None else (),
        shadow=workshop.kind if workshop is not None else "",
        at_ns=time.time_ns(),
    )


def _steps(plan: Plan, steps: Sequence[StepReport], changes: ChangeSet) -> Sequence[SimulatedStep]:
    """Of steps that only write files, and all went well, there may be very many."""
    plain = all(step.precondition_met and step.operation not in ("run", "agent", "service") for step in steps)
    if plain and len(steps) > _MANY:
        return FileReports(plan.steps, [step.detail for step in steps], lambda step: _affected(step, changes))
    return tuple(step_report(plan.steps[s.number], _performed(plan.steps[s.number], s, changes)) for s in steps)


def _performed(step: Step, report: StepReport, changes: ChangeSet) -> Performed:
    met: Precondition = "unmet"
    if report.precondition_met:
        met = "unknown" if isinstance(step, Service) else "met"
    return Performed(report.step_id, met, report.detail, report.affected or _affected(step, changes), report.receipt)


def _affected(step: Step, changes: ChangeSet) -> tuple[str, ...]:
    if isinstance(step, (Run, Agent, Service)):
        return ()
    if isinstance(step, Move):
        return step.path, step.to
    if isinstance(step, Delete) and step.recursive:
        return tuple(path for path in changes.paths if path == step.path or path.startswith(step.path + "/"))
    return (step.path,)
