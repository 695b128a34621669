"""Measuring: what an attempt of an agent came to, as capture, the expected files and the checks say.

Invariants
  G1  Good is measured: this task changed something, everything expected will be there, nothing in it is refused,
      no check failed. Earlier steps of the plan are no work of the agent's.
  G2  What the agent is told afterwards is bounded, and without anything that has the shape of a secret.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.checking import Checking, Landable
from holdfast.gates.secrets import masked
from holdfast.model.agent import Attempt, Result
from holdfast.model.changeset import change_set, differing_paths
from holdfast.model.configuration import Settings
from holdfast.model.execution import Receipt
from holdfast.model.path import parent_of, printable
from holdfast.model.plan import Agent, Plan
from holdfast.planning.failures import understood
from holdfast.store.blobs import Blobs
from holdfast.workspace.capture import Captured
from holdfast.workspace.observe import look
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.site import Site
from holdfast.workspace.touched import name_of

MOST_EVIDENCE = 12_000
_MOST_LOG = 4_000
_MOST_NAMES = 20


class Measured(NamedTuple):
    """An attempt, and what stands in the shadow after it."""

    attempt: Attempt
    captured: Captured


class Measuring:
    """Of one agent step in one shadow; made before the agent begins."""

    def __init__(self, site: Site, settings: Settings, checking: Checking, plan: Plan, step: Agent) -> None:
        self._site, self._settings, self._checking = site, settings, checking
        self._plan, self._step = plan, step
        self._blobs = Blobs(site.state)
        self._before = change_set(())

    def look_before(self, shadow: Shadow) -> None:
        """What earlier steps did is there already, and not the agent's (G1); a plan of one step needs no look."""
        if len(self._plan.steps) > 1:
            self._before = shadow.capture(self._settings.keep).change_set

    def measure(self, number: int, result: Result, shadow: Shadow) -> Measured:
        captured = shadow.capture(self._settings.keep)
        changed = differing_paths(self._before, captured.change_set)
        missing = tuple(path for path in self._step.expected if not self._will_be_there(path, captured))
        wrong = [*_wrong_with_ending(result), *_wrong_with_capture(captured, changed, missing)]
        receipts: tuple[Receipt, ...] = ()
        if not wrong and not captured.moved:
            landable = Landable(captured.change_set, captured.seen, captured.sources)
            receipts = self._checking.verify_in(shadow, self._plan, landable).receipts
            wrong = [failed_check(self._blobs, receipt, self._site.path) for receipt in receipts if not receipt.passed]
        evidence = "\n\n".join(wrong)[:MOST_EVIDENCE]
        return Measured(Attempt(number, result, changed, missing, receipts, evidence), captured)

    def _will_be_there(self, path: str, captured: Captured) -> bool:
        """Once this has landed: made or left by the change, or there already. What is ignored does not land."""
        for change in captured.change_set.changes:
            if change.path == path:
                return change.post is not None
        self._site.workspace.forget()
        try:
            return look(self._site.calls, self._site.workspace.directory(parent_of(path)), name_of(path)) is not None
        except OSError:
            return False  # no directory, or a link on the way: nothing that lands there


def failed_check(blobs: Blobs, receipt: Receipt, root: str) -> str:
    """What an agent is told of it: the receipt, the end of its log, and what is wrong if that stands further up.

    Paths are told as the workspace has them: `root` may be a mirror, which the next attempt does not stand on.
    """
    log = blobs.get(receipt.log_digest) if receipt.log_digest else b""
    # Masked before it is cut: half a key has no shape any more.
    whole = masked(_from_root(log.decode("utf-8", "replace"), root))
    tail = whole[-_MOST_LOG:].strip()
    return f"A check failed: {masked(_from_root(receipt.detail, root))}\n{_buried(receipt, whole, tail)}{tail}".strip()


def _buried(receipt: Receipt, whole: str, tail: str) -> str:
    """The lines that say what is wrong, where so much was printed after them that the end does not have them."""
    found = understood(receipt, whole.encode("utf-8", "replace"))
    return f"{found.around}\n[…]\n" if found.around and found.because not in tail else ""


def _from_root(text: str, root: str) -> str:
    return text.replace(f"{root}/", "")


def _wrong_with_ending(result: Result) -> list[str]:
    if result.ending == "finished":
        return []
    return [f"You did not finish: {result.detail or result.ending}."]


def _wrong_with_capture(captured: Captured, changed: tuple[str, ...], missing: tuple[str, ...]) -> list[str]:
    wrong = []
    if not changed:
        wrong.append("Nothing was changed in the files.")
    if missing:
        names = ", ".join(printable(path) for path in missing[:_MOST_NAMES])
        wrong.append(f"These files were expected and are not there: {names}.")
    if captured.refused:
        names = "; ".join(str(item) for item in captured.refused[:_MOST_NAMES])
        wrong.append(f"This cannot become part of a change: {names}.")
    return wrong
