"""The object users hold: `holdfast.open(".")`.

    hf = holdfast.open(".")
    simulated = hf.simulate(hf.plan("change.yaml"))     # exactly what would happen; nothing has
    decision = hf.evaluate(simulated)                   # what policy says to it
    approval = hf.approve(decision, by="reviewer")      # only where decision.verdict asks for one
    execution = hf.execute(simulated, approval)         # all of it, or none of it
    hf.undo(execution.id, approved_by="me")

Verbs that only look must start fast, so the parts that change things are imported when one of them is asked for.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.errors import ApprovalNeeded, HoldfastError, InvalidInput, UnknownId, VerificationFailed
from holdfast.model.canonical import Json
from holdfast.model.path import person_name, printable
from holdfast.store.database import Records, Row
from holdfast.store.ledger import Ledger
from holdfast.wiring.login import user
from holdfast.wiring.unfinished import is_unfinished
from holdfast.workspace.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from holdfast.agents.protocol import Agent, Person, Watcher
    from holdfast.engine.branch_gc import KeptTree
    from holdfast.engine.breaks import Break
    from holdfast.engine.changes import Changes
    from holdfast.engine.checking import ShadowKind, Verified
    from holdfast.engine.difference import Difference
    from holdfast.engine.fixing import Broken, Fix
    from holdfast.engine.history import Return
    from holdfast.engine.job import Job
    from holdfast.engine.patching import Patches
    from holdfast.engine.patterns import PatternExecutor
    from holdfast.engine.pipeline import Pipeline, Progress
    from holdfast.engine.roadmap_runs import RoadmapRuns
    from holdfast.engine.router import Choice
    from holdfast.engine.run_following import Followed
    from holdfast.engine.simulator import Simulated
    from holdfast.engine.spawner import ProcessSpawner
    from holdfast.engine.tracing import Trace
    from holdfast.model.approval import Approval
    from holdfast.model.decision import Decision
    from holdfast.model.execution import Divergence, Execution
    from holdfast.model.plan import Plan
    from holdfast.model.run import RunWatcher
    from holdfast.model.simulation import Simulation
    from holdfast.planning.words import Understood
    from holdfast.store.audit import Verification
    from holdfast.store.log_tables import DelegationRow
    from holdfast.workspace.keeping import Reclaimed
    from holdfast.workspace.recovery import Unsettled
    from holdfast.workspace.tree import Snapshot

# One that is being written to is caught up with in the second.
_LOOKS_AT_TABLES = 3
_WHO = 'Nothing was changed. Say who approves it: approved_by="…"'
_KEEP = "Nothing was changed. Keep it, so that others can approve it: hf.keep(simulated, verified)"


class Holdfast:
    """A workspace under guard."""

    def __init__(
        self, site: Site, ledger: Ledger, records: Records, id: str, wait: float, progress: Progress | None
    ) -> None:
        self.site = site
        self.ledger = ledger
        self.records = records
        self.path = site.path
        self.id = id
        self.lock_path = os.path.join(site.state.path, "lock")
        self.last: Execution | None = None  # what the newest call of `execute` or `go_back` came to, also if it raised
        self._wait = wait
        self._progress = progress
        self._pipeline: Pipeline | None = None
        self._patches: Patches | None = None
        self._runs: RoadmapRuns | None = None

    @property
    def pipeline(self) -> Pipeline:
        if self._pipeline is None:
            from holdfast.engine.pipeline import Pipeline

            self._pipeline = Pipeline(
                self.site, self.ledger, self.records, self.lock_path, self._wait, self._progress, user()
            )
        return self._pipeline

    @property
    def begun(self) -> tuple[str, ...]:
        """The executions that were begun through this object, however they ended."""
        return tuple(self._pipeline.begun) if self._pipeline is not None else ()

    @property
    def patches(self) -> Patches:
        """The patches sent here: where each stands, and what a person decides about one."""
        if self._patches is None:
            from holdfast.engine.patching import Patches

            self._patches = Patches(self.pipeline)
        return self._patches

    @property
    def spawner(self) -> ProcessSpawner:
        """Starts programs and agents in a sandboxed shadow, and says what came of it; nothing lands."""
        from holdfast.engine.spawner import ProcessSpawner

        return ProcessSpawner(self.pipeline)

    def pattern(self, id: str) -> PatternExecutor:
        """A pattern by its id: its JSON schema, the errors of inputs, and the plan it makes of them."""
        from holdfast.engine.patterns import PatternExecutor, find_pattern

        return PatternExecutor(self.site, find_pattern(self.site, id))

    @property
    def runs(self) -> RoadmapRuns:
        """Roadmaps driven to done by agents."""
        if self._runs is None:
            from holdfast.engine.roadmap_runs import RoadmapRuns
            from holdfast.wiring.opening import pipeline_at, say

            self._runs = RoadmapRuns(self.pipeline, self.id, pipeline_at, say)
        return self._runs

    def on(self, event: str, function: RunWatcher) -> None:
        """Call the function at each such event of a run ("*": at all of them); see `model.run.EVENTS`."""
        self.runs.listeners.on(event, function)

    def me(self) -> str:
        """The name this user answers under; the login where no configuration can be read: an undo needs none."""
        try:
            return self.pipeline.governance.me()
        except HoldfastError:
            return user()

    # ── change ──

    def plan(self, path: str) -> Plan:
        """Read a change file ("-" is standard input)."""
        from holdfast.engine.change_files import read_plan

        return read_plan(self.site, self.pipeline.governance.settings, path)

    def understand(self, words: str) -> Understood:
        """What plain words ask for: a plan where they have one meaning, and otherwise what is missing."""
        from holdfast.engine.asking import understand

        return understand(self.site, words)

    def task(
        self, words: str, *, agent: str, expected: tuple[str, ...] = (), attempts: int = 3, within_ms: int = 1_200_000
    ) -> Plan:
        """A plan that gives these words to an agent as its task; the files they ask for are expected."""
        from holdfast.engine.asking import task_plan

        return task_plan(words, agent, expected, attempts, within_ms)

    def route(self, task: str) -> Choice:
        """Which agent should get a task, with the reasons; Blocked when none can."""
        from holdfast.engine.hiring import routed

        return routed(self.pipeline, task)

    def broken(self) -> Broken | None:
        """The first check of the workspace as it is that fails; Blocked where no check could run."""
        from holdfast.engine.fixing import Broken, find_broken

        found = find_broken(self.pipeline)
        return found if isinstance(found, Broken) else None

    def fix(
        self,
        broken: Broken,
        *,
        agent: str,
        attempts: int = 3,
        within_ms: int = 1_200_000,
        shadow: ShadowKind = "auto",
        agents: Mapping[str, Agent] | None = None,
        watcher: Watcher | None = None,
        person: Person | None = None,
    ) -> Fix:
        """Have an agent repair it in a shadow; its work is measured, recorded and not yet landed."""
        from holdfast.engine.fixing import Crew, Order, fix

        order = Order(agent, attempts, within_ms, shadow)
        return fix(self.pipeline, self.patches, broken, order, Crew(agents or {}, watcher, person))

    def keep_plan(self, plan: Plan) -> None:
        """With all its bytes, so that another command can simulate it by its id."""
        from holdfast.engine.saving import save_plan

        self.pipeline.simulator.remember(plan)
        save_plan(self.site, plan)

    def kept_plan(self, id: str) -> Plan:
        from holdfast.engine.saving import load_plan

        return load_plan(self.site, self.resolve(id))

    def already_done(self, plan: Plan, *, files_alone: bool = False) -> Row | None:
        """The execution that did this very plan, when its effect still stands; health is about now, and asked again."""
        return self.pipeline.already_done(plan, files_alone=files_alone)

    def simulate(
        self,
        plan: Plan,
        *,
        shadow: ShadowKind = "auto",
        agents: Mapping[str, Agent] | None = None,
        watcher: Watcher | None = None,
        person: Person | None = None,
    ) -> Simulated:
        """Try the plan; exactly what would happen, with a report. Nothing in the workspace is touched.

        Agent steps are given to the agents of the configuration, or to those in `agents`; `watcher` sees them work,
        and `person` does what is given to the agent `manual`, in a copy.
        """
        if not plan.agent:
            return self.pipeline.simulate(plan, shadow)
        from holdfast.engine.hiring import hire

        kind: ShadowKind = "copy" if plan.agent == "manual" and shadow == "auto" else shadow
        return self.pipeline.simulate(plan, kind, hire(self.pipeline, agents or {}, watcher, person))

    def verify(self, simulated: Simulated) -> Verified:
        """Run the checks over what would land, in a shadow; look at the receipts."""
        return self.pipeline.simulator.verify(simulated)

    def evaluate(self, simulated: Simulated, verified: Verified | None = None) -> Decision:
        """The write gate's decision; it is in the ledger when this returns."""
        return self.pipeline.decide(simulated, verified if verified is not None else self.verify(simulated))

    def approve(self, decision: Decision, *, by: str = "", reason: str = "") -> Approval:
        """This user's signed yes to exactly what was decided on: one use, and not for long."""
        return self._answered(self.pipeline.governance.approve(decision, by=by, reason=reason))

    def reject(self, what: Decision | Simulation, *, by: str = "", reason: str = "") -> Approval:
        """This user's signed no, to a decision or to a simulation: that one cannot land any more."""
        return self._answered(self.pipeline.governance.refuse(what, by=by, reason=reason))

    def _answered(self, approval: Approval) -> Approval:
        self.pipeline.file([approval])
        return approval

    def execute(
        self,
        simulated: Simulated,
        approval: Approval | None = None,
        *,
        approved_by: str = "",
        consent: str = "",
        verified: Verified | None = None,
        decision: Decision | None = None,
        way: Return | None = None,
    ) -> Execution:
        """All of it, or none of it; raises what stopped it. Checks and decision that are missing come first.

        `approved_by` gives that person's approval in this call, signed with this user's key, where one is needed;
        from risk high on only together with `consent`, the plan's id, as a person would have to type it.
        `way` is the way back that `again` made the simulation of.
        """
        from holdfast.engine.job import job_of
        from holdfast.engine.refusals import require_passed, require_typed
        from holdfast.engine.resuming import is_kept

        approved_by = person_name(approved_by or "")
        proof = verified if verified is not None else self.verify(simulated)
        judged = decision
        try:
            require_passed(proof)
            judged = judged if judged is not None else self.evaluate(simulated, proof)
            if judged.verdict == "NEED_APPROVAL" and approval is None and approved_by:
                require_typed(judged, simulated.plan, consent)
                self.approve(judged, by=approved_by)
        except (VerificationFailed, ApprovalNeeded) as error:
            self.last = self.pipeline.refused(simulated, proof, error, judged, approved_by)
            raise
        job = way and way.job
        self._require_committable(job or job_of(simulated))
        self.last = self.pipeline.land(simulated, proof, judged, approved_by=approved_by, job=job)
        try:
            self.pipeline.raise_failure()
        except ApprovalNeeded as error:
            if decision is None and not is_kept(self.site, simulated.report.id):  # no command knows this simulation
                error.hint = _WHO if not approved_by else _KEEP if way is None else error.hint
            raise
        self._commit_on_branch(landed=True)
        return self.last

    def keep(self, simulated: Simulated, verified: Verified) -> Simulated:
        """Keep a simulation for other commands and other people; its report now holds the receipts too."""
        from holdfast.engine.resuming import kept_with

        kept = kept_with(self.site, simulated, verified)
        self.pipeline.file([kept.report])
        return kept

    def kept(self, id: str, *, gated: bool = False) -> tuple[Simulated, Verified]:
        """A kept simulation on the workspace as it is now; Conflict when that moved, Tampering when it was edited.

        With `gated` the hard gates are asked next, and say themselves what does not belong together.
        """
        from holdfast.engine.resuming import resumed

        return resumed(self.site, self.resolve(id), gated=gated)

    def note_refusal(self, id: str, error: HoldfastError) -> None:
        """A kept simulation that is not even fit to be asked about: the ledger says so."""
        self.pipeline.note_refusal(id, error.message)

    def transaction(self, intent: str, *, approved_by: str = "", consent: str = "") -> Changes:
        """Collect small changes in a `with` block; they land together when it ends without an exception.

        Where policy asks, `approved_by` says who approves it; from risk high on `consent`, the plan's id, belongs to
        it, which the refusal tells. Without them ApprovalNeeded: nobody's consent is assumed.
        """
        from holdfast.engine.changes import Changes

        return Changes(intent, lambda plan: self.execute(self.simulate(plan), approved_by=approved_by, consent=consent))

    # ── go back ──

    def preview_undo(self, id: str) -> Return:
        from holdfast.engine.history import undo_of

        return undo_of(self.pipeline, self.resolve(id))

    def preview_restore(self, at_ns: int) -> Return:
        from holdfast.engine.history import restore_to

        return restore_to(self.pipeline, at_ns)

    def again(self, way: Return) -> Simulated:
        """What a way back that revives something would do, to be checked and judged like any change."""
        from holdfast.engine.redo import landing_again

        return landing_again(self.pipeline, way.job)

    def go_back(self, way: Return, *, approved_by: str, consent: str = "") -> Execution:
        """Carry out a previewed undo or restore. One that revives something is judged, as `execute` does.

        It takes a person's consent in any case, since no policy is asked about what goes.
        """
        approved_by = person_name(approved_by or "")
        if not approved_by:
            raise ApprovalNeeded("going back needs somebody's consent", hint=_WHO)
        if way.job.revives:
            return self.execute(self.again(way), approved_by=approved_by, consent=consent, way=way)
        self._require_committable(way.job)
        self.last = self.pipeline.execute(way.job, approved_by=approved_by)
        self.pipeline.raise_failure()
        self._commit_on_branch(landed=True)
        return self.last

    def taking_back(self, way: Return) -> AbstractContextManager[Callable[[str], Followed] | None]:
        """No run can begin meanwhile whose tasks landed what goes; what is given, if anything, has them follow."""
        from holdfast.store.runs import Runs

        if not Runs(self.records).exist():
            return nullcontext()
        return self.runs.taking_back(way.job.undoes, way.job.revives)

    def undo(self, id: str, *, approved_by: str = "", consent: str = "") -> Execution:
        """Take an execution back; ApprovalNeeded unless `approved_by` says who wants it.

        `consent` is for one that revives something of a high risk, as in `execute`; the refusal tells what to say.
        A task that landed it is to do again, unticked and committed so.
        """
        return self._taken_back(self.preview_undo(id), approved_by, consent)

    def restore(self, at_ns: int, *, approved_by: str = "", consent: str = "") -> Execution:
        """The same for everything that landed since."""
        return self._taken_back(self.preview_restore(at_ns), approved_by, consent)

    def _taken_back(self, way: Return, approved_by: str, consent: str) -> Execution:
        with self.taking_back(way) as follow:
            execution = self.go_back(way, approved_by=approved_by, consent=consent)
            if follow is not None:
                follow(execution.id)
        return execution

    def recover(self, *, accept: bool = False, patience: float = 0.0) -> Unsettled | None:
        found = self.pipeline.recover(accept=accept, patience=patience)
        self._commit_on_branch()
        return found

    def _require_committable(self, job: Job) -> None:
        if self.site.is_branch:
            from holdfast.engine.branch_commits import require_committable

            require_committable(self.pipeline, job.change_set.changes, bool(job.services))

    def _commit_on_branch(self, *, landed: bool = False) -> None:
        """What landed on a branch is a commit, and what takes back a branch that was brought in is one; also where
        somebody was killed in between."""
        if not self.site.is_branch and not self.records.executions(limit=1, search="Land the branch "):
            return
        from holdfast.engine.branch_commits import commit_rest
        from holdfast.engine.branch_landing import follow_undone

        try:
            (commit_rest if self.site.is_branch else follow_undone)(self.pipeline)
        except HoldfastError as error:
            error.message = f"what landed is not committed: {error.message}"
            error.hint = error.hint or "The next verb that changes something commits it."
            error.changed = error.changed or landed
            raise

    def gc(self, *, keep_days: int = 30) -> Reclaimed:
        from holdfast.engine.history import collect

        return collect(self.pipeline, keep_ns=keep_days * 86_400 * 10**9, now_ns=time.time_ns())

    # ── on a branch ──

    def branch(
        self, name: str, *, begin: bool = False, wait: float = 0.0, progress: Progress | None = None
    ) -> Holdfast:
        """The workspace of a branch, in a work tree that is kept below the state of this one; close it when done.

        `begin` makes it where there is none: from what is checked out, or from the branch's own tip. What lands there
        is committed there; nothing of this work tree, its index or what is checked out is touched.
        """
        from holdfast.wiring.opening import open_branch

        return open_branch(self, name, begin=begin, wait=wait, progress=progress)

    def branches(self) -> list[str]:
        """The branches that were begun here; none where the repository cannot be read."""
        from holdfast.workspace.branches import kept_branches

        try:
            return list(kept_branches(self.site.state.path))
        except HoldfastError:
            return []

    def branch_trees(self) -> list[KeptTree]:
        """The work trees of branches that are kept here, each with why it must stay, if it must."""
        from holdfast.engine.branch_gc import kept_trees
        from holdfast.wiring.opening import pipeline_at

        return kept_trees(self.pipeline, pipeline_at)

    def clear_branch_tree(self, folder: str) -> KeptTree:
        """Take one away with the history of that branch, if nothing is in it that would be lost; the branch stays."""
        from holdfast.engine.branch_gc import clear_tree
        from holdfast.wiring.opening import pipeline_at

        return clear_tree(self.pipeline, folder, pipeline_at)

    # ── look ──

    def log(self, *, limit: int = 50, search: str = "") -> list[Row]:
        return self.records.executions(limit=limit, search=search)

    def failed_delegations(self, *, limit: int = 50, search: str = "") -> list[DelegationRow]:
        """The work of agents that led to nothing, newest first; an execution that came later has its own row."""
        from holdfast.store.log_tables import LogTables

        return LogTables(self.records).failed_delegations(limit=limit, search=search)

    def resolve(self, prefix: str) -> str:
        return self.records.resolve(prefix)

    def show(self, id: str) -> tuple[Row, dict[str, Json] | None]:
        """An execution as it stands, and its result with its lineage where the table has it."""
        row, document = self.records.execution(self.resolve(id))
        if document is None:
            return row, None
        return row, {**document, "lineage": self.lineage(row), "unverified": self.unverified(row.at_ns).get(row.id, "")}

    def unverified(self, *moments: int) -> dict[str, str]:
        """By id, since the first of these moments: why no check says that what an execution of a run landed works."""
        from holdfast.store.log_tables import LogTables

        return LogTables(self.records).landed_unverified(min(moments)) if moments else {}

    def lineage(self, row: Row) -> dict[str, Json]:
        """What an execution belongs to, from the tables alone; `trace` has all of it."""
        from holdfast.engine.tracing import parent_of, trigger_kind
        from holdfast.store.log_tables import LogTables

        first, seen = row, {row.id}
        while (parent := parent_of(first.summary)) and parent not in seen:
            try:
                first = self.records.row(parent)
            except UnknownId:
                break
            seen.add(parent)
        events = LogTables(self.records)
        run = events.run_that_landed(row.id, row.at_ns)
        return {
            "correlation_id": events.run_that_landed(first.id, first.at_ns) or first.plan_id,
            "parent_execution": parent_of(row.summary) or None,
            "trigger_kind": trigger_kind(row.summary, run),
            "run_id": run or None,
        }

    def trace(self, id: str) -> Trace:
        """The chain of custody around any id, a unique beginning of one, or a task's number in the newest run."""
        from holdfast.engine.tracing import Trace, lineage, trace

        found = self.named(id)
        return Trace(found, trace(self.ledger, found), lineage(self.ledger, found))

    def named(self, id: str) -> str:
        """The whole id of anything that has one: what the tables know, and what only the ledger does."""
        from holdfast.engine.tracing import ids_without_paper

        if id == self.id:
            raise InvalidInput(f"{id} is this workspace", hint="See how it stands: holdfast status")
        known = ids_without_paper(self.ledger)
        return id if id in known else self._traced(id, known)

    def _traced(self, id: str, others: Collection[str]) -> str:
        try:
            return self.resolve(id)
        except UnknownId as error:
            begun = sorted(other for other in others if other.startswith(id)) if id else []
            if len(begun) > 1:
                raise UnknownId(f"{printable(id)} could be {', '.join(begun[:5])}", hint=error.hint) from None
            if begun:
                return begun[0]
            if "could be" not in error.message:
                if others:
                    with suppress(HoldfastError):
                        return self.runs.resolve(id, "")
                if landed := self._landed_in(id):
                    return landed
            raise

    def _landed_in(self, commit: str) -> str:
        """The execution whose commit this is, by its id or the beginning that runs print; empty for none that is
        known here: a trailer alone proves nothing."""
        from holdfast.workspace.githistory import execution_of
        from holdfast.workspace.repository import Repository

        with suppress(HoldfastError):
            repository = Repository.at(self.path, self.site.calls)
            return self.records.row(execution_of(repository, commit)).id if repository is not None else ""
        return ""

    def difference(self, id: str) -> Difference:
        """What an execution changed, with the bytes of both sides as far as they are still kept."""
        from holdfast.engine.difference import past_difference
        from holdfast.settlement.record import KIND

        found = self.resolve(id)
        entry = self.ledger.find(KIND, found)
        return past_difference(self.site, found, str(entry.body["root"]) if entry is not None else "")

    def audit(self) -> Verification:
        return self.ledger.verify()

    def rows_unlike_the_ledger(self) -> list[str]:
        """Rows of the tables that somebody edited, took away or put in, as table and id. The ledger must be whole.

        The tables are made a second time, in memory, from the ledger alone. While somebody else is at work, the tables
        may be behind. Ahead they are only for the moment between two looks, or where an older ledger was put back."""
        from holdfast.settlement.record import catch_up

        def fill(made: Records) -> None:
            catch_up(self.site, self.ledger, made)

        for _ in range(_LOOKS_AT_TABLES):
            made = Records(self.site.state.path, refill=fill, in_memory=True)
            try:
                ahead = self.records.projected - made.projected
                rows = self.records.unlike(made) if ahead >= 0 else []
            finally:
                made.close()
            if ahead <= 0:
                break
        return rows

    def require_whole_ledger(self) -> None:
        """Tampering where the ledger is broken; everything that changes something asks this itself."""
        self.ledger.require_whole()

    def find_break(self) -> Break | None:
        """What is wrong with the ledger, and what can still be proven; None where it is whole."""
        from holdfast.engine.breaks import find_break

        return find_break(self.pipeline)

    def accept_break(self, id: str) -> Break:
        """Go on with a new ledger of what is proven; the id says which break is meant, as `find_break` showed it."""
        from holdfast.engine.breaks import accept_break

        return accept_break(self.pipeline, id, self.me())

    def needs_recovery(self) -> bool:
        """Is something unfinished: after a crash, or because somebody is at work right now? A few small reads."""
        return is_unfinished(self.site, self.ledger, self.records)

    def open_divergence(self) -> tuple[Divergence, ...]:
        """What an interrupted rollback left for a person to decide."""
        from holdfast.workspace.recovery import open_divergence

        return open_divergence(self.site)

    def tree(self) -> Snapshot:
        from holdfast.workspace.tree import snapshot

        return snapshot(self.path, self.site.state.path)

    def close(self) -> None:
        self.records.close()
        self.site.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
