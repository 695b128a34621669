"""Headings: those that begin a phase, and what the lines below such a heading say about it."""

from __future__ import annotations

import re

from holdfast.intake.roadmap.outline import PhaseDraft

_PHASE = re.compile(
    r"(?:\*\*)?(?:Phase|PHASE|phase|Milestone|MILESTONE|Stage|Sprint|Epic|Iteration)[ ]*"
    r"(?P<number>\d{1,6}(?:\.\d{1,6}){0,5}|[IVX]{1,6}\b|[A-Z]\b|N\b)?(?P<rest>[^\n]*)"
)
_BARE_PHASE = re.compile(r"(?:Phases|Milestones|Stages|Sprints|Epics|Iterations)\b")


def phase_in(words: str) -> re.Match[str] | None:
    """The phase that a heading names."""
    found = _PHASE.match(words)
    if found is None or _BARE_PHASE.match(words):
        return None
    return found if found["number"] or found["rest"][:1] in (":", " ", "-", "") else None


def describe(phase: PhaseDraft, name: str, value: str) -> None:
    if name in ("goal", "goals", "objective", "purpose"):
        phase.goal = phase.goal or value
    elif name == "priority":
        phase.priority = phase.priority or value
    elif name.startswith(("effort", "estimate")):
        phase.effort = phase.effort or value
    elif name.startswith(("prerequisite", "depend", "blocked")):
        phase.prerequisite = phase.prerequisite or value
