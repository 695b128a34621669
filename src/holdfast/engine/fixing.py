"""Fixing: the first check that fails becomes a task for an agent, and what it comes to is measured before it counts.

    workspace as it is ─checks─▶ Broken ─▶ task ─agent in a shadow─▶ change set ─┬─ the check passes, as it was ─▶ Fix
                                                                                 └─ otherwise ─▶ recorded, refused

Invariants
  F1  A check counts as repaired only if it ran again and passed, with the tests and their settings as they were before:
      where the agent changed or removed some of those, it is run again without that (`_upheld`). A file that kept the
      tests from being collected may be mended itself (`uncollected`).
  F2  A new regression test is run without the fix; whether it fails there is in the record (`_regression`). What was
      not good has none.
  F3  Every attempt is in the ledger, as a `fix` entry beside the delegation, good or not; the patch of a good one is in
      the ledger of patches, where it is followed like any other.
  F4  Nothing lands here: a fix is a simulation, and takes the ordinary road from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from holdfast.agents.protocol import Agent, Person, Watcher
from holdfast.checks.baseline import is_unreported
from holdfast.checks.kinds import KINDS
from holdfast.engine.change_patch import patch_of
from holdfast.engine.checking import ANYTHING, Landable, ShadowKind, Verified
from holdfast.engine.fixes import MOST_ATTEMPTS, failing_already, fix_record, repair_request, why_no_test
from holdfast.engine.hiring import hire
from holdfast.engine.patching import EVERY_CHECK, Patches
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.simulator import Simulated, landable_of
from holdfast.engine.uncollected import Uncollected, uncollected_in
from holdfast.errors import Blocked, HoldfastError, InvalidInput, VerificationFailed
from holdfast.model.agent import Attempt, Delegation, Usage
from holdfast.model.canonical import Json, whole_characters
from holdfast.model.changeset import Change, change_set
from holdfast.model.execution import Receipt
from holdfast.model.fix import Failure, FixRecord, Regression
from holdfast.model.patch import Patch
from holdfast.model.path import printable
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan
from holdfast.model.testfiles import is_test_file, is_test_settings
from holdfast.planning.failures import is_of_file, understood
from holdfast.store.blobs import Blobs
from holdfast.store.ledger import Ledger
from holdfast.workspace.transaction import new_txn
from holdfast.workspace.tree import snapshot

KIND = "fix"
_LOOK = Plan("Check the workspace as it is", (), words=(EVERY_CHECK,))
_NOTHING = change_set(())
_MOST_TESTS = 5
_DEFINITIONS = frozenset(
    name.rpartition("/")[2] for kind in KINDS for name in (*kind.markers, *kind.definitions) if "*" not in name
)


class Broken(NamedTuple):
    """The first failing check, what it wrote, what that means; all receipts, and the projects that were checked."""

    receipt: Receipt
    log: bytes
    failure: Failure
    receipts: tuple[Receipt, ...]
    projects: tuple[str, ...]
    known: frozenset[str]
    # The files that keep pytest from collecting, where that is what fails.
    uncollected: tuple[str, ...] = ()


class Order(NamedTuple):
    agent: str
    attempts: int = 3
    within_ms: int = 1_200_000
    shadow: ShadowKind = "auto"


class Crew(NamedTuple):
    """Agents of the caller's own, and who looks on or works by hand."""

    agents: Mapping[str, Agent] = {}
    watcher: Watcher | None = None
    person: Person | None = None


class Fix(NamedTuple):
    """A repair that was measured and found good, and has not landed. `patch` is its id in the ledger of patches."""

    simulated: Simulated
    verified: Verified
    record: FixRecord
    patch: str


class Passing(NamedTuple):
    """Every check that ran passes; `not_run` says, a sentence each, what was found and could not run."""

    not_run: tuple[str, ...]


def find_broken(pipeline: Pipeline) -> Broken | Passing:
    """Run every check of the workspace as it is; Blocked where none ran that can say "it works"."""
    pipeline.bring_installed()
    known = frozenset(
        path for path, image in snapshot(pipeline.site.path, pipeline.site.state.path).entries() if image.kind == "file"
    )
    projects = _projects(known)
    verified = pipeline.simulator.checking.verify(_LOOK, Landable(_NOTHING, {}, {}, projects), forgives=False)
    receipts = verified.receipts
    failed = next((receipt for receipt in receipts if not receipt.passed), None)
    if failed is None:
        if not verified.proofs:
            raise _unchecked(verified.not_run)
        return Passing(verified.not_run)
    log = Blobs(pipeline.site.state).get(failed.log_digest) if failed.log_digest else b""
    seen_at = pipeline.site.seen_at
    uncollected = uncollected_in(failed, log, known, seen_at)
    return Broken(failed, log, understood(failed, log, known, seen_at), receipts, projects, known, uncollected)


def _unchecked(not_run: tuple[str, ...]) -> Blocked:
    name_one = "name one under [checks] run in holdfast.toml"
    if not not_run:
        return Blocked(
            "no check was found here, so nothing says what is broken",
            hint=f"Nothing was changed. {name_one.capitalize()}",
        )
    lines = "".join(f"\n  {printable(line)}" for line in not_run)
    return Blocked(
        f"no check could run here, so nothing says what is broken:{lines}",
        hint=f"Nothing was changed. Install what is missing, or {name_one}",
    )


def repair_plan(pipeline: Pipeline, broken: Broken, order: Order) -> Plan:
    """One task for one agent; Blocked for what no change of files repairs."""
    if not 1 <= order.attempts <= MOST_ATTEMPTS:
        raise InvalidInput(f"a repair has from 1 to {MOST_ATTEMPTS} attempts, not {order.attempts}")
    known = sorted(broken.known)
    request = repair_request(broken.receipt, broken.log, (), 1, root=pipeline.site.seen_at, known=known)
    task = f"{request.task}\n\n{request.evidence}"
    step = AgentStep(order.agent, task, request.files, (), order.attempts, order.within_ms)
    return Plan(f"Repair: {printable(broken.receipt.detail)}", (step,))


def fix(pipeline: Pipeline, patches: Patches, broken: Broken, order: Order, crew: Crew) -> Fix:
    """The repair, good and not yet landed; VerificationFailed where it only looks like one."""
    return _Fixing(pipeline, patches, broken, repair_plan(pipeline, broken, order)).run(order, crew)


class _Fixing:
    def __init__(self, pipeline: Pipeline, patches: Patches, broken: Broken, plan: Plan) -> None:
        self._pipeline, self._patches = pipeline, patches
        self._broken, self._plan = broken, plan
        self._checking = pipeline.simulator.checking
        self._attempts: tuple[Attempt, ...] = ()
        files, beside = broken.uncollected, broken.projects
        self._uncollected = Uncollected(pipeline.site, self._checking, _LOOK, files, beside) if files else None

    def run(self, order: Order, crew: Crew) -> Fix:
        hired = hire(self._pipeline, crew.agents, crew.watcher, crew.person, self._hear)
        kind: ShadowKind = "copy" if order.agent == "manual" and order.shadow == "auto" else order.shadow
        try:
            simulated = self._pipeline.simulate(self._plan, kind, hired)
        except HoldfastError as error:
            self._note([self._unmeasured(attempt) for attempt in self._attempts], error.message)
            raise
        landable = landable_of(simulated)
        verified = self._checking.verify(self._plan, landable)
        return self._judged(simulated, landable, verified)

    def _hear(self, delegation: Delegation) -> None:
        self._attempts = delegation.attempts

    def _judged(self, simulated: Simulated, landable: Landable, verified: Verified) -> Fix:
        *earlier, last = self._attempts
        why_not = self._upheld(landable, verified)
        if self._uncollected is not None and not why_not:
            verified = self._uncollected.doubted(verified)
        patch: Patch | None = None
        standing = ""
        try:
            patch = patch_of(self._pipeline.site, landable.change_set, landable.sources)
            if not why_not:
                standing = self._patches.follow(patch, f"fix by {self._plan.agent}", self._plan).patch
        except HoldfastError as error:
            why_not = why_not or f"it makes no valid patch: {error.message}"
        record = fix_record(
            self._broken.failure,
            last,
            patch,
            validated=bool(standing),
            rolled_back=False,
            regression=None if why_not else self._regression(landable),
            why_not=why_not,
        )
        self._note([*map(self._unmeasured, earlier), record], why_not)
        if not record.good:
            raise VerificationFailed(
                f"the repair is not good: {why_not}",
                hint=f"Nothing was changed. What was tried: holdfast trace {self._plan.id}",
            )
        return Fix(simulated, verified, record, standing)

    # ── F1 ──

    def _upheld(self, landable: Landable, verified: Verified) -> str:
        """Why the check that failed does not count as repaired; empty when it does."""
        mended = self._uncollected.mended(landable.change_set.changes) if self._uncollected is not None else []
        weakened = [c for c in landable.change_set.changes if c not in mended and self._decides(c)]
        wrong = self._wrong_with(verified.receipts)
        if not weakened and not wrong:
            return self._lost(verified)
        try:
            again = self._check(self._checking.without(landable, weakened))
        except (HoldfastError, OSError) as error:
            return f"it could not be checked without its changes to the tests: {error}"
        wrong = self._wrong_with(again.receipts)
        if not wrong or not weakened:
            return wrong or self._lost(again) or self._lost(verified)
        names = ", ".join(f"{'removes' if c.post is None else 'changes'} {printable(c.path)}" for c in weakened[:5])
        return f"it {names}, and with the tests as they were: {wrong}"

    def _lost(self, verified: Verified) -> str:
        return self._uncollected.lost(verified) if self._uncollected is not None else ""

    def _wrong_with(self, receipts: Iterable[Receipt]) -> str:
        """The failing check must have run as often as before, and passed; what else failed is not better now."""
        found = tuple(receipts)
        before = Counter((one.kind, one.command) for one in self._broken.receipts)
        mine = self._broken.receipt.kind, self._broken.receipt.command
        same = [one for one in found if (one.kind, one.command) == mine]
        failed = next((one for one in found if not one.passed and not self._was_red(one)), None)
        failed = failed or next((one for one in same if one.unverified), None)
        if failed is not None:
            return printable(failed.detail)
        return "" if len(same) >= before[mine] else f"{printable(' '.join(mine[1]))} did not run again"

    def _was_red(self, receipt: Receipt) -> bool:
        """Another check without a report, which failed before this repair too (N6 of `checks.baseline`)."""
        key = receipt.kind, receipt.command
        mine = self._broken.receipt.kind, self._broken.receipt.command
        earlier = (one for one in self._broken.receipts if (one.kind, one.command) == key)
        return key != mine and is_unreported(receipt) and any(not one.passed and is_unreported(one) for one in earlier)

    def _decides(self, change: Change) -> bool:
        """Is it about what decides whether the check passes: an old test, or a file that settings of tests are in?"""
        name = change.path.rpartition("/")[2]
        if is_test_settings(change.path) or name == "tox.ini":
            return True
        if is_test_file(change.path) and change.pre is not None and change.pre.kind == "file":
            return True
        return self._broken.failure.category == "test" and name in _DEFINITIONS

    def _check(self, landable: Landable) -> Verified:
        # What could not be collected never ran: its failures are no fault of the repair.
        forgives = self._uncollected is not None
        return self._checking.verify(_LOOK, landable._replace(beside=self._broken.projects), forgives=forgives)

    # ── F2 ──

    def _regression(self, landable: Landable) -> Regression:
        """The test that failed before, and the new ones that fail without the fix: both were seen to."""
        broken = self._broken
        tests = [change for change in landable.change_set.changes if _is_new_test(change)]
        if tests:
            new = self._tried(landable, tests)
        else:
            new = Regression("", why_no_test(broken.receipt, broken.failure) or "the attempt wrote none")
        old = failing_already(broken.receipt, broken.failure)
        if not old:
            return new
        return Regression(f"{old}, {new.test}" if new.fails_without == "yes" else old, "", "yes")

    def _tried(self, landable: Landable, tests: list[Change]) -> Regression:
        """The new tests, run on the files as they were."""
        only = [*tests, *(change for change in landable.change_set.changes if _is_above(change, tests))]
        try:
            found = self._check(landable._replace(change_set=change_set(only)))
        except (HoldfastError, OSError):
            return Regression(_listed(tests), "", "unknown")
        return self._told(tests, found.receipts)

    def _told(self, tests: list[Change], receipts: Iterable[Receipt]) -> Regression:
        """Failing says something only where a new test is named, or where the tests passed before."""
        failed = [receipt for receipt in receipts if not receipt.passed]
        names = {name for one in failed for name in self._failing(one)}.difference(self._broken.failure.tests)
        named = [change for change in tests if any(is_of_file(name, change.path) for name in names)]
        if named:
            return Regression(_listed(named), "", "yes")
        passed = [receipt.passed for receipt in receipts if receipt.kind == "tests"]
        if passed and all(passed):
            return Regression(
                "", f"{_listed(tests)} {'passes' if len(tests) == 1 else 'pass'} without the fix too", "no"
            )
        were_good = all(receipt.passed for receipt in self._broken.receipts if receipt.kind == "tests")
        return Regression(_listed(tests), "", "yes" if passed and were_good else "unknown")

    def _failing(self, receipt: Receipt) -> tuple[str, ...]:
        log = Blobs(self._pipeline.site.state).get(receipt.log_digest) if receipt.log_digest else b""
        return understood(receipt, log).tests

    # ── F3 ──

    def _unmeasured(self, attempt: Attempt) -> FixRecord:
        """An attempt that was not good, and of which no change set is left."""
        return fix_record(self._broken.failure, attempt, None, validated=False, rolled_back=False)

    def _note(self, records: Iterable[FixRecord], why_not: str) -> None:
        for record in records:
            body: dict[str, Json] = {
                "id": new_txn("f"),
                "subject": self._plan.id,
                "agent": self._plan.agent,
                "command": [whole_characters(word) for word in self._broken.receipt.command],
                **_whole(record.document()),
            }
            if not record.good and not record.why_not:
                body["why_not"] = whole_characters(why_not)
            self._pipeline.note(KIND, body)


def past_fixes(ledger: Ledger, patches: Patches) -> tuple[FixRecord, ...]:
    """Every attempt that the ledger holds, oldest first; what became of its patch since is in it."""
    patches.settle()
    gone = {one.digest for one in patches.history.standings() if one.state == "rolled_back"}
    names = set(FixRecord._fields)
    found = []
    for entry in ledger.entries():
        if entry.kind == KIND:
            fields: dict[str, Any] = {name: value for name, value in entry.body.items() if name in names}
            found.append(
                FixRecord(
                    **{**fields, "usage": Usage(**fields["usage"]), "rolled_back": fields["patch_digest"] in gone}
                )
            )
    return tuple(found)


def _projects(paths: Iterable[str]) -> tuple[str, ...]:
    """The files that mark projects, anywhere in the tree; without any, the workspace is looked at as one."""
    names: dict[str, list[str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        names.setdefault(directory, []).append(name)
    found = {
        f"{directory}/{marker}".lstrip("/")
        for directory, here in names.items()
        for kind in KINDS
        if (marker := kind.marker_in(here))
    }
    return tuple(sorted(found)) or (ANYTHING,)


def _is_new_test(change: Change) -> bool:
    return change.post is not None and change.post.kind == "file" and is_test_file(change.path)


def _listed(tests: Iterable[Change]) -> str:
    return ", ".join(printable(test.path) for test in islice(tests, _MOST_TESTS))


def _is_above(change: Change, tests: list[Change]) -> bool:
    """A new directory on the way to one of them."""
    return change.pre is None and change.post is not None and any(t.path.startswith(f"{change.path}/") for t in tests)


def _whole(document: Mapping[str, Json]) -> dict[str, Json]:
    return {name: whole_characters(value) if isinstance(value, str) else value for name, value in document.items()}
