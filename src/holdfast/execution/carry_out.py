"""Carry out one change set: prepare, apply, verify, health, then commit or roll back.

The status is advanced before each phase begins, and each terminal status is entered only when it is true:
ABORTED before anything moved, ROLLED_BACK after the rollback was measured, COMPLETED after the commit sector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from holdfast.errors import Conflict, HoldfastError, NeedsHuman, VerificationFailed
from holdfast.model.changeset import Change, ChangeSet, images_digest
from holdfast.model.execution import Divergence, Execution, Receipt, Status, advanced
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.workspace.flip import Diverged
from holdfast.workspace.staging import Source
from holdfast.workspace.transaction import Transaction

HealthChecks = Callable[[], tuple[Receipt, ...]]


class Actions(Protocol):
    """Effects outside the files. `perform` raises VerificationFailed; `take_back` tells what went and what did not."""

    def perform(self) -> tuple[str, ...]: ...

    def take_back(self, *, files_settled: bool) -> tuple[tuple[str, ...], tuple[str, ...]]: ...


class CarryOut:
    """One execution on its way; `execution` is true at every moment, `failure` is what to raise at the end."""

    def __init__(self, transaction: Transaction, execution: Execution) -> None:
        self._transaction = transaction
        self.execution = advanced(execution, "PENDING", time.time_ns())
        self.failure: HoldfastError | None = None
        self._changes: tuple[Change, ...] = ()
        self._actions: Actions | None = None
        self._health: HealthChecks = tuple
        self._acted = self._stands_outside = False

    def run(
        self,
        change_set: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        health: HealthChecks,
        actions: Actions | None = None,
    ) -> Execution:
        """To a terminal status; never raises a HoldfastError, but keeps it in `failure`."""
        self._changes = change_set.changes
        self._actions = actions
        self._health = health
        try:
            self._advance("VALIDATING")
            self._advance("BACKING_UP")
            self._transaction.prepare(change_set, seen, sources)
            self._advance("APPLYING")
            self._transaction.apply()
            self._advance("VERIFYING")
            self._transaction.verify()
            self._act()
            self._advance("HEALTH_CHECKING")
            self._check_health()
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

    def _act(self) -> None:
        """What the plan does outside the files, now that they are in place."""
        if self._actions is None:
            return
        self._acted = True
        failures = self._actions.perform()
        self.execution = replace(self.execution, errors=(*self.execution.errors, *failures))
        # An action may take long, and may touch what it should not; what was verified must still stand.
        self._transaction.verify()

    def _act_back(self, *, files_settled: bool = True) -> None:
        """The files are as before; now the services are told. What cannot be taken back is said, and needs a person."""
        if self._actions is None or not self._acted:
            return
        done, failed = self._actions.take_back(files_settled=files_settled)
        self._stands_outside = bool(failed)
        self.execution = replace(self.execution, taken_back=done, errors=(*self.execution.errors, *failed))
        if failed and files_settled:
            said = f"{self.failure.message}; " if self.failure is not None else ""
            self.failure = NeedsHuman(
                f"{said}the files are as before, but {'; '.join(failed)}",
                hint=f"It is recorded so: holdfast show {self.execution.id}",
                changed=True,
            )

    def _look_again(self) -> None:
        """The services run with the old files again: are they well? What is found is told, whatever it is."""
        if not self.execution.taken_back or self._transaction.state != "ABORTED":
            return
        try:
            found = self._health()
        except OSError as error:
            found, unwell = (), [f"the health checks could not be run: {error}"]
        else:
            unwell = [receipt.detail for receipt in found if not receipt.passed]
        old = self.execution.before_digest
        self.execution = replace(
            self.execution,
            receipts=(*self.execution.receipts, *(receipt._replace(tree_digest=old) for receipt in found)),
            errors=(*self.execution.errors, *(f"after the rollback: {detail}" for detail in unwell)),
            taken_back=(*self.execution.taken_back, *_wellbeing(found, unwell)),
        )
        if self.failure is not None:
            self.failure.hint = "\n".join(filter(None, (_sentence(self.execution.taken_back), self.failure.hint)))

    def abort(self) -> None:
        """Nothing was even prepared: what stood before stands after."""
        self.execution = replace(self.execution, after_digest=self.execution.before_digest)
        self._advance("ABORTED")

    def _advance(self, status: Status) -> None:
        self.execution = advanced(self.execution, status, time.time_ns())

    def _check_health(self) -> None:
        try:
            receipts = self._health()
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
        self._look_again()
        self._conclude(error)

    def _fail_on(self, error: OSError) -> None:
        """Only the commit sector leaves things open: whatever failed earlier, the transaction rolled back itself."""
        self.execution = replace(self.execution, errors=(*self.execution.errors, str(error)))
        if self._transaction.state == "ABORTED":
            self.failure = VerificationFailed(f"{error}; everything was rolled back")
            self._act_back()
            self._look_again()
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
            if self._transaction.state == "ABORTED":  # it rolled back by itself
                self._act_back()
            return
        try:
            outcome = self._transaction.roll_back()
        except OSError as error:
            moved = self.execution.status != "BACKING_UP"
            self.failure = NeedsHuman(f"rolling back could not finish: {error}", changed=moved)
            return
        if outcome.divergence:
            self.execution = replace(self.execution, divergence=(*self.execution.divergence, *outcome.divergence))
            names = ", ".join(dict.fromkeys(printable(item.path) for item in outcome.divergence))
            self.failure = NeedsHuman(f"{names} was changed by somebody else and left alone", changed=True)
        self._act_back(files_settled=not outcome.divergence)

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
            self.abort()
        elif state == "ABORTED":
            self._measure()
            if self._stands_outside:
                self._advance("PARTIAL")
            elif self.execution.before_digest == self.execution.after_digest:
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


def _wellbeing(receipts: tuple[Receipt, ...], unwell: list[str]) -> tuple[str, ...]:
    if unwell:
        return (f"not healthy: {'; '.join(unwell)}",)
    return ("healthy again",) if receipts else ()


def _sentence(words: tuple[str, ...]) -> str:
    return f"{', '.join(words)}."
