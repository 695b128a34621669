"""Layers become one policy; a lower layer can only tighten.

    built-in ─▶ root ─▶ the levels below it
                │
                the highest level that has a [policy] table: managed, or else user; never project

A level is a layer; only the user's has two, "user" and "workspace": what the user says of one workspace replaces
what they say of all, value by value, and adds to it in lists and rules.

The root stands in the user's or the administrator's own files and may loosen what is built in.
Every level below the root is held to this:

    answers     the stricter of the two (allow < ask < deny)
    numbers     the lower limit, the shorter time, the greater number of people
    risk        people_from: the lower of the two
    rules       added, never removed; none of them may say "allow"
    secrets     nothing may be declared known
    agents      added; every layer's reach must hold

Invariants
  H1  Adding a level below the root never turns a verdict into a laxer one (property-tested).
  H2  One broken layer and there is no policy at all: an error, and nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby

from holdfast.errors import InvalidInput
from holdfast.gates.default_policy import BUILT_IN
from holdfast.gates.policy import ANSWERS, Answer, Limits, Policy, Scalars, SecretsKnown
from holdfast.gates.policy_text import Bounds, Statement, statement_of
from holdfast.model.plan import RISKS, Risk
from holdfast.model.tables import LAYERS, Layer, Source


def layered(sources: Sequence[Source] = ()) -> Policy:
    """The policy that holds where these layers are; they may come in any order."""
    ordered = sorted(sources, key=lambda source: LAYERS.index(source.layer))
    layers = [source.layer for source in ordered]
    if "built-in" in layers or len(set(layers)) != len(layers):
        raise InvalidInput("a policy has at most one layer each of managed, user, workspace and project")
    statements = [_built_in(), *(statement_of(source) for source in ordered)]
    root = next((_level(layer) for layer in layers if layer != "project"), None)
    for statement in statements[1:]:
        if _level(statement.layer) != root:
            _refuse_loosening(statement, root)
    scalars, origins = _scalars(statements, root)
    return Policy(
        rules=tuple(rule for statement in statements for rule in statement.rules),
        scalars=scalars,
        reaches=tuple(reach for statement in statements for reach in statement.reaches),
        known=SecretsKnown(
            frozenset(digest for statement in statements for digest in statement.known_digests),
            tuple(path for statement in statements for path in statement.known_paths),
        ),
        sandbox=tuple(sorted({word for statement in statements for word in statement.sandbox})),
        origins=origins,
    )


@cache
def _built_in() -> Statement:
    return statement_of(Source("built-in", "built-in policy", BUILT_IN))


def _refuse_loosening(statement: Statement, root: Layer | None) -> None:
    """What has no tighter reading is an error, so that nobody believes it works."""
    above = f"the {root} layer stands above this one" if root is not None else "a project comes from strangers"
    for rule in statement.rules:
        if rule.verdict == "ALLOW":
            raise InvalidInput(
                f"{statement.file}: [policy] rule {rule.name!r} says allow, but {above} and it may only tighten",
                hint="Allow it in the layer that stands highest, or leave the rule out.",
            )
    if statement.known_digests or statement.known_paths:
        raise InvalidInput(
            f"{statement.file}: [policy] known secrets are named, but {above} and it may only tighten",
            hint="Name them in the layer that stands highest.",
        )


def _level(layer: Layer) -> Layer:
    return "user" if layer == "workspace" else layer


def _scalars(statements: Sequence[Statement], root: Layer | None) -> tuple[Scalars, tuple[tuple[str, Layer], ...]]:
    first, *rest = statements
    held = _complete(first)
    origins: dict[str, Layer] = {}
    for level, said in groupby(rest, key=lambda statement: _level(statement.layer)):
        held = _with_level(held, list(said), origins, is_root=level == root)
    return held, tuple(sorted(origins.items()))


def _with_level(above: Scalars, level: Sequence[Statement], origins: dict[str, Layer], *, is_root: bool) -> Scalars:
    """What holds below this level; `origins` learns who decided what."""
    decided_above = dict(origins)
    own = held = above
    for statement in level:
        own = _overlaid(own, statement)
        stated = own if is_root else _tightest(above, own)
        for name, before, after in _rows(held, stated):
            if before != after:
                origins[name] = statement.layer
        held = stated
    for name, before, after in _rows(above, held):
        # What the first of them changed and the second took back is what stood above, and decided there.
        if before == after and not is_root:
            origins.pop(name, None)
            origins.update({name: decided_above[name]} if name in decided_above else {})
    return held


def _complete(statement: Statement) -> Scalars:
    """The built-in layer states everything; a test holds it to that."""
    nothing = Scalars("deny", "deny", "deny", "deny", "low", 1, True, 0, Limits(*[0] * len(Limits._fields)))
    return _overlaid(nothing, statement)


def _overlaid(held: Scalars, said: Statement) -> Scalars:
    """What is held, with everything replaced that the layer names."""
    return Scalars(
        low_risk=said.low_risk or held.low_risk,
        without_verification=said.without_verification or held.without_verification,
        without_health=said.without_health or held.without_health,
        secrets=said.secrets or held.secrets,
        people_from=said.people_from or held.people_from,
        people=said.people or held.people,
        strict_base=held.strict_base if said.strict_base is None else said.strict_base,
        approval_lifetime_ms=_either(said.approval_lifetime_ms, held.approval_lifetime_ms),
        limits=_overlaid_limits(held.limits, said.limits),
    )


def _overlaid_limits(held: Limits, said: Bounds) -> Limits:
    return Limits(*[_either(new, old) for new, old in zip(said, held, strict=True)])


def _either(said: int | None, held: int) -> int:
    return held if said is None else said


def _tightest(one: Scalars, other: Scalars) -> Scalars:
    return Scalars(
        low_risk=_stricter(one.low_risk, other.low_risk),
        without_verification=_stricter(one.without_verification, other.without_verification),
        without_health=_stricter(one.without_health, other.without_health),
        secrets=_stricter(one.secrets, other.secrets),
        people_from=_lower(one.people_from, other.people_from),
        people=max(one.people, other.people),
        strict_base=one.strict_base or other.strict_base,
        approval_lifetime_ms=min(one.approval_lifetime_ms, other.approval_lifetime_ms),
        limits=Limits(*[min(pair) for pair in zip(one.limits, other.limits, strict=True)]),
    )


def _stricter(one: Answer, other: Answer) -> Answer:
    return max(one, other, key=ANSWERS.index)


def _lower(one: Risk, other: Risk) -> Risk:
    return min(one, other, key=RISKS.index)


def _rows(before: Scalars, after: Scalars) -> list[tuple[str, object, object]]:
    """Scalar by scalar, limits one by one, under the names a reader of the file knows."""
    rows: list[tuple[str, object, object]] = [
        (name, old, new) for name, old, new in zip(Scalars._fields, before, after, strict=True) if name != "limits"
    ]
    rows += [
        (f"limits.{name}", old, new) for name, old, new in zip(Limits._fields, before.limits, after.limits, strict=True)
    ]
    return rows
