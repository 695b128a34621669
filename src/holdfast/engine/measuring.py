"""Measuring: what an attempt of an agent came to, as capture, the expected files and the checks say.

Invariants
  G1  Good is measured: this task changed something, everything expected will be there, nothing in it is refused,
      no check failed. Earlier steps of the plan are no work of the agent's.
  G2  What the task names and the change lacks sends the agent back to it, as long as it has attempts. It makes no work
      bad: words can be read in two ways, so in the end a person is asked.
  G3  What the agent is told afterwards is bounded, and without anything that has the shape of a secret.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.checks.baseline import about_new_failures
from holdfast.engine.checking import Checking, Landable
from holdfast.engine.looked_up import missing_files, unmet_by
from holdfast.gates.secrets import masked
from holdfast.model.agent import Attempt, Result
from holdfast.model.changeset import change_set, differing_paths
from holdfast.model.configuration import Settings
from holdfast.model.execution import Receipt
from holdfast.model.path import printable
from holdfast.model.plan import Agent, Plan
from holdfast.planning.failures import understood
from holdfast.store.blobs import Blobs
from holdfast.workspace.capture import Captured
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.site import Site

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
        # What earlier steps of the plan did, as it can be laid over the workspace.
        self.before = Landable(change_set(()), {}, {})

    def look_before(self, shadow: Shadow) -> None:
        """What earlier steps did is there already, and not the agent's (G1); a plan of one step needs no look."""
        if len(self._plan.steps) > 1:
            captured = shadow.capture(self._settings.keep)
            self.before = Landable(captured.change_set, captured.seen, captured.sources)

    def measure(self, number: int, result: Result, shadow: Shadow) -> Measured:
        captured = shadow.capture(self._settings.keep)
        changed = differing_paths(self.before.change_set, captured.change_set)
        missing = missing_files(self._site, self._step.expected, captured.change_set)
        wrong = [*_wrong_with_ending(result), *_wrong_with_capture(captured, changed, missing)]
        receipts: tuple[Receipt, ...] = ()
        if not wrong and not captured.moved:
            landable = Landable(captured.change_set, captured.seen, captured.sources)
            receipts = self._checking.verify_in(shadow, self._plan, landable).receipts
            at = self._site.seen_at
            wrong = [failed_check(self._blobs, receipt, at) for receipt in receipts if not receipt.passed]
        evidence = "\n\n".join(wrong)[:MOST_EVIDENCE]
        lacks = unmet_by(self._site, self._plan, captured.change_set, captured.sources) if changed else ()
        left_out = tuple(one.path for one in captured.by_products)
        return Measured(Attempt(number, result, changed, missing, receipts, evidence, lacks, left_out), captured)


def failed_check(blobs: Blobs, receipt: Receipt, root: str) -> str:
    """What an agent is told of it: the receipt, the end of its log, and what is wrong if that stands further up.

    Paths are told as the workspace has them: `root` may be a mirror, which the next attempt does not stand on.
    """
    log = blobs.get(receipt.log_digest) if receipt.log_digest else b""
    # Masked before it is cut: half a key has no shape any more.
    whole = masked(_from_root(about_new_failures(receipt.detail, log.decode("utf-8", "replace")), root))
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
    made = [one.path for one in captured.by_products]
    ignored = [path for path in missing if any(f"{path}/".startswith(f"{one}/") for one in made)]
    if ignored or (made and not changed):
        names = ", ".join(printable(path) for path in (ignored or made)[:_MOST_NAMES])
        wrong.append(
            f"This was made, and does not land, since git ignores it or it is a cache: {names}. "
            "What should land all the same is named by keep under [workspace] in the user's config.toml."
        )
    if captured.refused:
        names = "; ".join(str(item) for item in captured.refused[:_MOST_NAMES])
        wrong.append(f"This cannot become part of a change: {names}.")
    return wrong
