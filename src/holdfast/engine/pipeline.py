"""The pipeline: the one place that knows the order of the stages.

    plan ─▶ rehearse ─▶ verify (scratch copy) ─▶ [a person says yes] ─▶ execute ─▶ health ─▶ commit ─▶ settle
                                                                            └── any failure ─▶ roll back ─▶ settle

Every verb that changes something takes the lock and recovers first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from holdfast.checks.health import check_health
from holdfast.checks.verify import verify
from holdfast.disk.lock import Lock
from holdfast.engine.results import step_results
from holdfast.errors import Blocked, Conflict, HoldfastError, VerificationFailed
from holdfast.execution.carry_out import CarryOut
from holdfast.model.canonical import Json
from holdfast.model.changeset import ChangeSet, images_digest
from holdfast.model.execution import Execution, Receipt
from holdfast.model.image import Seen
from holdfast.model.plan import HealthCheck, Plan, described
from holdfast.settlement.record import Closing, Outcome, catch_up, settle
from holdfast.simulation.rehearsal import Rehearsal, StepReport, rehearse
from holdfast.store.blobs import Blobs
from holdfast.store.contents import write_contents
from holdfast.store.database import Records, Row
from holdfast.store.documents import packed
from holdfast.store.ledger import Ledger
from holdfast.workspace.recovery import Unsettled, accept_divergence, recover, sweep
from holdfast.workspace.scratch import scratch_copy
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, Source
from holdfast.workspace.transaction import Transaction, new_txn
from holdfast.workspace.tree import snapshot
from holdfast.workspace.undo import stands_as_left

Progress = Callable[[str, int, int], None]
_VERIFY_TRIES = 3
_UNRECORDED = "Put right what stopped it; the next verb that changes something records it first."


class Verified(NamedTuple):
    """Receipts for one change set, and the tree of the workspace they stand on; they are stale when it moves."""

    receipts: tuple[Receipt, ...]
    base_tree: str
    change_set: str = ""


class Job(NamedTuple):
    """Everything one execution needs; made by a rehearsal or by an undo."""

    intent: str
    plan_id: str
    plan_digest: str
    change_set: ChangeSet
    seen: Mapping[str, Seen]
    sources: Mapping[str, Source]
    steps: tuple[StepReport, ...] = ()
    health: tuple[HealthCheck, ...] = ()
    undoes: tuple[str, ...] = ()
    revives: tuple[str, ...] = ()


def job_of(rehearsal: Rehearsal) -> Job:
    plan = rehearsal.plan
    return Job(
        plan.intent,
        plan.id,
        plan.digest,
        rehearsal.change_set,
        rehearsal.seen,
        rehearsal.sources,
        rehearsal.steps,
        plan.health,
    )


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
    ) -> None:
        self.site = site
        self.ledger = ledger
        self.records = records
        self._lock_path = lock_path
        self._wait = wait
        self.progress: Progress = progress or (lambda stage, done, total: None)
        self.recovered: Unsettled | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone in the workspace, with nothing left over from a crash."""
        with Lock(self._lock_path, wait=self._wait, calls=self.site.calls):
            self._recover()
            yield

    def recover(self, *, accept: bool = False, patience: float = 0.0) -> Unsettled | None:
        """Finish or take back what a crash left; with `accept`, leave other people's changes as they stand."""
        self.recovered = None
        with Lock(self._lock_path, wait=max(self._wait, patience), calls=self.site.calls):
            if accept:
                self._settle_unsettled(accept_divergence(self.site))
            self._recover()
        return self.recovered

    def rehearse(self, plan: Plan) -> Rehearsal:
        """What the plan would do, exactly; the plan is remembered, the workspace untouched."""
        rehearsal = rehearse(self.site, plan, self.progress)
        document = packed(plan.document(), map(described, plan.steps))
        self.records.save_plan(plan.id, plan.digest, time.time_ns(), document)
        return rehearsal

    def already_done(self, plan: Plan) -> Row | None:
        """An execution of this very plan whose effect still stands, path by path."""
        for row in self.records.live_with_plan(plan.digest):
            if row.kept and stands_as_left(self.site, row.id, row.at_ns):
                return row
        return None

    def verify(self, rehearsal: Rehearsal) -> Verified:
        """The plan's checks, run on a scratch copy with the change applied. Raises nothing for a failed check."""
        plan = rehearsal.plan
        if not plan.verify:
            return Verified((), "")
        base_tree = self._tree()
        self.progress("verify: in a scratch copy, which is being made", 0, len(plan.verify))
        with scratch_copy(self.site, rehearsal.change_set, rehearsal.sources) as directory:
            digest = snapshot(directory, None).digest
            receipts = verify(
                plan.verify,
                directory=directory,
                tree_digest=digest,
                save_log=self._save_log,
                progress=lambda done, total, text: self.progress(f"verify: {text}", done, total),
            )
        return Verified(receipts, base_tree, rehearsal.change_set.digest)

    def execute(self, job: Job, *, approved_by: str) -> Execution:
        """Carry the job out under the lock. The execution tells how it ended; see `raise_failure`."""
        with self.locked():
            return self._execute(job, approved_by, Verified((), ""))

    def execute_rehearsed(self, rehearsal: Rehearsal, *, approved_by: str, verified: Verified) -> Execution:
        """Like `execute`; when the tree moved elsewhere since the checks ran, they run again on what stands now."""
        for _ in range(_VERIFY_TRIES):
            with self.locked():
                if not rehearsal.plan.verify or self._still_proves(verified, rehearsal):
                    return self._execute(job_of(rehearsal), approved_by, verified)
            verified = self.verify(rehearsal)
            require_passed(verified)
        raise Conflict("the workspace keeps changing, so the checks never matched it", hint="Nothing was changed.")

    def _still_proves(self, verified: Verified, rehearsal: Rehearsal) -> bool:
        """Receipts for another change set, or for another tree, prove nothing about this one."""
        return verified.change_set == rehearsal.change_set.digest and verified.base_tree == self._tree()

    def record_refusal(self, job: Job, approved_by: str, receipts: tuple[Receipt, ...], reason: str) -> Execution:
        """A change that was tried and must not land is in the records too: ABORTED, with the reason."""
        with self.locked():
            execution = replace(self._fresh(job, approved_by, receipts), errors=(reason,))
            work = CarryOut(Transaction(self.site, execution.id, {}), execution)
            work.abort()
            self._close(job, work.execution, "", 0, "ABORTED", approved_by)
            return work.execution

    def _execute(self, job: Job, approved_by: str, verified: Verified) -> Execution:
        execution = self._fresh(job, approved_by, verified.receipts)
        header = self._header(job, approved_by)
        transaction = Transaction(self.site, execution.id, header, self.progress)
        work = CarryOut(transaction, execution)
        work.run(job.change_set, job.seen, job.sources, lambda: self._health(job, execution.after_digest))
        done = replace(work.execution, steps=step_results(job.steps, transaction, work.execution))
        self._failure = work.failure
        if transaction.state == "COMMITTED":
            self._keep_texts(execution.id, job)
            self._close(job, done, transaction.root, len(transaction.ops), "COMMITTED", approved_by)
        elif transaction.state == "ABORTED":
            self._close(job, done, transaction.root, len(transaction.ops), "ABORTED", approved_by)
        elif transaction.state == "OPEN":
            self._close(job, done, "", 0, "ABORTED", approved_by)
        return done

    def raise_failure(self) -> None:
        """Raise what stopped the last execution, if anything did."""
        if self._failure is not None:
            raise self._failure

    _failure: Exception | None = None

    def _fresh(self, job: Job, approved_by: str, receipts: tuple[Receipt, ...]) -> Execution:
        changes = job.change_set.changes
        return Execution(
            id=new_txn(),
            intent=job.intent,
            plan_id=job.plan_id,
            plan_digest=job.plan_digest,
            change_set_digest=job.change_set.digest,
            base_digest=job.change_set.base,
            approved_by=approved_by,
            approved_at_ns=time.time_ns(),
            receipts=receipts,
            before_digest=images_digest((change.path, change.pre) for change in changes),
            after_digest=images_digest((change.path, change.post) for change in changes),
            changes=len(changes),
        )

    def _header(self, job: Job, approved_by: str) -> dict[str, Json]:
        return {
            "version": 1,
            "intent": _whole_characters(job.intent),
            "plan_id": job.plan_id,
            "plan_digest": job.plan_digest,
            "change_set": job.change_set.digest,
            "base": job.change_set.base,
            "approved_by": _whole_characters(approved_by),
            "undoes": list(job.undoes),
            "revives": list(job.revives),
        }

    def _health(self, job: Job, tree_digest: str) -> tuple[Receipt, ...]:
        return check_health(
            job.health,
            directory=self.site.path,
            tree_digest=tree_digest,
            save_log=self._save_log,
            progress=lambda done, total, text: self.progress(f"health: {text}", done, total),
        )

    def _close(
        self, job: Job, execution: Execution, root: str, operations: int, outcome: Outcome, approved_by: str
    ) -> None:
        closing = Closing(execution.id, outcome, self._header(job, approved_by), root, operations, (), execution)
        committed = outcome == "COMMITTED"
        try:
            settle(self.site, self.ledger, self.records, closing)
        except (OSError, HoldfastError) as error:
            kind = type(error) if isinstance(error, HoldfastError) else HoldfastError if committed else Blocked
            reason = "" if committed else f"{execution.errors[0]}; " if execution.errors else ""
            what = "the change was applied" if committed else "nothing was changed"
            said = f"{reason}{what}, but it is not recorded: {error}"
            raise kind(said, hint=_UNRECORDED if root else "", changed=committed) from error

    def _keep_texts(self, txn: str, job: Job) -> None:
        changes = {change.path: change.post for change in job.change_set.changes}
        items = (
            (post.digest, source.data)
            for path, source in job.sources.items()
            if isinstance(source, Bytes) and (post := changes.get(path)) is not None and post.kind == "file"
        )
        try:
            write_contents(self.site.calls, self.site.state.directory(f"journal/{txn}"), items)
        except OSError:
            # The change is committed; a full disk now costs a later undo its merges, and nothing else (see contents).
            return

    def _recover(self) -> None:
        found = recover(self.site)
        # Rows lost in a power cut come back before a newer one is written, so that none is skipped for good.
        catch_up(self.ledger, self.records)
        self._settle_unsettled(found)
        sweep(self.site)

    def _settle_unsettled(self, found: Unsettled | None) -> None:
        if found is None:
            return
        closing = Closing(
            found.txn,
            found.outcome,
            found.header,
            found.root,
            found.operations,
            found.left,
            None,
        )
        try:
            settle(self.site, self.ledger, self.records, closing)
        except OSError as error:
            raise Blocked(
                f"{found.txn} was repaired in the workspace, but that cannot be recorded: {error}",
                hint="Free some space, or put right what is in the way, and run: holdfast recover",
            ) from error
        self.recovered = found

    def _tree(self) -> str:
        return snapshot(self.site.path, self.site.state.path).digest

    def _save_log(self, data: bytes) -> str:
        return Blobs(self.site.state).put(data)


def _whole_characters(text: str) -> str:
    """Half characters have no canonical form, and a record must not fail after the change was made."""
    return "".join("\ufffd" if "\ud800" <= ch <= "\udbff" else ch for ch in text)


def require_passed(verified: Verified) -> None:
    """VerificationFailed naming what failed; nothing was applied."""
    failed = [receipt for receipt in verified.receipts if not receipt.passed]
    if failed:
        raise VerificationFailed(
            "\n".join(receipt.detail for receipt in failed),
            hint="The checks ran on a scratch copy. Nothing was changed.",
        )
