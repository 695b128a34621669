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
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from holdfast.checks.confine import confined, written_to
from holdfast.checks.edited_tests import Sides, Touched, compared, touched, without
from holdfast.checks.gather import Ground, Wanted, finds_none, gather
from holdfast.checks.junit import Case
from holdfast.checks.levels import LEVELS, PROOF, Level
from holdfast.checks.toolchains import toolchains
from holdfast.checks.verify import verify
from holdfast.checks.viewed import tree_in
from holdfast.checks.words import Understood, understood, understood_as_health
from holdfast.engine.difference import PlannedDifference, Side
from holdfast.errors import HoldfastError, Interrupted, InvalidInput, SandboxUnavailable
from holdfast.gates.evidence import VERIFYING_KINDS
from holdfast.model.canonical import digest_of
from holdfast.model.changeset import Change, ChangeSet, change_set
from holdfast.model.check import VerifyCheck
from holdfast.model.configuration import CheckSettings, ProgramLimits, Settings
from holdfast.model.execution import BaseTests, Receipt
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.model.plan import Plan
from holdfast.model.testfiles import concerns_tests
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

    @property
    def proofs(self) -> tuple[Receipt, ...]:
        """The checks that ran and can say "it works". That files exist and parse is no such word."""
        return tuple(receipt for receipt in self.receipts if receipt.passed and receipt.kind in VERIFYING_KINDS)

    def unbound(self) -> Verified:
        """The same receipts, for no tree at all: a failure stays one, a success proves nothing."""
        return self._replace(receipts=tuple(receipt._replace(tree_digest="") for receipt in self.receipts))


class _Found(NamedTuple):
    """What checks came to; as in `Verified`. `cases` are the single tests that reports name."""

    receipts: tuple[Receipt, ...]
    unverified: str = ""
    not_run: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()


class _Part(NamedTuple):
    """What is checked as what tree; with `base_tests`, only by tests, and by none that is new."""

    plan: Plan
    landable: Landable
    digest: str
    base_tests: bool = False
    new_paths: frozenset[str] = frozenset()


class _Look(NamedTuple):
    """The workspace before the checks."""

    tree: Snapshot
    moment_ns: int
    # Of the workspace's own directory, which is no entry of its tree.
    root_ns: int


class Checking:
    def __init__(self, site: Site, settings: Callable[[], Settings], progress: Progress) -> None:
        self._site = site
        self._settings = settings
        self._progress = progress
        # By plan: what was found in the layer above an agent's newest work.
        self._newest: dict[str, Verified] = {}
        # The change set that was newly checked there, and the tree it was checked on.
        self._looked: tuple[str, Snapshot] | None = None

    def verify(self, plan: Plan, landable: Landable) -> Verified:
        """In a shadow made for it. What was just found above an agent's work is not found again, once;
        whether its tree still stands is asked under the lock, when it lands."""
        _asked(plan)
        if not self.wants_checks(plan):
            return self._unchecked(plan, landable)
        settings = self.settings_digest()
        fresh = self._newest.pop(plan.digest, None)
        if fresh is not None and (fresh.change_set, fresh.checks) == (landable.change_set.digest, settings):
            return fresh
        return self._verified(self._look(), settings, plan, landable, self._in_fresh_shadow)

    def verify_in(self, shadow: Shadow, plan: Plan, landable: Landable) -> Verified:
        """In a layer of a shadow that is there already, where an agent is at work."""
        if not self.wants_checks(plan):
            return self._unchecked(plan, landable)

        def run(part: _Part) -> _Found:
            changes, seen, sources, _ = part.landable
            with shadow.layer(changes, seen, sources) as view:
                return self._in_view(part, view)

        before = self._look()
        verified = self._verified(before, self.settings_digest(), plan, landable, run)
        if verified.base_tree:
            self._newest[plan.digest] = verified
            self._looked = landable.change_set.digest, before.tree
        return verified

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
        """Over what decides, besides the plan and the tree, which checks run and what they can see."""
        settings = self._settings()
        return digest_of({**settings.checks._asdict(), "hidden": settings.hidden})

    def _look(self) -> _Look:
        moment = time.time_ns()
        root = os.stat(self._site.path).st_ctime_ns
        return _Look(snapshot(self._site.path, self._site.state.path), moment, root)

    def _unchecked(self, plan: Plan, landable: Landable) -> Verified:
        found = self._touched_tests(plan, landable)
        base_tests = found.base if found is not None else None
        return Verified((), "", landable.change_set.digest, _skipped(plan), base_tests=base_tests)

    def _verified(
        self, before: _Look, settings: str, plan: Plan, landable: Landable, run: Callable[[_Part], _Found]
    ) -> Verified:
        """Bound to the tree before the checks, if it was that one all along (R2)."""
        changes = landable.change_set
        digest = before.tree.digest_after(changes.changes)
        found = run(_Part(plan, landable, digest))
        verified = Verified(
            found.receipts,
            before.tree.digest,
            changes.digest,
            found.unverified,
            settings,
            digest,
            found.not_run,
            self._base_tests(before, plan, landable, found, run),
        )
        if not found.receipts:
            return verified  # nothing was bound to anything
        after = self._look()
        if after.root_ns != before.root_ns or after.tree.was_touched_since(before.tree, before.moment_ns):
            return verified.unbound()._replace(base_tree="", unverified=_TOUCHED)
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
            ran = run(part)
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
        base = base._replace(outcome="passed" if passed else "failed", receipts=receipts)
        return compared(base, ran.cases, found.cases)

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
        return any(b"doctest" in self._head_of(name) for name in _SAYING_DOCTESTS)

    def _head_of(self, path: str) -> bytes:
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
        if not unseen:
            return self._found(part, view)
        # A check that cannot see part of the change says nothing about it (R2).
        found = self._found(part._replace(digest=""), view)
        return found._replace(unverified=f"{printable(unseen[0])} is hidden, so no check sees what would land")

    def _found(self, part: _Part, view: View) -> _Found:
        plan, landable, digest = part.plan, part.landable, part.digest
        settings, asked = self._settings(), _asked(plan)
        home = toolchains(os.path.expanduser("~"))
        # Many tests talk to a server of their own; this loopback leads nowhere else.
        profile = profile_of(settings.limits)._replace(readable=home.readable, network="loopback")
        run = confined(view, profile)
        receipts = verify(
            _own_checks_of(part, asked),
            directory=self._site.path,
            tree_digest=digest,
            save_log=self._save_log,
            progress=lambda done, total, text: self._progress(f"verify: {text}", done, total),
            run=run,
            written=written_to(view),
            env=home.env,
        )
        if not _needs_gathering(plan, asked, settings.checks):
            return _Found(receipts)
        with tree_in(view) as tree:
            ground = Ground(tree, self._site.path, digest, run, self._save_log, home.env)
            paths = [*landable.change_set.paths, *landable.beside]
            wanted = _wanted(plan, asked, settings.checks)
            if part.base_tests:
                wanted = _tests_alone(wanted, part.new_paths)
            found = gather(
                ground, paths, wanted, lambda done, total, text: self._progress(f"verify: {text}", done, total)
            )
        unverified = "; ".join(filter(None, (_skipped(plan), found.unverified)))
        not_run = tuple(item.detail for item in found.not_run)
        return _Found((*receipts, *found.receipts), unverified, not_run, found.cases)

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

    def _save_log(self, data: bytes) -> str:
        return Blobs(self._site.state).put(data)


def profile_of(limits: ProgramLimits) -> Profile:
    """No network, nothing of the user's, and the limits that the configuration sets."""
    stated = {name: value for name, value in limits._asdict().items() if value is not None}
    return Profile(limits=Limits()._replace(**stated))


def _text(side: Side) -> str:
    return side.data.decode("utf-8", "replace") if side.data is not None else ""


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
