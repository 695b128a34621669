"""Policies: read strictly, combined so that a lower layer only tightens, and testing themselves."""

from __future__ import annotations

import pytest

from gates.building import Case, cases_in
from holdfast.errors import InvalidInput
from holdfast.gates.layers import layered
from holdfast.gates.policy import Policy
from holdfast.gates.self_tests import count_self_tests, run_self_tests, sound
from holdfast.model.patterns import covers
from holdfast.model.tables import LAYERS, Layer, Source

CASES = dict(cases_in("policy"))


def policy_from(layers: Case) -> Policy:
    return layered([Source(layer, f"{layer}.toml", values) for layer, values in layers.items()])


def with_rule(**fields: object) -> Policy:
    rule = {"name": "Reviews data", "paths": ["data/**"], "risk": "high", **fields}
    return policy_from({"user": {"rules": [rule]}})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "error" in case])
def test_a_wrong_policy_is_refused(name: str) -> None:
    """A wrong policy is refused as invalid input, naming the file, the table and the key; nothing is evaluated."""
    with pytest.raises(InvalidInput) as caught:
        policy_from(CASES[name]["layers"])
    assert [part for part in CASES[name]["error"] if part not in caught.value.message] == []
    assert CASES[name].get("hint", "") in caught.value.hint


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "holds" in case])
def test_layers_become_one_policy(name: str) -> None:
    """The combined policy has the values the case names: the root may loosen, every other layer only tightens."""
    scalars = policy_from(CASES[name]["layers"]).scalars
    known = {**scalars._asdict(), **{f"limits.{key}": value for key, value in scalars.limits._asdict().items()}}
    assert {key: known[key] for key in CASES[name]["holds"]} == CASES[name]["holds"]


def test_layers_may_come_in_any_order() -> None:
    """The digest of a policy does not depend on the order in which its layers were found."""
    sources = [Source(layer, layer, {"review": [f"{layer}/x"]}) for layer in LAYERS[1:]]
    assert layered(sources).digest == layered(sources[::-1]).digest


@pytest.mark.parametrize("layers", [("user", "user"), ("built-in",)])
def test_a_layer_is_named_once(layers: tuple[Layer, ...]) -> None:
    """Two files for one layer, or a file that claims to be built in, are refused."""
    with pytest.raises(InvalidInput):
        layered([Source(layer, "x", {}) for layer in layers])


def test_a_layer_says_where_a_value_comes_from() -> None:
    """Each value that a layer changed names that layer; the others are built in."""
    policy = policy_from({"user": {"people": 3}, "project": {"limits": {"files": 5}, "people": 1}})
    assert (policy.layer_of("people"), policy.layer_of("limits.files"), policy.layer_of("low_risk")) == (
        "user",
        "project",
        "built-in",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"people": 3},
        {"review": ["a"]},
        {"limits": {"files": 7}},
        {"known_secrets": ["sha256:" + "0" * 64]},
        {"strict_base": True},
        {"sandbox": ["network"]},
        {"agents": {"a": {"may_change": []}}},
    ],
)
def test_every_difference_has_another_digest(change: dict[str, object]) -> None:
    """A policy that could decide anything differently has another digest."""
    assert policy_from({"user": change}).digest != policy_from({"user": {}}).digest


def test_the_built_in_policy_passes_its_own_tests() -> None:
    """Every built-in rule has tests of both kinds, and all of them hold."""
    policy = layered()
    assert run_self_tests(policy) == ()
    assert all(rule.match and rule.not_match for rule in policy.rules)
    assert count_self_tests(policy) > 80
    assert sound(policy) is policy


@pytest.mark.parametrize(
    ("tests", "wanted"),
    [
        ({"match": ["data/x"], "not_match": ["src/x"]}, []),
        ({"match": ["src/x"]}, [("src/x", True)]),
        ({"not_match": ["data/x"]}, [("data/x", False)]),
        ({"operations": ["delete"], "match": [{"path": "data/x", "operation": "edit"}]}, [("data/x", True)]),
        ({"operations": ["delete"], "not_match": [{"path": "data/x", "operation": "edit"}]}, []),
        ({"unless": ["*.md"], "match": ["data/x"], "not_match": ["data/a.md"]}, []),
    ],
)
def test_a_policy_tests_itself(tests: dict[str, object], wanted: list[tuple[str, bool]]) -> None:
    """A self-test that does not hold is a failure that names the rule, the path and what was wanted."""
    policy = with_rule(**tests)
    assert [(failure.path, failure.wanted) for failure in run_self_tests(policy)] == wanted
    if wanted:
        with pytest.raises(InvalidInput, match="Reviews data"):
            sound(policy)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (".env", [".env", "a/.env", "a/.env/b", ".ENV"], [".env2", "env"]),
        ("conf/*.toml", ["conf/a.toml", "Conf/A.TOML", "conf/a.toml/x"], ["x/conf/a.toml", "conf/d/a.toml"]),
        ("**/conf/*.toml", ["conf/a.toml", "x/y/conf/a.toml"], ["conf/d/a.toml"]),
        ("secrets/**", ["secrets", "secrets/a/b"], ["x/secrets/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/z"], ["a", "b", "x/a/b"]),
        ("*.pth", ["x.pth", "a/x.pth", ".pth"], ["pth", "x.pth2"]),
        (".aider*", [".aider", ".aider.conf.yml/x"], ["aider"]),
        ("req*.txt", ["req.txt", "a/req-dev.txt"], ["req.txt.md", "areq.txt"]),
        ("a?c", ["abc", "x/a.c"], ["ac", "abbc"]),
        ("*a*b*c*", ["abc", "xaxbxcx"], ["acb"]),
        ("a+(b).[c]", ["a+(b).[c]"], ["aab.c", "a+b.c"]),
        ("dir/", ["dir/x", "y/dir"], ["dirx"]),
        ("STRASSE", ["straße"], ["strase"]),
        ("**", ["a", "a/b"], []),
    ],
)
def test_patterns_cover(pattern: str, inside: list[str], outside: list[str]) -> None:
    """A pattern covers what it names and all below, in any spelling, and nothing else."""
    index = covers([pattern])
    assert [path for path in inside if not index.owners_of(path)] == []
    assert [path for path in outside if index.owners_of(path)] == []


@pytest.mark.serial
def test_no_pattern_takes_long() -> None:
    """A pattern of many stars is answered at once on a name made to confuse it."""
    assert not covers(["*a*a*a*a*a*a*a*a*a*a*a*b"]).owners_of("a" * 250)
    assert not covers(["**/*a*a*a*/**/b"]).owners_of("/".join(["a" * 20] * 100))
