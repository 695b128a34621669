"""The pipeline: the one place that knows the order of the stages.

    plan ─▶ simulate ─▶ verify (shadow) ─▶ decide ─▶ [people answer] ─▶ hard gates ─▶ execute ─▶ services ─▶ health
                                                        refused: recorded ◀──┘                        │
                                                                    settle ◀─ commit or roll back ◀───┘

Every verb that changes something takes the lock and recovers first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from holdfast.checks.health import check_health
from holdfast.checks.words import health_of
from holdfast.disk.lock import Lock
from holdfast.engine.actions import ServiceActions, actions_of, in_header, take_back_after_crash
from holdfast.engine.assent import Assent, counted, given_now, so_far
from holdfast.engine.at_stake import files_at_stake
from holdfast.engine.checking import ShadowKind, Verified
from holdfast.engine.governance import Custody, Governance
from holdfast.engine.job import Job, job_of
from holdfast.engine.recovered import in_header as record_in_header
from holdfast.engine.recovered import recovered_execution, why_unproven
from holdfast.engine.refusals import require_no_more_asked, told, unrecorded
from holdfast.engine.refusals import require_passed as require_passed
from holdfast.engine.results import Measured, Moves, plan_order, step_results
from holdfast.engine.saving import save_simulation, sweep_dossiers
from holdfast.engine.simulator import NOTHING_TO_LAND, Hire, Simulated, Simulator, landable_of
from holdfast.errors import Blocked, Conflict, HoldfastError, Interrupted, NeedsHuman, Tampering, UnknownId
from holdfast.execution.carry_out import CarryOut, hint_for_unproven
from holdfast.execution.services import Deed
from holdfast.gates.operations import removed_files
from holdfast.model.agent import Delegation
from holdfast.model.canonical import Json, whole_characters
from holdfast.model.changeset import images_digest
from holdfast.model.decision import Decision
from holdfast.model.execution import Execution, Receipt
from holdfast.model.plan import Plan
from holdfast.settlement.custody import Filed, file_papers
from holdfast.settlement.delegated import delegation_body
from holdfast.settlement.record import (
    KIND,
    Closing,
    NotPutAway,
    Outcome,
    catch_up,
    is_open,
    project_note,
    recorded,
    settle,
)
from holdfast.settlement.runs import project_run
from holdfast.simulation.rehearsal import Unrehearsable
from holdfast.store.blobs import Blobs
from holdfast.store.chain import Record
from holdfast.store.database import Records, Row
from holdfast.store.ledger import Ledger
from holdfast.store.transcripts import sweep_transcripts
from holdfast.workspace.branch_environment import bring_installed
from holdfast.workspace.collector import without_collector
from holdfast.workspace.recovery import (
    IsUnsettled,
    Unsettled,
    Waiting,
    accept_divergence,
    is_being_taken_back,
    recover,
    sweep,
)
from holdfast.workspace.shadow import sweep_shadows
from holdfast.workspace.site import Site
from holdfast.workspace.surroundings import Surroundings
from holdfast.workspace.texts import keep_texts, keep_texts_after_crash
from holdfast.workspace.transaction import Transaction, new_txn
from holdfast.workspace.tree import snapshot
from holdfast.workspace.undo import described_reads, stands_as_left

Progress = Callable[[str, int, int], None]
_VERIFY_TRIES = 3
_PATIENCE = 60.0


class Pipeline:
    """The stages over one workspace."""

    def __init__(
        self,
        site: Site,
        ledger: Ledger,
        records: Records,
        lock_path: str,
        wait: float,
        progress: Progress | None = None,
        login: str = "",
    ) -> None:
        self.site = site
        self.ledger = ledger
        self.records = records
        self._lock_path = lock_path
        self._wait = wait
        self.progress: Progress = progress or (lambda stage, done, total: None)
        self.recovered: Unsettled | None = None
        self.begun: list[str] = []  # the executions of this object, in their order; known before anything moves
        self.governance = Governance(site, ledger, login)
        self.simulator = Simulator(site, records, self.governance.settings, self.governance.most_bytes, self.progress)

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Alone in the workspace, with nothing left over from a crash, and over a ledger that is what was written.

        Whatever changes or records something passes here. Tampering where the ledger is broken: recovering and looking
        do without it, everything else waits until a person accepts the break (`engine.breaks`).
        """
        with Lock(self._lock_path, wait=max(self._wait, patience), calls=self.site.calls):
            self._recover()
            self.ledger.require_whole()
            yield

    @contextmanager
    def locked_over_broken_ledger(self) -> Iterator[None]:
        """For accepting a break: alone, with the workspace itself repaired."""
        with Lock(self._lock_path, wait=self._wait, calls=self.site.calls):
            try:
                self._recover()
            except Tampering as error:
                if self.ledger_is_whole():
                    raise error
            yield

    def ledger_is_whole(self) -> bool:
        try:
            self.ledger.require_whole()
        except Tampering:
            return False
        return True

    @without_collector
    def recover(self, *, accept: bool = False, patience: float = 0.0) -> Unsettled | None:
        """Finish or take back what a crash left; with `accept`, leave other people's changes as they stand."""
        self.recovered = None
        with Lock(self._lock_path, wait=max(self._wait, patience), calls=self.site.calls):
            if accept:
                self._finish(accept_divergence)
            self._recover()
        return self.recovered

    def already_done(self, plan: Plan, *, files_alone: bool = False) -> Row | None:
        """An execution of this very plan whose effect still stands, on every path that the plan names.

        With health checks, service actions or programs there is none: what was so then says nothing about now,
        and what a program makes depends on more than the paths that the plan names. With `files_alone` it is enough
        that all files stand as it left them.
        """
        if not files_alone and (health_of(plan) or plan.runs_programs or actions_of(plan)):
            return None
        for row in self.landed(plan.digest):
            if row.kept and self.stands(row, plan.affected_paths):
                return row
        return None

    def landed(self, plan_digest: str, *, live: bool = True) -> list[Row]:
        """The executions of this plan, newest first: rows find them, and the ledger has to know them so.

        Whoever can write the tables could otherwise have a plan or a task taken for done. Without `live` also those
        that were taken back since.
        """
        return [
            row
            for row in self.records.landed_with_plan(plan_digest)
            if (row.live or not live)
            and (entry := self.ledger.find(KIND, row.id)) is not None
            and entry.body["plan_digest"] == plan_digest
            and entry.body["status"] == row.status
        ]

    def stands(self, row: Row, paths: Iterable[str]) -> bool:
        """Whether its effect stands on these paths, by the log that the ledger vouches for."""
        entry = self.ledger.find(KIND, row.id)
        return entry is not None and stands_as_left(self.site, row.id, str(entry.body["root"]), row.at_ns, paths)

    def execute(self, job: Job, *, approved_by: str) -> Execution:
        """Carry the job out under the lock, without asking the gates. The execution tells how it ended."""
        with self.locked():
            return self._execute(job, given_now(approved_by), ())

    def bring_installed(self) -> None:
        """For the work tree of a branch: what is installed in the person's checkout, as it is there now."""
        if self.site.is_branch:
            bring_installed(self.site, self.governance.settings().hidden, lambda: self.locked(_PATIENCE))

    def simulate(self, plan: Plan, kind: ShadowKind = "auto", hire: Hire | None = None) -> Simulated:
        """What the plan would do. The report of one that cannot be done is kept and recorded here: nothing follows."""
        self.bring_installed()
        try:
            return self.simulator.simulate(plan, kind, hire)
        except Unrehearsable as error:
            if error.report is not None:
                save_simulation(self.site, plan, error.report, NOTHING_TO_LAND, {})
                self.file([error.report])
                error.hint += f"\nSee the report with: holdfast show {error.report.id}"
            raise

    def note_delegation(self, plan: Plan, delegation: Delegation) -> None:
        """What an agent claimed and what was measured, into the ledger."""
        about: dict[str, Json] = {"id": new_txn("g"), "subject": plan.id, "objective": plan.objective}
        self.note("delegation", {**about, **delegation_body(delegation)})

    def note(self, kind: str, body: dict[str, Json]) -> None:
        """An entry about the work of an agent. That was long: others are waited for."""
        with self.locked(_PATIENCE), told("the work of the agent cannot be recorded"):
            project_note(self.records, self.ledger.append(kind, body, time.time_ns()))

    def note_run(self, entries: list[Record]) -> None:
        """How a run and its tasks moved: durable with one sync, then in the tables."""
        with self.locked(_PATIENCE), told("the run cannot be recorded"):
            for entry in self.ledger.append_many(entries):
                project_run(self.records, entry)

    def decide(self, simulated: Simulated, verified: Verified, tree: str = "") -> Decision:
        """The write gate's decision, in the ledger together with the report it is about.

        Receipts of checks that are no longer the ones wanted prove nothing; neither do those for another tree than
        the predicted one, or than `tree`, which it would become where the workspace moved elsewhere since.
        """
        verified = self.simulator.checking.outdated(verified)
        with told("the change cannot be judged"):
            around = self.simulator.surroundings_of(simulated.report)
            removed = removed_files(simulated.change_set.changes)
            if len(removed) > self.governance.policy().scalars.limits.deletions_few:
                around = around._replace(files=files_at_stake(self.site, removed))
            judged = self.governance.judge(simulated, verified, around, tree)
        self.file([simulated.report, judged])
        return judged.decision

    def file(self, papers: list[Filed]) -> None:
        """Into the ledger, once each."""
        with self.locked(), told("the papers of this change cannot be recorded"):
            file_papers(self.ledger, self.records, papers, time.time_ns(), self.governance.me())

    def note_refusal(self, simulation: str, reason: str) -> None:
        with self.locked(), told("the refusal cannot be recorded"):
            body: dict[str, Json] = {"id": new_txn("r"), "simulation": simulation, "reason": whole_characters(reason)}
            entry = self.ledger.append("refusal", body, time.time_ns())
            self.records.mark_projected(entry.seq)

    def land(
        self, simulated: Simulated, verified: Verified, decision: Decision, *, approved_by: str, job: Job | None = None
    ) -> Execution:
        """All of it, if every gate is open; otherwise none of it, and the refusal is recorded.

        `job` is a way back that lands something again, and that `simulated` is the report of (see `redo`).

        When the tree moved elsewhere since the checks ran, or other checks are wanted now, they run again on what
        stands now; and what they show is judged again, since the decision stood on what they showed before.
        `approved_by` is who said yes in this call, where policy asks nobody; other answers are in the ledger.
        """
        for _ in range(_VERIFY_TRIES):
            with self.locked():
                if self._still_proves(verified, simulated):
                    return self._land(simulated, verified, decision, approved_by, job or job_of(simulated))
            try:
                verified = self.simulator.verify(simulated)
                require_passed(verified)
                decision = self._judged_again(simulated, verified, decision)
            except HoldfastError as error:
                return self.refused(simulated, verified, error, decision, approved_by)
        said = "the workspace keeps changing, so the checks never matched it"
        restless = Conflict(said, hint="Nothing was changed.")
        return self.refused(simulated, verified, restless, decision, approved_by)

    def _land(
        self, simulated: Simulated, verified: Verified, decision: Decision, approved_by: str, job: Job
    ) -> Execution:
        assert job.change_set.digest == simulated.change_set.digest, "what was judged is what lands"
        try:
            custody = self._custody_of(simulated.report.id)
            stands = self.governance.require_open_gates(simulated, decision, custody, self._tree)
        except HoldfastError as error:
            return self._refused(simulated, verified, error, decision, approved_by)
        counting = tuple(judged.id for judged in stands.judged if judged.counts)
        papers = job._replace(simulation=simulated.report.id, decision=decision.id, approvals=counting)
        return self._execute(papers, counted(decision, stands, custody.approvals, approved_by), verified.receipts)

    def _custody_of(self, simulation: str) -> Custody:
        """Blocked where the ledger has no report: that is a hard gate that fails, not an unknown id."""
        try:
            return self.governance.custody_of(simulation)
        except UnknownId as error:
            raise Blocked(f"there is no report of a simulation: {error.message}", hint=error.hint) from error

    def _still_proves(self, verified: Verified, simulated: Simulated) -> bool:
        """Receipts for another change set, for another tree, or of other checks prove nothing about this one."""
        checking = self.simulator.checking
        if not verified.receipts and not checking.wants_checks(simulated.plan):
            return True
        if (verified.change_set, verified.checks) != (simulated.change_set.digest, checking.settings_digest()):
            return False
        if not verified.receipts and verified.base_tree and checking.finds_none(simulated.plan, landable_of(simulated)):
            return True
        return verified.base_tree == self._tree()

    def _judged_again(self, simulated: Simulated, verified: Verified, decision: Decision) -> Decision:
        """The decision on what the checks show now; ApprovalNeeded where it asks what nobody was asked before."""
        again = self.decide(simulated, verified, verified.lands_as)
        require_no_more_asked(decision, again, simulated.plan.id)
        return again

    def refused(
        self, simulated: Simulated, verified: Verified, failure: HoldfastError, decision: Decision | None, said: str
    ) -> Execution:
        """A change that was tried and must not land is in the records too: ABORTED, with the reason."""
        with self.locked():
            return self._refused(simulated, verified, failure, decision, said)

    def _refused(
        self, simulated: Simulated, verified: Verified, failure: HoldfastError, decision: Decision | None, said: str
    ) -> Execution:
        job = job_of(simulated)
        if decision is not None:
            job = job._replace(simulation=simulated.report.id, decision=decision.id)
        assent = so_far(self.governance, decision, said)
        execution = replace(self._fresh(job, assent, verified.receipts), errors=(failure.message,))
        transaction = Transaction(self.site, execution.id, {})
        work = CarryOut(transaction, execution)
        work.abort()
        done = self._with_steps(job, work, transaction, ())
        self._failure = self._close(job, done, "", 0, "ABORTED") or failure
        return done

    @without_collector
    def _execute(self, job: Job, assent: Assent, receipts: tuple[Receipt, ...]) -> Execution:
        execution = self._fresh(job, assent, receipts)
        header = {**self._header(job, assent.by), **record_in_header(execution, job.steps)}
        transaction = Transaction(self.site, execution.id, header, self.progress, job.times)
        work, actions = CarryOut(transaction, execution), self._actions(job, execution.id)
        work.run(
            job.change_set,
            job.seen,
            job.sources,
            lambda: self._health(job, execution.after_digest),
            actions,
            plan_order(job.steps, job.change_set),
            Surroundings(self.site),
        )
        done = self._with_steps(job, work, transaction, actions.deeds if actions is not None else ())
        unrecorded = None
        if transaction.state == "COMMITTED":
            self._keep_texts(lambda: keep_texts(self.site, execution.id, transaction.ops, job.sources))
            unrecorded = self._close(job, done, transaction.root, len(transaction.ops), "COMMITTED")
        elif work.is_broken_off:
            # The next verb goes on from the disk; it learns here why, and what was measured.
            if done.status == "FAILED" and transaction.state != "COMMITTING":
                self._close(job, done, transaction.root, len(transaction.ops), "OPEN")
        elif transaction.state == "ABORTED":
            outcome: Outcome = "LEFT" if work.is_unproven else "ABORTED"
            unrecorded = self._close(job, done, transaction.root, len(transaction.ops), outcome)
        elif transaction.state == "OPEN":
            unrecorded = self._close(job, done, "", 0, "ABORTED")
        elif transaction.state != "COMMITTING":
            # It waits for a person. Whatever stops this entry, the journal knows more, and the failure says more.
            self._close(job, done, transaction.root, len(transaction.ops), "OPEN")
        self._failure = unrecorded or work.failure
        if work.interruption is not None:
            raise work.interruption
        return done

    def _with_steps(self, job: Job, work: CarryOut, transaction: Transaction, deeds: Sequence[Deed]) -> Execution:
        moves = Moves(transaction.times_ns, transaction.finished)
        measured = Measured(transaction.ops, moves, transaction.reads, work.found)
        return replace(work.execution, steps=step_results(job.steps, measured, work.execution, deeds))

    def raise_failure(self) -> None:
        """Raise what stopped the last execution, if anything did."""
        if self._failure is not None:
            raise self._failure

    _failure: Exception | None = None

    def _fresh(self, job: Job, assent: Assent, receipts: tuple[Receipt, ...]) -> Execution:
        changes = job.change_set.changes
        self.begun.append(new_txn())
        return Execution(
            id=self.begun[-1],
            intent=job.intent,
            plan_id=job.plan_id,
            plan_digest=job.plan_digest,
            change_set_digest=job.change_set.digest,
            base_digest=job.change_set.base,
            approved_by=assent.by,
            approved_at_ns=assent.at_ns,
            receipts=receipts,
            before_digest=images_digest((change.path, change.pre) for change in changes),
            after_digest=images_digest((change.path, change.post) for change in changes),
            changes=len(changes),
        )

    def _header(self, job: Job, approved_by: str) -> dict[str, Json]:
        return {
            "version": 1,
            "intent": whole_characters(job.intent),
            "plan_id": job.plan_id,
            "plan_digest": job.plan_digest,
            "change_set": job.change_set.digest,
            "base": job.change_set.base,
            "approved_by": whole_characters(approved_by),
            "undoes": list(job.undoes),
            "revives": list(job.revives),
            "simulation": job.simulation,
            "decision": job.decision,
            "approvals": list(job.approvals),
            **described_reads(job.change_set.reads),
            **in_header(job.services),
        }

    def _actions(self, job: Job, txn: str) -> ServiceActions | None:
        if not job.services:
            return None
        return ServiceActions(self.site, txn, job.services, job.on_failure, self.governance.settings())

    def _health(self, job: Job, tree_digest: str) -> tuple[Receipt, ...]:
        return check_health(
            job.health,
            directory=self.site.path,
            tree_digest=tree_digest,
            save_log=self._save_log,
            progress=lambda done, total, text: self.progress(f"health: {text}", done, total),
        )

    def _close(
        self, job: Job, execution: Execution, root: str, operations: int, outcome: Outcome
    ) -> HoldfastError | None:
        """Settle it; what stopped that is returned, because the execution is over and must be told first."""
        header = self._header(job, execution.approved_by)
        closing = Closing(execution.id, outcome, header, root, operations, (), execution)
        try:
            settle(self.site, self.ledger, self.records, closing)
        except (OSError, HoldfastError) as error:
            return unrecorded(error, execution, committed=outcome == "COMMITTED", is_open=bool(root))
        return None

    def _keep_texts(self, keep: Callable[[], None]) -> None:
        try:
            keep()
        except OSError:
            # The change is committed; a full disk now costs a later undo its merges, and nothing else (see contents).
            return

    def _recover(self) -> None:
        self._finish(recover)
        try:
            sweep(self.site)
            sweep_shadows(self.site)
            sweep_transcripts(self.site.state)
            sweep_dossiers(self.site)
        except OSError as error:
            if self.recovered is None or not self.recovered.rolled_back_now:
                raise
            said = f"{self.recovered.txn} is rolled back and recorded; what else was left over stays: {error}"
            raise Blocked(
                said, hint="Put right what stopped it; the next verb goes on with it.", changed=True
            ) from error

    def _finish(self, finish: Callable[[Site, IsUnsettled], Unsettled | None]) -> None:
        """Finish what is open and record it. Whatever stops that says truly whether files were moved on the way."""
        found = None
        try:
            found = finish(self.site, self._is_unsettled)
            # Rows lost in a power cut come back before a newer one is written, so that none is skipped for good.
            catch_up(self.site, self.ledger, self.records)
            if found is not None:
                self._settle_unsettled(self._without_services(found, accepted=finish is accept_divergence))
        except NeedsHuman as error:
            self._note_waiting(error, found)
            raise
        except HoldfastError as error:
            error.changed = error.changed or (found is not None and found.rolled_back_now)
            if found is not None and isinstance(error, Tampering):
                became = "had landed, and stands" if found.outcome == "COMMITTED" else "is rolled back"
                said = f"{found.txn} {became}; that is not recorded yet: {error.message}"
                raise Tampering(said, hint=error.hint, changed=error.changed) from error
            raise
        except OSError as error:
            if not (found.rolled_back_now if found is not None else is_being_taken_back(self.site)):
                raise
            raise Blocked(
                f"an unfinished change could not be taken back to its end: {error}",
                hint="Some files may be old already and some still new. Put right what stopped it, and run: "
                "holdfast recover",
                changed=True,
            ) from error
        except KeyboardInterrupt:
            if not is_being_taken_back(self.site):
                raise
            raise Interrupted(
                "Interrupted while an unfinished change was being taken back.",
                hint="Some files may be old already and some still new; the next verb goes on with it.",
                changed=True,
            ) from None

    def _note_waiting(self, error: NeedsHuman, found: Unsettled | None) -> None:
        """What waits for a person can be looked at, whoever found out that it does.

        Where that cannot be noted now, whoever settles it writes all of it; the person is needed in any case.
        """
        waiting = error.found if isinstance(error, Waiting) else found
        with suppress(HoldfastError, OSError):
            catch_up(self.site, self.ledger, self.records)
            if waiting is None or recorded(self.ledger, waiting.txn) is not None:
                return  # whoever began it said so
            waiting = waiting._replace(outcome="OPEN")
            execution = recovered_execution(self.site, waiting, None)
            if execution is not None and not isinstance(error, Waiting):
                execution = replace(execution, errors=(*execution.errors, error.message))
            about = waiting.header, waiting.root, waiting.operations, waiting.left
            settle(self.site, self.ledger, self.records, Closing(waiting.txn, "OPEN", *about, execution))

    def _is_unsettled(self, txn: str) -> bool:
        try:
            self.ledger.head()
            entry = self.ledger.find(KIND, txn)
            return entry is None or is_open(entry)
        except Tampering:
            return False

    def _without_services(self, found: Unsettled, *, accepted: bool) -> Unsettled:
        """What was begun outside the files before a crash goes; with `accepted`, what cannot is left as it stands."""

        def is_recorded() -> bool:
            entry = recorded(self.ledger, found.txn)
            return entry is not None and not is_open(entry)

        return take_back_after_crash(self.site, found, self.governance.settings, is_recorded, accepted=accepted)

    def _settle_unsettled(self, found: Unsettled) -> None:
        if found.outcome == "COMMITTED":
            self._keep_texts(lambda: keep_texts_after_crash(self.site, found.txn))
        entry = recorded(self.ledger, found.txn)
        execution = recovered_execution(self.site, found, entry)
        unproven = ""
        if execution is not None and (entry is None or is_open(entry)):
            unproven = why_unproven(execution, found)
            found = found._replace(outcome="LEFT") if unproven else found
        closing = Closing(
            found.txn,
            found.outcome,
            found.header,
            found.root,
            found.operations,
            found.left,
            execution,
            recovered=True,
        )
        try:
            settle(self.site, self.ledger, self.records, closing)
        except OSError as error:
            what = "its folder cannot be put away" if isinstance(error, NotPutAway) else "that cannot be recorded"
            raise Blocked(
                f"{found.txn} was repaired in the workspace, but {what}: {error}",
                hint="Free some space, or put right what is in the way, and run: holdfast recover",
            ) from error
        self.recovered = found._replace(proven=execution.proven) if execution is not None else found
        if unproven:
            said = f"{found.txn} was not finished; {unproven}"
            raise NeedsHuman(said, hint=hint_for_unproven(found.txn), changed=True)

    def _tree(self) -> str:
        return snapshot(self.site.path, self.site.state.path).digest

    def _save_log(self, data: bytes) -> str:
        return Blobs(self.site.state).put(data)
