"""What one layer's `[policy]` table says, read strictly. Nothing is combined here.

Invariant W1: a layer is read whole or refused; no statement of it is used before every key was understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.gates.operations import OPERATIONS, Operation
from holdfast.gates.policy import ANSWERS, Answer, Reach, Rule, SelfTest
from holdfast.model.decision import Verdict
from holdfast.model.patterns import checked_pattern
from holdfast.model.plan import RISKS, Risk
from holdfast.model.tables import Layer, Source, Table

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_RULE_VERDICTS: dict[str, Verdict] = {"allow": "ALLOW", "need_approval": "NEED_APPROVAL", "deny": "DENY"}
_LOW: tuple[Answer, ...] = ("allow", "ask")


class Bounds(NamedTuple):
    """Limits as one layer states them; None is silence."""

    files: int | None
    lines: int | None
    bytes: int | None
    time_ms: int | None
    deletions: int | None
    deletions_percent: int | None
    deletions_few: int | None


class Statement(NamedTuple):
    """Everything one layer says; None is silence."""

    layer: Layer
    file: str
    rules: tuple[Rule, ...]
    low_risk: Answer | None
    without_verification: Answer | None
    without_health: Answer | None
    secrets: Answer | None
    people_from: Risk | None
    people: int | None
    strict_base: bool | None
    approval_lifetime_ms: int | None
    limits: Bounds
    reaches: tuple[Reach, ...]
    known_digests: tuple[str, ...]
    known_paths: tuple[str, ...]
    sandbox: tuple[str, ...]


def statement_of(source: Source) -> Statement:
    """One layer, or InvalidInput with file, table and key."""
    table = Table(source.values, source.file, "policy")
    statement = Statement(
        layer=source.layer,
        file=source.file,
        rules=(*_shorthand(table, source.layer), *_rules(table, source.layer)),
        low_risk=table.choice("low_risk", _LOW),
        without_verification=table.choice("without_verification", ANSWERS),
        without_health=table.choice("without_health", ANSWERS),
        secrets=table.choice("secrets", ANSWERS),
        people_from=table.choice("people_from", RISKS),
        people=table.integer("people", least=1),
        strict_base=table.flag("strict_base"),
        approval_lifetime_ms=table.duration_ms("approval_lifetime"),
        limits=_bounds(table),
        reaches=tuple(_reaches(table, source.layer)),
        known_digests=_known_digests(table),
        known_paths=_patterns(table, "known_secret_paths"),
        sandbox=table.texts("sandbox") or (),
    )
    table.close()
    return statement


def _bounds(table: Table) -> Bounds:
    limits = table.table("limits")
    if limits is None:
        return Bounds(*[None] * len(Bounds._fields))
    bounds = Bounds(
        files=limits.integer("files"),
        lines=limits.integer("lines"),
        bytes=limits.size("bytes"),
        time_ms=limits.duration_ms("time"),
        deletions=limits.integer("deletions"),
        deletions_percent=limits.integer("deletions_percent"),
        deletions_few=limits.integer("deletions_few"),
    )
    limits.close()
    return bounds


def _shorthand(table: Table, layer: Layer) -> Iterable[Rule]:
    """`forbidden` and `review`: a list of paths is the whole rule."""
    forbidden, review = _patterns(table, "forbidden"), _patterns(table, "review")
    if forbidden:
        yield Rule("Forbids the paths it lists as forbidden", layer, forbidden, risk="critical", verdict="DENY")
    if review:
        yield Rule("Reviews the paths it lists for review", layer, review, risk="medium", verdict="NEED_APPROVAL")


def _rules(table: Table, layer: Layer) -> Iterable[Rule]:
    names: set[str] = set()
    for rule_table in table.tables("rules"):
        rule = _rule(rule_table, layer)
        if rule.name in names:
            rule_table.refuse("name", f"{rule.name!r} is used by two rules")
        names.add(rule.name)
        yield rule


def _rule(table: Table, layer: Layer) -> Rule:
    name = table.text("name")
    if not name or not name.strip():
        table.refuse("name", "is missing: say in a sentence what the rule does")
    paths = _patterns(table, "paths")
    if not paths:
        table.refuse("paths", 'is missing: "**" is every path')
    word = table.choice("verdict", tuple(_RULE_VERDICTS))
    risk = table.choice("risk", RISKS)
    if word is None and risk is None:
        table.refuse("risk", "and verdict are both missing: the rule would do nothing")
    rule = Rule(
        name=name,
        layer=layer,
        paths=paths,
        unless=_patterns(table, "unless"),
        operations=_operations(table),
        risk=risk or "low",
        verdict=_RULE_VERDICTS[word] if word is not None else None,
        why=table.text("why") or "",
        match=_self_tests(table, "match"),
        not_match=_self_tests(table, "not_match"),
    )
    table.close()
    return rule


def _operations(table: Table) -> tuple[Operation, ...]:
    words = table.texts("operations")
    if words is None:
        return ()
    if not words:
        table.refuse("operations", "is empty: leave it out for every operation")
    return tuple(_operation(table, "operations", word) for word in words)


def _operation(table: Table, key: str, word: str) -> Operation:
    found = next((operation for operation in OPERATIONS if operation == word), None)
    if found is None:
        table.refuse(key, f"has {word!r}, which is none of {', '.join(OPERATIONS)}")
    return found


def _self_tests(table: Table, key: str) -> tuple[SelfTest, ...]:
    return tuple(_self_test(table, key, item) for item in table.strings_or_tables(key))


def _self_test(table: Table, key: str, item: str | Table) -> SelfTest:
    if isinstance(item, str):
        return SelfTest(item)
    path, word = item.text("path"), item.text("operation")
    if not path:
        table.refuse(key, "has a test without a path")
    item.close()
    return SelfTest(path, None if word is None else _operation(item, "operation", word))


def _reaches(table: Table, layer: Layer) -> Iterable[Reach]:
    agents = table.table("agents")
    if agents is None:
        return
    for name in agents.keys:
        agent = agents.table(name)
        if agent is None:
            continue
        may = _patterns(agent, "may_change") if "may_change" in agent else None
        yield Reach(name, layer, may, _patterns(agent, "must_not_change"))
        agent.close()


def _known_digests(table: Table) -> tuple[str, ...]:
    found = []
    for text in table.texts("known_secrets") or ():
        match = _DIGEST.fullmatch(text)
        if match is None:
            table.refuse("known_secrets", "must hold digests such as sha256:… (64 digits), never a secret itself")
        found.append(match[1])
    return tuple(found)


def _patterns(table: Table, key: str) -> tuple[str, ...]:
    patterns = table.texts(key) or ()
    for pattern in patterns:
        try:
            checked_pattern(pattern)
        except InvalidInput as error:
            table.refuse(key, f"has a wrong pattern: {error.message}")
    return patterns
