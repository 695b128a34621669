"""A case as the tests read it, and the files that a plan leaves in a tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.engine.pattern_inputs import validated
from holdfast.model.plan import Create, Inline, Plan, Read, Update
from holdfast.planning.patterns.catalogue import BUILT_IN
from holdfast.planning.patterns.definition import pattern_from
from holdfast.planning.patterns.pattern import Facts, Inputs, Pattern, plan_of

CASES = Path(__file__).parent / "cases"
PATTERNS = {pattern.id: pattern for pattern in BUILT_IN}


def joined(lines: str | list[str]) -> str:
    """In a case a file is one text, or a list of lines."""
    return lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)


def case(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def pattern_of(found: dict[str, Any]) -> Pattern:
    if "definition" in found:
        return pattern_from(found["definition"], "case.toml", found.get("origin", "user"))
    return PATTERNS[found["pattern"]]


def tree_of(found: dict[str, Any]) -> dict[str, str]:
    return {path: joined(content) for path, content in found.get("tree", {}).items()}


def planned(pattern: Pattern, inputs: Inputs, tree: dict[str, str]) -> Plan:
    """The plan over a tree that is given as values, as the engine would make it."""
    values = validated(pattern, inputs)
    files = frozenset(tree)
    contents = {path: tree[path].encode() for path in pattern.reads(values, files)}
    return plan_of(pattern, values, Facts(files, contents))


def files_of(plan: Plan, tree: dict[str, str]) -> dict[str, str]:
    """What the plan's steps make of the tree: the files that they touch."""
    made: dict[str, str] = {}
    for step in plan.steps:
        if isinstance(step, Create):
            assert step.path not in tree and step.path not in made
            made[step.path] = ""
        elif isinstance(step, Update):
            assert isinstance(step.old, bytes) and isinstance(step.content, Inline)
            assert step.old == made.get(step.path, tree.get(step.path, "")).encode()
            made[step.path] = step.content.data.decode()
        else:
            assert isinstance(step, Read)
            made[step.path] = tree[step.path]
    return made
