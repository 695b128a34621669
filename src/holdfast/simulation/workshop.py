"""The workshop: where commands run and agents work, in a sandboxed shadow, and what they did becomes part of the draft.

    draft ──put──▶ shadow ──program, sandboxed──▶ shadow ──capture──▶ draft

Invariants
  K1  Before a program runs, the shadow is the workspace with everything that earlier steps did; by-products of earlier
      programs are still there, because later ones may need them.
  K2  After it ran, the draft is what was captured: nothing is believed that the program said.
      What steps did at hidden paths stays as they did it; no program saw it.
  K3  A suspicious act was one, whatever a later program tidies away. Dangers are of what would land: those that stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.environment.found import Environment
from holdfast.errors import Blocked, Conflict, InvalidInput
from holdfast.model.changeset import Change, ChangeSet, change_set, differing_paths
from holdfast.model.check import quoted
from holdfast.model.execution import Receipt
from holdfast.model.image import Image
from holdfast.model.path import printable
from holdfast.model.plan import Agent, ProgramStep, Run
from holdfast.model.simulation import ByProduct
from holdfast.model.words import counted
from holdfast.sandbox.confined import Confined, run_confined
from holdfast.sandbox.exceeded import exceeded
from holdfast.sandbox.process import Command, clean_environment
from holdfast.sandbox.profile import Limits, Profile
from holdfast.simulation.draft import Draft
from holdfast.simulation.rehearsal import Ran
from holdfast.workspace.beside import looking
from holdfast.workspace.capture import Captured
from holdfast.workspace.hidden import Roots
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.tree import Snapshot

SaveLog = Callable[[bytes], str]
# The last lines of what a program printed, as they may be shown.
LastWords = Callable[[bytes], tuple[str, ...]]
# A look at the workspace that was begun with a program counts for its end if there was no more time in between.
_SHORT_MS = 500


class Worked(NamedTuple):
    """What an agent's work came to: what stands in the shadow now, and the receipt that tells how it got there."""

    captured: Captured
    receipt: Receipt
    enforced: tuple[str, ...]


# Lets an agent work in the shadow until its work is good, or raises what stopped it.
Delegate = Callable[[Shadow, Agent], Worked]


class Workshop:
    """One shadow for all programs of a plan."""

    def __init__(
        self,
        shadow: Shadow,
        path: str,
        profile: Profile,
        keep: Sequence[str],
        save_log: SaveLog,
        look: Callable[[], Snapshot],
        last_words: LastWords,
        environment: Environment,
        delegate: Delegate | None = None,
    ) -> None:
        self._shadow = shadow
        self._look = look
        self._last_words = last_words
        self._delegate = delegate
        self._path = path
        self._profile = profile
        self._environment = environment
        self._keep = keep
        self._save_log = save_log
        self._standing: dict[str, Image | None] = {}
        self.by_products: tuple[ByProduct, ...] = ()
        self.suspicious: tuple[str, ...] = ()
        self.dangers: tuple[str, ...] = ()
        self.enforced: tuple[str, ...] = ()
        # The workspace as the last program ended, if it was a short one.
        self.base: Snapshot | None = None

    @property
    def kind(self) -> str:
        return self._shadow.kind

    def run(self, draft: Draft, step: ProgramStep) -> Ran:
        """Run it in the shadow; Blocked when it fails, Conflict when the workspace moved meanwhile."""
        before = draft.difference()
        self._shadow.put(self._to_fill(draft, before), draft.seen, draft.sources_with(self._standing))
        captured, receipt, self.enforced = self._worked(step)
        self._note(captured)
        hidden = Roots(self._shadow.view.masked)
        draft.adopt(captured.change_set, captured.seen, captured.sources, hidden.cover)
        after = draft.difference()
        self._standing = {change.path: change.post for change in after.changes}
        affected = differing_paths(before, after)
        if isinstance(step, Agent):
            return Ran(receipt.detail, affected, receipt)
        return Ran(f"ran, and changed {counted(len(affected), 'path')}" if affected else "ran, and changed nothing",
                   affected, receipt)  # fmt: skip

    def _worked(self, step: ProgramStep) -> Worked:
        self.base = None
        if isinstance(step, Agent):
            if self._delegate is None:
                raise Blocked("there is nobody here to give work to an agent")
            return self._delegate(self._shadow, step)
        with looking(self._look) as look:
            done = self._confined(step, look.begin)
            receipt = self._receipt(step, done)
            if not receipt.passed:
                said = (f"  | {line}" for line in self._last_words(done.finished.output))
                raise Blocked("\n".join((receipt.detail, *said)))
            base = look.found()
        if receipt.duration_ms < _SHORT_MS:
            self.base = base
        return Worked(self._shadow.capture(self._keep, base), receipt, done.enforced)

    def _to_fill(self, draft: Draft, wanted: ChangeSet) -> ChangeSet:
        """The draft's difference, and the way back for what an earlier command changed and a later step restored."""
        named = {change.path for change in wanted.changes}
        back = [
            Change(path, image, base)
            for path, image in self._standing.items()
            if path not in named and image != (base := draft.base_image(path))
        ]
        return change_set([*wanted.changes, *back])

    def _confined(self, step: Run, begun: Callable[[], None]) -> Confined:
        limits = self._profile.limits
        within = min(step.within_ms, limits.time_ms) if limits.time_ms else step.within_ms
        variables = self._environment.around(clean_environment("/nonexistent"))
        command = Command(step.argv, self._path, variables, within, limits.output_bytes)
        try:
            return run_confined(command, self._shadow.view, self._profile, begun=begun)
        except InvalidInput as error:
            raise Blocked(error.message) from error

    def _receipt(self, step: Run, done: Confined) -> Receipt:
        finished = done.finished
        return Receipt(
            command=step.argv,
            kind="step",
            passed=done.succeeded,
            exit_code=finished.exit_code,
            duration_ms=finished.duration_ms,
            log_digest=self._save_log(finished.output),
            tree_digest="",
            detail=_ending(step, done, self._profile.limits),
        )

    def _note(self, captured: Captured) -> None:
        if captured.moved:
            names = ", ".join(map(printable, captured.moved[:5]))
            raise Conflict(f"the workspace changed while a program ran: {names}", hint="Nothing was changed.")
        self.by_products = captured.by_products
        # Each once, in the order they were seen (K3).
        self.suspicious = tuple(dict.fromkeys((*self.suspicious, *map(str, captured.suspicious))))
        self.dangers = tuple(map(str, captured.refused))


def _ending(step: Run, done: Confined, limits: Limits) -> str:
    name, finished = quoted(step.argv), done.finished
    if done.limit:
        return f"{name} {exceeded(done.limit, limits) or f'reached its limit: {done.limit}'}"
    if finished.signal is not None:
        return f"{name} was ended by signal {finished.signal}"
    left = f", leaving {finished.left_behind} processes behind, which were ended" if finished.left_behind else ""
    return f"{name} exited with {finished.exit_code}{left}"
