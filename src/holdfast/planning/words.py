"""What becomes of `holdfast plan "words"` without a model: a plan where words have one meaning, else an honest no.

    words ─classify─▶ class ─┬─ every sentence is a request (see `requests`) ─▶ steps ─shape─▶ a plan, to be judged
                             └─ otherwise ─▶ no steps; what is missing, who could supply it, which checks come

Invariants
  D1  Steps come from sentences that were understood to their end, or there are none at all. Never a guess.
  D2  Words with a suspicion (a shell's, a model's, invisible ones) become no steps, also where every sentence is plain.
  D3  The road keeps to the table of `states`; planning ends before GOVERNANCE_CHECK, which is not for the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from holdfast.model.plan import Plan, described
from holdfast.planning.classify import Classified, classify
from holdfast.planning.lexicon import Class
from holdfast.planning.requests import Eyes, Unclear, steps_of
from holdfast.planning.shape import Shaped, shape
from holdfast.planning.states import Road

_NEEDS: dict[Class, tuple[str, ...]] = {
    "fix_bug": ("what happens, what should happen, and a way to see it", "the change itself"),
    "add_feature": ("how one sees that it is there", "the change itself"),
    "update_docs": ("the new text",),
    "refactor": ("which parts, and checks that pass before and after", "the change itself"),
    "optimise": ("what is measured, how, and what is good enough", "the change itself"),
    "configure": ("the file, the setting and its value",),
    "investigate": ("somebody who looks: an agent or a person; nothing needs to change",),
    "unknown": (),
}
# Given the paths of a plan: the levels for which the project has checks.
ChecksFor = Callable[[Sequence[str]], frozenset[str]]
EVERY_CHECK = "Run all checks"
_WHO = "the steps (give the words to an agent, or write a change file)"


@dataclass(frozen=True, slots=True)
class Understood:
    """All that words alone say. `plan` is None where they are an intent and no more."""

    text: str
    classified: Classified
    road: Road
    shaped: Shaped
    missing: tuple[str, ...]

    @property
    def plan(self) -> Plan | None:
        return self.shaped.plan if self.shaped.plan.steps else None

    def document(self) -> dict[str, object]:
        plan = self.plan
        return {
            "intent": self.text,
            **self.classified.document(),
            "states": list(self.road.states),
            "tools": list(self.road.tools),
            "next": list(self.road.moves),
            "plan": plan.document() if plan is not None else None,
            "steps": [described(step) for step in plan.steps] if plan is not None else [],
            "safety": self.shaped.document(),
            "missing": list(self.missing),
        }


def no_checks(paths: Sequence[str]) -> frozenset[str]:
    return frozenset()


def understand(text: str, eyes: Eyes, checks_for: ChecksFor = no_checks) -> Understood:
    """What a request in words comes to; the workspace is looked at only for words that are understood.

    The verification that the plan wants is filled in where the project has checks for it (`checks_for`).
    """
    road = Road()
    road.require_tool("classify")
    classified = classify(text)
    if classified.suspicions or not text.strip():
        return _intent(text, classified, road, "")  # D2
    analysis = road.moved("ANALYSIS")
    analysis.require_tool("read")
    try:
        steps = steps_of(text.strip(), eyes)
    except Unclear as error:
        return _intent(text, classified, analysis, str(error))
    if steps is None:
        # Analysis goes on only where it is clear what it would be about.
        return _intent(text, classified, road if classified.kind == "unknown" else analysis, "")
    road = analysis.moved("PLAN_GENERATION")
    road.require_tool("draft")
    plan = Plan(intent=text.strip(), steps=steps, rationale="each sentence has one meaning; no model was asked")
    shaped = shape(plan, classified)
    wanted = {item.kind for item in shaped.verification if not item.present}
    if wanted and (found := wanted & checks_for(plan.affected_paths)):
        shaped = shape(replace(plan, words=(EVERY_CHECK,)), classified, frozenset(found))
    return Understood(text, classified, road, shaped, shaped.gaps)


def _intent(text: str, classified: Classified, road: Road, gap: str) -> Understood:
    """Words that are no plan: what is missing, and who could supply it."""
    missing = [f"a person must look first: {sentence}" for sentence in classified.suspicions]
    doubt = f"what is wanted: {classified.doubt.removesuffix(' what is wanted')}" if classified.doubt else ""
    missing += [gap] if gap else [item for item in (doubt, *_NEEDS[classified.kind]) if item]
    shaped = shape(Plan(intent=text.strip(), steps=()), classified)
    return Understood(text, classified, road, shaped, (*missing, _WHO))
