"""The policy: an ordered list of rules, limits, and how much one person may decide.

Invariants
  I1  A policy is a value; its digest covers everything a verdict depends on, the built-in rules included.
  I2  Rules are never removed. A rule of the root layer may excuse a change from built-in rules (verdict ALLOW),
      and from nothing else (see `write_gate`).
  I3  Rules stand in one order: built-in, managed, user, workspace, project; inside a layer as written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from holdfast.gates.operations import Operation
from holdfast.model.canonical import digest_of
from holdfast.model.decision import Verdict
from holdfast.model.patterns import PatternIndex
from holdfast.model.plan import Risk
from holdfast.model.tables import Layer

Answer = Literal["allow", "ask", "deny"]
ANSWERS: tuple[Answer, ...] = ("allow", "ask", "deny")
VERDICT_OF: dict[Answer, Verdict] = {"allow": "ALLOW", "ask": "NEED_APPROVAL", "deny": "DENY"}


class SelfTest(NamedTuple):
    """A path that a rule must (or must not) be about; without an operation, any that the rule names will do."""

    path: str
    operation: Operation | None = None


class Rule(NamedTuple):
    """`name` is a sentence. Without operations it is about all; without a verdict the risk decides."""

    name: str
    layer: Layer
    paths: tuple[str, ...]
    unless: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    risk: Risk = "low"
    verdict: Verdict | None = None
    why: str = ""
    match: tuple[SelfTest, ...] = ()
    not_match: tuple[SelfTest, ...] = ()


class Limits(NamedTuple):
    """The most that one change set may be. The three about deletions ask; the others deny."""

    files: int
    lines: int
    bytes: int
    time_ms: int
    deletions: int
    # The share of the tree's files, in percent, that may go; it is not asked about as many as `deletions_few`.
    deletions_percent: int
    deletions_few: int


class Reach(NamedTuple):
    """What one agent may touch, by one layer. Every layer's reach must hold; without `may_change` it is everything."""

    agent: str
    layer: Layer
    may_change: tuple[str, ...] | None = None
    must_not_change: tuple[str, ...] = ()


class Scalars(NamedTuple):
    """The answers that are one word or one number."""

    low_risk: Answer
    without_verification: Answer
    without_health: Answer
    secrets: Answer
    # From this risk on, `people` must say yes, where more than one approver is configured.
    people_from: Risk
    people: int
    strict_base: bool
    approval_lifetime_ms: int
    limits: Limits


class SecretsKnown(NamedTuple):
    """What the scanner may pass over: digests of matches, and paths."""

    digests: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()


_NOTHING_KNOWN = SecretsKnown()


@dataclass(frozen=True, slots=True)
class Policy:
    rules: tuple[Rule, ...]
    scalars: Scalars
    reaches: tuple[Reach, ...] = ()
    known: SecretsKnown = _NOTHING_KNOWN
    # What a sandbox must have enforced where programs ran.
    sandbox: tuple[str, ...] = ()
    # (scalar, layer that decided it), sorted; reasons name layers, so a verdict depends on it.
    origins: tuple[tuple[str, Layer], ...] = ()
    digest: str = field(init=False, repr=False, compare=False)
    index: PatternIndex = field(init=False, repr=False, compare=False)
    exceptions: PatternIndex = field(init=False, repr=False, compare=False)
    # The rules that are about these operations, once asked; nothing but time depends on what is remembered.
    fitting: dict[tuple[Operation, ...], frozenset[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of(self.document()))
        object.__setattr__(self, "index", PatternIndex([rule.paths for rule in self.rules]))
        object.__setattr__(self, "exceptions", PatternIndex([rule.unless for rule in self.rules]))
        object.__setattr__(self, "fitting", {})

    def rules_about(self, path: str, operations: tuple[Operation, ...], above: str = "") -> list[int]:
        """The numbers of the rules that are about this path and one of these operations, in order.

        Where the workspace stands (`above`) can make a rule apply, but never one that allows.
        """
        found = self.index.owners_of(path, above)
        if not self.exceptions.empty:
            found -= self.exceptions.owners_of(path)
        if above and any(self.rules[n].verdict == "ALLOW" for n in found):
            inside = self.index.owners_of(path)
            found = frozenset([n for n in found if n in inside or self.rules[n].verdict != "ALLOW"])
        return sorted(found & self._about(operations)) if found else []

    def _about(self, operations: tuple[Operation, ...]) -> frozenset[int]:
        known = self.fitting.get(operations)
        if known is None:
            known = frozenset([n for n, rule in enumerate(self.rules) if fits(rule, operations)])
            self.fitting[operations] = known
        return known

    def rules_through(self, path: str, operations: tuple[Operation, ...], above: str = "") -> list[int]:
        """The rules that are about names below this path, for a link that is put there; never one that allows."""
        found = self.index.owners_through(path, above)
        return sorted([n for n in found if self.rules[n].verdict != "ALLOW" and fits(self.rules[n], operations)])

    def allows(self, numbers: Iterable[int], operations: tuple[Operation, ...]) -> bool:
        """Do the allowing rules among these allow everything that happens? A part of it is not enough.

        Half of a move is a creation or a deletion that moving implies; both at once are more than a move.
        """
        allowing = [self.rules[n] for n in numbers if self.rules[n].verdict == "ALLOW"]
        happens = set(operations)
        if "move" in happens and not happens >= {"create", "delete"}:
            happens -= {"create", "delete"}
        return bool(allowing) and all(any(fits(rule, (operation,)) for rule in allowing) for operation in happens)

    def layer_of(self, scalar: str) -> Layer:
        return next((layer for name, layer in self.origins if name == scalar), "built-in")

    def document(self) -> dict[str, object]:
        """The policy as JSON shows it."""
        scalars: dict[str, object] = {**self.scalars._asdict(), "limits": self.scalars.limits._asdict()}
        return {
            "version": 1,
            "rules": [_rule_document(rule) for rule in self.rules],
            **scalars,
            "agents": [list(reach) for reach in self.reaches],
            "known_secrets": {"digests": sorted(self.known.digests), "paths": list(self.known.paths)},
            "sandbox": list(self.sandbox),
            "origins": [list(origin) for origin in self.origins],
        }


def fits(rule: Rule, operations: tuple[Operation, ...]) -> bool:
    return not rule.operations or any(operation in rule.operations for operation in operations)


def _rule_document(rule: Rule) -> dict[str, object]:
    row = rule._asdict()
    row["match"] = [list(test) for test in rule.match]
    row["not_match"] = [list(test) for test in rule.not_match]
    return row
