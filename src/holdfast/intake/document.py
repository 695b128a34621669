"""The whole document: from the value of a change file to a Plan.

Everything the language does not know is refused; nothing has a default that a person could not read in `Plan`.
"""

from __future__ import annotations

from holdfast.intake.checks import health_of, verification_of
from holdfast.intake.contents import Contents, Private
from holdfast.intake.fields import known_keys, list_of, mapping_of, prose_of, required, word_of
from holdfast.intake.steps import step_of
from holdfast.intake.values import Fault, Value
from holdfast.model.plan import RISKS, OnFailure, Plan, Step

MAX_STEPS = 200_000
_ON_FAILURE: tuple[OnFailure, ...] = ("rollback", "stop", "continue")
_TOP = frozenset(("intent", "objective", "rationale", "steps", "risk", "verify", "health", "on_failure"))


def plan_of(value: Value, directory: str, private: Private) -> Plan:
    """The plan a document spells, or Fault. Steps are taken out of `value` as they are read."""
    document = mapping_of(value, "a change file")
    known_keys(document, _TOP)
    for key in ("intent", "steps"):
        required(document, key, "a change file")
    intent = prose_of(document["intent"], "intent")
    if not intent.strip():
        raise Fault("intent must say what is wanted", "intent")
    verification = verification_of(document)
    health = health_of(document)
    steps, files = _steps(document["steps"], directory, private)
    return Plan(
        intent=intent,
        objective=prose_of(document.get("objective", ""), "objective"),
        rationale=prose_of(document.get("rationale", ""), "rationale"),
        risk=word_of(document.get("risk", "low"), "risk", RISKS),
        verify=verification.checks,
        health=health.checks,
        words=verification.words,
        unverified_because=verification.skipped,
        health_words=health.words,
        on_failure=word_of(document.get("on_failure", "rollback"), "on_failure", _ON_FAILURE),
        steps=steps,
        content_files=files,
    )


def _steps(value: Value, directory: str, private: Private) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps, and the files whose contents they bring."""
    items = list_of(value, "steps", "steps")
    if not items:
        raise Fault("steps must name at least one step", "steps")
    if len(items) > MAX_STEPS:
        raise Fault(f"{len(items)} steps are more than {MAX_STEPS}", "steps")
    steps: list[Step] = []
    with Contents(directory, private) as contents:
        for index, item in enumerate(items):
            try:
                steps.append(step_of(item, contents))
            except Fault as fault:
                raise fault.inside("steps", index) from None
            items[index] = None  # its text is not needed beside its bytes; this halves the peak
    return tuple(steps), contents.files
