"""Checking: the checks of a plan, over base plus landable change, in a sandboxed layer that is thrown away.

    what a plan names ........ its commands and test suites, and its verification in plain words
    what configuration names . [checks] of every layer, whatever the plan says
    what is detected ......... when words ask for everything, and always for the work of an agent

Invariants
  R1  Receipts are for one change set, on one tree, by the checks that were wanted then; when one of the three moves,
      they prove nothing (`Verified.base_tree`, `change_set`, `checks`).
  R2  A receipt names a tree only if the checks could see the whole change, and nobody wrote to the workspace meanwhile.
  R3  A plan that skips its checks skips its own. What the configuration asks for is run all the same.
  R4  Where a change that nobody wrote by hand touches tests, the base's tests run over the new code as well
      (`Verified.base_tests`). What they say is evidence for the gate. It is no receipt for the tree that lands.
  R5  Runs of tests are compared with the same runs on the untouched base (`checks.baseline`): where one failed, where
      a run took its baseline as it began, or where something landed last, whose receipts are the next baseline. They
      hold for a tree, the checks that were wanted, the environment, and the path at which they saw the tree.
  R6  Where a change says other dependencies, the checks run with what the user's own command builds for it
      (`building`), or are receipts for no tree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from holdfast.checks.attempt import shown
from holdfast.checks.baseline import (
    MOST_FLAKY,
    Ran,
    as_before,
    blamed,
    forgiven,
    is_edited,
    missed,
    missing,
    told_gone,
    unproven,
    without_failures,
)
from holdfast.checks.baseline import compared as compared_with_base
from holdfast.checks.confine import confined, written_to
from holdfast.checks.detect import roots_above
from holdfast.checks.edited_tests import Sides, Touched, compared, touched, without
from holdfast.checks.gather import Ground, Wanted, commands_for, finds_none, gather, tried
from holdfast.checks.junit import Case, Results
from holdfast.checks.levels import LEVELS, PROOF, Level, Tried
from holdfast.checks.tree import Tree
from holdfast.checks.verify import verify
from holdfast.checks.viewed import tree_in
from holdfast.checks.words import Understood, understood, understood_as_health
from holdfast.engine.building import build, changed_dependencies, not_built, with_built
from holdfast.engine.difference import Compared, PlannedDifference, Side
from holdfast.environment.detect import environment_of, this_shell
from holdfast.environment.found import NOTHING_FOUND, Environment
from holdfast.errors import HoldfastError, Interrupted, InvalidInput, SandboxUnavailable
from holdfast.gates.evidence import VERIFYING_KINDS
from holdfast.model.canonical import digest_of
from holdfast.model.changeset import Change, ChangeSet, change_set
from holdfast.model.check import VerifyCheck
from holdfast.model.configuration import CheckSettings, ProgramLimits, Settings
from holdfast.model.execution import BaseTests, Receipt
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.model.plan import Agent, Plan
from holdfast.model.testfiles import concerns_tests
from holdfast.sandbox.process import DEFAULT_PATH
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.view import View
from holdfast.store.blobs import Blobs
from holdfast.workspace.hidden import Roots
from holdfast.workspace.scratch import scratch_copy
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from holdfast.workspace.staging import CopyOf, Source
from holdfast.workspace.tree import Snapshot, snapshot

Progress = Callable[[str, int, int], None]
ShadowKind = Literal["auto", "overlay", "copy"]
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# Files at the top of a tree that can say that examples in documentation are run.
_SAYING_DOCTESTS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini", "conftest.py", "Makefile")
_NOTHING = change_set(())
_TESTS: tuple[Level, ...] = ("tests",)
# Long enough to collect tens of thousands of tests; whoever waits for it wants to begin.
TRIAL_MS = 30_000
# A name at the top that nothing has: it stands for whatever will be changed there.
ANYTHING = "\x01"
_BY_AN_AGENT = Plan("Look at the checks", (), words=("Run all checks",))
# By where it is seen, tree, and what decides about the checks: the last few.
_BASELINES: dict[tuple[str, str, str], Mapping[object, Ran]] = {}
# Trees on which the tests of all projects around these paths were run.
_ASKED: dict[tuple[str, ...], bool] = {}
_MOST_BASELINES = 16
_CHOSEN = ("plan", "configured", "detected")
_UNCHOSEN = "the only checks that ran were named by the project itself or by the agent"
# So long the tests may take that an agent is shown before it begins; longer ones it runs itself.
_STANDING_MS = 60_000
NO_ENVIRONMENT = "unset"
_TOUCHED = "the workspace was written to while the checks ran"


class Landable(NamedTuple):
    """A change set with all that laying it over the workspace needs."""

    change_set: ChangeSet
    seen: Mapping[str, Seen]
    sources: Mapping[str, Source]
    # Paths whose projects are checked although nothing in them changes.
    beside: tuple[str, ...] = ()


class Verified(NamedTuple):
    """Receipts for one change set, and what they stand on; they are stale when it moves (R1)."""

    receipts: tuple[Receipt, ...]
    base_tree: str
    change_set: str = ""
    # Why tests say nothing about it, as a sentence; empty when they do, or when nothing was asked for.
    unverified: str = ""
    # Digest of the settings that decided which checks there are.
    checks: str = ""
    # The tree that would land, as it was when the checks ran.
    lands_as: str = ""
    # Checks that were found and could not run, a sentence each. They passed nothing.
    not_run: tuple[str, ...] = ()
    # What the base's tests say, where the change touches tests (R4).
    base_tests: BaseTests | None = None
    # The runs behind the receipts, of what was found in the tree; nothing that is kept has them.
    ran: tuple[Ran, ...] = ()
    # The environment that the checks ran in, as a person would set it: the value of VIRTUAL_ENV, or NO_ENVIRONMENT.
    checked_in: str = ""
    # Why receipts that were bound to a tree are bound to none any more; empty where nothing of the kind happened.
    outdated: str = ""

    @property
    def proofs(self) -> tuple[Receipt, ...]:
        """The checks that ran and can say "it works". That files exist and parse is no such word."""
        return tuple(
            receipt
            for receipt in self.receipts
            if receipt.passed and receipt.kind in VERIFYING_KINDS and not receipt.unverified
        )

    @property
    def doubt(self) -> str:
        """Why the checks that passed do not verify it: one failed before too (N6 of `baseline`)."""
        return _doubt_of(self.receipts)

    def why_unverified(self, tree: str) -> str:
        """Why nothing says that this tree works; empty where a check passed on it that somebody chose. What only the
        project's own file names, or whoever did the work, proves nothing (Y2 of `levels`)."""
        if self.doubt:
            return self.doubt
        chosen = [proof for proof in self.proofs if proof.origin in _CHOSEN]
        if tree and any(proof.tree_digest == tree for proof in chosen):
            return ""
        why = self.unverified.removeprefix("unverified by tests: ").removeprefix("unverified: ")
        ran = _UNCHOSEN if self.proofs and not chosen else "no check ran"
        return why or next(iter(self.not_run), ran)

    def unbound(self) -> Verified:
        """The same receipts, for no tree at all: a failure stays one, a success proves nothing."""
        return self._replace(receipts=tuple(receipt._replace(tree_digest="") for receipt in self.receipts))


class _Found(NamedTuple):
    """What checks came to; as in `Verified`. `ran` are those that were found, numbered as the receipts."""

    receipts: tuple[Receipt, ...]
    unverified: str = ""
    not_run: tuple[str, ...] = ()
    ran: tuple[Ran, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(case for run in self.ran for case in run.results.cases)


class Standing(NamedTuple):
    """What checks the work on some paths, as one would type it, and what of that fails as things stand."""

    commands: tuple[str, ...] = ()
    failed: tuple[Receipt, ...] = ()


class _Part(NamedTuple):
    """What is checked as what tree; with `base_tests`, only by tests, and by none that is new; with `only`, by what is
    found of these levels. `forgives` what failed before (R5)."""

    plan: Plan
    landable: Landable
    digest: str = ""
    base_tests: bool = False
    only: tuple[Level, ...] = ()
    forgives: bool = True
    new_paths: frozenset[str] = frozenset()


class _Look(NamedTuple):
    """The workspace before the checks."""

    tree: Snapshot
    moment_ns: int
    # Of the workspace's own directory, which is no entry of its tree.
    root_ns: int


class _Judging:
    """The runs of one look, each judged by that of the base (R5). `again`: all tests once more."""

    def __init__(
        self,
        part: _Part,
        found: _Found,
        base: Mapping[object, Ran],
        again: Callable[[], tuple[Ran, ...]],
        log_of: Callable[[Receipt], bytes],
    ) -> None:
        self._part, self._found, self._base, self._run, self._log_of = part, found, base, again, log_of
        self._words = " ".join(step.stated for step in part.plan.steps if isinstance(step, Agent))
        self._receipts, self._ran = list(found.receipts), list(found.ran)
        self._again: dict[object, Ran] | None = None

    @property
    def found(self) -> _Found:
        why = "; ".join(filter(None, (self._found.unverified, _doubt_of(self._receipts))))
        return self._found._replace(receipts=tuple(self._receipts), ran=tuple(self._ran), unverified=why)

    def judge_commands(self) -> None:
        """Where the base's tests are not run any more, what runs in their place says nothing of them (N8)."""
        tests = [each for each in self._found.ran if each.level == "tests"]
        for earlier in self._base.values():
            if not earlier.results.passed or any(_is_same_run(earlier, each) for each in tests):
                continue
            for each in tests:
                receipt = self._receipts[each.number]
                if each.root == earlier.root and receipt.passed and not receipt.unverified:
                    why = f"the tests that `{printable(shown(earlier.command))}` ran before this change are not run now"
                    self._receipts[each.number] = receipt._replace(unverified=why)

    def judge(self, each: Ran) -> None:
        earlier = self._base.get(each.key)
        if earlier is None:
            return
        if not each.report:
            receipt = self._receipts[each.number]
            if not receipt.passed:
                self._receipts[each.number] = unproven(receipt, each, earlier, self._words, self._log_of(receipt))
            return
        if not self._receipts[each.number].passed:
            self._failed(each, earlier)
        if self._receipts[each.number].passed and earlier.collected:
            self._complete(each, earlier)

    def _failed(self, each: Ran, earlier: Ran) -> None:
        receipt = self._receipts[each.number]
        result = compared_with_base(each.results, earlier, self._words)
        flaky: tuple[str, ...] = ()
        if 0 < len(result.new) <= MOST_FLAKY:
            flaky = _passed_in(self._once_more(each), result.new)
        if flaky:
            self._ran[self._found.ran.index(each)] = each._replace(results=without_failures(each.results, flaky))
        new = tuple(name for name in result.new if name not in flaky)
        self._receipts[each.number] = (
            blamed(receipt, new, result.known)
            if new
            else forgiven(receipt, each.results, result.known, flaky, earlier, self._words)
        )

    def _complete(self, each: Ran, earlier: Ran) -> None:
        """Nothing of what passed before is missing (N4 of `baseline`). Who edits by hand says themselves what goes."""
        if self._part.plan.is_by_hand or not missing(each.results, earlier.results):
            return
        after = self._once_more(each)
        gone = missing(after if after is not None else each.results, earlier.results)
        touched_tests = [path for path in self._part.landable.change_set.paths if concerns_tests(path)]
        edited = tuple(name for name in gone if is_edited(name, each, touched_tests))
        others = tuple(name for name in gone if name not in edited)
        receipt = self._receipts[each.number]
        if others:
            self._receipts[each.number] = missed(receipt, others)
        elif edited:
            self._receipts[each.number] = told_gone(receipt, edited)

    def _once_more(self, each: Ran) -> Results | None:
        if self._again is None:
            self._again = {ran.key: ran for ran in self._run()}
        found = self._again.get(each.key)
        return found.results if found is not None else None


def _is_same_run(earlier: Ran, now: Ran) -> bool:
    """Arguments that measure the coverage, which one plan asks for and another does not, stand at the end."""
    shared = min(len(earlier.command), len(now.command))
    return earlier.root == now.root and earlier.command[:shared] == now.command[:shared]


def why_unverified(receipts: Iterable[Receipt]) -> str:
    """Of what landed, by its record: why no check says that it works; empty where one does."""
    found = Verified(tuple(receipts), "")
    tree = next((proof.tree_digest for proof in found.proofs if proof.origin), "")
    return found.why_unverified(tree)


class Checking:
    def __init__(self, site: Site, settings: Callable[[], Settings], progress: Progress) -> None:
        self._site = site
        self._settings = settings
        self._progress = progress
        # By plan: what was found in the layer above an agent's newest work.
        self._newest: dict[str, Verified] = {}
        # The change set that was newly checked there, and the tree it was checked on.
        self._looked: tuple[str, Snapshot] | None = None

    def verify(self, plan: Plan, landable: Landable, *, forgives: bool = True) -> Verified:
        """In a shadow made for it. What was just found above an agent's work is not found again, once;
        whether its tree still stands is asked under the lock, when it lands.

        Without `forgives` a test that failed before counts too: who repairs asks what fails, whoever broke it (R5).
        """
        _asked(plan)
        if not self.wants_checks(plan):
            return self._unchecked(plan, landable)
        settings = self.settings_digest()
        fresh = self._newest.pop(plan.digest, None)
        if fresh is not None and (fresh.change_set, fresh.checks) == (landable.change_set.digest, settings):
            return fresh
        return self._verified(self._look(), settings, _Part(plan, landable, forgives=forgives), self._in_fresh_shadow)

    def verify_in(self, shadow: Shadow, plan: Plan, landable: Landable) -> Verified:
        """In a layer of a shadow that is there already, where an agent is at work."""
        if not self.wants_checks(plan):
            return self._unchecked(plan, landable)

        def run(part: _Part) -> _Found:
            changes, seen, sources, _ = part.landable
            with shadow.layer(changes, seen, sources) as view:
                return self._in_view(part, view)

        before = self._look()
        verified = self._verified(before, self.settings_digest(), _Part(plan, landable), run)
        if verified.base_tree:
            self._newest[plan.digest] = verified
            self._looked = landable.change_set.digest, before.tree
        return verified

    def standing(self, shadow: Shadow, plan: Plan, landable: Landable, *, run: bool) -> Standing:
        """Before an agent begins: which commands check its work. With `run`, also what the tests and the commands
        that somebody names say over what earlier steps did, within a minute each; what takes longer says nothing.
        Tests of which a baseline is known are not run again: it says it (R5)."""
        if not self.wants_checks(plan):
            return Standing()
        settings, asked = self._settings(), _asked(plan)
        own = _own_checks(plan, asked)
        wanted = _wanted(plan, asked, settings.checks)
        failed: tuple[Receipt, ...] = ()
        with shadow.layer(*landable[:3]) as view, tree_in(view) as tree:
            paths = (*landable.beside, *landable.change_set.paths)
            ground = self._ground(view, tree, self._environment_of(paths), "")
            if run:
                ground = ground._replace(known=self._told_before(landable))
            gathers = _needs_gathering(plan, asked, settings.checks)
            found = commands_for(ground, paths, wanted) if gathers else ()
            if run:
                self._progress("verify: what fails before the work begins", 0, 1)
                within = min(wanted.within_ms, _STANDING_MS)
                receipts = verify(
                    tuple(check._replace(within_ms=min(check.within_ms, within)) for check in own),
                    directory=self._site.seen_at,
                    tree_digest="",
                    save_log=self._save_log,
                    run=ground.run,
                    written=written_to(view),
                    env=ground.env,
                )
                if gathers:
                    among = wanted._replace(levels=(), expected=(), among=("tests", "acceptance"), within_ms=within)
                    receipts += gather(ground, paths, among).receipts
                failed = tuple(each for each in receipts if not each.passed and each.exit_code is not None)
        return Standing(tuple(dict.fromkeys((*(shown(check.argv) for check in own), *found))), failed)

    def _environment_of(self, paths: Sequence[str]) -> Environment:
        readable = self._settings().environment.readable
        return environment_of(this_shell(), self._site.seen_at, roots_above(paths), readable)

    def _ground(self, view: View, tree: Tree, environment: Environment, digest: str) -> Ground:
        # Many tests talk to a server of their own; this loopback leads nowhere else.
        profile = profile_of(self._settings().limits, environment)._replace(network="loopback")
        variables = (*environment.variables, ("PATH", environment.before(os.environ.get("PATH", "") or DEFAULT_PATH)))
        python = environment.python
        return Ground(tree, self._site.seen_at, digest, confined(view, profile), self._save_log, variables, python)

    def take_look(self, change_set: str) -> Snapshot | None:
        """The tree that an agent's work was just checked on, once: whoever reports the work need not look again."""
        looked, self._looked = self._looked, None
        return looked[1] if looked is not None and looked[0] == change_set else None

    def finds_none(self, plan: Plan, landable: Landable) -> bool:
        """Does the workspace as it stands, with this change, have no check to run? Nothing is run to find out.

        What was found by looking at the changed files alone is the same as before, since they are.
        """
        settings, asked = self._settings(), _asked(plan)
        if _own_checks(plan, asked) or not _needs_gathering(plan, asked, settings.checks):
            return False
        try:
            with open_shadow(self._site, "overlay", settings.hidden) as shadow:
                shadow.put(landable.change_set, landable.seen, landable.sources)
                with tree_in(shadow.view) as tree:
                    touched = [*landable.change_set.paths, *landable.beside]
                    return finds_none(tree, touched, _wanted(plan, asked, settings.checks))
        except HoldfastError:
            return False  # whatever it is (no overlay, an edit in the way): a look at the whole tree tells

    def require_understood(self, plan: Plan) -> None:
        """InvalidInput where the plan asks in words that nobody understands: better said before any work is done."""
        _asked(plan)

    def wants_checks(self, plan: Plan) -> bool:
        """Does the plan or the configuration ask for any?"""
        if self._settings().checks.asks:
            return True
        return not plan.unverified_because and bool(plan.verify or plan.words or plan.agent)

    def settings_digest(self) -> str:
        """Over what decides, besides the plan and the tree, which checks run, what they see, and with what tools."""
        settings, found = self._settings(), self._environment()
        environment = {"path": found.path, "variables": found.variables, "readable": found.readable}
        environment["build"] = settings.environment.build
        return digest_of({**settings.checks._asdict(), "hidden": settings.hidden, "environment": environment})

    def outdated(self, verified: Verified) -> Verified:
        """Without what they stood on, where the receipts are of other checks than those that are wanted now."""
        if not verified.receipts or verified.checks == self.settings_digest():
            return verified
        now, why = self._checked_in(), "checked with other settings than those of now"
        if verified.checked_in not in ("", now):
            was = printable(verified.checked_in)
            why = f"checked in another environment: VIRTUAL_ENV was {was}, is {printable(now)}"
        return verified.unbound()._replace(outdated=why)

    def _environment(self) -> Environment:
        return environment_of(this_shell(), self._site.seen_at, readable=self._settings().environment.readable)

    def _checked_in(self) -> str:
        return dict(self._environment().variables).get("VIRTUAL_ENV", NO_ENVIRONMENT)

    def _look(self) -> _Look:
        moment = time.time_ns()
        root = os.stat(self._site.path).st_ctime_ns
        return _Look(snapshot(self._site.path, self._site.state.path), moment, root)

    def _unchecked(self, plan: Plan, landable: Landable) -> Verified:
        found = self._touched_tests(plan, landable)
        base_tests = found.base if found is not None else None
        return Verified((), "", landable.change_set.digest, _skipped(plan), base_tests=base_tests)

    def _verified(self, before: _Look, settings: str, part: _Part, run: Callable[[_Part], _Found]) -> Verified:
        """Bound to the tree before the checks, if it was that one all along (R2)."""
        changes = part.landable.change_set
        digest = before.tree.digest_after(changes.changes)
        part = part._replace(digest=digest)
        found = self._judged(before, part, run(part), run)
        verified = Verified(
            found.receipts,
            before.tree.digest,
            changes.digest,
            found.unverified,
            settings,
            digest,
            found.not_run,
            self._base_tests(before, part.plan, part.landable, found, run),
            found.ran,
            self._checked_in(),
        )
        if not found.receipts:
            return verified  # nothing was bound to anything
        after = self._look()
        if after.root_ns != before.root_ns or after.tree.was_touched_since(before.tree, before.moment_ns):
            return verified.unbound()._replace(base_tree="", unverified=_TOUCHED)
        if found.ran and all(receipt.tree_digest == digest for receipt in found.receipts):
            self._remember(digest, found.ran)
        return verified

    # ── the base's tests (R4) ──

    def _base_tests(
        self, before: _Look, plan: Plan, landable: Landable, found: _Found, run: Callable[[_Part], _Found]
    ) -> BaseTests | None:
        """Run over the new code. What failed its own checks cannot land, and needs no more of them."""
        tests = self._touched_tests(plan, landable)
        if tests is None or not tests.left_out or not all(receipt.passed for receipt in found.receipts):
            return tests.base if tests is not None else None
        part = self._without_tests(plan, landable, tests, before)
        base = tests.base._replace(tree=part.digest)
        try:
            ran = self._judged(before, part, run(part), run)
        except Interrupted:
            raise
        except (HoldfastError, OSError) as error:
            return base._replace(why_not_run=str(error))
        if not ran.receipts:
            return base._replace(why_not_run=ran.unverified)
        receipts = tuple(
            receipt._replace(kind="base tests", detail=f"the base's tests over the new code: {receipt.detail}")
            for receipt in ran.receipts
        )
        passed = all(receipt.passed for receipt in receipts)
        if passed and (doubt := _doubt_of(receipts)):
            return base._replace(why_not_run=doubt)
        base = base._replace(outcome="passed" if passed else "failed", receipts=receipts)
        return compared(base, ran.cases, found.cases)

    # ── the baseline (R5) ──

    def _judged(self, before: _Look, part: _Part, found: _Found, run: Callable[[_Part], _Found]) -> _Found:
        """With the failures forgiven that are no fault of the change, and the others named; with what is missing."""
        failed = [each for each in found.ran if not found.receipts[each.number].passed]
        if not part.forgives or not all(each.otherwise_good for each in failed):
            return found
        base = self._baseline_known(before)
        unknown = {each.level for each in failed if each.key not in base}
        if unknown:
            base = self._baseline(before, part, run, tuple(level for level in LEVELS if level in unknown))
        if not base:
            return found
        judging = _Judging(part, found, base, lambda: run(part._replace(only=_TESTS)).ran, self._log_of)
        for each in found.ran:
            judging.judge(each)
        judging.judge_commands()
        return judging.found

    def _baseline(
        self, before: _Look, part: _Part, run: Callable[[_Part], _Found], levels: tuple[Level, ...]
    ) -> Mapping[object, Ran]:
        """The same runs of these levels on the untouched base; nothing where they cannot be made."""
        paths = (*part.landable.beside, *part.landable.change_set.paths)
        asked, known = (*self._place_of(before.tree.digest), *levels, *paths), self._baseline_known(before)
        if asked not in _ASKED or not known:
            untouched = Landable(_NOTHING, {}, {}, paths)
            what = "tests" if levels == _TESTS else "checks"
            self._progress(f"verify: the {what} as they were before the change", 0, 1)
            try:
                ran = run(_Part(part.plan, untouched, before.tree.digest, only=levels)).ran
            except Interrupted:
                raise
            except (HoldfastError, OSError):
                return {}  # a failure that nothing is known of stays one
            after = self._look()
            if after.root_ns != before.root_ns or after.tree.was_touched_since(before.tree, before.moment_ns):
                return {}  # they may be the failures of another tree (R2)
            self._remember(before.tree.digest, ran)
            while len(_ASKED) >= _MOST_BASELINES:
                _ASKED.pop(next(iter(_ASKED)))
            _ASKED[asked] = True
        return self._baseline_known(before)

    def _baseline_known(self, before: _Look) -> Mapping[object, Ran]:
        return _BASELINES.get(self._place_of(before.tree.digest), {})

    def _told_before(self, landable: Landable) -> Mapping[object, Receipt]:
        """The receipts of the baseline's tests, where the work begins on just that tree, and their logs are there."""
        if not _BASELINES or landable.change_set.changes:
            return {}
        found = ((ran.key, ran.receipt) for ran in self._tests_known(self._look()))
        return {key: receipt for key, receipt in found if receipt is not None and self._has_log(receipt)}

    def _has_log(self, receipt: Receipt) -> bool:
        try:
            return bool(self._log_of(receipt))
        except (HoldfastError, OSError):
            return False

    def _place_of(self, tree: str) -> tuple[str, str, str]:
        """Runs of tests are of a tree, with these settings and this environment, at one path."""
        return self._site.seen_at, tree, self.settings_digest()

    def _remember(self, tree: str, ran: Iterable[Ran]) -> None:
        """What tests said of a tree is the baseline of whatever is laid over it."""
        place = self._place_of(tree)
        known = _BASELINES.pop(place, {})
        while len(_BASELINES) >= _MOST_BASELINES:
            _BASELINES.pop(next(iter(_BASELINES)))
        _BASELINES[place] = {**known, **{each.key: each for each in ran}}

    def carry_over(self, changes: ChangeSet) -> None:
        """These changes, which just landed, are none that tests are about (boxes of a roadmap were ticked): what is
        known of the tree before holds on. Where anything else changed as well, nothing is known of it."""
        if not _BASELINES:
            return
        now = self._look().tree
        back = [change._replace(pre=change.post, post=change.pre) for change in changes.changes]
        known = _BASELINES.get(self._place_of(now.digest_after(back)))
        if known:
            self._remember(now.digest, known.values())

    def take_baseline(self, beside: Sequence[str] = ()) -> tuple[str, ...]:
        """What the tests say that the work of an agent would have, on the workspace as it is; a sentence for each run.
        Where something landed last, its receipts say it."""
        part, before = _Part(_BY_AN_AGENT, Landable(_NOTHING, {}, {}, (ANYTHING, *beside))), self._look()
        known = self._tests_known(before)
        if not known:
            self._baseline(before, part, self._in_fresh_shadow, _TESTS)
            known = self._tests_known(before)
        return tuple(map(as_before, known))

    def _tests_known(self, before: _Look) -> tuple[Ran, ...]:
        return tuple(ran for ran in self._baseline_known(before).values() if ran.level == "tests")

    def _without_tests(self, plan: Plan, landable: Landable, tests: Touched, before: _Look) -> _Part:
        part = self.without(landable, tests.left_out)
        part = part._replace(beside=(*landable.beside, *landable.change_set.paths))
        new = frozenset(change.path for change in tests.left_out if change.pre is None)
        return _Part(plan, part, before.tree.digest_after(part.change_set.changes), base_tests=True, new_paths=new)

    def without(self, landable: Landable, left_out: Sequence[Change]) -> Landable:
        """The same change with these paths as they are in the workspace."""
        changes = landable.change_set
        rest = change_set(without(changes.changes, left_out), changes.reads)
        moved = {c.path: self._copy_of(c.origin) for c in changes.changes if c.origin is not None}
        return landable._replace(change_set=rest, sources={**moved, **landable.sources})

    def _copy_of(self, path: str) -> CopyOf:
        return CopyOf(lambda: self._site.calls.open_beneath(path, _READ, self._site.workspace.fd))

    def _touched_tests(self, plan: Plan, landable: Landable) -> Touched | None:
        """None for what somebody wrote by hand: they say themselves what becomes of their tests."""
        if plan.is_by_hand:
            return None
        doctests = self._runs_doctests(plan)
        concerned = [change for change in landable.change_set.changes if concerns_tests(change.path, doctests=doctests)]
        if not concerned:
            return None
        difference = PlannedDifference(self._site, concerned, landable.sources)
        sides = (Sides(change, _text(old), _text(new)) for change, old, new in difference.compared(concerned))
        return touched(sides, doctests=doctests)

    def _runs_doctests(self, plan: Plan) -> bool:
        commands = (*(check.argv for check in plan.verify), *self._settings().checks.run)
        if any("doctest" in word for argv in commands for word in argv):
            return True
        return any(b"doctest" in self.head_of(name) for name in _SAYING_DOCTESTS)

    def head_of(self, path: str) -> bytes:
        """The beginning of a file of the workspace; empty where there is none."""
        try:
            fd = self._site.calls.open_beneath(path, _READ, self._site.workspace.fd)
        except OSError:
            return b""
        try:
            return self._site.calls.pread(fd, 1 << 20, 0)
        except OSError:
            return b""
        finally:
            self._site.calls.close(fd)

    # ── running ──

    def _in_fresh_shadow(self, part: _Part) -> _Found:
        try:
            return self._checked(part, "auto")
        except SandboxUnavailable as error:
            return self._checked_with_less(part, error)

    def _checked(self, part: _Part, kind: ShadowKind) -> _Found:
        changes, seen, sources, _ = part.landable
        with open_shadow(self._site, kind, self._settings().hidden) as shadow:
            shadow.put(changes, seen, sources)
            return self._in_view(part, shadow.view)

    def _in_view(self, part: _Part, view: View) -> _Found:
        unseen = [path for path in part.landable.change_set.paths if Roots(view.masked).cover(path)]
        said = self._says_other_dependencies(part.landable)
        settings = self._settings()
        environment = self._environment_of([*part.landable.change_set.paths, *part.landable.beside])
        if unseen:
            # A check that cannot see part of the change says nothing about it (R2).
            found = self._found(part._replace(digest=""), view, environment)
            return found._replace(unverified=f"{printable(unseen[0])} is hidden, so no check sees what would land")
        if not said and not self._site.unbuilt:
            return self._found(part, view, environment)
        if not settings.environment.build:
            why = not_built(said) if said else self._site.unbuilt
            return self._found(part._replace(digest=""), view, environment)._replace(unverified=why)
        self._progress("verify: the environment is built", 0, 1)
        profile = profile_of(settings.limits, environment)._replace(network="loopback")
        built = build(view, settings.environment, environment, profile, self._save_log, part.digest)
        if not built.passed:
            return _Found((built,), built.detail.splitlines()[0])
        found = self._found(part, view, with_built(environment, view))
        ran = tuple(each._replace(number=each.number + 1) for each in found.ran)
        return found._replace(receipts=(built, *found.receipts), ran=ran)

    def _says_other_dependencies(self, landable: Landable) -> str:
        """R6"""

        def compared(changes: Sequence[Change]) -> Sequence[Compared]:
            return tuple(PlannedDifference(self._site, changes, landable.sources).compared(changes))

        return changed_dependencies(landable.change_set.changes, compared)

    def _found(self, part: _Part, view: View, environment: Environment) -> _Found:
        plan, landable, digest = part.plan, part.landable, part.digest
        settings, asked = self._settings(), _asked(plan)
        paths = [*landable.change_set.paths, *landable.beside]
        with tree_in(view) as tree:
            ground = self._ground(view, tree, environment, digest)
            receipts = verify(
                () if part.only else _own_checks_of(part, asked),
                directory=self._site.seen_at,
                tree_digest=digest,
                save_log=self._save_log,
                progress=lambda done, total, text: self._progress(f"verify: {text}", done, total),
                run=ground.run,
                written=written_to(view),
                env=ground.env,
            )
            if not _needs_gathering(plan, asked, settings.checks):
                return _Found(receipts)
            wanted = _wanted(plan, asked, settings.checks)
            if part.base_tests:
                wanted = _tests_alone(wanted, part.new_paths)
            if part.only:
                wanted = _only(wanted, part.only)
            found = gather(
                ground, paths, wanted, lambda done, total, text: self._progress(f"verify: {text}", done, total)
            )
        unverified = "; ".join(filter(None, (_skipped(plan), found.unverified)))
        not_run = tuple(item.detail for item in found.not_run)
        ran = tuple(each._replace(number=each.number + len(receipts)) for each in found.ran)
        return _Found((*receipts, *found.receipts), unverified, not_run, ran)

    # ── before anything is done ──

    def trial(self, beside: Sequence[str] = (), within_ms: int = TRIAL_MS) -> tuple[Tried, ...]:
        """Which checks the work of an agent would have in these projects, and in that of the whole workspace, and
        whether they can run. None is run. SandboxUnavailable where nothing can isolate a program."""
        try:
            return self._tried("auto", beside, within_ms)
        except SandboxUnavailable:
            return self._tried("copy", beside, within_ms)

    def _tried(self, kind: ShadowKind, beside: Sequence[str], within_ms: int) -> tuple[Tried, ...]:
        paths = (ANYTHING, *beside)
        wanted = _wanted(_BY_AN_AGENT, _asked(_BY_AN_AGENT), self._settings().checks)
        with open_shadow(self._site, kind, self._settings().hidden) as shadow, tree_in(shadow.view) as tree:
            return tried(self._ground(shadow.view, tree, self._environment_of(paths), ""), paths, wanted, within_ms)

    def _checked_with_less(self, part: _Part, error: SandboxUnavailable) -> _Found:
        """A copy where overlays are refused; no sandbox at all only where the user's own configuration says so."""
        settings, asked = self._settings(), _asked(part.plan)
        try:
            return self._checked(part, "copy")
        except SandboxUnavailable:
            if settings.unsandboxed != "allow":
                raise SandboxUnavailable(
                    f"the checks cannot be run: {error.message}",
                    hint="Nothing was changed. See what is missing: holdfast doctor. "
                    'To run commands unconfined, say in your own config.toml: [sandbox] without = "allow"',
                ) from error
        if _needs_gathering(part.plan, asked, settings.checks):
            raise error
        with scratch_copy(self._site, part.landable.change_set, part.landable.sources) as directory:
            receipts = verify(
                _own_checks_of(part, asked),
                directory=directory,
                tree_digest=part.digest,
                save_log=self._save_log,
                progress=lambda done, total, text: self._progress(f"verify: {text}", done, total),
            )
        return _Found(receipts, "the checks ran without a sandbox")

    def _log_of(self, receipt: Receipt) -> bytes:
        return Blobs(self._site.state).get(receipt.log_digest) if receipt.log_digest else b""

    def _save_log(self, data: bytes) -> str:
        return Blobs(self._site.state).put(data)


def profile_of(limits: ProgramLimits, environment: Environment = NOTHING_FOUND) -> Profile:
    """No network, nothing of the user's but their environment, and the limits that the configuration sets."""
    stated = {name: value for name, value in limits._asdict().items() if value is not None}
    return Profile(
        limits=Limits()._replace(**stated),
        readable=environment.readable,
        hidden=environment.hidden,
        overlaid=environment.overlaid,
    )


def _text(side: Side) -> str:
    return side.data.decode("utf-8", "replace") if side.data is not None else ""


def _passed_in(results: Results | None, names: Sequence[str]) -> tuple[str, ...]:
    if results is None:
        return ()
    passed = {case.full_name for case in results.cases if case.state == "passed"}.difference(results.failed)
    return tuple(name for name in names if name in passed)


def _own_checks_of(part: _Part, asked: Understood) -> tuple[VerifyCheck, ...]:
    """The plan's own; of those, the base's tests are not judged by what names a new file."""
    checks = _own_checks(part.plan, asked)
    return tuple(check for check in checks if not _names_any(check.argv, part.new_paths))


def _tests_alone(wanted: Wanted, new: frozenset[str]) -> Wanted:
    """Tests and what configuration names; what a change must bring, and how much is covered, is for its own tree."""
    levels = {"acceptance", *(wanted.levels or LEVELS)} & PROOF
    return wanted._replace(
        levels=(),
        expected=(),
        commands=tuple(argv for argv in wanted.commands if not _names_any(argv, new)),
        criteria=wanted.criteria._replace(minimum_coverage=None, required=()),
        among=tuple(level for level in LEVELS if level in levels),
    )


def _only(wanted: Wanted, levels: tuple[Level, ...]) -> Wanted:
    """Of what is found, the same commands of these levels as with all that is wanted, and nothing else."""
    criteria = wanted.criteria._replace(required=())
    return wanted._replace(levels=(), expected=(), commands=(), criteria=criteria, among=levels)


def _doubt_of(receipts: Iterable[Receipt]) -> str:
    return next((receipt.unverified for receipt in receipts if receipt.unverified), "")


def _names_any(argv: tuple[str, ...], paths: frozenset[str]) -> bool:
    return any(path in word for word in argv for path in paths)


def _own_checks(plan: Plan, asked: Understood) -> tuple[VerifyCheck, ...]:
    return () if plan.unverified_because else (*plan.verify, *asked.commands)


def _skipped(plan: Plan) -> str:
    return f"skipped: {plan.unverified_because}" if plan.unverified_because else ""


def _needs_gathering(plan: Plan, asked: Understood, checks: CheckSettings) -> bool:
    if checks.asks:
        return True
    return not plan.unverified_because and bool(plan.agent or asked.levels or asked.everything or asked.files)


def _wanted(plan: Plan, asked: Understood, checks: CheckSettings) -> Wanted:
    """What the words and the configuration want together; where both set a bound, the stricter one.

    A plan that skips its checks leaves those that configuration names, and the tests if it asks something of them (R3).
    """
    words = asked.criteria
    asks_for_tests = bool(checks.required) or checks.coverage is not None
    coverage = [bound for bound in (words.minimum_coverage, _hundredths(checks.coverage)) if bound is not None]
    failures = [bound for bound in (words.maximum_failures, checks.failures) if bound is not None]
    by_agent = plan.verify_mode == "agent"
    wanted = Wanted(
        mode="agent" if by_agent else "auto",
        levels=(("tests",) if asks_for_tests else ()) if by_agent else _levels(asked, also_tests=asks_for_tests),
        expected=asked.files,
        commands=checks.run,
        of_the_project=frozenset(checks.of_the_project),
        # What the user allows to fail is the user's word; what only the plan allows, its own.
        tests_by="plan" if words.maximum_failures and checks.failures is None else "detected",
        detect=checks.detect and (asks_for_tests or not plan.unverified_because),
        criteria=words._replace(
            minimum_coverage=max(coverage, default=None),
            maximum_failures=min(failures, default=None),
            required=(*words.required, *checks.required),
        ),
    )
    return wanted._replace(within_ms=checks.time_ms) if checks.time_ms is not None else wanted


def _levels(asked: Understood, *, also_tests: bool) -> tuple[Level, ...]:
    """Words that name levels leave the others out; the configuration's tests are not theirs to leave out."""
    named = {*asked.levels, "tests"} if asked.levels and also_tests else set(asked.levels)
    return tuple(level for level in LEVELS if level in named)


def _hundredths(percent: int | None) -> int | None:
    return None if percent is None else percent * 100


def _asked(plan: Plan) -> Understood:
    health = understood_as_health(plan.health_words)
    if health.not_understood:
        first = health.not_understood[0]
        raise InvalidInput(f"the health check {printable(first.text)!r} is not understood: {first.why}",
                           hint="Nothing was changed. Give a list of checks under health: instead.")  # fmt: skip
    asked = understood(() if plan.unverified_because else plan.words)
    if asked.not_understood:
        first = asked.not_understood[0]
        raise InvalidInput(f"the verification {printable(first.text)!r} is not understood: {first.why}",
                           hint="Nothing was changed. Give a list of commands instead.")  # fmt: skip
    if asked.wants_health and not plan.health and not asked.health and not health.health:
        raise InvalidInput("the verification asks for health checks, and the plan has none",
                           hint="Nothing was changed. Add them under health:")  # fmt: skip
    return asked
