"""Patches on the ordinary road: from a text that somebody sent to an execution, each step in the ledger of patches.

    text ─▶ created ─▶ validated ─▶ queued with its plan ─▶ simulate, check, decide, execute ─▶ applied ─▶ verified ─▶
                │                      │                              │             (where a check passed)   committed
                └── objections         └── it does not apply          └── refused, rolled back, undone: as it ended

Invariants
  E1  What landed is known from the executions, and the ledger of patches follows them: `settle` reads what became of
      the plan that a patch was queued with. A process killed anywhere leaves a gap; the next look at patches closes it.
  E2  A failure counts against a patch when it is known to be the patch's: a missing approval, another process, a moved
      workspace, a full disk or a crash is not.
  E3  What is quarantined or dropped becomes no plan (Denied). Out of quarantine leads a person's name, and no agent's.
  E4  Here a patch is judged by form, paths and amount; everything else is for the gates, which see what would land.
  E5  A patch brings nothing hidden into sight: renaming or copying a hidden file is as grave as a forbidden path.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from holdfast.agents.registry import NAMES
from holdfast.engine.patches import plan_of_patch
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import (
    Blocked,
    Denied,
    HoldfastError,
    InvalidInput,
    SandboxUnavailable,
    UnknownId,
    VerificationFailed,
)
from holdfast.gates.evidence import VERIFYING_KINDS
from holdfast.gates.operations import Operation
from holdfast.gates.policy import Policy
from holdfast.model.execution import INTERRUPTED, LEFT_SOMETHING, NOT_FINISHED
from holdfast.model.patch import FilePatch, Patch, rendered, reverse
from holdfast.model.patch_rules import GRAVE, Objection, Scope, validate
from holdfast.model.patch_state import Standing
from holdfast.model.patch_text import MOST_BYTES, parse
from holdfast.model.path import person_folded, person_name, printable
from holdfast.model.plan import Plan
from holdfast.store.database import Row
from holdfast.store.patch_history import PatchHistory
from holdfast.workspace.hidden import Roots, masked_paths, matches

# Words that the checks understand as: whatever is found here.
EVERY_CHECK = "all checks pass"
_COUNTED = (Blocked, Denied, VerificationFailed, InvalidInput)
_ENDED = ("COMPLETED", "ROLLED_BACK", *LEFT_SOMETHING)
_NOT_ITS_FAULT = (NOT_FINISHED, INTERRUPTED)
_MALFORMED = ("binary", "twice")
_OPERATIONS: dict[str, tuple[Operation, ...]] = {
    "create": ("create",),
    "change": ("edit", "mode"),
    "delete": ("delete",),
    "copy": ("create",),
}


class Sent(NamedTuple):
    """A text with a patch in it. `unverified` says why no checks are wanted; empty when they are."""

    data: bytes
    source: str
    reverse: bool = False
    unverified: str = ""


class Planned(NamedTuple):
    """A patch by its id, and the plan that does what it says; or (`done`) the execution that did it, and stands."""

    patch: str
    plan: Plan | None
    done: Row | None = None


class Patches:
    """The patches of one workspace."""

    def __init__(self, pipeline: Pipeline, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._pipeline = pipeline
        self._now = now_ns
        self.history = PatchHistory(pipeline.site.state, pipeline.records)

    # ── on its way ──

    def planned(self, sent: Sent, *, wanted: bool = True) -> Planned:
        """The plan of a patch; `wanted` queues it, and counts it as a failure when it does not apply.

        Denied for what must not be applied, Blocked for what cannot be.
        """
        self.settle()
        patch = self._read(sent)
        standing = self._known(patch, sent)
        done = self._stands(standing)
        if done is not None:
            return Planned(standing.patch, None, done)
        standing = self._validated(standing, patch)
        try:
            plan = self._plan(patch, sent)
        except Blocked as error:
            if standing.state == "committed":
                # Somebody worked on what it left: nothing new is known against it.
                error.hint = f"Nothing was changed. The patch was applied as {standing.execution}; see: holdfast diff"
            elif wanted and not _is_about_the_host(error):
                self._queue(standing, "")
                self.ended(standing.patch, error)
            raise
        if wanted:
            self._queue(standing, plan.digest)
        return Planned(standing.patch, plan)

    def looked_at(self, sent: Sent) -> Plan:
        """What it would do now, for somebody who only looks: judged as ever, and written down nowhere."""
        patch = _parsed(sent)
        objections = self._objections(patch)
        if objections:
            raise _objected(objections)
        return self._plan(patch, sent)

    def follow(self, patch: Patch, source: str, plan: Plan) -> Standing:
        """A patch whose plan is known already, such as the work of an agent; Denied where it is objected to."""
        self.settle()
        standing = self._known(patch, Sent(rendered(patch), source))
        standing = self._validated(standing, patch)
        return self._queue(standing, plan.digest)

    def ended(self, patch: str, error: HoldfastError | None) -> Standing:
        """Where a queued patch stands after its road: as its execution ended, or failed where there was none."""
        self.settle()
        now = self.history.standing(patch)
        if error is None or now.state != "queued" or not _counts(error):
            return now
        now = self.history.fail(patch, "apply", error.message, self._now())
        if now.state == "quarantined":
            error.hint = f"{error.hint or 'Nothing was changed.'}\n{_quarantined(now)}"
        return now

    def settle(self) -> None:
        """Let every patch stand where its execution says (E1)."""
        for standing in self.history.standings():
            try:
                self._settle(standing)
            except Blocked:
                # Somebody else settles at the same time, and was first.
                if self.history.standing(standing.patch) == standing:
                    raise

    # ── what people do with them ──

    def release(self, patch: str, *, by: str = "", reason: str = "") -> Standing:
        """Out of quarantine, by a person's name (E3); everything is judged anew."""
        return self.history.release(patch, self._person(by), self._now(), reason=reason)

    def drop(self, patch: str, *, by: str = "", reason: str = "") -> Standing:
        """Nobody wants it any more. Blocked for what stands in the workspace: that is undone first."""
        self.settle()
        return self.history.move(patch, "dropped", self._now(), by=self._person(by), reason=reason)

    def _person(self, by: str) -> str:
        name = person_name(by or self._pipeline.governance.me())
        agents = {*NAMES, *(agent.name for agent in self._pipeline.governance.settings().agents)} - {"manual"}
        if not name or person_folded(name) in {person_folded(agent) for agent in agents}:
            raise Denied(
                f"{printable(name) or 'nobody'} is no person, and only a person decides about a patch",
                hint="Nothing was changed.",
            )
        return name

    # ── reading and judging ──

    def _read(self, sent: Sent) -> Patch:
        try:
            return _parsed(sent)
        except InvalidInput as told:
            # What is too large to be one is not kept; a reversal that cannot be says nothing against the patch.
            if len(sent.data) <= MOST_BYTES and not sent.reverse:
                digest = hashlib.sha256(sent.data).hexdigest()
                standing = self.history.create(sent.data, digest, self._now(), source=sent.source)
                self._failed(_let_through(standing), told, grave=False)
            raise

    def _known(self, patch: Patch, sent: Sent) -> Standing:
        text = rendered(patch) if sent.reverse else sent.data
        source = f"reverse of {sent.source}" if sent.reverse else sent.source
        made = self.history.create(text, patch.digest, self._now(), source=source, paths=patch.paths)
        return _let_through(made)

    def _validated(self, standing: Standing, patch: Patch) -> Standing:
        """Judged anew every time: policy may have changed since."""
        objections = self._objections(patch)
        if objections:
            error = _objected(objections)
            self._failed(standing, error, grave=any(one.ground in GRAVE for one in objections))
            raise error
        if standing.state != "created":
            return standing
        return self.history.move(standing.patch, "validated", self._now())

    def _objections(self, patch: Patch) -> tuple[Objection, ...]:
        return (*validate(patch, _scope(self._pipeline.governance.policy(), patch)), *self._uncovered(patch))

    def _uncovered(self, patch: Patch) -> Iterator[Objection]:
        """E5."""
        moving = [file for file in patch.files if file.kind in ("rename", "copy")]
        patterns = self._pipeline.governance.settings().hidden if moving else ()
        roots = Roots(masked_paths(self._pipeline.site.workspace, patterns)) if patterns else None
        for file in moving:
            path = file.old_path or ""
            if roots is not None and (roots.cover(path) or matches(path, patterns)):
                reason = "it is hidden from programs, and the patch would give its content another name"
                yield Objection("forbidden", path, file.at, reason)

    def _failed(self, standing: Standing, error: HoldfastError, *, grave: bool) -> None:
        """What stands in the workspace is not touched by a judgement that comes later."""
        if standing.state in ("applied", "verified", "committed"):
            return
        if standing.state == "created":
            now = self.history.fail(standing.patch, "validation", error.message, self._now(), grave=grave)
        else:
            self._queue(standing, "")
            now = self.history.fail(standing.patch, "apply", error.message, self._now(), grave=grave)
        if now.state == "quarantined":
            error.hint = f"Nothing was changed.\n{_quarantined(now)}"

    def _plan(self, patch: Patch, sent: Sent) -> Plan:
        verb = "Take back" if sent.reverse else "Apply"
        plan = plan_of_patch(self._pipeline.site, patch, f"{verb} {printable(sent.source)}")
        if sent.unverified:
            return replace(plan, unverified_because=sent.unverified)
        return replace(plan, words=(EVERY_CHECK,))

    def _queue(self, standing: Standing, plan: str) -> Standing:
        if standing.state == "committed":
            gone = "what it did no longer stands as it left it"
            standing = self.history.move(standing.patch, "rolled_back", self._now(), reason=gone)
        return self.history.move(standing.patch, "queued", self._now(), plan=plan)

    def _stands(self, standing: Standing) -> Row | None:
        """The execution that applied it, when its effect still stands on every path."""
        if standing.state != "committed":
            return None
        row = self._row(standing.execution)
        if row is None or not row.live or not row.kept:
            return None
        return row if self._pipeline.stands(row, standing.paths) else None

    # ── following the executions (E1) ──

    def _settle(self, standing: Standing) -> None:
        match standing.state:
            case "queued" if standing.plan:
                row = self._newest_of(standing)
                if row is not None:
                    applied = self.history.move(standing.patch, "applied", self._now(), execution=row.id)
                    self._close(applied, row)
            case "applied" | "verified":
                self._close(standing, self._row(standing.execution))
            case "committed":
                row = self._row(standing.execution)
                if row is not None and not row.live:
                    self.history.move(standing.patch, "rolled_back", self._now(), reason=f"{row.id} was undone")
            case "rolled_back":
                row = self._row(standing.execution)
                if row is not None and row.live:
                    self._queue(standing, row.plan_digest)
                    back = self.history.move(standing.patch, "applied", self._now(), reason="brought back by an undo")
                    self._close(back, row)

    def _close(self, standing: Standing, row: Row | None) -> None:
        """From `applied` on, as the execution ended."""
        if row is None:
            return
        if not row.landed:
            self._taken_back(standing, row)
            return
        verified, proof = self._proof(row)
        if standing.state == "applied" and verified:
            standing = self.history.move(standing.patch, "verified", self._now(), reason=proof)
        why = "" if verified else proof
        standing = self.history.move(standing.patch, "committed", self._now(), reason=why, execution=row.id)
        self._settle(standing)  # it may be undone already

    def _taken_back(self, standing: Standing, row: Row) -> None:
        """E2: after a crash nobody knows that the patch was to blame."""
        errors = row.summary.get("errors")
        why = str(errors[0]) if isinstance(errors, list) and errors else row.status
        if why.startswith(_NOT_ITS_FAULT) or self._pipeline.records.execution(row.id)[1] is None:
            self.history.move(standing.patch, "rolled_back", self._now(), reason=why)
        else:
            self.history.fail(standing.patch, "verification", why, self._now(), execution=row.id)

    def _proof(self, row: Row) -> tuple[bool, str]:
        """Did checks that count pass on it, and how many; or why it is not verified."""
        document = self._pipeline.records.execution(row.id)[1]
        receipts = document.get("receipts", []) if document is not None else None
        if receipts is None:
            return False, "unverified: what its checks came to is not known any more"
        doubt = next((one["unverified"] for one in receipts if one.get("unverified")), "")
        if doubt:
            return False, f"unverified: {doubt}"
        proofs = [one["passed"] for one in receipts if one["kind"] in VERIFYING_KINDS]
        if not proofs:
            return False, "unverified: no check ran"
        passed = f"{sum(proofs)} {'check' if len(proofs) == 1 else 'checks'} passed"
        return (
            (True, passed) if all(proofs) else (False, f"unverified: only {sum(proofs)} of {len(proofs)} checks passed")
        )

    def _newest_of(self, standing: Standing) -> Row | None:
        """The execution of its plan since it was queued, if one came to an end that changed something meanwhile."""
        rows = self._pipeline.records.executions(since_ns=standing.at_ns)
        return next((row for row in rows if row.plan_digest == standing.plan and _has_ended(row)), None)

    def _row(self, execution: str) -> Row | None:
        try:
            return self._pipeline.records.row(execution)
        except UnknownId:
            return None


def _has_ended(row: Row) -> bool:
    """One that waits for a person has not."""
    return row.status in _ENDED and row.summary.get("open") is not True


def _parsed(sent: Sent) -> Patch:
    try:
        patch = parse(sent.data)
        return reverse(patch) if sent.reverse else patch
    except InvalidInput as error:
        raise InvalidInput(f"{printable(sent.source)}: {error.message}", hint=error.hint) from None


def _let_through(standing: Standing) -> Standing:
    """E3."""
    if standing.state == "quarantined":
        message = f"patch {standing.patch} is quarantined: {standing.reason}"
        raise Denied(message, hint=f"Nothing was changed. {_way_out(standing)}")
    if standing.state == "dropped":
        who = f" by {printable(standing.by)}" if standing.by else ""
        raise Denied(f"patch {standing.patch} was dropped{who}", hint="Nothing was changed. Send another patch.")
    return standing


def _quarantined(standing: Standing) -> str:
    return f"The patch is quarantined now. {_way_out(standing)}"


def _way_out(standing: Standing) -> str:
    id = standing.patch
    return f"Look at it: holdfast patches show {id}; let it be tried again: holdfast patches release {id}"


def _scope(policy: Policy, patch: Patch) -> Scope:
    """What policy forbids whatever the content, and how much it lets one change be (E4)."""
    operations: dict[str, tuple[Operation, ...]] = {}
    for file in patch.files:
        for path in file.paths:
            operations[path] = (*operations.get(path, ()), *_operations(file, path))

    def forbidden(path: str) -> bool:
        numbers = policy.rules_about(path, operations[path])
        return any(policy.rules[number].verdict == "DENY" for number in numbers)

    limits = policy.scalars.limits
    return Scope(forbidden=forbidden, most_files=limits.files, most_lines=limits.lines)


def _operations(file: FilePatch, path: str) -> tuple[Operation, ...]:
    if file.kind == "rename":
        return ("move", "delete") if path == file.old_path else ("move", "create")
    return _OPERATIONS[file.kind]


def _objected(objections: tuple[Objection, ...]) -> HoldfastError:
    message = "\n".join(map(str, objections))
    if all(one.ground in _MALFORMED for one in objections):
        return InvalidInput(message, hint="Nothing was changed.")
    return Denied(message, hint="Nothing was changed.")


def _counts(error: HoldfastError) -> bool:
    """E2."""
    return isinstance(error, _COUNTED) and not _is_about_the_host(error)


def _is_about_the_host(error: HoldfastError) -> bool:
    return isinstance(error, SandboxUnavailable) or isinstance(error.__cause__, OSError)
