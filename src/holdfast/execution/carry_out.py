"""Carry out one change set: prepare, apply, verify, health, then commit or roll back.

The status is advanced before each phase begins, and each terminal status is entered only when it is true:
ABORTED before anything moved, ROLLED_BACK after the rollback was measured, COMPLETED after the commit sector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.errors import Conflict, HoldfastError, NeedsHuman, VerificationFailed
from holdfast.model.changeset import Change, ChangeSet, images_digest
from holdfast.model.execution import Divergence, Execution, Receipt, Status, advanced
from holdfast.model.image import Seen
from holdfast.workspace.flip import Diverged
from holdfast.workspace.staging import Source
from holdfast.workspace.transaction import Transaction

HealthChecks = Callable[[], tuple[Receipt, ...]]


class CarryOut:
    """One execution on its way; `execution` is true at every moment, `failure` is what to raise at the end."""

    def __init__(self, transaction: Transaction, execution: Execution) -> None:
        self._transaction = transaction
        self.execution = advanced(execution, "PENDING", time.time_ns())
        self.failure: HoldfastError | None = None
        self._changes: tuple[Change, ...] = ()

    def run(
        self,
        change_set: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        health: HealthChecks,
    ) -> Execution:
        """To a terminal status; never raises a HoldfastError, but keeps it in `failure`."""
        self._changes = change_set.changes
        try:
            self._advance("VALIDATING")
            self._advance("BACKING_UP")
            self._transaction.prepare(change_set, seen, sources)
            self._advance("APPLYING")
            self._transaction.apply()
            self._advance("VERIFYING")
            self._transaction.verify()
            self._advance("HEALTH_CHECKING")
            self._check_health(health)
            self._transaction.commit()
        except HoldfastError as error:
            self._fail(error)
        except OSError as error:
            self._fail_on(error)
        except BaseException:
            # Ctrl-C and the like: leave no half-applied tree behind, then let it through.
            # While the commit sector is being written there is nothing to take back: the next verb asks the disk.
            self._take_back()
            raise
        else:
            self._advance("COMPLETED")
        return self.execution

    def abort(self) -> None:
        """Nothing was even prepared."""
        self._advance("ABORTED")

    def _advance(self, status: Status) -> None:
        self.execution = advanced(self.execution, status, time.time_ns())

    def _check_health(self, health: HealthChecks) -> None:
        try:
            receipts = health()
        except OSError as error:
            # A full disk, a missing directory: not known to be healthy is not healthy.
            raise VerificationFailed(f"the health checks could not be run: {error}") from error
        self.execution = replace(self.execution, receipts=(*self.execution.receipts, *receipts))
        failed = [receipt for receipt in receipts if not receipt.passed]
        if failed:
            raise VerificationFailed("; ".join(receipt.detail for receipt in failed))
        if receipts:
            # Health may take long; what was verified before must still stand when it is committed.
            self._transaction.verify()

    def _fail(self, error: HoldfastError) -> None:
        self.execution = replace(self.execution, errors=(*self.execution.errors, error.message))
        if isinstance(error, Diverged):
            seen = Divergence(error.path, error.detail)
            self.execution = replace(self.execution, divergence=(*self.execution.divergence, seen))
        self.failure = error
        self._take_back()
        self._conclude(error)

    def _fail_on(self, error: OSError) -> None:
        """Only the commit sector leaves things open: whatever failed earlier, the transaction rolled back itself."""
        self.execution = replace(self.execution, errors=(*self.execution.errors, str(error)))
        if self._transaction.state == "ABORTED":
            self.failure = VerificationFailed(f"{error}; everything was rolled back")
            self._conclude(self.failure)
            return
        self.failure = NeedsHuman(
            f"the commit could not be confirmed: {error}",
            hint="The outcome is in doubt until the next verb, which decides it from the disk.",
            changed=True,
        )
        self._advance("FAILED")

    def _take_back(self) -> None:
        if self._transaction.state not in ("PREPARED", "APPLIED", "VERIFIED"):
            return
        try:
            outcome = self._transaction.roll_back()
        except OSError as error:
            moved = self.execution.status != "BACKING_UP"
            self.failure = NeedsHuman(f"rolling back could not finish: {error}", changed=moved)
            return
        if outcome.divergence:
            self.execution = replace(self.execution, divergence=(*self.execution.divergence, *outcome.divergence))
            self.failure = NeedsHuman("some files were changed by somebody else and were left alone", changed=True)

    def _measure(self) -> None:
        """Read every path again and compare: `ROLLED_BACK` is a measurement, not a hope.

        Paths that never moved and hold somebody else's change are divergence; the proof is over all others.
        """
        apart = self._transaction.untouched
        changes = [change for change in self._changes if change.path not in apart]
        now = [(change.path, self._transaction.image_now(change.path)) for change in changes]
        different = [path for (path, image), change in zip(now, changes, strict=True) if image != change.pre]
        noted = [Divergence(path, "holds somebody else's change; it was never moved") for path in sorted(apart)]
        noted += [Divergence(path, "is not as before") for path in different]
        known = {item.path for item in self.execution.divergence}
        self.execution = replace(
            self.execution,
            before_digest=images_digest((change.path, change.pre) for change in changes),
            after_digest=images_digest(now),
            proven=len(now) - len(different),
            divergence=(*self.execution.divergence, *(item for item in noted if item.path not in known)),
        )

    def _conclude(self, error: HoldfastError) -> None:
        state = self._transaction.state
        if state == "OPEN" or (state == "ABORTED" and self.execution.status in ("VALIDATING", "BACKING_UP")):
            self._advance("ABORTED")
        elif state == "ABORTED":
            self._measure()
            if self.execution.before_digest == self.execution.after_digest:
                self._advance("ROLLED_BACK")
            else:
                self.failure = NeedsHuman(
                    f"{error.message}; rolled back, but not everything is as before", changed=True
                )
                self._advance("PARTIAL")
        elif isinstance(error, Conflict) or self.execution.divergence:
            self._advance("PARTIAL")
        else:
            self._advance("FAILED")
