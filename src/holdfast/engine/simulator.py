"""The simulator: a plan tried in a shadow, and its checks run over what would land. The workspace is only read.

    file steps only ......... rehearsed over a draft in memory; no shadow is needed
    with `run` steps ........ commands really run, sandboxed, in a shadow; what they did is captured and kept
    checks .................. in a shadow of their own, over base plus landable change, and thrown away

A report always exists, also of a plan that is blocked; only SUCCESS can land.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from holdfast.checks.confine import confined, written_to
from holdfast.checks.gather import Ground, Wanted, gather
from holdfast.checks.toolchains import toolchains
from holdfast.checks.verify import verify
from holdfast.checks.viewed import tree_in
from holdfast.checks.words import Understood, understood
from holdfast.engine.saving import save_simulation
from holdfast.errors import InvalidInput, SandboxUnavailable
from holdfast.model.changeset import ChangeSet, change_set
from holdfast.model.configuration import CheckSettings, ProgramLimits, Settings
from holdfast.model.execution import Receipt
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.model.plan import CommandCheck, Delete, Move, Plan, Run, Service, Step, described
from holdfast.model.simulation import Outcome, Precondition, SimulatedStep, Simulation
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.view import View
from holdfast.simulation.rehearsal import Rehearsal, StepReport, Unrehearsable, rehearse
from holdfast.simulation.report import FileReports, Performed, step_report
from holdfast.simulation.reports import StepReports
from holdfast.simulation.workshop import Workshop
from holdfast.store.blobs import Blobs
from holdfast.store.database import Records
from holdfast.store.documents import packed
from holdfast.workspace.collector import without_collector
from holdfast.workspace.scratch import scratch_copy
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source
from holdfast.workspace.tree import Snapshot, snapshot

Progress = Callable[[str, int, int], None]
ShadowKind = Literal["auto", "overlay", "copy"]
_NOTHING = change_set(())
_MANY = 20_000  # the built-in policy admits no more; above that memory counts, below it time


class Simulated(NamedTuple):
    """A simulation with all that carrying it out needs."""

    plan: Plan
    change_set: ChangeSet
    seen: Mapping[str, Seen]
    sources: Mapping[str, Source]
    steps: Sequence[StepReport]
    report: Simulation


class Verified(NamedTuple):
    """Receipts for one change set, and the tree of the workspace they stand on; they are stale when it moves."""

    receipts: tuple[Receipt, ...]
    base_tree: str
    change_set: str = ""
    # Why tests say nothing about it, as a sentence; empty when they do, or when nothing was asked for.
    unverified: str = ""


class Simulator:
    def __init__(self, site: Site, records: Records, settings: Callable[[], Settings], progress: Progress) -> None:
        self._site = site
        self._records = records
        self._settings = settings
        self._progress = progress

    @without_collector
    def simulate(self, plan: Plan, kind: ShadowKind = "auto") -> Simulated:
        """What the plan would do, exactly; Unrehearsable, with a report, when it cannot be done."""
        self.remember(plan)
        base = self._tree()
        if not any(isinstance(step, Run) for step in plan.steps):
            return self._simulated(plan, rehearse(self._site, plan, self._progress), base, None)
        try:
            return self._with_commands(plan, base, kind)
        except SandboxUnavailable:
            if kind != "auto":
                raise
            # Whatever of an overlay this host refuses, a copy does not need.
            return self._with_commands(plan, base, "copy")

    def blocked_report(self, plan: Plan, error: Unrehearsable) -> Simulation:
        """The report of a plan that cannot be done."""
        return _report(plan, error.steps, _NOTHING, "BLOCKED", self._tree(), None)

    def verify(self, simulated: Simulated) -> Verified:
        """The checks of the plan and of the configuration; raises nothing for a failed one."""
        plan, asked = simulated.plan, _asked(simulated.plan)
        settings = self._settings()
        if plan.unverified_because:
            return Verified((), "", simulated.change_set.digest, f"skipped: {plan.unverified_because}")
        if not self.wants_checks(plan):
            return Verified((), "")
        base = self._tree()
        digest = base.digest_after(simulated.change_set.changes)
        try:
            receipts, unverified = self._checked(simulated, settings, asked, digest, "auto")
        except SandboxUnavailable as error:
            receipts, unverified = self._checked_with_less(simulated, settings, asked, digest, error)
        return Verified(receipts, base.digest, simulated.change_set.digest, unverified)

    def wants_checks(self, plan: Plan) -> bool:
        """Does the plan or the configuration ask for any?"""
        if plan.unverified_because:
            return False
        return bool(plan.verify or plan.words or self._settings().checks.run)

    # ── the rehearsal ──

    def _with_commands(self, plan: Plan, base: Snapshot, kind: ShadowKind) -> Simulated:
        settings = self._settings()
        with open_shadow(self._site, kind, settings.hidden) as shadow:
            profile = profile_of(settings.limits)
            workshop = Workshop(shadow, self._site.path, profile, settings.keep, self._save_log)
            found = self._simulated(plan, rehearse(self._site, plan, self._progress, workshop), base, workshop)
            # The shadow goes when this block ends; what it holds is kept under the simulation's id.
            kept = save_simulation(self._site, plan, found.report, found.change_set, found.sources)
        return found._replace(sources=kept)

    def _simulated(self, plan: Plan, found: Rehearsal, base: Snapshot, workshop: Workshop | None) -> Simulated:
        status: Outcome = "UNSAFE" if workshop is not None and workshop.dangers else "SUCCESS"
        report = _report(plan, found.steps, found.change_set, status, base, workshop)
        steps = StepReports(report.steps, (step.started_ns for step in found.steps), report.at_ns)
        return Simulated(plan, found.change_set, found.seen, found.sources, steps, report)

    def remember(self, plan: Plan) -> None:
        """So that it can be shown; its bytes are not kept by this."""
        document = packed(plan.document(), map(described, plan.steps))
        self._records.save_plan(plan.id, plan.digest, time.time_ns(), document)

    def _tree(self) -> Snapshot:
        return snapshot(self._site.path, self._site.state.path)

    def _save_log(self, data: bytes) -> str:
        return Blobs(self._site.state).put(data)

    # ── the checks ──

    def _checked(
        self, simulated: Simulated, settings: Settings, asked: Understood, digest: str, kind: ShadowKind
    ) -> tuple[tuple[Receipt, ...], str]:
        with open_shadow(self._site, kind, settings.hidden) as shadow:
            shadow.put(simulated.change_set, simulated.seen, simulated.sources)
            return self._in_view(simulated, settings, asked, digest, shadow)

    def _in_view(
        self, simulated: Simulated, settings: Settings, asked: Understood, digest: str, shadow: Shadow
    ) -> tuple[tuple[Receipt, ...], str]:
        view: View = shadow.view
        home = toolchains(os.path.expanduser("~"))
        profile = profile_of(settings.limits)._replace(readable=home.readable)
        run = confined(view, profile)
        receipts = verify(
            (*simulated.plan.verify, *asked.commands),
            directory=self._site.path,
            tree_digest=digest,
            save_log=self._save_log,
            progress=lambda done, total, text: self._progress(f"verify: {text}", done, total),
            run=run,
            written=written_to(view),
        )
        if not (asked.levels or asked.everything or asked.files or settings.checks.run):
            return receipts, ""
        with tree_in(view) as tree:
            ground = Ground(tree, self._site.path, digest, run, self._save_log, home.env)
            touched = [change.path for change in simulated.change_set.changes]
            wanted = _wanted(asked, settings.checks)
            found = gather(
                ground, touched, wanted, lambda done, total, text: self._progress(f"verify: {text}", done, total)
            )
        return (*receipts, *found.receipts), found.unverified

    def _checked_with_less(
        self, simulated: Simulated, settings: Settings, asked: Understood, digest: str, error: SandboxUnavailable
    ) -> tuple[tuple[Receipt, ...], str]:
        """A copy where overlays are refused; no sandbox at all only where the user's own configuration says so."""
        try:
            return self._checked(simulated, settings, asked, digest, "copy")
        except SandboxUnavailable:
            if settings.unsandboxed != "allow":
                raise SandboxUnavailable(
                    f"the checks cannot be run: {error.message}",
                    hint="Nothing was changed. See what is missing: holdfast doctor. "
                    'To run commands unconfined, say in your own config.toml: [sandbox] without = "allow"',
                ) from error
        if asked.levels or asked.everything or asked.files or settings.checks.run:
            raise error
        with scratch_copy(self._site, simulated.change_set, simulated.sources) as directory:
            checks: tuple[CommandCheck, ...] = asked.commands
            return verify(
                (*simulated.plan.verify, *checks),
                directory=directory,
                tree_digest=digest,
                save_log=self._save_log,
                progress=lambda done, total, text: self._progress(f"verify: {text}", done, total),
            ), "the checks ran without a sandbox"


def profile_of(limits: ProgramLimits) -> Profile:
    """No network, nothing of the user's, and the limits that the configuration sets."""
    stated = {name: value for name, value in limits._asdict().items() if value is not None}
    return Profile(limits=Limits()._replace(**stated))


def _wanted(asked: Understood, checks: CheckSettings) -> Wanted:
    """What the words and the configuration want together; where both set a bound, the stricter one."""
    words = asked.criteria
    coverage = [bound for bound in (words.minimum_coverage, _hundredths(checks.coverage)) if bound is not None]
    wanted = Wanted(
        levels=asked.levels,
        expected=asked.files,
        commands=checks.run,
        criteria=words._replace(
            minimum_coverage=max(coverage, default=None),
            maximum_failures=min(words.maximum_failures, checks.failures or 0),
            required=(*words.required, *checks.required),
        ),
    )
    return wanted._replace(within_ms=checks.time_ms) if checks.time_ms is not None else wanted


def _hundredths(percent: int | None) -> int | None:
    return None if percent is None else percent * 100


def _asked(plan: Plan) -> Understood:
    asked = understood(plan.words)
    if asked.not_understood:
        first = asked.not_understood[0]
        raise InvalidInput(f"the verification {printable(first.text)!r} is not understood: {first.why}",
                           hint="Nothing was changed. Give a list of commands instead.")  # fmt: skip
    if asked.wants_health and not plan.health and not asked.health:
        raise InvalidInput("the verification asks for health checks, and the plan has none",
                           hint="Nothing was changed. Add them under health:")  # fmt: skip
    return asked


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
    plain = all(step.precondition_met and step.operation not in ("run", "service") for step in steps)
    if plain and len(steps) > _MANY:
        return FileReports(plan.steps, [step.detail for step in steps], lambda step: _affected(step, changes))
    return tuple(step_report(plan.steps[s.number], _performed(plan.steps[s.number], s, changes)) for s in steps)


def _performed(step: Step, report: StepReport, changes: ChangeSet) -> Performed:
    met: Precondition = "unmet"
    if report.precondition_met:
        met = "unknown" if isinstance(step, Service) else "met"
    return Performed(report.step_id, met, report.detail, report.affected or _affected(step, changes), report.receipt)


def _affected(step: Step, changes: ChangeSet) -> tuple[str, ...]:
    if isinstance(step, (Run, Service)):
        return ()
    if isinstance(step, Move):
        return step.path, step.to
    if isinstance(step, Delete) and step.recursive:
        return tuple(path for path in changes.paths if path == step.path or path.startswith(step.path + "/"))
    return (step.path,)
