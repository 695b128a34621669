"""Checking: the checks of a plan, over base plus landable change, in a sandboxed layer that is thrown away.

    what a plan names ........ its commands and test suites, and its verification in plain words
    what configuration names . [checks] of every layer, whatever the plan says
    what is detected ......... when words ask for everything, and always for the work of an agent

Invariants
  R1  Receipts are for one change set, on one tree, by the checks that were wanted then; when one of the three moves,
      they prove nothing (`Verified.base_tree`, `change_set`, `checks`).
  R2  A receipt names a tree only if the checks could see the whole change, and nobody wrote to the workspace meanwhile.
  R3  A plan that skips its checks skips its own. What the configuration asks for is run all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from holdfast.checks.confine import confined, written_to
from holdfast.checks.gather import Ground, Wanted, finds_none, gather
from holdfast.checks.levels import LEVELS, Level
from holdfast.checks.toolchains import toolchains
from holdfast.checks.verify import verify
from holdfast.checks.viewed import tree_in
from holdfast.checks.words import Understood, understood, understood_as_health
from holdfast.errors import HoldfastError, InvalidInput, SandboxUnavailable
from holdfast.gates.evidence import VERIFYING_KINDS
from holdfast.model.canonical import digest_of
from holdfast.model.changeset import ChangeSet
from holdfast.model.check import VerifyCheck
from holdfast.model.configuration import CheckSettings, ProgramLimits, Settings
from holdfast.model.execution import Receipt
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.model.plan import Plan
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.view import View
from holdfast.store.blobs import Blobs
from holdfast.workspace.hidden import Roots
from holdfast.workspace.scratch import scratch_copy
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source
from holdfast.workspace.tree import Snapshot, snapshot

Progress = Callable[[str, int, int], None]
ShadowKind = Literal["auto", "overlay", "copy"]
_TOUCHED = "the workspace was written to while the checks ran"


class _Found(NamedTuple):
    receipts: tuple[Receipt, ...]
    unverified: str = ""
    not_run: tuple[str, ...] = ()


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

    @property
    def proofs(self) -> tuple[Receipt, ...]:
        """The checks that ran and can say "it works". That files exist and parse is no such word."""
        return tuple(receipt for receipt in self.receipts if receipt.passed and receipt.kind in VERIFYING_KINDS)

    def unbound(self) -> Verified:
        """The same receipts, for no tree at all: a failure stays one, a success proves nothing."""
        return self._replace(receipts=tuple(receipt._replace(tree_digest="") for receipt in self.receipts))


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
            return Verified((), "", landable.change_set.digest, _skipped(plan))
        settings = self.settings_digest()
        fresh = self._newest.pop(plan.digest, None)
        if fresh is not None and (fresh.change_set, fresh.checks) == (landable.change_set.digest, settings):
            return fresh
        before = self._look()
        digest = before.tree.digest_after(landable.change_set.changes)
        try:
            found = self._checked(plan, landable, digest, "auto")
        except SandboxUnavailable as error:
            found = self._checked_with_less(plan, landable, digest, error)
        return self._verified(before, settings, landable, digest, found)

    def verify_in(self, shadow: Shadow, plan: Plan, landable: Landable) -> Verified:
        """In a layer of a shadow that is there already, where an agent is at work."""
        if not self.wants_checks(plan):
            return Verified((), "", landable.change_set.digest, _skipped(plan))
        before, settings = self._look(), self.settings_digest()
        digest = before.tree.digest_after(landable.change_set.changes)
        with shadow.layer(landable.change_set, landable.seen, landable.sources) as view:
            found = self._in_view(plan, landable, digest, view)
        verified = self._verified(before, settings, landable, digest, found)
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

    def _verified(self, before: _Look, settings: str, landable: Landable, digest: str, found: _Found) -> Verified:
        """Bound to the tree before the checks, if it was that one all along (R2)."""
        verified = Verified(
            found.receipts,
            before.tree.digest,
            landable.change_set.digest,
            found.unverified,
            settings,
            digest,
            found.not_run,
        )
        if not found.receipts:
            return verified  # nothing was bound to anything
        after = self._look()
        if after.root_ns != before.root_ns or after.tree.was_touched_since(before.tree, before.moment_ns):
            return verified.unbound()._replace(base_tree="", unverified=_TOUCHED)
        return verified

    def _checked(self, plan: Plan, landable: Landable, digest: str, kind: ShadowKind) -> _Found:
        with open_shadow(self._site, kind, self._settings().hidden) as shadow:
            shadow.put(landable.change_set, landable.seen, landable.sources)
            return self._in_view(plan, landable, digest, shadow.view)

    def _in_view(self, plan: Plan, landable: Landable, digest: str, view: View) -> _Found:
        unseen = [path for path in landable.change_set.paths if Roots(view.masked).cover(path)]
        if not unseen:
            return self._found(plan, landable, digest, view)
        # A check that cannot see part of the change says nothing about it (R2).
        hidden = f"{printable(unseen[0])} is hidden, so no check sees what would land"
        return self._found(plan, landable, "", view)._replace(unverified=hidden)

    def _found(self, plan: Plan, landable: Landable, digest: str, view: View) -> _Found:
        settings, asked = self._settings(), _asked(plan)
        home = toolchains(os.path.expanduser("~"))
        # Many tests talk to a server of their own; this loopback leads nowhere else.
        profile = profile_of(settings.limits)._replace(readable=home.readable, network="loopback")
        run = confined(view, profile)
        receipts = verify(
            _own_checks(plan, asked),
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
            touched = [*landable.change_set.paths, *landable.beside]
            wanted = _wanted(plan, asked, settings.checks)
            found = gather(
                ground, touched, wanted, lambda done, total, text: self._progress(f"verify: {text}", done, total)
            )
        unverified = "; ".join(filter(None, (_skipped(plan), found.unverified)))
        return _Found((*receipts, *found.receipts), unverified, tuple(item.detail for item in found.not_run))

    def _checked_with_less(self, plan: Plan, landable: Landable, digest: str, error: SandboxUnavailable) -> _Found:
        """A copy where overlays are refused; no sandbox at all only where the user's own configuration says so."""
        settings, asked = self._settings(), _asked(plan)
        try:
            return self._checked(plan, landable, digest, "copy")
        except SandboxUnavailable:
            if settings.unsandboxed != "allow":
                raise SandboxUnavailable(
                    f"the checks cannot be run: {error.message}",
                    hint="Nothing was changed. See what is missing: holdfast doctor. "
                    'To run commands unconfined, say in your own config.toml: [sandbox] without = "allow"',
                ) from error
        if _needs_gathering(plan, asked, settings.checks):
            raise error
        with scratch_copy(self._site, landable.change_set, landable.sources) as directory:
            receipts = verify(
                _own_checks(plan, asked),
                directory=directory,
                tree_digest=digest,
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
