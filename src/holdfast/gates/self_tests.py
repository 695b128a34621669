"""A policy that tests itself: each rule says which paths it is about and which it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.gates.operations import OPERATIONS
from holdfast.gates.policy import Policy, Rule, SelfTest
from holdfast.model.path import printable
from holdfast.model.tables import Layer


class Failure(NamedTuple):
    """`wanted` is what the rule's own test says; the rule did the opposite."""

    layer: Layer
    rule: str
    path: str
    operation: str
    wanted: bool

    @property
    def sentence(self) -> str:
        what = f"{self.operation} {printable(self.path)}" if self.operation else printable(self.path)
        return f"{self.rule!r} ({self.layer}) {'does not match' if self.wanted else 'matches'} {what}"


def run_self_tests(policy: Policy) -> tuple[Failure, ...]:
    """Every self-test that does not hold, in the order of the rules."""
    return tuple(
        Failure(rule.layer, rule.name, test.path, test.operation or "", wanted)
        for number, rule in enumerate(policy.rules)
        for test, wanted in _tests(rule)
        if _matches(policy, number, test) is not wanted
    )


def count_self_tests(policy: Policy) -> int:
    return sum(len(rule.match) + len(rule.not_match) for rule in policy.rules)


def sound(policy: Policy) -> Policy:
    """The policy itself, or InvalidInput: a rule that does not do what it says must not decide anything."""
    failures = run_self_tests(policy)
    if failures:
        raise InvalidInput(
            f"the policy fails {len(failures)} of its own tests: {'; '.join(f.sentence for f in failures[:3])}",
            hint="See all of them with: holdfast policy test",
        )
    return policy


def _tests(rule: Rule) -> Iterator[tuple[SelfTest, bool]]:
    for test in rule.match:
        yield test, True
    for test in rule.not_match:
        yield test, False


def _matches(policy: Policy, number: int, test: SelfTest) -> bool:
    """Asked of the compiled policy as the gate asks it."""
    operations = (test.operation,) if test.operation is not None else OPERATIONS
    return number in policy.rules_about(test.path, operations)
