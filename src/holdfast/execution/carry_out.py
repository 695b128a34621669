"""Carry out one change set: prepare, apply, verify, health, then commit or roll back.

The status is advanced before each phase begins, and each terminal status is entered only when it is true:
ABORTED before anything moved, FAILED when something failed after that, ROLLED_BACK after the rollback was measured,
COMPLETED or PARTIAL after the commit sector. Before that sector the workspace is looked at once more (`surroundings`):
what stands at the paths of the change must be what was planned, and is what the record says of each step.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from holdfast.errors import HoldfastError, NeedsHuman, VerificationFailed
from holdfast.model.changeset import Change, ChangeSet, images_digest
from holdfast.model.execution import INTERRUPTED, Divergence, Execution, Receipt, Status, advanced
from holdfast.model.image import Image, Seen
from holdfast.model.path import printable
from holdfast.workspace.flip import Diverged
from holdfast.workspace.proof import read_again, unread, why_unread
from holdfast.workspace.staging import Source
from holdfast.workspace.surroundings import Looked, Surroundings
from holdfast.workspace.transaction import Transaction

_Error = TypeVar("_Error", bound=BaseException)
HealthChecks = Callable[[], tuple[Receipt, ...]]


class Actions(Protocol):
    """Effects outside the files. `perform` raises VerificationFailed; `take_back` tells what went and what did not."""

    def perform(self) -> tuple[str, ...]: ...

    def take_back(self, *, files_settled: bool) -> tuple[tuple[str, ...], tuple[str, ...]]: ...


class CarryOut:
    """One execution on its way; `execution` is true at every moment, `failure` is what to raise at the end.

    `interruption` is what came from outside (Ctrl-C and the like); it is raised when the ending is recorded.
    `is_broken_off`: it came on the way back, which recovery goes on with.
    `is_unproven`: it was rolled back, and a path is not as before or cannot be read; its material is kept.
    """

    def __init__(self, transaction: Transaction, execution: Execution) -> None:
        self._transaction = transaction
        self.execution = advanced(execution, "PENDING", time.time_ns())
        self.failure: HoldfastError | None = None
        self.interruption: BaseException | None = None
        self.is_broken_off = False
        self.is_unproven = False
        self._surroundings: Surroundings | None = None
        self._looked: Looked | None = None
        self._failed_actions: tuple[str, ...] = ()
        self._changes: tuple[Change, ...] = ()
        self._actions: Actions | None = None
        self._health: HealthChecks = tuple
        self._acted = self._stands_outside = False
        self._unread: list[str] = []
        self._differs = False

    def run(
        self,
        change_set: ChangeSet,
        seen: Mapping[str, Seen],
        sources: Mapping[str, Source],
        health: HealthChecks,
        actions: Actions | None = None,
        order: Sequence[int] = (),
        surroundings: Surroundings | None = None,
    ) -> Execution:
        """To a terminal status; raises nothing, but keeps it in `failure` or `interruption`.

        `order` is that of the plan's steps (G5 of `staging`); `surroundings` is the workspace as it was before.
        """
        self._changes = change_set.changes
        self._actions = actions
        self._health = health
        self._surroundings = surroundings
        try:
            self._advance("VALIDATING")
            self._advance("BACKING_UP")
            self._transaction.prepare(change_set, seen, sources, order)
            self._advance("APPLYING")
            self._transaction.apply()
            self._advance("VERIFYING")
            self._transaction.verify()
            self._act()
            self._advance("HEALTH_CHECKING")
            self._check_health()
            self._require_planned()
            self._transaction.commit()
        except HoldfastError as error:
            self._end(self._fail, error)
        except OSError as error:
            self._end(self._fail_on, error)
        except BaseException as error:  # noqa: BLE001 - the pipeline raises it again, when the ending is recorded
            self._end(self._interrupt, error)
        else:
            self._land()
        return self.execution

    def _end(self, end: Callable[[_Error], None], error: _Error) -> None:
        """What breaks off the way back is let through too, when what is known so far is recorded."""
        try:
            end(error)
        except BaseException as second:  # noqa: BLE001 - as above
            self.interruption = self.interruption or second
            self.is_broken_off = True
            said = INTERRUPTED if isinstance(second, KeyboardInterrupt) else f"{INTERRUPTED}: {second!r}"
            self.execution = replace(self.execution, errors=(*self.execution.errors, f"taking it back was {said}"))

    def found(self, path: str) -> Image | None:
        """What stands at a path now that it is over; after a landing, what the look before the commit found."""
        try:
            return self._looked.image(path) if self._looked is not None else self._read(path)
        except OSError:
            # The look before the commit proved what landed; of what did not, nothing is told that cannot be read.
            return self._planned(path) if self._looked is not None else None
        except HoldfastError:
            return None

    def _land(self) -> None:
        self._advance("PARTIAL" if self._failed_actions else "COMPLETED")

    def _planned(self, path: str) -> Image | None:
        place = bisect_left(self._changes, path.encode("utf-8", "surrogateescape"), key=_path_bytes)
        if place < len(self._changes) and self._changes[place].path == path:
            return self._changes[place].post
        return self._transaction.reads.get(path)

    def _require_planned(self) -> None:
        """The look whose findings are recorded: every path of the change holds what was planned, or Diverged."""
        looked = self._look_around()
        for change in self._changes:
            try:
                stands = looked.image(change.path) == change.post or self._read(change.path) == change.post
            except PermissionError:
                stands = True  # `verify` proved it (E1 of `surroundings`)
            except OSError as error:
                raise VerificationFailed(f"{printable(change.path)} cannot be read where it landed: {error}") from error
            if not stands:
                raise Diverged(change.path, "was changed by somebody else")
        self._looked = looked

    def _look_around(self) -> Looked:
        """One look at the workspace; what others changed elsewhere is noted, and decides nothing."""
        if self._surroundings is None:
            return Looked(None, self._read, (), "")
        looked = self._surroundings.look((change.path for change in self._changes), self._read)
        self.execution = replace(
            self.execution,
            divergence=(*self.execution.divergence, *looked.elsewhere),
            not_looked_at=looked.not_looked_at,
        )
        return looked

    def _read(self, path: str) -> Image | None:
        return read_again(partial(self._transaction.image_now, path))

    def _interrupt(self, error: BaseException) -> None:
        """Ctrl-C and the like: leave no half-applied tree behind, and record it, then it is let through.

        While the commit sector is being written there is nothing to take back: the next verb asks the disk.
        """
        self.interruption = error
        if self._transaction.state == "COMMITTED":
            self._land()
        elif self._transaction.state != "COMMITTING":
            said = INTERRUPTED if isinstance(error, KeyboardInterrupt) else f"{INTERRUPTED}: {error!r}"
            self.execution = replace(self.execution, errors=(*self.execution.errors, said))
            self._mark_failed()
            self._take_back()
            self._conclude(said)

    def _mark_failed(self) -> None:
        """From the moment that paths may have moved; before that nothing was changed, and it will be ABORTED."""
        if self.execution.status in ("APPLYING", "VERIFYING", "HEALTH_CHECKING"):
            self._advance("FAILED")

    def _act(self) -> None:
        """What the plan does outside the files, now that they are in place."""
        if self._actions is None:
            return
        self._acted = True
        self._failed_actions = self._actions.perform()
        self.execution = replace(self.execution, errors=(*self.execution.errors, *self._failed_actions))
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
        self._mark_failed()
        self._take_back()
        self._look_again()
        self._conclude(error.message)

    def _fail_on(self, error: OSError) -> None:
        """Only the commit sector leaves things open: whatever failed earlier, the transaction rolled back itself."""
        self.execution = replace(self.execution, errors=(*self.execution.errors, str(error)))
        self._mark_failed()
        if self._transaction.state == "ABORTED":
            self.failure = VerificationFailed(f"{error}; everything was rolled back")
            self._act_back()
            self._look_again()
            self._conclude(self.failure.message)
            return
        self.failure = NeedsHuman(
            f"the commit could not be confirmed: {error}",
            hint="The outcome is in doubt until the next verb, which decides it from the disk.",
            changed=True,
        )

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
            names = ", ".join(dict.fromkeys(printable(item.path) for item in outcome.divergence))
            self.failure = NeedsHuman(f"{names} was changed by somebody else and left alone", changed=True)
        self._act_back(files_settled=not outcome.divergence)

    def _measure(self) -> None:
        """Read every path again and compare: `ROLLED_BACK` is a measurement, not a hope.

        Paths that never moved and hold somebody else's change are divergence; the proof is over all others.
        What cannot be read is not known to be as before, and is told as that.
        """
        self._looked = None
        known = {item.path for item in self.execution.divergence}
        met = [item for item in self._transaction.divergence if item.path not in known]
        self.execution = replace(self.execution, divergence=(*self.execution.divergence, *met))
        apart = self._transaction.untouched
        changes = [change for change in self._changes if change.path not in apart]
        now: list[tuple[str, Image | None]] = []
        different: list[Divergence] = []
        noted = [Divergence(path, "holds somebody else's change; it was never moved") for path in sorted(apart)]
        for change in changes:
            try:
                image = self._image_after(change)
            except OSError as error:
                self._unread.append(change.path)
                noted.append(Divergence(change.path, why_unread(error)))
                continue
            now.append((change.path, image))
            if image != change.pre:
                different.append(Divergence(change.path, "is not as before"))
        noted += different
        known = {item.path for item in self.execution.divergence}
        self.execution = replace(
            self.execution,
            before_digest=images_digest((change.path, change.pre) for change in changes),
            after_digest=images_digest(now),
            proven=len(now) - len(different),
            divergence=(*self.execution.divergence, *(item for item in noted if item.path not in known)),
        )
        self._differs = bool(different)

    def _image_after(self, change: Change) -> Image | None:
        """What stands at a path after a rollback. What this user may not read, the rollback itself has proven."""
        try:
            return self._read(change.path)
        except PermissionError:
            return change.pre if self._transaction.state == "ABORTED" else change.post
        except HoldfastError:
            return change.post  # something else stands there, or it keeps changing: not as before

    def _conclude(self, said: str) -> None:
        """The end that was reached: ABORTED, ROLLED_BACK, or FAILED as it is."""
        state = self._transaction.state
        if state == "OPEN" or (state == "ABORTED" and self.execution.status in ("VALIDATING", "BACKING_UP")):
            self.abort()
            return
        self._measure()
        self._look_around()
        if state != "ABORTED":
            if self.execution.status == "BACKING_UP":
                self._advance("FAILED")
        elif self.execution.before_digest != self.execution.after_digest:
            self.is_unproven = True
            what = "not everything is as before" if self._differs else unread(self._unread)
            self.execution = replace(self.execution, errors=(*self.execution.errors, f"rolled back, but {what}"))
            hint = hint_for_unproven(self.execution.id)
            self.failure = NeedsHuman(f"{said}; rolled back, but {what}", hint=hint, changed=True)
        elif not self._stands_outside:
            self._advance("ROLLED_BACK")


def hint_for_unproven(id: str) -> str:
    return f"Everything was moved back; what it had written is kept in .holdfast/kept/{id}. See: holdfast show {id}"


def _path_bytes(change: Change) -> bytes:
    """The order of a change set (S1)."""
    return change.path.encode("utf-8", "surrogateescape")


def _wellbeing(receipts: tuple[Receipt, ...], unwell: list[str]) -> tuple[str, ...]:
    if unwell:
        return (f"not healthy: {'; '.join(unwell)}",)
    return ("healthy again",) if receipts else ()


def _sentence(words: tuple[str, ...]) -> str:
    return f"{', '.join(words)}."
