"""Policy in force is that of the workspace: what an agent writes into its shadow decides nothing about its own work."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegated import configured, give, project
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act, Delete
from holdfast.testing.script import WriteFile

STRICT = b'[policy]\nsecrets = "deny"\n'
# Has the shape of a key, and opens nothing.
SECRET = WriteFile("deploy.env", "KEY=sk-ant-" + "x9" * 20 + "\n")


@pytest.mark.parametrize(
    "first",
    [(), (Delete("holdfast.toml"),), (WriteFile("holdfast.toml", '[policy]\nlow_risk = "allow"\n'),)],
    ids=["leaves it", "deletes it", "rewrites it"],
)
def test_an_agent_cannot_loosen_the_policy_that_judges_it(first: tuple[Act, ...], tmp_path: Path) -> None:
    """The project denies secrets; an agent that removes the rule in its shadow is denied by it all the same."""
    configured("[checks]\ndetect = false\n")
    ground = project(tmp_path / "workspace", {"app.py": b"x = 1\n", "holdfast.toml": STRICT})
    decision = ground.hf.evaluate(give(ground, ScriptedAgent(*first, SECRET)))
    assert decision.verdict == "DENY"
    assert (ground / "holdfast.toml").read_bytes() == STRICT


def test_without_that_rule_a_person_is_asked(tmp_path: Path) -> None:
    """So that it is the rule of the workspace that denied, and nothing else."""
    configured("[checks]\ndetect = false\n")
    ground = project(tmp_path / "workspace", {"app.py": b"x = 1\n"})
    assert ground.hf.evaluate(give(ground, ScriptedAgent(SECRET))).verdict == "NEED_APPROVAL"


@pytest.mark.parametrize("path", ["holdfast.toml", ".github/workflows/ci.yml", ".claude/settings.json", ".mcp.json"])
def test_what_would_loosen_the_next_judgement_is_asked_about_at_high_risk(path: str, tmp_path: Path) -> None:
    """Policy, continuous integration and settings of agents: in the change set, and never by itself."""
    configured("[checks]\ndetect = false\n")
    ground = project(tmp_path / "workspace", {"app.py": b"x = 1\n"})
    text = "[hints]\nagent = ['x']\n" if path == "holdfast.toml" else "{}\n"
    simulated = give(ground, ScriptedAgent(WriteFile(path, text)))
    assert path in simulated.change_set.paths
    decision = ground.hf.evaluate(simulated)
    assert (decision.verdict, decision.risk_effective) == ("NEED_APPROVAL", "high")
