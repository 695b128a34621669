"""Layers below the root only tighten, whatever they say: properties over generated policies and changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gates.building import Case, evidence_of
from holdfast.gates.layers import layered
from holdfast.gates.policy import ANSWERS, Policy, Scalars
from holdfast.gates.write_gate import decide
from holdfast.model.decision import VERDICTS, Decision
from holdfast.model.plan import RISKS
from holdfast.model.tables import Layer, Source

PATHS = ["src/a.py", ".bashrc", "Makefile", "db/1.sql", "docs/x.md", ".env", "conf/site.conf"]
PATTERNS = ["src/**", "*.sql", ".bashrc", "**", "Makefile", "docs"]


def rules_saying(*verdicts: str) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries(
        {
            "name": st.text("abcdefgh", min_size=1, max_size=8),
            "paths": st.lists(st.sampled_from(PATTERNS), min_size=1),
            "risk": st.sampled_from(RISKS),
        },
        optional={
            "verdict": st.sampled_from(verdicts),
            "operations": st.lists(st.sampled_from(["create", "edit", "delete"]), min_size=1),
            "unless": st.lists(st.sampled_from(PATTERNS)),
        },
    )


SAYINGS: dict[str, st.SearchStrategy[object]] = {
    "low_risk": st.sampled_from(ANSWERS[:2]),
    "without_verification": st.sampled_from(ANSWERS),
    "without_health": st.sampled_from(ANSWERS),
    "secrets": st.sampled_from(ANSWERS),
    "people_from": st.sampled_from(RISKS),
    "people": st.integers(1, 4),
    "strict_base": st.booleans(),
    "approval_lifetime": st.sampled_from(["1m", "1h", "30d"]),
    "limits": st.fixed_dictionaries(
        {}, optional={"files": st.integers(0, 4), "deletions": st.integers(0, 2), "lines": st.integers(0, 9)}
    ),
    "forbidden": st.lists(st.sampled_from(PATTERNS), max_size=1),
    "review": st.lists(st.sampled_from(PATTERNS), max_size=2),
    "sandbox": st.lists(st.sampled_from(["network", "files"]), max_size=2),
    "agents": st.dictionaries(
        st.just("claude"),
        st.fixed_dictionaries({}, optional={"may_change": st.lists(st.sampled_from(PATTERNS), max_size=2)}),
    ),
}
# What a root may say, and what is not refused outright in a layer below it.
tables = st.fixed_dictionaries(
    {},
    optional={
        **SAYINGS,
        "rules": st.lists(rules_saying("allow", "need_approval", "deny"), max_size=3, unique_by=lambda r: r["name"]),
        "known_secret_paths": st.lists(st.sampled_from(PATTERNS), max_size=1),
    },
)
lower_tables = st.fixed_dictionaries(
    {},
    optional={
        **SAYINGS,
        "rules": st.lists(rules_saying("need_approval", "deny"), max_size=3, unique_by=lambda r: r["name"]),
    },
)
SECRET = ["ghp_", "R2d8sK1mQ9vX4tZ7bN3cW6yL0pJ5hG8fUaEo"]
cases = st.fixed_dictionaries(
    {
        "changes": st.lists(
            st.tuples(st.sampled_from(["create", "edit", "delete"]), st.sampled_from(PATHS), st.booleans()).map(
                lambda row: {row[0]: row[1], **({"secret": SECRET} if row[2] else {})}
            ),
            max_size=4,
            unique_by=lambda row: next(iter(row.values())),
        ),
        "plan": st.fixed_dictionaries(
            {"risk": st.sampled_from(RISKS)}, optional={"health": st.just([]), "run": st.just([["make"]])}
        ),
        "receipts": st.sampled_from([[{}], []]),
        "author": st.sampled_from(["person", "claude"]),
    }
)


def policy_of(layers: dict[Layer, Case]) -> Policy:
    return layered([Source(layer, layer, table) for layer, table in layers.items()])


def strictness(decision: Decision) -> tuple[int, int]:
    return VERDICTS.index(decision.verdict), RISKS.index(decision.risk_effective)


def assert_tighter(case: Case, before: Policy, after: Policy) -> None:
    """Verdict and risk not laxer, not fewer people where people decide, and no wider limits."""
    evidence = evidence_of(case)
    old, new = decide(evidence, before, 3), decide(evidence, after, 3)
    assert all(later >= earlier for earlier, later in zip(strictness(old), strictness(new), strict=True))
    if new.verdict == old.verdict:
        assert new.approvals_needed >= old.approvals_needed
        assert new.typed_consent >= old.typed_consent
    assert after.scalars.strict_base >= before.scalars.strict_base
    assert after.scalars.approval_lifetime_ms <= before.scalars.approval_lifetime_ms
    assert set(after.sandbox) >= set(before.sandbox)


@settings(max_examples=80)
@given(case=cases, project=lower_tables)
def test_a_project_never_loosens_the_built_in_policy(case: Case, project: Case) -> None:
    """Whatever a repository says, no verdict, risk, number of people or limit becomes laxer than without it."""
    assert_tighter(case, policy_of({}), policy_of({"project": project}))


@settings(max_examples=80)
@given(case=cases, user=tables, project=lower_tables)
def test_a_project_never_loosens_what_the_user_says(case: Case, user: Case, project: Case) -> None:
    """A project below a user's policy only tightens it, also where that policy is laxer than the built-in one."""
    assert_tighter(case, policy_of({"user": user}), policy_of({"user": user, "project": project}))


@settings(max_examples=80)
@given(case=cases, managed=tables, user=lower_tables, project=lower_tables)
def test_no_lower_layer_loosens_a_managed_policy(case: Case, managed: Case, user: Case, project: Case) -> None:
    """User and project, one after the other, only tighten a managed policy."""
    alone = policy_of({"managed": managed})
    with_user = policy_of({"managed": managed, "user": user})
    assert_tighter(case, alone, with_user)
    assert_tighter(case, with_user, policy_of({"managed": managed, "user": user, "project": project}))


@settings(max_examples=80)
@given(case=cases, managed=tables, user=lower_tables, own=lower_tables)
def test_what_a_user_says_of_one_workspace_never_loosens_a_managed_policy(
    case: Case, managed: Case, user: Case, own: Case
) -> None:
    """Whatever the user's section for a workspace takes back of their general one, the managed policy holds."""
    assert_tighter(
        case,
        policy_of({"managed": managed}),
        policy_of({"managed": managed, "user": user, "workspace": own}),
    )


@settings(max_examples=80)
@given(case=cases, user=tables, own=tables, project=lower_tables)
def test_a_project_never_loosens_what_its_user_says_of_it(case: Case, user: Case, own: Case, project: Case) -> None:
    """A project below the user's section for it only tightens, also where that section is laxer than the rest."""
    alone = policy_of({"user": user, "workspace": own})
    assert_tighter(case, alone, policy_of({"user": user, "workspace": own, "project": project}))


@settings(max_examples=60)
@given(user=tables, own=tables)
def test_a_section_decides_what_it_states(user: Case, own: Case) -> None:
    """Each value that the section for one workspace states is the one in force; the rest is the user's general word."""
    both = policy_of({"user": user, "workspace": own})
    general, alone = policy_of({"user": user}), policy_of({"user": own})
    for name in Scalars._fields:
        if name not in ("limits", "approval_lifetime_ms"):
            assert getattr(both.scalars, name) == getattr((alone if name in own else general).scalars, name)


@settings(max_examples=60)
@given(case=cases, user=tables, risk=st.sampled_from(RISKS))
def test_a_proposed_risk_raises_and_never_lowers(case: Case, user: Case, risk: str) -> None:
    """The effective risk is at least the proposed one, and at least what it would be for a plan proposed as low."""
    policy = policy_of({"user": user})
    low = decide(evidence_of({**case, "plan": {**case["plan"], "risk": "low"}}), policy, 3)
    proposed = decide(evidence_of({**case, "plan": {**case["plan"], "risk": risk}}), policy, 3)
    assert RISKS.index(proposed.risk_effective) >= max(RISKS.index(low.risk_effective), RISKS.index(risk))
    assert strictness(proposed) >= strictness(low)
